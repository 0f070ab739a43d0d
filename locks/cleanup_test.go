package locks

import (
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// Every command that frees keys waits until the contexts of all ended locks have
// ended: a release, a clean-up, and the end of the session.
func TestKeysAreFreedAfterContextsHaveEnded(t *testing.T) {
	frees := func(c machine.Command) bool {
		switch c.(type) {
		case machine.Release, machine.Withdraw, machine.Close:
			return true
		}
		return false
	}
	for name, tell := range map[string]func(*session, *cleanup){
		"release":  func(s *session, d *cleanup) { _ = s.proposeRelease(bg, d) },
		"clean-up": func(s *session, d *cleanup) { s.startCleanup(d) },
		"loss":     func(s *session, _ *cleanup) { s.lose(QuorumUnreachable) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, _ := w.client(t, "a")
				l := acquire(t, a, "k")
				s := a.currentSession()
				before := w.Sent(frees)
				going, ended := make(chan struct{}), make(chan struct{})
				go func() {
					s.mu.Lock()
					s.unlockAndCancel([]func(){func() { close(going); <-ended }})
				}()
				<-going
				go tell(s, &cleanup{keys: []string{"k"}, token: l.Token()})
				time.Sleep(100 * time.Millisecond)
				if n := w.Sent(frees); n != before {
					t.Errorf("the cluster was told while a context lives")
				}
				close(ended)
				time.Sleep(time.Second)
				if n := w.Sent(frees); n == before {
					t.Error("the cluster was not told")
				}
			})
		})
	}
}

// Waits that are given up together share commands, and cost no look at one another: each
// worker that found no turn looked at all of them once.
func TestWithdrawalsOfManyWaits(t *testing.T) {
	const waits = 5000
	cl := &cleanups{withdrawing: maxWithdrawing}
	started := 0
	for i := range waits {
		if cl.enqueue(&cleanup{keys: []string{"k"}, seq: uint64(i + 1)}) {
			started++
		}
	}
	if most := waits / machine.MaxWithdrawn; started > most {
		t.Errorf("%d workers for %d commands", started, most)
	}
	cl.enqueue(&cleanup{keys: []string{"k"}, token: 7})
	var sizes []int
	for d := cl.take(); d != nil && d.withdrawsWait(); d = cl.take() {
		sizes = append(sizes, 1+len(d.more))
		if d.seq != uint64(1+(len(sizes)-1)*(1+machine.MaxWithdrawn)) {
			t.Errorf("command %d begins with %d", len(sizes), d.seq)
		}
	}
	full := waits / (1 + machine.MaxWithdrawn)
	if len(sizes) != full || sizes[0] != 1+machine.MaxWithdrawn {
		t.Errorf("commands of %d waits, while others are under way", sizes)
	}
	cl.withdrawing = maxWithdrawing - 1
	if d := cl.take(); d == nil || 1+len(d.more) != waits-full*(1+machine.MaxWithdrawn) || cl.take() != nil {
		t.Errorf("the rest: %v", d)
	}
}
