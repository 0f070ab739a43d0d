package cluster

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// Five voters bear the loss of any two at once, and seven of three. After one
// more loss, the others grant nothing.
func TestSoManyVotersBearSoManyLosses(t *testing.T) {
	for _, voters := range []int{5, 7} {
		if voters > 5 && !testrounds.Full() {
			continue
		}
		t.Run(fmt.Sprint(voters), func(t *testing.T) {
			inBubble(t, func(b *bubble) { loseVoters(b, voters) })
		})
	}
}

func loseVoters(b *bubble, voters int) {
	t := b.t
	var names []string
	for i := range voters {
		names = append(names, fmt.Sprint("n", i+1))
		b.start(names[i], ttl(time.Minute), func(c *Config) { c.Voting.Voters = voters })
	}
	last := b.nodes[names[voters-1]]
	b.ready(last)
	b.eventually("all vote", 5*time.Minute, func() bool { return len(b.voters()) == voters })
	b.open(last, 1)
	before := b.acquire(last, 1, 1, "k")
	for _, name := range names[:voters/2] {
		b.net.Isolate(b.host(name)) // all in one moment
	}
	token := b.acquire(last, 1, 2, "l")
	if token <= before {
		t.Errorf("after %d losses: token %d after %d", voters/2, token, before)
	}
	b.net.Isolate(b.host(names[voters/2]))
	time.Sleep(40 * time.Second) // the stream to a leader that was cut off is reset
	_, err := last.link.Propose(b.within(3*time.Second), machine.Acquire{Session: sid(1), Seq: 3, Key: "m"})
	if !errors.Is(err, ErrNoQuorum) {
		t.Errorf("after %d losses: %v", voters/2+1, err)
	}
	b.net.Heal()
	b.ready(last)
	if next := b.acquire(last, 1, 4, "m"); next != token+1 {
		t.Errorf("healed: token %d after %d", next, token)
	}
}

func TestAnIsolatedLeaderServesNothing(t *testing.T) {
	for range testrounds.Rounds(2, 10) {
		inBubble(t, func(b *bubble) {
			b.form()
			old := b.leader()
			b.hold(old, 1, "k")
			b.net.Isolate(b.host(old.Name()))
			if old.link.Beat(b.within(100*time.Millisecond), sid(1)) == nil {
				t.Error("a beat was confirmed without a quorum")
			}
			if _, err := old.link.Read(b.within(2*time.Second), replica.Query{Key: "k"}); err == nil {
				t.Error("a read was answered without a quorum")
			}
			if h := old.Health(b.within(time.Second)); h.Quorum || h.Err == nil {
				t.Errorf("health without a quorum: %+v", h)
			}
			time.Sleep(10 * time.Second)
			b.net.Heal()
			b.ready(old)
		})
	}
}

// From the first moment of an isolation on, the leader's rounds confirm nothing.
func TestACutOffLeaderConfirmsNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		leader := b.leader()
		number := leader.leading.Load().term
		confirm := func() bool {
			ok := make(chan bool, 1)
			number.Confirm(func(yes bool) { ok <- yes })
			return <-ok
		}
		if !confirm() {
			t.Error("not confirmed by all voters")
		}
		b.net.Isolate(b.host(leader.Name()))
		if confirm() {
			t.Error("confirmed without a majority")
		}
	})
}

// A voter confirms its own term and higher terms, to a leader asking for the ID of
// this very voter.
func TestVotersConfirmOnlyTheirOwnAndNoLowerTerm(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		thin := b.join("thin", thin)
		term := b.leader().currentTerm().Number()
		ask := func(n *Node, q wire.ConfirmRequest) wire.Code {
			f, err := thin.peers.Ask(b.within(time.Second), n.self.Process(), wire.Confirm, wire.Marshal(&q))
			if err != nil {
				t.Error(err)
			}
			return f.Code
		}
		for _, n := range nodes {
			id := n.seat.Current().ID()
			for _, tt := range []struct {
				q    wire.ConfirmRequest
				want wire.Code
			}{
				{wire.ConfirmRequest{Term: term, Voter: id}, wire.CodeOK},
				{wire.ConfirmRequest{Term: term - 1, Voter: id}, wire.CodeNo},
				{wire.ConfirmRequest{Term: term, Voter: id + "1"}, wire.CodeNo},
			} {
				if c := ask(n, tt.q); c != tt.want {
					t.Errorf("%s: %+v: %v", n.Name(), tt.q, c)
				}
			}
		}
		if c := ask(b.nodes["thin"], wire.ConfirmRequest{Term: term, Voter: "thin#1"}); c != wire.CodeNo {
			t.Errorf("a member without a vote confirms: %v", c)
		}
	})
}

func TestALostQuorumIsTold(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		b.crash("n1")
		b.crash("n2")
		time.Sleep(10 * time.Second)
		n := b.nodes["n3"]
		if err := n.Ready(b.within(2 * time.Second)); !errors.Is(err, ErrNoQuorum) {
			t.Errorf("Ready returned %v", err)
		}
		asked := time.Now()
		h := n.Health(context.Background())
		if h.Quorum || h.Granting || !errors.Is(h.Err, ErrNoQuorum) || h.Members != 1 || time.Since(asked) > timing.HealthPatience {
			t.Errorf("Health returned %+v after %v", h, time.Since(asked))
		}
		_, err := n.link.Propose(b.within(2*time.Second), machine.Open{Session: sid(1), Client: "c", Node: "n3", TTL: 1000})
		var e *replica.Error
		if !errors.As(err, &e) || !errors.Is(err, ErrNoQuorum) || e.Unknown {
			t.Errorf("Propose returned %v", err)
		}
		if !strings.HasPrefix(h.Reason, "no leader answers: ") || !strings.Contains(h.Next, "missing voters") || h.SafeToTakeNext || h.Voters.Wanted != 3 || h.Voters.Bears != 0 {
			t.Errorf("Health returned %+v", h)
		}
		if !b.wasTold("n3: quorum lost: no leader answers") {
			t.Error("no event told of the lost quorum")
		}
	})
}

// Quorum and Granting follow the cluster, Leader and Members name the members.
func TestHealthAndMembersShowAHealthyCluster(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := append(b.form(), b.join("thin", thin))
		time.Sleep(5 * time.Second)
		leader := b.leader()
		for _, n := range nodes {
			votes := n.Name() != "thin"
			id := n.founding.Cluster()
			want := Health{
				Quorum: true, Granting: true, Leader: leader.Name(), Members: 4, Voter: votes, Role: "thin",
				Cluster: hex.EncodeToString(id[:]), SafeToTakeNext: true,
				Voters: VoterHealth{Wanted: 3, Present: 3, Reachable: 3, CaughtUp: 3, Bears: 1},
			}
			if n == leader {
				want.Role = "leader"
			} else if votes {
				want.Role = "voter"
			}
			if h := n.Health(context.Background()); !reflect.DeepEqual(h, want) {
				t.Errorf("%s: Health returned %+v, want %+v", n.Name(), h, want)
			}
			if l, ok := n.Leader(); !ok || l.Name != leader.Name() || l.Addr != leader.Addr() || !l.Leader || l.Self != (n == leader) {
				t.Errorf("%s: Leader returned %+v, %v", n.Name(), l, ok)
			}
			members := n.Members()
			if len(members) != 4 {
				t.Fatalf("%s: %d members", n.Name(), len(members))
			}
			for i, o := range nodes {
				want := Member{
					Name: o.Name(), Addr: o.Addr(), Boot: o.self.Boot,
					Voter: o.Name() != "thin", Leader: o == leader, Self: o == n,
				}
				if members[i] != want {
					t.Errorf("%s lists %+v, want %+v", n.Name(), members[i], want)
				}
			}
		}
	})
}
