package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/replica"
)

// explaining is a member that has a reason while no leader is reached.
type explaining struct {
	*member
	reason atomic.Pointer[string]
}

func (e *explaining) Reached() error {
	err := e.member.Reached()
	if reason := e.reason.Load(); err != nil && reason != nil {
		return &replica.NoQuorum{Reason: *reason}
	}
	return err
}

func (e *explaining) because(reason string) { e.reason.Store(&reason) }

// Each blocked call is told some seconds after the leader is lost, again when the
// reason changes, and again after the next loss; nobody is told otherwise.
func TestBlockedCallsAreTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		e := &explaining{member: w.join("n")}
		e.because("1 of 3 voters reached")
		var mu sync.Mutex
		var told []string
		began := time.Now()
		c := newClient(e, Options{Trace: &Trace{Blocked: func(_ context.Context, e LockEvent) {
			mu.Lock()
			defer mu.Unlock()
			if !errors.Is(e.Err, cluster.ErrNoQuorum) {
				t.Errorf("%v", e.Err)
			}
			told = append(told, fmt.Sprintf("%v %q after %v: %v", time.Since(began).Round(time.Second), e.Key, e.Took.Round(time.Second), e.Err))
		}}})
		defer shutdown(t, c)
		check := func(want ...string) {
			t.Helper()
			settle()
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(told)
			if !slices.Equal(told, want) {
				t.Errorf("told\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
			}
			told, began = nil, time.Now()
		}
		held := acquire(t, c, "held")
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		queued := waiting(t, ctx, c, "held")
		time.Sleep(time.Minute)
		check() // a wait for a holder is no trouble
		e.Isolate()
		read := start(func() (Status, error) { return c.Inspect(ctx, "other") })
		time.Sleep(4 * time.Second)
		check(`3s "held" after 1m3s: cluster: no quorum: 1 of 3 voters reached`, `4s "" after 4s: cluster: no quorum: 1 of 3 voters reached`)
		time.Sleep(2 * time.Second)
		check()
		e.because("2 of 3 voters reached")
		time.Sleep(time.Second)
		check(`1s "" after 7s: cluster: no quorum: 2 of 3 voters reached`, `1s "held" after 1m7s: cluster: no quorum: 2 of 3 voters reached`)
		e.Heal()
		read.ok(t)
		time.Sleep(time.Second)
		e.Isolate()
		time.Sleep(2 * time.Second)
		e.Heal()
		time.Sleep(2 * time.Second)
		check() // too short
		release(t, held)
		release(t, queued.ok(t))
	})
}

// At the end of its ctx a call says why there is no leader, also in a queue.
func TestTheEndOfAWaitHasTheReason(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		e := &explaining{member: w.join("n")}
		e.because("a.example does not resolve")
		c := newClient(e, Options{})
		defer shutdown(t, c)
		acquire(t, c, "held")
		ctx, cancel := context.WithTimeout(bg, 5*time.Second)
		defer cancel()
		queued := waiting(t, ctx, c, "held")
		time.Sleep(time.Second)
		e.Isolate()
		_, err := queued.ends(t)
		if !errors.Is(err, cluster.ErrNoQuorum) || !errors.Is(err, context.DeadlineExceeded) ||
			err.Error() != `locks: acquire "held": cluster: no quorum: a.example does not resolve: context deadline exceeded; waited behind 1: "held" is held by n on n (token 1)` {
			t.Errorf("%v", err)
		}
	})
}

// A client that nobody calls watches nothing.
func TestOnlyRunningCallsAreWatched(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := w.join("n").client(Options{Trace: &Trace{Blocked: func(context.Context, LockEvent) {}}})
		defer shutdown(t, c)
		for range 100 {
			release(t, acquire(t, c, "k"))
		}
		time.Sleep(2 * blockedLook)
		c.blocked.mu.Lock()
		defer c.blocked.mu.Unlock()
		if len(c.blocked.calls) > 0 || c.blocked.watching {
			t.Errorf("%d calls, watching %v", len(c.blocked.calls), c.blocked.watching)
		}
	})
}
