package consensus

import (
	"testing"

	"github.com/hashicorp/raft"
)

// {n1,n2,n3} became {n4,n5,n3} while n3 was away, and then one of n4 and n5 ends: n3
// knows neither, and its vote is needed.
func TestAVoterThatKnowsNobodyElectsALeader(t *testing.T) {
	onBench(t, func(b *bench) {
		n3 := b.replacedAround()
		gone := b.leader()
		rest := b.all["n5"]
		if gone == rest {
			rest = b.all["n4"]
		}
		b.kill(gone)
		b.between(rest.name, "n3", false)
		b.commit("c")
		if now := b.leader(); now != rest {
			t.Errorf("%s leads", now.name)
		}
		b.agree("a", "b", "c")
		_ = n3
	})
}

// A voter that was added a moment ago has no entry and no configuration. One of the two
// others ends, and its vote is needed.
func TestAVoterWithoutEntriesElectsALeader(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		b.agree("a")
		leader := b.leader()
		rest := b.followers()[0]
		for name := range b.all {
			b.between("n4", name, true)
		}
		n4 := b.start("n4", newcomer(b, "n4"))
		if _, err := n4.seat.Invited(b.t.Context()); err != nil {
			t.Fatal(err)
		}
		r := leader.raft()
		if err := r.AddVoter(n4.raft().ID(), leader.tape().prev()); err != nil {
			t.Fatal(err)
		}
		for _, c := range b.followers() {
			if c != rest {
				if err := r.Remove(c.raft().ID(), leader.tape().prev()); err != nil {
					t.Fatal(err)
				}
				b.kill(c)
			}
		}
		b.kill(leader)
		if n := n4.raft().LastIndex(); n != 0 {
			t.Fatalf("n4 has %d entries", n)
		}
		b.between("n4", rest.name, false)
		b.commit("b")
		b.agree("a", "b")
		if now := b.leader(); now != rest {
			t.Errorf("%s leads", now.name)
		}
	})
}

// A voter that has left the configuration is voted for by nobody, however it claims to be
// in another one, while somebody follows a leader.
func TestNobodyVotesForAStrangerBesideALeader(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		b.agree("a")
		leader, c := b.leader(), b.followers()[0]
		b.start("n9", newcomer(b, "n9"))
		term := leader.raft().Term()
		for _, request := range []any{
			&raft.RequestVoteRequest{RPCHeader: headerOf("n9#1"), Term: term + 1, LastLogIndex: 1 << 20, LastLogTerm: term, LeadershipTransfer: true},
			&raft.RequestPreVoteRequest{RPCHeader: headerOf("n9#1"), Term: term + 1, LastLogIndex: 1 << 20, LastLogTerm: term},
		} {
			h := hostile{b, "n9"}
			var err error
			if _, ok := request.(*raft.RequestVoteRequest); ok {
				err = h.send(c, h.frame(request), &raft.RequestVoteResponse{})
			} else {
				err = h.send(c, h.frame(request), &raft.RequestPreVoteResponse{})
			}
			if err == nil {
				t.Errorf("%T is taken", request)
			}
		}
		b.commit("b")
		if now := leader.raft().Term(); now != term {
			t.Errorf("term %d became %d", term, now)
		}
	})
}
