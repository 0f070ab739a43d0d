package locks

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

// cutOff calls f with a client on a member that f cuts off, for each TTL of the
// promise.
func cutOff(t *testing.T, f func(t *testing.T, c *Client, m *member)) {
	for _, ttl := range []time.Duration{2 * time.Second, 10 * time.Second, time.Minute} {
		t.Run(ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{termtest.New(t, termtest.Config{TTL: ttl})}
				m := w.join("node-a")
				c := m.client(Options{Name: "a"})
				f(t, c, m)
				shutdown(t, c)
				if w.busy() != 0 {
					t.Error("something is held after Close")
				}
			})
		})
	}
}

// wantPrompt fails the test if more than 10 ms have passed since end.
func wantPrompt(t *testing.T, call string, end time.Time) {
	t.Helper()
	if d := time.Since(end); d > 10*time.Millisecond {
		t.Errorf("%s returned %v after the later of its ctx's end and its work's return", call, d)
	}
}

// A call whose member is cut off returned up to 10 s after the end of its
// ctx, since it waited for the answer to its release.
func TestEveryCallEndsWithItsContext(t *testing.T) {
	cutOff(t, func(t *testing.T, c *Client, m *member) {
		for _, call := range []struct {
			name string
			do   func(ctx context.Context, work func()) error
		}{
			{"Do", func(ctx context.Context, work func()) error {
				return c.Do(ctx, "k", func(context.Context, *Lock) error { work(); return nil })
			}},
			{"Elect", func(ctx context.Context, work func()) error {
				return c.Elect(ctx, "k", func(context.Context, *Lock) error { work(); return nil })
			}},
			{"Elect, resigned", func(ctx context.Context, work func()) error {
				return c.Elect(ctx, "k", func(context.Context, *Lock) error { work(); return Resign("b") })
			}},
			{"Update", func(ctx context.Context, work func()) error {
				return c.Cell("k").Update(ctx, func([]byte) []byte { work(); return []byte("v") })
			}},
			{"Once", func(ctx context.Context, work func()) error {
				_, err := c.Once(ctx, "id", func(context.Context) ([]byte, error) { work(); return []byte("v"), nil })
				return err
			}},
		} {
			for _, slow := range []time.Duration{0, 3 * time.Second} {
				ctx, cancel := context.WithTimeout(bg, time.Second/2)
				var end time.Time
				err := call.do(ctx, func() {
					m.Isolate()
					<-ctx.Done()
					time.Sleep(slow) // the work returns late
					end = time.Now()
				})
				wantPrompt(t, call.name, end)
				cancel()
				if call.name == "Once" && !errors.Is(err, ErrUncertain) {
					t.Errorf("Once: %v", err)
				}
				m.Heal()
				time.Sleep(2 * c.currentSession().ttl) // the release arrives, or the session expires
				if call.name == "Once" {
					break // of an id once
				}
			}
		}
	})
}

// The lives of ctx and of the wait are apart: while ctx lives, Do still waits for its
// release.
func TestDoWaitsForItsReleaseWhileItsContextLives(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		if err := a.Do(bg, "k", func(context.Context, *Lock) error { return nil }); err != nil {
			t.Error(err)
		}
		if _, token := w.Owner("k"); token != 0 {
			t.Error("the key is not free when Do has returned")
		}
	})
}

// A result without room for an answer is stored in the background, and by Close and by
// the node's stop at the latest.
func TestOnceStoresItsResultBehindAnEndedContext(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *Client, m *member){
		"by itself": func(*testing.T, *Client, *member) { time.Sleep(time.Second) },
		"close":     func(t *testing.T, c *Client, _ *member) { shutdown(t, c) },
		"stop":      func(_ *testing.T, _ *Client, m *member) { m.BeginStop()(bg) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				m := w.join("node-a")
				a := m.client(Options{Name: "a"})
				b, _ := w.client(t, "b")
				ctx, cancel := context.WithCancel(bg)
				v, err := a.Once(ctx, "job", func(context.Context) ([]byte, error) {
					cancel()
					return []byte("done"), nil
				})
				if string(v) != "done" || !errors.Is(err, ErrUncertain) || errors.Is(err, context.Canceled) {
					t.Errorf("%q, %v", v, err)
				}
				end(t, a, m)
				if v, err := b.Once(bg, "job", never(t)); string(v) != "done" || err != nil {
					t.Errorf("%q, %v", v, err)
				}
				shutdown(t, a)
			})
		})
	}
}

// Release(nil) and HandOver(nil) ended the lock here and panicked, so the
// key stayed taken for as long as the client lived.
func TestANilContextIsRefusedBeforeAnythingChanges(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		l := acquire(t, c, "k")
		set, err := c.AcquireAll(bg, []string{"s"})
		if err != nil {
			t.Fatal(err)
		}
		before := len(w.Applied())
		for _, receiver := range []any{c, l, set, c.Cell("cell")} {
			refusesNil(t, receiver)
		}
		settle()
		if l.Err() != nil || set.Err() != nil || len(w.Applied()) != before {
			t.Errorf("something has changed: %v, %v, %v", l.Err(), set.Err(), w.Applied()[before:])
		}
		release(t, l)
		release(t, set)
	})
}

// refusesNil calls each method of receiver that takes a context, with nil.
func refusesNil(t *testing.T, receiver any) {
	t.Helper()
	v := reflect.ValueOf(receiver)
	for i := range v.NumMethod() {
		name, m := v.Type().Method(i).Name, v.Method(i)
		if m.Type().NumIn() == 0 || m.Type().In(0) != reflect.TypeFor[context.Context]() || name == "Spread" {
			continue
		}
		args := []reflect.Value{reflect.Zero(m.Type().In(0))}
		for j := 1; j < m.Type().NumIn(); j++ {
			if m.Type().IsVariadic() && j == m.Type().NumIn()-1 {
				break
			}
			args = append(args, sound(m.Type().In(j)))
		}
		results := m.Call(args)
		result := results[len(results)-1]
		if result.Kind() == reflect.Func { // a sequence: its last pair has the error
			for _, last := range result.Seq2() {
				result = last
			}
		}
		err, _ := result.Interface().(error)
		var config *cluster.ConfigError
		if !errors.As(err, &config) || config.Field != "ctx" {
			t.Errorf("%T.%s(nil): %v", receiver, name, err)
		}
	}
}

// sound returns an argument of a type that a method takes for good.
func sound(typ reflect.Type) reflect.Value {
	switch typ.Kind() {
	case reflect.String:
		return reflect.ValueOf("k").Convert(typ)
	case reflect.Uint64:
		return reflect.ValueOf(uint64(1)).Convert(typ)
	case reflect.Int:
		return reflect.ValueOf(1)
	case reflect.Func:
		return reflect.MakeFunc(typ, func([]reflect.Value) []reflect.Value { panic("called") })
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.String {
			return reflect.ValueOf([]string{"x"})
		}
	}
	return reflect.Zero(typ)
}
