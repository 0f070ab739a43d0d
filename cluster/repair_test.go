package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// whole reports whether so many voters are configured, none of them under a given
// raft ID, each reached by the leader and with the log.
func (b *bubble) whole(n int, without ...string) bool {
	for _, node := range b.nodes {
		l := node.leading.Load()
		if l == nil {
			continue
		}
		set, ok := node.voterSet()
		return ok && set.Term == l.term.Number() && len(set.Voters) == n &&
			!slices.ContainsFunc(set.Voters, func(v wire.VoterState) bool {
				return !v.Present || !v.Reached || !v.Current || slices.Contains(without, v.Raft)
			})
	}
	return false
}

// mended waits until n voters vote, without these raft IDs, and returns the time
// needed.
func (b *bubble) mended(n int, limit time.Duration, without ...string) time.Duration {
	b.t.Helper()
	began := time.Now()
	for !b.whole(n, without...) {
		if time.Since(began) > limit {
			for name, node := range b.nodes {
				set, _ := node.voterSet()
				b.t.Logf("%s knows %+v", name, set)
			}
			b.t.Fatalf("not whole within %v", limit)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

// kill ends a member as kill -9 does: its host answers dials with a refusal.
func (b *bubble) kill(name string) { b.crash(name) }

// raftID returns a running voter's raft ID.
func (b *bubble) raftID(name string) string { return b.nodes[name].seat.Current().ID() }

// victims are the two kinds of voters.
var victims = []struct {
	kind string
	of   func(b *bubble) string
}{
	{"a follower", func(b *bubble) string { return b.followers()[0].Name() }},
	{"the leader", func(b *bubble) string { return b.leader().Name() }},
}

// Killed and restarted at once at its address: three vote again within two seconds,
// the election included.
func TestAVoterKilledAndRestartedVotesAgainInTwoSeconds(t *testing.T) {
	for _, v := range victims {
		inBubble(t, func(b *bubble) {
			b.form()
			b.mended(3, time.Minute)
			time.Sleep(20 * time.Second)
			name := v.of(b)
			id := b.raftID(name)
			b.kill(name)
			b.start(name)
			took := b.mended(3, 2*time.Second, id)
			t.Logf("%s: %v", v.kind, took)
			if v.kind == "a follower" && took > 500*time.Millisecond {
				t.Errorf("no election, and yet %v", took)
			}
			if n := len(b.voters()); n != 3 {
				t.Errorf("%d voters", n)
			}
		})
	}
}

// A spare takes the place of a silent voter within twelve seconds in memory, and
// within 75 with a Dir.
func TestASpareTakesTheSilentVotersPlace(t *testing.T) {
	t.Parallel() // waits for the disk
	for _, tt := range []struct {
		claim string
		dir   bool
		limit time.Duration
	}{{"in memory", false, 12 * time.Second}, {"with a Dir", true, 75 * time.Second}} {
		for i, v := range victims {
			if tt.dir && i > 0 && !testrounds.Full() {
				continue // the same waits as in memory, five times as long
			}
			dir := t.TempDir()
			inBubble(t, func(b *bubble) {
				var change []func(*Config)
				if tt.dir {
					change = append(change, inDir(dir))
				}
				b.form(change...)
				b.join("n4", change...)
				time.Sleep(20 * time.Second)
				name := v.of(b)
				id := b.raftID(name)
				b.net.Isolate(b.host(name))
				gone := b.nodes[name]
				delete(b.nodes, name)
				took := b.mended(3, tt.limit, id)
				t.Logf("%s %s: %v", v.kind, tt.claim, took)
				wait := timing.DeadInMemory
				if tt.dir {
					wait = timing.DeadDurable
				}
				if took < wait-time.Second || v.kind == "a follower" && took > wait+100*time.Millisecond {
					t.Errorf("%s is replaced after %v", v.kind, took)
				}
				if slices.Contains(b.voters(), name) {
					t.Errorf("%s votes", name)
				}
				b.nodes[name] = gone
			})
		}
	}
}

// A goodbye is proof: the spare votes at once.
func TestASpareTakesTheProvenDeadVotersPlaceAtOnce(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		b.join("n4")
		time.Sleep(20 * time.Second)
		victim, leader := b.followers()[0], b.leader()
		name := victim.Name()
		bye := wire.GoodbyeNotice{Name: name, Boot: victim.self.Boot}
		f, err := victim.peers.Ask(b.within(time.Second), leader.self.Process(), wire.Goodbye, wire.Marshal(&bye))
		if err != nil || f.Code != wire.CodeOK {
			t.Fatalf("goodbye: %v, %v", f.Code, err)
		}
		other := wire.GoodbyeNotice{Name: leader.Name(), Boot: leader.self.Boot}
		if f, err := victim.peers.Ask(b.within(time.Second), leader.self.Process(), wire.Goodbye, wire.Marshal(&other)); err != nil || f.Code != wire.CodeNo {
			t.Errorf("a goodbye in another's name: %v, %v", f.Code, err)
		}
		id := b.raftID(name)
		b.kill(name)
		if took := b.mended(3, 4*time.Second, id); took > 100*time.Millisecond {
			t.Errorf("%v", took)
		}
		if !slices.Contains(b.voters(), "n4") {
			t.Errorf("voters %v", b.voters())
		}
	})
}

// A goodbye of a voter that goes on, as a holder of a shared secret can forge it, moves no
// vote, however often it is said, and is forgotten.
func TestAForgedGoodbyeMovesNoVote(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		b.join("n4")
		time.Sleep(20 * time.Second)
		voters := b.voters()
		victim, leader := b.followers()[0], b.leader()
		bye := wire.GoodbyeNotice{Name: victim.Name(), Boot: victim.self.Boot}
		for range 5 {
			f, err := victim.peers.Ask(b.within(time.Second), leader.self.Process(), wire.Goodbye, wire.Marshal(&bye))
			if err != nil || f.Code != wire.CodeOK {
				t.Fatalf("goodbye: %v, %v", f.Code, err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(2 * timing.GoodbyeDoubt)
		if got := b.voters(); !slices.Equal(got, voters) || leader.proof.Ended(victim.Name(), victim.self.Boot) {
			t.Errorf("voters %v became %v; ended: %t", voters, got, leader.proof.Ended(victim.Name(), victim.self.Boot))
		}
		if n := leader.self.Refused.Counts()[refused.Claim]; n == 0 {
			t.Error("nobody is told")
		}
	})
}

// A departure in the name of a voter that goes on, as a holder of a shared secret can ask
// for it, moves no vote. The voter itself leaves at once.
func TestAForgedDepartureMovesNoVote(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		b.join("n4")
		time.Sleep(20 * time.Second)
		voters := b.voters()
		victim, leader := b.followers()[0], b.leader()
		answers := make(chan wire.Code, 1)
		leader.leading.Load().term.Depart(victim.Name(), victim.self.Boot, func(c wire.Code) { answers <- c })
		if c := <-answers; c != wire.CodeNo {
			t.Errorf("answered %v", c)
		}
		time.Sleep(5 * time.Second)
		if got := b.voters(); !slices.Equal(got, voters) {
			t.Errorf("voters %v became %v", voters, got)
		}
		if n := leader.self.Refused.Counts()[refused.Claim]; n == 0 {
			t.Error("nobody is told")
		}
		name, began := victim.Name(), time.Now()
		b.leave(name)
		if took := time.Since(began); took > 5*time.Second || slices.Contains(b.voters(), name) || !slices.Contains(b.voters(), "n4") {
			t.Errorf("voters %v %v after a departure", b.voters(), took)
		}
	})
}

// Another process at the address of a killed voter is proof too, of another name
// after two dials.
func TestAnotherMemberAtTheAddressProvesTheEnd(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		b.mended(3, time.Minute)
		time.Sleep(20 * time.Second)
		name := b.followers()[0].Name()
		id := b.raftID(name)
		b.kill(name)
		b.hosts["other"] = b.host(name)
		b.start("other")
		took := b.mended(3, 4*time.Second, id)
		t.Logf("%v", took)
	})
}

// With a Dir the restarted process is the same voter: the configuration does not
// change.
func TestARestartWithADirChangesNoVoter(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		b.form(inDir(dir))
		b.join("n4", inDir(dir))
		time.Sleep(20 * time.Second)
		name := b.followers()[0].Name()
		before := b.leader().seat.Current().Voters()
		b.kill(name)
		time.Sleep(30 * time.Second)
		b.start(name, inDir(dir))
		b.mended(3, 2*time.Second)
		if after := b.leader().seat.Current().Voters(); !slices.Equal(before, after) {
			t.Errorf("voters %v, before %v", after, before)
		}
	})
}

// A voter that raft cannot reach, while gossip can, is replaced.
func TestAVoterOutOfRaftsReachIsReplaced(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		b.join("n4")
		b.join("n5", func(c *Config) { c.Voting.Thin = true })
		time.Sleep(20 * time.Second)
		leader, name := b.leader(), b.followers()[0].Name()
		b.net.Cut(b.host(leader.Name()), b.host(name))
		term := leader.currentTerm().Number()
		took := b.mended(3, 12*time.Second, b.raftID(name))
		t.Logf("%v", took)
		if now := leader.currentTerm(); now == nil || now.Number() != term {
			t.Error("leadership moved")
		}
	})
}

// Two elections during the wait do not begin the wait anew.
func TestTheWaitSurvivesElections(t *testing.T) {
	inBubble(t, func(b *bubble) {
		names := []string{"n1", "n2", "n3", "n4", "n5"}
		for _, name := range names {
			b.start(name, wants(5))
		}
		b.join("n6", wants(5))
		b.mended(5, time.Minute)
		time.Sleep(10 * time.Second)
		dead := b.followers()[0].Name()
		term := b.leader().currentTerm().Number()
		b.net.Isolate(b.host(dead))
		gone := b.nodes[dead]
		delete(b.nodes, dead)
		began := time.Now()
		for range 2 {
			time.Sleep(3 * time.Second)
			leader := b.host(b.leader().Name())
			b.net.Isolate(leader)
			time.Sleep(time.Second)
			b.net.Heal()
			b.net.Isolate(b.host(dead))
		}
		b.eventually("the voter is replaced", 12*time.Second-time.Since(began), func() bool {
			return b.whole(5) && !slices.Contains(b.voters(), dead)
		})
		t.Logf("%v, %d terms", time.Since(began), b.leader().currentTerm().Number()-term)
		if b.leader().currentTerm().Number() < term+2 {
			t.Error("leadership did not move")
		}
		b.nodes[dead] = gone
	})
}

// A rolling deploy from five voters to three ends with three, and leadership moves
// no more often than processes.
func TestARollingDeployFromFiveVotersToThreeEnds(t *testing.T) {
	inBubble(t, func(b *bubble) {
		names := []string{"n1", "n2", "n3", "n4", "n5"}
		for _, name := range names {
			b.start(name, wants(5))
		}
		b.mended(5, time.Minute)
		term := b.leader().currentTerm().Number()
		for _, name := range names {
			b.leave(name)
			b.join(name, wants(3), thin)
			time.Sleep(5 * time.Second)
		}
		b.mended(3, time.Minute)
		time.Sleep(20 * time.Second)
		if v := b.voters(); len(v) != 3 {
			t.Errorf("voters %v", v)
		}
		if terms := b.leader().currentTerm().Number() - term; terms > 2*uint64(len(names)) {
			t.Errorf("%d terms", terms)
		}
	})
}

// Five members in memory vote all five, and thin ones never; voters spread over
// zones.
func TestFiveMembersInMemoryVoteAndThinOnesNever(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		for i := range 3 {
			b.join(fmt.Sprint("t", i), thin, func(c *Config) { c.Voting.Thin = true })
		}
		b.join("n4")
		time.Sleep(20 * time.Second)
		b.mended(3, time.Second)
		b.join("n5")
		b.mended(5, 10*time.Second)
		for _, name := range b.voters() {
			if name[0] == 't' {
				t.Errorf("%s votes", name)
			}
		}
	})
}

func TestVotersSpreadOverZones(t *testing.T) {
	inBubble(t, func(b *bubble) {
		zone := func(z string) func(*Config) {
			return func(c *Config) { c.Voting.Zone, c.Voting.Voters = z, 3 }
		}
		nodes := []*Node{b.start("n1", zone("x")), b.start("n2", zone("x")), b.start("n3", zone("x"))}
		b.ready(nodes...)
		b.join("n4", zone("y"))
		b.join("n5", zone("z"))
		b.join("n6", zone("z"))
		spread := func() bool {
			if !b.whole(3) {
				return false
			}
			set, _ := b.leader().voterSet()
			var zones []string
			for _, v := range set.Voters {
				zones = append(zones, v.Zone)
			}
			slices.Sort(zones)
			return slices.Equal(zones, []string{"x", "y", "z"})
		}
		b.eventually("one voter in each zone", 20*time.Second, spread)
		id := b.leader().seat.Current().Voters()
		time.Sleep(20 * time.Second)
		if !slices.Equal(id, b.leader().seat.Current().Voters()) {
			t.Error("the voters change again")
		}
	})
}
