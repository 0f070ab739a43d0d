package consensus

import (
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

func TestThreeVotersElectALeaderAndApplyTheSameEntries(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		leader := b.leader()
		for i, entry := range []string{"a", "b", "c"} {
			if n, code := leader.raft().Commit([]byte(entry)); code != wire.CodeOK || n != i+1 {
				t.Errorf("%s: %v, %v", entry, n, code)
			}
		}
		b.agree("a", "b", "c")
		term, _ := leader.raft().Leadership()
		for _, c := range b.all {
			r := c.raft()
			if c.tape().prev() == 0 || r.AppliedIndex() != r.LastIndex() || r.Term() != term || r.LeaderID() != leader.raft().ID() || !r.Votes() {
				t.Errorf("%s: configuration %d, entry %d of %d, term %d, leader %s", c.name, c.tape().prev(), r.AppliedIndex(), r.LastIndex(), r.Term(), r.LeaderID())
			}
			if r.Leads(term) != (c == leader) {
				t.Errorf("%s leads: %t", c.name, r.Leads(term))
			}
			if c != leader {
				if _, code := r.Commit([]byte("x")); code != wire.CodeNotLeader {
					t.Errorf("%s, a follower: %v", c.name, code)
				}
			}
			if leads, _ := c.calls(); leads != 1 {
				t.Errorf("Lead of %s runs %d times", c.name, leads)
			}
		}
	})
}

// A voter vouches for a leader unless the voter knows a higher term, and only
// under its own ID.
func TestAVoterVouchesForItsTermAndID(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		r := b.leader().raft()
		for _, test := range []struct {
			voter string
			term  uint64
			want  bool
		}{
			{r.ID(), r.Term(), true},
			{r.ID(), r.Term() + 1, true},
			{r.ID(), r.Term() - 1, false},
			{"n9#1", r.Term(), false},
		} {
			if got := r.Vouches(test.voter, test.term); got != test.want {
				t.Errorf("%s in term %d: %t", test.voter, test.term, got)
			}
		}
	})
}

// An entry of a leader that is cut off may be committed yet, and Commit says so.
// An entry of a node that does not lead is in no log.
func TestCommitTellsTheFateOfAnEntry(t *testing.T) {
	for _, heard := range []bool{false, true} {
		onBench(t, func(b *bench) {
			b.found()
			old := b.leader()
			b.commit("first")
			r := old.raft()
			if heard {
				b.lose(b.lostAnswers, old.name, true) // the entry goes out, and no answer comes back
			} else {
				b.separate(old.name, true)
			}
			began := time.Now()
			if _, code := r.Commit([]byte("entry")); code != wire.CodeUnknown {
				t.Errorf("heard %t: the leader that was cut off: %v", heard, code)
			}
			if took := time.Since(began); took > timing.Enqueue {
				t.Errorf("told after %v", took)
			}
			if _, code := r.Commit([]byte("entry")); code != wire.CodeNotLeader {
				t.Errorf("heard %t: when it leads no more: %v", heard, code)
			}
			time.Sleep(5 * time.Second) // the others elect another leader
			for _, c := range b.all {
				if c != old && (len(c.tape().entries()) == 2) != heard {
					t.Errorf("%s has %q, the entry was heard: %t", c.name, c.tape().entries(), heard)
				}
			}
			b.lose(b.lostAnswers, old.name, false)
			b.separate(old.name, false)
		})
	}
}

func TestFollowedTellsOfANewLeader(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		follower := b.followers()[0]
		news, stop := follower.raft().Followed()
		select {
		case <-news:
			t.Error("news without a change")
		case <-time.After(10 * time.Second):
		}
		old := b.leader()
		if err := b.stop(old.name); err != nil {
			t.Error(err)
		}
		select {
		case <-news:
		case <-time.After(10 * time.Second):
			t.Error("no news of the leader's end")
		}
		b.leader()
		time.Sleep(time.Second)
		if id := follower.raft().LeaderID(); id == "" || id == old.name+"#1" {
			t.Errorf("follows %q", id)
		}
		stop()
		for len(news) > 0 {
			<-news
		}
		b.stop(b.leader().name)
		time.Sleep(10 * time.Second)
		if len(news) > 0 {
			t.Error("news after stop")
		}
	})
}
