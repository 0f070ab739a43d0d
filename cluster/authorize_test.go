package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// A referee is a Security.Authorize that notes its questions.
type referee struct {
	mu    sync.Mutex
	asked []string
	deny  func(peer Member, v Verb, key string) error
}

func (j *referee) authorize(peer Member, v Verb, key string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked = append(j.asked, fmt.Sprintf("%s %v %q %t", peer.Name, v, key, peer.Addr != ""))
	if j.deny == nil {
		return nil
	}
	return j.deny(peer, v, key)
}

// told returns the questions since the last call.
func (j *referee) told() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	asked := j.asked
	j.asked = nil
	return strings.Join(asked, ", ")
}

func judged(j *referee) func(*Config) {
	return func(c *Config) { c.Security.Authorize = j.authorize }
}

// The leader asks about Break, Ask and Resize of every member, itself included. A denied
// command changes nothing.
func TestTheLeaderAsksBeforeABreak(t *testing.T) {
	inBubble(t, func(b *bubble) {
		j := &referee{}
		b.form(judged(j))
		leader, far := b.leader(), b.followers()[0]
		token, _ := b.hold(leader, 1, "k")
		b.open(far, 2)
		b.open(leader, 3)
		j.deny = func(peer Member, v Verb, key string) error {
			if v == VerbBreak && peer.Self {
				panic("a mistake")
			}
			return errors.New("not\ntoday" + strings.Repeat("!", 500))
		}
		for _, c := range []struct {
			n    *Node
			cmd  machine.Command
			verb Verb
			why  string
		}{
			{far, machine.Break{Session: sid(2), Key: "k", Token: token}, VerbBreak, "not today!"},
			{far, machine.Ask{Session: sid(2), Key: "k"}, VerbAsk, "not today!"},
			{leader, machine.Ask{Session: sid(3), Key: "k"}, VerbAsk, "not today!"},
			{far, machine.Resize{Session: sid(2), Seq: 1, Group: "k", From: 8, To: 16}, VerbResize, "not today!"},
			{far, machine.SetCapacity{Session: sid(2), Seq: 2, Key: "k", Of: 16}, VerbSetCapacity, "not today!"},
			{far, machine.EndSession{Session: sid(2), Ref: sid(1).Ref()}, VerbEndSession, "not today!"},
			{leader, machine.Break{Session: sid(3), Key: "k", Token: token}, VerbBreak, "authorize panicked"},
		} {
			_, err := c.n.link.Propose(b.within(5*time.Second), c.cmd)
			denied, ok := errors.AsType[*replica.Denied](err)
			var e *replica.Error
			if !ok || !strings.HasPrefix(denied.Reason, c.why) || len(denied.Reason) > 256 || !errors.As(err, &e) || e.Unknown || !errors.Is(err, ErrDenied) {
				t.Errorf("%s by %s: %v", c.verb, c.n.Name(), err)
			}
			about := "k"
			if end, ok := c.cmd.(machine.EndSession); ok {
				about = end.Ref.String()
			}
			if got, want := j.told(), fmt.Sprintf("%s %v %q true", c.n.Name(), c.verb, about); got != want {
				t.Errorf("asked %s, want %s", got, want)
			}
		}
		tableOf(leader).View(func(m *machine.State) {
			if st := m.Status("k", 1); st.Held != 1 || st.Holders[0].Broken || st.Holders[0].Asked {
				t.Errorf("%+v", st)
			}
		})
		j.deny = nil
		b.propose(far, machine.Ask{Session: sid(2), Key: "k"})
	})
}

// A member asked to follow an operator's word may refuse, and so may the member that
// Recover is called on.
func TestRecoverIsAuthorizedByEachMember(t *testing.T) {
	inBubble(t, func(b *bubble) {
		j1, j4 := &referee{}, &referee{}
		n1 := b.form(wants(3), func(c *Config) {
			if c.Name == "n1" {
				judged(j1)(c)
			}
		})[0]
		n4 := b.join("n4", thin, wants(3), judged(j4))
		b.crashed("n2", "n3")
		b.eventually("the dead are not seen", time.Minute, func() bool { return len(n4.gossip.Alive()) == 2 })
		gone := RecoverOptions{Gone: []string{"n2", "n3"}}
		for deny, at := range map[*referee]string{j4: "no", j1: "n1: no"} {
			deny.deny = func(Member, Verb, string) error { return errors.New("no") }
			err := n4.Recover(b.within(2*time.Minute), gone)
			denied, ok := errors.AsType[*DeniedError](err)
			if !ok || *denied != (DeniedError{Verb: VerbRecover, Reason: at}) || !errors.Is(err, ErrDenied) || n1.record.Get().RetiredHere() {
				t.Errorf("%s: %v, retired %t", at, err, n1.record.Get().RetiredHere())
			}
			deny.mu.Lock()
			deny.deny = nil
			deny.mu.Unlock()
		}
		if got := j1.told(); !strings.Contains(got, `n4 recover "" true`) {
			t.Errorf("asked %s", got)
		}
		if err := n4.Recover(b.within(5*time.Minute), gone); err != nil {
			t.Error(err)
		}
		b.ready(n1, n4)
	})
}

// A denial says what was denied, to a program and to a person.
func TestADenialNamesTheVerb(t *testing.T) {
	err := error(&DeniedError{Verb: VerbBreak, Key: "k", Reason: "no"})
	if err.Error() != `cluster: break "k": denied: no` || !errors.Is(err, ErrDenied) || errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := (&DeniedError{Verb: 99, Reason: "no"}).Error(); got != "cluster: verb 99: denied: no" {
		t.Error(got)
	}
}
