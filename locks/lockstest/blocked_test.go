package lockstest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// Without a quorum a call without a deadline is told the reason by Trace, and a call
// with one has it in its error: the same that Ready and Health have.
func TestACallWithoutAQuorumHasTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		var mu sync.Mutex
		var told []string
		client := c.NewClient(2, locks.Options{Trace: &locks.Trace{Blocked: func(_ context.Context, e locks.LockEvent) {
			mu.Lock()
			defer mu.Unlock()
			if !errors.Is(e.Err, cluster.ErrNoQuorum) || e.Key != "k" {
				t.Errorf("told %+v", e)
			}
			told = append(told, e.Err.Error())
		}}})
		c.Kill(0)
		c.Kill(1)
		time.Sleep(15 * time.Second)
		endless, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() {
			_, err := client.Acquire(endless, "k")
			done <- err
		}()
		time.Sleep(10 * time.Second)
		bounded, cancelBounded := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancelBounded()
		_, err := client.Acquire(bounded, "k")
		h := c.Node(2).Health(context.Background())
		ready := c.Node(2).Ready(bounded)
		if !errors.Is(err, cluster.ErrNoQuorum) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire returned %v", err)
		}
		if !strings.HasPrefix(h.Reason, "no leader answers: 1 of 3 voters seen since ") || !strings.Contains(h.Reason, "; missing member-0 at 10.0.0.1:7000 since ") || h.Next == "" {
			t.Errorf("Health returned %+v", h)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(told) == 0 || len(told) > 3 {
			t.Fatalf("told %q", told)
		}
		for _, text := range []string{err.Error(), h.Err.Error(), told[len(told)-1]} {
			if !strings.Contains(text, h.Reason) {
				t.Errorf("%q is not in %q", h.Reason, text)
			}
		}
		if !errors.Is(ready, cluster.ErrNoQuorum) && !errors.Is(ready, context.DeadlineExceeded) {
			t.Errorf("Ready returned %v", ready)
		}
		cancel()
		if err := <-done; !errors.Is(err, cluster.ErrNoQuorum) || !errors.Is(err, context.Canceled) {
			t.Errorf("the endless call returned %v", err)
		}
	})
}
