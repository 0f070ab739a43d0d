package consensus

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/member"
)

// invite invites a member and has the leader add it as a voter.
func (b *bench) invite(c *chair) (id string) {
	b.t.Helper()
	id, err := c.seat.Invited(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	leader := b.leader()
	if err := leader.raft().AddNonvoter(id, leader.tape().prev()); err != nil {
		b.t.Fatal(err)
	}
	b.eventually("caught up", func() bool { return c.raft().AppliedIndex() == leader.raft().LastIndex() })
	if c.raft().Votes() {
		b.t.Errorf("%s votes before it was made a voter", id)
	}
	if err := leader.raft().AddVoter(id, leader.tape().prev()); err != nil {
		b.t.Fatal(err)
	}
	return id
}

func TestAnInvitedMemberCatchesUpAndVotes(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		n4 := b.start("n4")
		if n4.seat.Current() != nil || n4.seat.Admits(1) {
			t.Fatal("a member that nobody invited runs raft")
		}
		id := b.invite(n4)
		if again, err := n4.seat.Invited(context.Background()); again != id || err != nil {
			t.Errorf("invited again: %q, %v", again, err)
		}
		b.commit("b")
		b.agree("a", "b")
		time.Sleep(2 * time.Second)
		if meta, _, _ := n4.looks(); !meta.Voter || meta.Generation != 1 || id != "n4#1" {
			t.Errorf("%s advertises %+v", id, meta)
		}
		if v := b.leader().raft().Voters(); !slices.Equal(v, []string{"n1#1", "n2#1", "n3#1", "n4#1"}) {
			t.Errorf("voters %q", v)
		}
	})
}

func TestARemovedMemberIsThinAndReturnsAsANewGeneration(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		n4 := b.start("n4")
		old := b.invite(n4)
		leader := b.leader()
		if leader == n4 {
			t.Fatal("the newcomer leads")
		}
		if err := leader.raft().Remove(old, leader.tape().prev()); err != nil {
			t.Fatal(err)
		}
		if err := n4.seat.Removed(context.Background(), "n4#zz"); err != nil || n4.seat.Current() == nil {
			t.Errorf("the removal of another ID ended this one: %v", err)
		}
		if err := n4.seat.Removed(context.Background(), old); err != nil {
			t.Error(err)
		}
		meta, _, _ := n4.looks()
		leads, _ := n4.calls()
		if n4.seat.Current() != nil || leads != 0 || meta.Voter || meta.Generation <= 1 || n4.record.Get().Stored {
			t.Errorf("after the removal: %+v, record %+v", meta, n4.record.Get())
		}
		id := b.invite(n4)
		if id == old || id != member.RaftID("n4", meta.Generation) || n4.seat.Admits(1) {
			t.Errorf("returns as %s", id)
		}
		b.commit("a")
		b.agree("a")
	})
}

func TestAChangeDecidedOnAnOlderConfigurationIsRefused(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		leader := b.leader()
		stale := leader.tape().prev()
		if stale == 0 {
			t.Fatal("no configuration was told")
		}
		if err := leader.raft().Remove(b.followers()[0].raft().ID(), stale); err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func(string, uint64) error{
			"add a nonvoter": leader.raft().AddNonvoter, "add a voter": leader.raft().AddVoter, "remove": leader.raft().Remove,
		} {
			if err := change("n4#1", stale); err == nil {
				t.Errorf("%s: not refused", name)
			}
		}
		if s := leader.raft().Servers(); len(s) != 2 || !s[0].Voter || !s[1].Voter {
			t.Errorf("servers %v", s)
		}
	})
}

func TestLeadershipIsTransferredOneAttemptAtATime(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		old := b.leader()
		old.raft().transferring.Store(true)
		if err := old.raft().Transfer(context.Background()); !errors.Is(err, raft.ErrLeadershipTransferInProgress) {
			t.Errorf("a second transfer: %v", err)
		}
		old.raft().transferring.Store(false)
		if err := old.raft().Transfer(context.Background()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if b.leader() == old {
			t.Error("still leads")
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("nobody led for %v", took)
		}
	})
}
