package locks

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
)

// Watch yields each change of the value that the body comes to, and nothing else: not
// the changes of holders, and no value twice.
func TestCellWatchYieldsTheLatestValue(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, m := w.client(t, "b")
		ctx, cancel := context.WithCancel(bg)
		var mu sync.Mutex
		var seen []string
		var last error
		var running sync.WaitGroup
		running.Go(func() {
			for v, err := range b.Cell("k").Watch(ctx) {
				mu.Lock()
				if last = err; err == nil {
					seen = append(seen, string(v))
				}
				mu.Unlock()
				clear(v)
			}
		})
		update := func(v string) {
			t.Helper()
			if err := a.Cell("k").Update(bg, func([]byte) []byte { return []byte(v) }); err != nil {
				t.Error(err)
			}
			settle()
		}
		settle()
		for _, v := range []string{"one", "one", "two", ""} {
			update(v)
		}
		m.Isolate()
		update("unseen")
		update("latest")
		m.Heal()
		time.Sleep(time.Minute)
		cancel()
		running.Wait()
		want := []string{"", "one", "two", "", "latest"}
		if len(seen) != len(want) || !errors.Is(last, context.Canceled) {
			t.Fatalf("%q, %v", seen, last)
		}
		for i := range want {
			if seen[i] != want[i] {
				t.Errorf("%q, want %q", seen, want)
			}
		}
		for _, err := range a.Cell("").Watch(bg) {
			var config *cluster.ConfigError
			if !errors.As(err, &config) {
				t.Error(err)
			}
		}
	})
}
