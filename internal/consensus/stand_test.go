package consensus

import (
	"context"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// led waits until a member other than the old leader leads, and returns how long
// that took.
func (b *bench) led(old *chair, within time.Duration) (leader *chair, took time.Duration) {
	b.t.Helper()
	began := time.Now()
	for ; ; time.Sleep(time.Millisecond) {
		for _, c := range b.all {
			if r := c.seat.Current(); c != old && r != nil {
				if _, leads := r.Leadership(); leads {
					return c, time.Since(began)
				}
			}
		}
		if time.Since(began) > within {
			b.t.Fatalf("no other leader within %v", within)
		}
	}
}

// kill ends a member like kill -9 does: its streams are reset, and dials to it are
// refused.
func (b *bench) kill(c *chair) {
	b.mu.Lock()
	delete(b.all, c.name)
	b.dead[c.name] = true
	for conn, ends := range b.pipes {
		if ends[0] == c.name || ends[1] == c.name {
			conn.Close()
			delete(b.pipes, conn)
		}
	}
	b.mu.Unlock()
	c.cancel()
	c.run.Wait()
	if err := c.seat.Stop(); err != nil {
		b.t.Error(err)
	}
	c.record.Close()
}

// reset ends all streams of a member, which lives on.
func (b *bench) reset(c *chair) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn, ends := range b.pipes {
		if ends[0] == c.name || ends[1] == c.name {
			conn.Close()
			delete(b.pipes, conn)
		}
	}
}

func TestAFollowerStandsAtOnceWhenTheLeadersProcessEnds(t *testing.T) {
	for range 20 {
		onBench(t, func(b *bench) {
			b.found()
			b.commit("a")
			old := b.leader()
			term := old.raft().Term()
			time.Sleep(200 * time.Millisecond) // every voter knows the committed configuration
			b.kill(old)
			leader, took := b.led(old, 10*time.Second)
			if took > 50*time.Millisecond {
				t.Errorf("another leader after %v", took)
			}
			if got := leader.raft().Term(); got != term+1 {
				t.Errorf("the term went from %d to %d: more than one attempt", term, got)
			}
			b.commit("b")
			b.agree("a", "b")
		})
	}
}

// Of five voters the best one stands, and two may be lost one after the other.
func TestOfFiveVotersTheBestStands(t *testing.T) {
	for range 5 {
		onBench(t, func(b *bench) {
			b.found()
			b.commit("a")
			for _, name := range []string{"n4", "n5"} {
				b.invite(b.start(name))
			}
			for range 2 {
				b.commit("b")
				time.Sleep(time.Second)
				old := b.leader()
				term := old.raft().Term()
				time.Sleep(200 * time.Millisecond)
				b.kill(old)
				leader, took := b.led(old, 10*time.Second)
				if now := leader.raft().Term(); took > 50*time.Millisecond || now != term+1 {
					t.Errorf("another leader after %v, term %d after %d", took, now, term)
				}
			}
			b.commit("c")
		})
	}
}

// Streams that are reset while the leader lives, by a rotation or a firewall, make
// nobody stand: the dial finds the leader.
func TestAResetAloneDeposesNobody(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		old := b.leader()
		term := old.raft().Term()
		for range 20 {
			b.reset(old)
			time.Sleep(73 * time.Millisecond)
		}
		if now := old.raft().Term(); now != term || !old.raft().Leads(term) {
			t.Errorf("the term went from %d to %d", term, now)
		}
		if asked := b.questions(); asked != 0 {
			t.Errorf("%d questions about a leader that answers dials", asked)
		}
	})
}

// A leader whose dials were refused for a while, for example because its raft was
// restarted in the same process, leads again like any other: what was believed
// before its next stream counts no more.
func TestAStreamRefutesAnEarlierEnd(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		old := b.leader()
		term := old.raft().Term()
		for _, f := range b.followers() {
			f.raft().ended.Store(&process{old.raft().ID(), old.boot, f.raft().stream.arrivals(old.name).all})
		}
		for range 3 {
			for _, f := range b.followers() {
				c, err := old.raft().stream.Dial(f.raft().ID(), time.Second)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
			}
			time.Sleep(73 * time.Millisecond)
			b.reset(old)
			time.Sleep(73 * time.Millisecond)
		}
		if now := old.raft().Term(); now != term || !old.raft().Leads(term) {
			t.Errorf("the term went from %d to %d", term, now)
		}
	})
}

// A voter with a stream from the leader has not lost the leader, whatever a dial
// finds: a firewall may refuse new connections and carry the old ones.
func TestALeaderWithAStreamIsNotLost(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		b.agree("a")
		old := b.leader()
		f := b.followers()
		time.Sleep(200 * time.Millisecond)
		asked, candidate := f[0].raft(), f[1].raft()
		term, index := candidate.position()
		b.mu.Lock()
		b.refused = map[string]bool{old.name: true}
		b.mu.Unlock()
		_, yes := asked.MayStand(context.Background(), wire.StandRequest{Voter: asked.ID(), Candidate: candidate.ID(),
			Leader: old.raft().ID(), Boot: old.boot, Term: old.raft().Term(), LastTerm: term, LastIndex: index})
		if yes {
			t.Error("agreed while the leader's stream is open")
		}
	})
}

// A dial that times out proves nothing: a cut network also resets streams.
func TestAnUnreachableLeaderIsGivenItsTimeout(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		old := b.leader()
		b.separate(old.name, true)
		if _, took := b.led(old, 10*time.Second); took < timing.LeastElection-2*timing.LeastElection/5 {
			t.Errorf("deposed after %v", took)
		}
		if asked := b.questions(); asked != 0 {
			t.Errorf("%d questions without a proof", asked)
		}
	})
}

// Without the consent of a majority nobody stands at once.
func TestAFollowerStandsOnlyWithAMajority(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		old := b.leader()
		for name := range b.all {
			b.deaf[name] = true
		}
		b.kill(old)
		if _, took := b.led(old, 10*time.Second); took < timing.LeastElection-2*timing.LeastElection/5 {
			t.Errorf("stood after %v without consent", took)
		}
	})
}

// A server without a vote does not stand, though it loses the same streams.
func TestANonVoterDoesNotStand(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		n4 := b.start("n4")
		id, err := n4.seat.Invited(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		leader := b.leader()
		if err := leader.raft().AddNonvoter(id, leader.tape().prev()); err != nil {
			t.Fatal(err)
		}
		b.eventually("n4 follows", func() bool { return n4.raft().LeaderID() != "" })
		r := n4.raft()
		time.Sleep(time.Second)
		before := r.nudged.Load()
		for name := range b.all {
			b.deaf[name] = true // so that nobody else stands first
		}
		b.kill(leader)
		b.led(leader, 10*time.Second)
		time.Sleep(time.Second)
		if r.nudged.Load() != before || b.askers["n4"] {
			t.Error("a server without a vote stood for election")
		}
	})
}

// A voter that has lost its leader agrees, unless its log is newer, its term higher,
// the leader lives, or the candidate has no vote.
func TestMayStand(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		b.agree("a")
		old := b.leader()
		f := b.followers()
		time.Sleep(200 * time.Millisecond) // the barriers of leader are everywhere
		asked, candidate := f[0].raft(), f[1].raft()
		term, index := candidate.position()
		q := wire.StandRequest{Voter: asked.ID(), Candidate: candidate.ID(), Leader: old.raft().ID(), Boot: old.boot,
			Term: old.raft().Term(), LastTerm: term, LastIndex: index}
		may := func(change func(q *wire.StandRequest)) bool {
			q := q
			if change != nil {
				change(&q)
			}
			_, yes := asked.MayStand(context.Background(), q)
			return yes
		}
		if may(nil) {
			t.Error("agreed while the leader lives")
		}
		if may(func(q *wire.StandRequest) { q.Leader = "" }) {
			t.Error("agreed to a first election under a leader")
		}
		// Nobody else stands meanwhile.
		b.mu.Lock()
		b.deaf["n1"], b.deaf["n2"], b.deaf["n3"] = true, true, true
		b.mu.Unlock()
		b.kill(old)
		time.Sleep(10 * time.Millisecond)
		if !may(nil) {
			t.Error("refused, and the leader is gone")
		}
		for name, change := range map[string]func(q *wire.StandRequest){
			"another incarnation": func(q *wire.StandRequest) { q.Voter = "n9#1" },
			"an older entry":      func(q *wire.StandRequest) { q.LastTerm-- },
			"a shorter log":       func(q *wire.StandRequest) { q.LastIndex-- },
			"an older term":       func(q *wire.StandRequest) { q.Term-- },
			"no voter":            func(q *wire.StandRequest) { q.Candidate = "n9#1" },
			"a living member":     func(q *wire.StandRequest) { q.Leader = candidate.ID(); q.Boot = f[1].boot },
		} {
			if may(change) {
				t.Errorf("agreed with %s", name)
			}
		}
	})
}

// Raft keeps streams to voters restarted since. The stale streams cost no vote.
func TestAStaleStreamCostsNoVote(t *testing.T) {
	dir := t.TempDir()
	onBench(t, func(b *bench) {
		b.found(inDirs(dir))
		b.commit("a")
		// Each voter has led, and keeps its streams to the others.
		for led := make(map[*chair]bool); len(led) < 3; time.Sleep(time.Second) {
			led[b.leader()] = true
			b.leader().raft().Transfer(context.Background())
		}
		old, f := b.leader(), b.followers()
		b.kill(f[1]) // stays behind f[0], which needs its vote
		b.commit("b")
		b.start(f[1].name, inDirs(dir))
		time.Sleep(time.Second)
		term := old.raft().Term()
		b.kill(old)
		leader, took := b.led(old, 10*time.Second)
		if now := leader.raft().Term(); took > 100*time.Millisecond || now != term+1 {
			t.Errorf("another leader after %v, term %d after %d", took, now, term)
		}
	})
}

// Voters of equal logs stand in the order of their IDs, and a voter with a newer log
// goes first.
func TestTheBestPlacedVoterStands(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		b.agree("a")
		old := b.leader()
		f := b.followers()                 // by name
		time.Sleep(200 * time.Millisecond) // the barriers of leader are everywhere
		b.kill(old)
		if leader, _ := b.led(old, 10*time.Second); leader != f[0] {
			t.Errorf("%s leads, not %s", leader.name, f[0].name)
		}
	})
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		b.agree("a")
		old := b.leader()
		f := b.followers()
		b.mu.Lock()
		b.cut[[2]string{old.name, f[0].name}] = true // misses entries, and knows the leader
		b.mu.Unlock()
		b.reset(f[0])
		b.commit("b")
		b.kill(old)
		if leader, took := b.led(old, 10*time.Second); leader != f[1] || took > 100*time.Millisecond {
			t.Errorf("%s leads after %v, not %s", leader.name, took, f[1].name)
		}
	})
}

// A cluster of which all voters restart has a leader soon after the second start,
// also when the first one waits for long.
func TestAColdStartIsQuick(t *testing.T) {
	dir := t.TempDir()
	for round := range 4 {
		onBench(t, func(b *bench) {
			b.found(inDirs(dir))
			b.commit("a")
			// The first voter misses the last entry, and another voter has the
			// entry.
			b.separate("n3", true)
			b.commit("b")
			for _, name := range []string{"n3", "n1", "n2"} {
				b.stop(name)
			}
			clear(b.cut)
			order := [][]string{{"n1", "n2"}, {"n2", "n3"}, {"n3", "n1"}, {"n3", "n2"}}[round]
			b.start(order[0], inDirs(dir))
			time.Sleep(time.Duration(1000+round*700) * time.Millisecond)
			b.start(order[1], inDirs(dir))
			if _, took := b.led(nil, 10*time.Second); took > 500*time.Millisecond {
				t.Errorf("%q: a leader after %v", order, took)
			}
		})
		dir = t.TempDir()
	}
}

// questions returns how often members asked whether they may succeed a leader.
func (b *bench) questions() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, asked := range b.asked {
		n += asked
	}
	return n
}
