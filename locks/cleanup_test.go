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
