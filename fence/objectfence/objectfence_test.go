package objectfence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/fence/fencetest"
	"github.com/wardmote/wardmote/fence/objectfence"
)

// objects is a store in memory, with the faults of real stores.
type objects struct {
	mu       sync.Mutex
	bodies   map[string][]byte
	versions map[string]int
	puts     int

	lose    int  // so many answers to successful puts are lost
	retries bool // after a lost answer the client tries again by itself, and finds a conflict
	down    bool // nothing is answered
}

func newObjects() *objects {
	return &objects{bodies: make(map[string][]byte), versions: make(map[string]int)}
}

func (o *objects) Get(ctx context.Context, key string) ([]byte, string, error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down {
		return nil, "", io.ErrUnexpectedEOF
	}
	if o.versions[key] == 0 {
		return nil, "", nil
	}
	return o.bodies[key], strconv.Itoa(o.versions[key]), nil
}

func (o *objects) Put(ctx context.Context, key string, body []byte, version string) (string, error) {
	fencetest.Pause(ctx, "before the put")
	if err := ctx.Err(); err != nil {
		return "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down {
		return "", io.ErrUnexpectedEOF
	}
	present := ""
	if o.versions[key] > 0 {
		present = strconv.Itoa(o.versions[key])
	}
	if version != present {
		return "", fmt.Errorf("412: %w", objectfence.ErrConflict)
	}
	o.versions[key]++
	o.puts++
	o.bodies[key] = bytes.Clone(body)
	if o.lose > 0 {
		o.lose--
		if o.retries {
			return "", fmt.Errorf("412: %w", objectfence.ErrConflict)
		}
		return "", io.ErrUnexpectedEOF
	}
	return strconv.Itoa(o.versions[key]), nil
}

type state struct {
	*objectfence.Manifest
	store *objects
}

func newState(tb testing.TB, store *objects) state {
	tb.Helper()
	m, err := objectfence.New(store, "key")
	if err != nil {
		tb.Fatal(err)
	}
	return state{m, store}
}

func (s state) Write(ctx context.Context, t fence.Token, value string) error {
	fencetest.Pause(ctx, "before the read")
	return s.Do(ctx, t, func([]byte) ([]byte, error) { return []byte(value), nil })
}

func (s state) Delete(ctx context.Context, t fence.Token) error { return s.Write(ctx, t, "") }

func (s state) Read(ctx context.Context) (string, error) {
	body, _, err := s.Manifest.Read(ctx)
	return string(body), err
}

func (s state) Reopen(tb testing.TB) fencetest.Resource { return newState(tb, s.store) }

func (s state) LoseAnswer() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.lose = 1
}

func TestManifest(t *testing.T) {
	for _, retries := range []bool{false, true} {
		t.Run(fmt.Sprint("the client retries: ", retries), func(t *testing.T) {
			fencetest.Run(t, func(tb testing.TB) fencetest.Resource {
				store := newObjects()
				store.retries = retries
				return newState(tb, store)
			})
		})
	}
}

// A put has happened and is reported as a conflict. The change is made once, even if the
// same grant, or a later grant, has changed the manifest since.
func TestAChangeIsMadeOnce(t *testing.T) {
	for _, test := range []struct {
		says    string
		between int         // changes between the put and the next look
		token   fence.Token // of them
		want    error
	}{
		{"nothing between", 0, 1, nil},
		{"the same grant", 3, 1, nil},
		{"a later grant", 3, 2, nil},
		{"just remembered", 30, 2, nil},
		{"forgotten", 40, 2, fence.ErrUnknown},
	} {
		t.Run(test.says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newObjects()
				s := newState(t, store)
				if err := s.Claim(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				appends := func(text string) func([]byte) ([]byte, error) {
					return func(b []byte) ([]byte, error) { return append(b, text...), nil }
				}
				between := func() {
					if test.token > 1 {
						if err := s.Claim(t.Context(), test.token); err != nil {
							t.Fatal(err)
						}
					}
					for range test.between {
						if err := s.Do(t.Context(), test.token, appends("b")); err != nil {
							t.Fatal(err)
						}
					}
				}
				// The answer is lost, and the others work before the next look.
				slow := &lateGets{objects: store, between: between}
				m, err := objectfence.New(slow, "key")
				if err != nil {
					t.Fatal(err)
				}
				slow.arm = func() { store.lose = 1 }
				if err := m.Do(t.Context(), 1, appends("a")); !errors.Is(err, test.want) || errors.Is(err, fence.ErrStale) {
					t.Errorf("Do returned %v", err)
				}
				text, err := s.Read(t.Context())
				if err != nil || text != "a"+string(bytes.Repeat([]byte("b"), test.between)) {
					t.Errorf("the state is %q: %v", text, err)
				}
			})
		})
	}
}

// lateGets runs between before its second Get.
type lateGets struct {
	*objects
	gets    int
	between func()
	arm     func()
}

func (s *lateGets) Get(ctx context.Context, key string) ([]byte, string, error) {
	s.gets++
	switch s.gets {
	case 1:
		defer s.arm()
	case 2:
		s.between()
	}
	return s.objects.Get(ctx, key)
}

// While the store does not answer, Do asks again until ctx ends.
func TestAStoreThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newObjects()
		s := newState(t, store)
		if err := s.Claim(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		store.down = true
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := s.Write(ctx, 1, "x"); !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, fence.ErrUnknown) {
			t.Errorf("never put: %v", err) // known: nothing was sent
		}
		go func() {
			time.Sleep(time.Second)
			store.mu.Lock()
			defer store.mu.Unlock()
			store.down = false
		}()
		if err := s.Write(t.Context(), 1, "x"); err != nil {
			t.Errorf("down for a second: %v", err)
		}
	})
}

// The change fails at its second try. Do returns the error of the change only if the
// first put cannot happen any more.
func TestAChangeThatFailsAtItsSecondTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		for _, pending := range []bool{true, false} {
			store := newObjects()
			s := newState(t, store)
			if err := s.Claim(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			m, err := objectfence.New(&oneLostPut{objects: store, other: !pending}, "key")
			if err != nil {
				t.Fatal(err)
			}
			calls := 0
			err = m.Do(t.Context(), 1, func(b []byte) ([]byte, error) {
				if calls++; calls > 1 {
					return nil, broken
				}
				return []byte("a"), nil
			})
			if !errors.Is(err, broken) || errors.Is(err, fence.ErrUnknown) != pending {
				t.Errorf("the first put may still happen: %v; Do returned %v", pending, err)
			}
		}
	})
}

// oneLostPut swallows a put. If other is true, another put takes its place.
type oneLostPut struct {
	*objects
	other bool
}

func (o *oneLostPut) Put(ctx context.Context, key string, body []byte, version string) (string, error) {
	if o.other {
		other, err := objectfence.New(o.objects, key)
		if err == nil {
			err = other.Do(ctx, 1, func([]byte) ([]byte, error) { return []byte("b"), nil })
		}
		if err != nil {
			return "", err
		}
	}
	return "", io.ErrUnexpectedEOF
}

func TestRefusals(t *testing.T) {
	store := newObjects()
	for _, key := range []string{"", string(make([]byte, 1025))} {
		var limit *objectfence.LimitError
		if _, err := objectfence.New(store, key); !errors.As(err, &limit) || limit.Field != "key" {
			t.Errorf("a key of %d bytes: %v", len(key), err)
		}
	}
	s := newState(t, store)
	if err := s.Claim(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	puts := store.puts
	var limit *objectfence.LimitError
	if err := s.Write(t.Context(), 1, string(make([]byte, objectfence.MaxState+1))); !errors.As(err, &limit) || limit.Field != "state" {
		t.Errorf("too large a state: %v", err)
	}
	if err := s.Claim(t.Context(), 1<<63); !errors.As(err, &limit) || limit.Field != "token" {
		t.Errorf("too large a token: %v", err)
	}
	broken := errors.New("broken")
	if err := s.Do(t.Context(), 1, func([]byte) ([]byte, error) { return nil, broken }); err != broken {
		t.Errorf("change's own error: %v", err)
	}
	if store.puts != puts {
		t.Error("a refused call has put something")
	}
	for _, body := range []string{"", "{}", "null", "[]", `{"wardmote_manifest":2,"token":"1"}`, `{"wardmote_manifest":1,"token":"0"}`, `{"wardmote_manifest":1,"token":1}`} {
		store.bodies["key"] = []byte(body)
		var damaged *objectfence.DamagedError
		if err := s.Write(t.Context(), 1, "x"); !errors.As(err, &damaged) || string(store.bodies["key"]) != body {
			t.Errorf("%s: %v", body, err)
		}
		if _, err := s.Read(t.Context()); !errors.As(err, &damaged) {
			t.Errorf("%s: Read: %v", body, err)
		}
	}
}
