package dirstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/wardmote/wardmote/examples/stores/dirstore"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/fence/fencetest"
	"github.com/wardmote/wardmote/fence/objectfence"
)

// A program's view: the holder of token 2 claims, and the holder of token 1 is refused.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "dirstore")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	m, err := objectfence.New(dirstore.Store{Dir: dir}, "jobs/nightly")
	if err != nil {
		fmt.Println(err)
		return
	}
	add := func(line string) func([]byte) ([]byte, error) {
		return func(state []byte) ([]byte, error) { return append(state, line...), nil }
	}
	fmt.Println(m.Claim(ctx, 1), m.Do(ctx, 1, add("one ")))
	fmt.Println(m.Claim(ctx, 2), m.Do(ctx, 2, add("two ")))
	fmt.Println(errors.Is(m.Do(ctx, 1, add("late ")), fence.ErrStale))
	state, token, err := m.Read(ctx)
	fmt.Println(string(state), token, err)
	// Output:
	// <nil> <nil>
	// <nil> <nil>
	// true
	// one two  2 <nil>
}

// state is a manifest as the suite sees it.
type state struct {
	*objectfence.Manifest
	dir  string
	lose *atomic.Bool
}

func open(tb testing.TB, dir string) state {
	tb.Helper()
	lose := new(atomic.Bool)
	m, err := objectfence.New(store{dirstore.Store{Dir: dir}, lose}, "a/key")
	if err != nil {
		tb.Fatal(err)
	}
	return state{m, dir, lose}
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

func (s state) Reopen(tb testing.TB) fencetest.Resource { return open(tb, s.dir) }

func (s state) LoseAnswer() { s.lose.Store(true) }

// store stops where the suite asks, and loses the answer to a put.
type store struct {
	dirstore.Store
	lose *atomic.Bool
}

func (s store) Put(ctx context.Context, key string, body []byte, version string) (string, error) {
	fencetest.Pause(ctx, "before the put")
	next, err := s.Store.Put(ctx, key, body, version)
	if s.lose.Swap(false) {
		return "", errors.Join(err, errors.New("the answer is lost"))
	}
	return next, err
}

func TestManifestInADirectory(t *testing.T) {
	fencetest.Run(t, func(tb testing.TB) fencetest.Resource { return open(tb, tb.TempDir()) })
}

// Of many puts of one version one succeeds, and readers see versions rise.
func TestOnePutOfAVersionSucceeds(t *testing.T) {
	const writers, versions = 4, 50
	s := dirstore.Store{Dir: t.TempDir()}
	ctx := t.Context()
	var won [versions]atomic.Int32
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			last := 0
			for {
				body, version, err := s.Get(ctx, "key")
				if err != nil {
					t.Error(err)
					return
				}
				n, _ := strconv.Atoi(version)
				if n < last || version != "" && string(body) != version {
					t.Errorf("version %d after %d, with the content %q", n, last, body)
					return
				}
				if n == versions {
					return
				}
				next, err := s.Put(ctx, "key", []byte(strconv.Itoa(n+1)), version)
				switch {
				case err == nil && next == strconv.Itoa(n+1):
					won[n].Add(1)
				case !errors.Is(err, objectfence.ErrConflict):
					t.Errorf("writer %d: put after version %q: %q, %v", w, version, next, err)
					return
				}
				last = n
			}
		})
	}
	all.Wait()
	for i := range won {
		if n := won[i].Load(); n != 1 {
			t.Errorf("version %d was put %d times", i+1, n)
		}
	}
	// A writer that was paused since version 3 finds its name taken, for ever.
	if _, err := s.Put(ctx, "key", []byte("late"), "3"); !errors.Is(err, objectfence.ErrConflict) {
		t.Errorf("a late put: %v", err)
	}
	if _, err := s.Put(ctx, "key", []byte("late"), ""); !errors.Is(err, objectfence.ErrConflict) {
		t.Errorf("a late first put: %v", err)
	}
}

// A missing directory is no empty store.
func TestADirectoryThatIsNotThere(t *testing.T) {
	s := dirstore.Store{Dir: t.TempDir() + "/none"}
	if _, _, err := s.Get(t.Context(), "key"); err == nil {
		t.Error("Get finds no object, and no error")
	}
	if _, err := s.Put(t.Context(), "key", []byte("x"), ""); err == nil {
		t.Error("Put has put something")
	}
}
