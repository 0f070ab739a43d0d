package locks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/testrounds"
)

func list(t *testing.T, c *Client, prefix string) (keys []string) {
	t.Helper()
	for st, err := range c.List(within(time.Minute), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, st.Key)
	}
	return keys
}

func TestListTellsEveryKeyOfAPrefix(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		if keys := list(t, a, ""); len(keys) > 0 {
			t.Errorf("an empty cluster has %q", keys)
		}
		var want []string
		for i := range 2*replica.MaxScanned + 10 {
			key := fmt.Sprintf("jobs/%04d", i)
			want = append(want, key)
			acquire(t, a, key)
		}
		freed := acquire(t, a, "jobs/zzz")
		release(t, freed)
		acquire(t, a, "other")
		done := make(chan struct{})
		go b.Once(bg, "hidden", func(ctx context.Context) ([]byte, error) {
			close(done)
			<-ctx.Done()
			return nil, nil
		})
		<-done
		if got := list(t, b, "jobs/"); !slices.Equal(got, want) {
			t.Errorf("%d keys: %q", len(got), got)
		}
		if got := list(t, b, ""); !slices.Equal(got, append(want, "other")) {
			t.Errorf("%d keys: %q", len(got), got)
		}
		if got := list(t, b, "jobs/00"); len(got) != 100 {
			t.Errorf("%d keys: %q", len(got), got)
		}
		for range b.List(bg, "jobs/") {
			break
		}
		for _, c := range []struct {
			prefix, after string
			want          []string
		}{
			{"jobs/", "jobs/0499", want[500:]},
			{"jobs/", "jobs/0499+", want[500:]}, // no such key
			{"jobs/", "a", want},
			{"jobs/", want[len(want)-1], nil},
			{"jobs/", "p", nil},
			{"", want[len(want)-1], []string{"other"}},
			{"", strings.Repeat("o", machine.MaxKey), []string{"other"}},
		} {
			var got []string
			for st, err := range b.ListAfter(bg, c.prefix, c.after) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, st.Key)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q after %q: %d keys: %q", c.prefix, c.after, len(got), got)
			}
		}
		for st, err := range b.ListAfter(bg, "", "\xff") {
			if bad := new(cluster.ConfigError); !errors.As(err, &bad) {
				t.Errorf("%v, %v", st, err)
			}
		}
		ctx, cancel := context.WithCancel(bg)
		v, wg := view(ctx, t, a, "", func() {})
		synctest.Wait()
		if _, err := b.Once(bg, "hidden, too", func(context.Context) ([]byte, error) { return nil, nil }); err != nil {
			t.Error(err)
		}
		release(t, acquire(t, b, "shown"))
		synctest.Wait()
		cancel()
		wg.Wait()
		if len(v.states) != len(want)+2 {
			t.Errorf("%d keys are watched", len(v.states))
		}
		for _, prefix := range []string{"\x00once/", "\xff", strings.Repeat("x", machine.MaxKey+1)} {
			for _, seq := range []func(context.Context, string) (int, error){count(b.List), count(b.WatchPrefix)} {
				var bad *cluster.ConfigError
				if n, err := seq(bg, prefix); n != 0 || !errors.As(err, &bad) {
					t.Errorf("%q: %d, %v", prefix, n, err)
				}
			}
		}
		if n, err := count(b.List)(ctx, ""); n != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// count runs a sequence to its end.
func count[S ~func(func(Status, error) bool)](f func(context.Context, string) S) func(context.Context, string) (int, error) {
	return func(ctx context.Context, prefix string) (n int, last error) {
		for _, err := range f(ctx, prefix) {
			if last != nil {
				return n, errors.New("something after the error")
			}
			if last = err; err == nil {
				n++
			}
		}
		return n, last
	}
}

// prefixView collects the states that a loop of WatchPrefix has seen.
type prefixView struct {
	mu     sync.Mutex
	states map[string]Status // the latest
	told   int
	err    error
}

// view watches a prefix until ctx ends. pause slows each round down.
func view(ctx context.Context, t *testing.T, c *Client, prefix string, pause func()) (*prefixView, *sync.WaitGroup) {
	v := &prefixView{states: make(map[string]Status)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for st, err := range c.WatchPrefix(ctx, prefix) {
			v.mu.Lock()
			if err != nil {
				v.err = err
			} else {
				old := v.states[st.Key]
				if st.Token < old.Token {
					t.Errorf("%s: token %d after %d", st.Key, st.Token, old.Token)
				}
				if !strings.HasPrefix(st.Key, prefix) {
					t.Errorf("told of %q", st.Key)
				}
				v.states[st.Key] = st
				v.told++
			}
			v.mu.Unlock()
			pause()
		}
	})
	return v, &wg
}

// busy lists the keys with holders or waiters, and their tokens.
func (v *prefixView) busy() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []string
	for key, st := range v.states {
		if !st.vacant() {
			out = append(out, fmt.Sprintf("%s=%d/%d/%d", key, st.Token, st.Holding, st.Queue))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (w *world) busyKeys(prefix string) string {
	var out []string
	w.View(func(m *machine.State) {
		for _, key := range m.Keys(prefix, "", 1<<20) {
			st := m.Status(key, 0)
			out = append(out, fmt.Sprintf("%s=%d/%d/%d", key, st.Last, st.Held, st.Queue))
		}
	})
	return strings.Join(out, " ")
}

// A watcher of a prefix always reaches the latest state of each key: over leader
// changes, after a cut, behind a leader that has forgotten the changes, and when the
// watcher is slow.
func TestWatchPrefixComesToTheLatestState(t *testing.T) {
	for seed := range uint64(testrounds.Rounds(4, 12)) {
		bubble(t, func(t *testing.T, w *world) {
			w.SetCheck(false)
			rng := rand.New(rand.NewPCG(seed, 7))
			a, _ := w.client(t, "a")
			b, m := w.client(t, "b")
			ctx, cancel := context.WithCancel(bg)
			held := make(map[string]*Lock)
			for i := range rng.IntN(400) {
				key := fmt.Sprintf("p/%03d", i)
				held[key] = acquire(t, a, key)
			}
			fast, wg1 := view(ctx, t, b, "p/", func() {})
			slow, wg2 := view(ctx, t, b, "p/", func() { time.Sleep(time.Duration(seed) * time.Millisecond) })
			all, wg3 := view(ctx, t, b, "", func() {})
			cut := false
			for range 150 {
				switch n := rng.IntN(40); {
				case n == 0:
					w.Lead()
				case n == 1 && seed%2 == 0:
					w.LeadFromSnapshot()
				case n == 2:
					if cut = !cut; cut {
						m.Isolate()
					} else {
						m.Heal()
					}
				case n < 5:
					time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
				case n == 5:
					// More keys than a single answer can list.
					var keys []string
					for i := range 300 {
						keys = append(keys, fmt.Sprintf("p/set/%03d", i))
					}
					release(t, acquireAll(t, a, keys))
				default:
					key := fmt.Sprintf("p/%03d", rng.IntN(300))
					if rng.IntN(4) == 0 {
						key = "q" + key
					}
					if l := held[key]; l != nil {
						release(t, l)
						delete(held, key)
					} else {
						held[key] = acquire(t, a, key)
					}
				}
			}
			if cut {
				m.Heal()
			}
			time.Sleep(5 * time.Minute) // the slow watcher has seen all by then
			synctest.Wait()
			if got, want := fast.busy(), w.busyKeys("p/"); got != want {
				t.Errorf("seed %d: the watcher knows\n%s\nbut it is\n%s", seed, got, want)
			}
			if got, want := slow.busy(), w.busyKeys("p/"); got != want {
				t.Errorf("seed %d: the slow watcher knows\n%s\nbut it is\n%s", seed, got, want)
			}
			if got, want := all.busy(), w.busyKeys(""); got != want {
				t.Errorf("seed %d: the watcher of all knows\n%s\nbut it is\n%s", seed, got, want)
			}
			before := fast.told
			acquire(t, a, "p/last")
			synctest.Wait()
			if fast.told != before+1 {
				t.Errorf("one change was told in %d states", fast.told-before)
			}
			cancel()
			wg1.Wait()
			wg2.Wait()
			wg3.Wait()
			if !errors.Is(fast.err, context.Canceled) {
				t.Errorf("the last: %v", fast.err)
			}
		})
	}
}

func TestWatchPrefixRepeatsNoState(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		kept := acquire(t, a, "p/kept")
		gone := acquire(t, a, "p/gone")
		var told []string
		var wg sync.WaitGroup
		wg.Go(func() {
			for st, err := range b.WatchPrefix(ctx, "p/") {
				if err != nil {
					return
				}
				told = append(told, fmt.Sprintf("%s %t %d", st.Key, st.Held(), st.Token))
				if st.Key == "p/gone" && st.Held() {
					// While the body runs the key changes, and the leader forgets the
					// change.
					release(t, gone)
					w.LeadFromSnapshot()
				}
			}
		})
		synctest.Wait()
		want := fmt.Sprintf("p/gone true %d, p/kept true %d, p/gone false %d", gone.Token(), kept.Token(), gone.Token())
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("told %s\nwant %s", got, want)
		}
		cancel()
		wg.Wait()
	})
}
