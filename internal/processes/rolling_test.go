package processes

import (
	"fmt"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// A rolling restart replaces every process, the next process as soon as the last new
// one is ready. No other process loses a lock, and no grant takes 2 s.
func TestARollingRestartPacedByReadinessCostsNoLock(t *testing.T) {
	sizes := []int{3}
	if testrounds.Full() {
		sizes = []int{3, 5, 9}
	}
	for _, n := range sizes {
		for _, durable := range []bool{false, true} {
			for _, crash := range []bool{false, true} {
				if !testrounds.Full() && (durable != crash) {
					continue // half of the plain run's cases
				}
				t.Run(fmt.Sprintf("%d members, dir %v, kill -9 %v", n, durable, crash), func(t *testing.T) {
					t.Parallel() // the limit is wide: a wait takes 0.1 s on a busy host
					roll(t, n, durable, crash)
				})
			}
		}
	}
}

func roll(t *testing.T, n int, durable, crash bool) {
	w := newTown(t, n, nil)
	w.change = func(i int, s *settings) {
		if durable {
			s.Dir = w.dirs[i]
		}
	}
	all := w.startAll()
	own := func(i int) string { return fmt.Sprint("own-", i) }
	for i, h := range all {
		h.acquire(own(i), patience)
	}
	longest := time.Duration(0)
	for i := range all {
		began := time.Now()
		old, prober := all[i], all[(i+1)%n]
		stop, probed := make(chan struct{}), make(chan error, 1)
		worst := time.Duration(0) // of the probe's waits, known when it has ended
		go func() {
			for {
				select {
				case <-stop:
					probed <- nil
					return
				default:
				}
				r, err := prober.begin("acquire", "probe", patience)()
				if err == nil {
					worst = max(worst, r.Took)
					_, err = prober.begin("release", "probe", patience)()
				}
				if err != nil {
					probed <- err
					return
				}
			}
		}()
		if crash {
			old.kill()
		} else {
			old.terminate()
			old.exited(10 * time.Second)
		}
		all[i] = w.start(i)
		all[i].ready()
		close(stop)
		if err := <-probed; err != nil {
			w.broken(began, "restart of member %d: the probe's call failed: %v", i, err)
		}
		if longest = max(longest, worst); worst > 2*time.Second {
			w.broken(began, "restart of member %d: a free key was granted only after %v", i, worst)
		}
		for j, h := range all {
			if r, lost := h.lost(own(j)); j != i && lost {
				w.broken(h.held[own(j)], "restart of member %d: %s", i, r.Detail)
			}
		}
		all[i].acquire(own(i), patience)
	}
	t.Logf("longest wait for a free key: %v", longest)
}
