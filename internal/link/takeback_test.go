package link

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// A request whose caller has gone is taken back at the leader. A command that frees
// something is not: it is of use without its caller.
func TestARequestOfNobodyIsTakenBack(t *testing.T) {
	gone := errors.New("gone")
	for _, tc := range []struct {
		cmd  machine.Command
		back bool
	}{
		{machine.Acquire{Session: sid(1), Seq: 1, Key: "k"}, true},
		{machine.Upgrade{Session: sid(1), Seq: 1, Token: 1}, true},
		{machine.Release{Session: sid(1), Token: 1}, false},
		{machine.Withdraw{Session: sid(1), Seq: 1}, false},
		{machine.SetValue{Session: sid(1), Token: 1, Rev: 1}, false},
		{machine.Close{Session: sid(1)}, false},
	} {
		giveUp := func(t *testing.T, s *stage) {
			ctx, cancel := context.WithCancelCause(t.Context())
			errs := make(chan error, 1)
			go func() {
				_, err := s.k.Propose(ctx, tc.cmd)
				errs <- err
			}()
			synctest.Wait()
			cancel(gone)
			failed(t, <-errs, gone, true)
			synctest.Wait()
		}
		onStage(t, func(t *testing.T, s *stage) { // of this node itself
			own := newOwnTerm(5)
			own.hung = true
			s.lead(own)
			s.attachedTo("me")
			s.attach(key(1), func(machine.Event) {})
			giveUp(t, s)
			own.mu.Lock()
			defer own.mu.Unlock()
			if (len(own.takenBack) == 1 && own.takenBack[0] == hungPlace) != tc.back {
				t.Errorf("%T: taken back %v", tc.cmd, own.takenBack)
			}
		})
		onStage(t, func(t *testing.T, s *stage) { // elsewhere
			a := s.host("a", 5)
			a.setAnswer(silence)
			s.gossip("a", leads(5))
			s.attachedTo("a")
			s.attach(key(1), func(machine.Event) {})
			giveUp(t, s)
			time.Sleep(time.Millisecond)
			cancels := 0
			for _, typ := range a.received() {
				if typ == wire.Cancel {
					cancels++
				}
			}
			if (cancels == 1) != tc.back {
				t.Errorf("%T: %d notices", tc.cmd, cancels)
			}
		})
	}
}
