package term_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// A troupe is callers of the group "g" on a stage: session n is of client "cn". Its
// sessions outlive every test.
type troupe struct {
	*stage
	enlist machine.Enlist          // as every caller does
	tokens map[int]machine.Token   // of the held shards
	seqs   map[byte]uint64         // used by each session
	as     map[byte]machine.Enlist // the last Enlist of each session
}

func onTroupe(t *testing.T, f func(g *troupe)) {
	t.Helper()
	onStage(t, func(s *stage) {
		s.Must(machine.Bound{Term: 1, TTL: uint64(time.Hour / time.Millisecond)})
		f(&troupe{
			stage: s, enlist: machine.Enlist{Group: "g", Shards: 64, Weight: 100},
			tokens: make(map[int]machine.Token), seqs: make(map[byte]uint64), as: make(map[byte]machine.Enlist),
		})
	})
}

// come opens sessions, unless they are open, and enlists them.
func (g *troupe) come(ns ...byte) {
	g.t.Helper()
	for _, n := range ns {
		if !g.alive(n) {
			g.Must(machine.Open{Session: sid(n), Client: fmt.Sprint("c", n), Node: "n", TTL: uint64(time.Hour / time.Millisecond)})
		}
		c := g.enlist
		c.Session, c.Seq = sid(n), g.seq(n)
		g.Must(c)
		g.as[n] = c
	}
}

func (g *troupe) seq(n byte) uint64 {
	g.seqs[n]++
	return g.seqs[n]
}

func (g *troupe) leave(n byte) {
	g.t.Helper()
	g.Must(machine.Delist{Session: sid(n), Seq: g.as[n].Seq})
}

// assigned returns the sessions' numbers by shard; 0 for an orphan or an absent caller.
func (g *troupe) assigned() []byte {
	synctest.Wait()
	var out []byte
	g.View(func(m *machine.State) {
		st, _ := m.Group("g")
		by := make(map[uint32]byte)
		for _, c := range st.Callers {
			if c.Absent == 0 {
				by[c.ID] = number(c.Session)
			}
		}
		for _, id := range m.Assignment("g", nil) {
			out = append(out, by[id])
		}
	})
	return out
}

// sizes returns how many shards are assigned to each session; [0] are orphans.
func (g *troupe) sizes(ns ...byte) (sizes []int) {
	assigned := g.assigned()
	for _, n := range ns {
		count := 0
		for _, by := range assigned {
			if by == n {
				count++
			}
		}
		sizes = append(sizes, count)
	}
	return sizes
}

func (g *troupe) wantSizes(when string, ns []byte, want ...int) {
	g.t.Helper()
	if got := g.sizes(ns...); !slices.Equal(got, want) {
		g.t.Errorf("%s: sizes %v, want %v", when, got, want)
	}
}

// assigns returns the number of Assigns that were done, and of their moves.
func (g *troupe) assigns() (n, moves int) {
	synctest.Wait()
	for _, c := range g.Applied() {
		if c, ok := c.(machine.Assign); ok {
			n++
			moves += len(c.Moves)
		}
	}
	return n, moves
}

// settle has every caller acquire the shards assigned to it and release all others, until
// nothing moves. It returns how many shards have changed hands, and the largest number of
// shards on their way at one time.
func (g *troupe) settle() (changes, most int) {
	g.t.Helper()
	for {
		assigned := g.assigned()
		under := 0
		changed := false
		for i, to := range assigned {
			key := fmt.Sprint("g/", i)
			owner, _ := g.Owner(key)
			if number(owner) == to || to == 0 {
				continue
			}
			if owner != (machine.SessionID{}) {
				under++
			}
		}
		most = max(most, under)
		for i, to := range assigned {
			key := fmt.Sprint("g/", i)
			owner, token := g.Owner(key)
			if number(owner) == to || to == 0 {
				continue
			}
			changed = true
			changes++
			g.Must(machine.Acquire{Session: sid(to), Seq: g.seq(to), Key: key})
			if token != 0 {
				g.Must(machine.Release{Session: owner, Token: token})
			}
		}
		if !changed {
			return changes, most
		}
		time.Sleep(2 * timing.PlanRest)
	}
}

func TestCallersThatStartTogetherShareOnePlan(t *testing.T) {
	onTroupe(t, func(g *troupe) {
		for n := range byte(10) {
			g.come(n + 1)
			time.Sleep(timing.PlanQuiet / 2)
		}
		time.Sleep(timing.PlanQuiet/2 - time.Millisecond)
		if n, _ := g.assigns(); n > 0 {
			t.Error("planned while callers came")
		}
		time.Sleep(time.Millisecond)
		if n, moves := g.assigns(); n != 1 || moves != 64 {
			t.Errorf("%d plans with %d moves", n, moves)
		}
		g.wantSizes("at first", []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0, 7, 7, 7, 7, 6, 6, 6, 6, 6, 6)
		if changes, _ := g.settle(); changes != 64 {
			t.Errorf("%d grants of 64 shards", changes)
		}
		time.Sleep(time.Minute)
		if n, _ := g.assigns(); n != 1 {
			t.Errorf("%d plans of a settled group", n)
		}
	})
}

func TestAFirstPlanWaitsForAFewSecondsAtMost(t *testing.T) {
	onTroupe(t, func(g *troupe) {
		for n := range byte(20) {
			g.come(n + 1)
			time.Sleep(timing.PlanQuiet * 3 / 4)
			passed := timing.PlanQuiet * 3 / 4 * time.Duration(n+1)
			if plans, _ := g.assigns(); plans > 0 != (passed >= timing.PlanMost) {
				t.Fatalf("%d plans after %v", plans, passed)
			}
		}
	})
}

func TestAnOrphanOfASettledGroupIsAssignedAtOnce(t *testing.T) {
	onTroupe(t, func(g *troupe) {
		g.come(1, 2, 3)
		time.Sleep(timing.PlanQuiet)
		g.settle()
		g.leave(2)
		g.wantSizes("one has left", []byte{0, 1, 2, 3}, 0, 32, 0, 32)
		if _, moves := g.assigns(); moves != 64+21 {
			t.Errorf("%d moves", moves)
		}
		g.Must(machine.Expire{Session: sid(3), Term: 1})
		g.wantSizes("one has expired", []byte{0, 1, 3}, 0, 64, 0)

		// Also while a caller has just come, for which the balance waits.
		g.settle()
		g.come(4)
		time.Sleep(timing.PlanQuiet / 2)
		before, _ := g.assigns()
		g.Must(machine.Decline{Session: sid(1), Seq: g.as[1].Seq, Shard: 7, Version: g.part(1).Version})
		if g.assigned()[7] != 4 {
			t.Errorf("the declined shard is assigned to %d", g.assigned()[7])
		}
		if n, _ := g.assigns(); n != before+1 {
			t.Errorf("%d plans", n-before)
		}
		time.Sleep(timing.PlanQuiet)
		g.settle()
		g.wantSizes("balanced", []byte{0, 1, 4}, 0, 32, 32)
	})
}

// part returns a session's latest part.
func (g *troupe) part(n byte) (p machine.Part) {
	synctest.Wait()
	g.View(func(m *machine.State) {
		for _, e := range m.Pending(sid(n)) {
			if e.Kind == machine.EventPart {
				p, _ = machine.DecodePart([]byte(e.Value))
			}
		}
	})
	return p
}

func TestBalanceMovesAFewShardsAtATime(t *testing.T) {
	onTroupe(t, func(g *troupe) {
		g.enlist.MaxMoves = 3
		g.come(1)
		time.Sleep(timing.PlanQuiet)
		g.settle()
		g.come(2)
		time.Sleep(timing.PlanQuiet - time.Millisecond)
		g.wantSizes("a caller has just come", []byte{0, 1, 2}, 0, 64, 0)
		time.Sleep(time.Millisecond)
		g.wantSizes("balance has begun", []byte{0, 1, 2}, 0, 61, 3)
		time.Sleep(time.Minute)
		g.wantSizes("nobody moves", []byte{0, 1, 2}, 0, 61, 3)
		if changes, most := g.settle(); changes != 32 || most != 3 {
			t.Errorf("%d shards have moved, %d at a time", changes, most)
		}
		g.wantSizes("balanced", []byte{0, 1, 2}, 0, 32, 32)
	})
}

func TestGraceIsCountedByTheLeader(t *testing.T) {
	const grace = 10 * time.Second
	onTroupe(t, func(g *troupe) {
		g.enlist.Grace = uint64(grace / time.Millisecond)
		g.come(1, 2)
		time.Sleep(timing.PlanQuiet)
		before := g.assigned()
		g.leave(1)
		time.Sleep(grace - time.Millisecond)
		g.come(1)
		if after := g.assigned(); !slices.Equal(before, after) {
			t.Errorf("moved within the Grace: %v, then %v", before, after)
		}
		g.leave(1)
		time.Sleep(grace - time.Millisecond)
		g.wantSizes("absent", []byte{0, 2}, 32, 32)
		time.Sleep(2 * time.Millisecond)
		g.wantSizes("given up", []byte{0, 2}, 0, 64)

		// A new leader counts the whole time anew.
		g.come(1)
		time.Sleep(timing.PlanQuiet)
		g.settle()
		g.leave(2)
		time.Sleep(grace - time.Millisecond)
		g.Lead()
		time.Sleep(grace - time.Millisecond)
		g.wantSizes("absent under a new leader", []byte{0, 1}, 32, 32)
		time.Sleep(2 * time.Millisecond)
		g.wantSizes("given up by the new leader", []byte{0, 1}, 0, 64)
	})
}

func TestARollingRestartWithinTheGraceMovesNothing(t *testing.T) {
	onTroupe(t, func(g *troupe) {
		g.enlist.Grace = 60_000
		all := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
		g.come(all...)
		time.Sleep(timing.PlanQuiet)
		g.settle()
		before := g.assigned()
		for _, n := range all {
			g.leave(n)
			time.Sleep(5 * time.Second)
			g.come(n)
			time.Sleep(5 * time.Second)
		}
		if after := g.assigned(); !slices.Equal(before, after) {
			t.Errorf("moved: %v, then %v", before, after)
		}
		if n, moves := g.assigns(); n != 1 || moves != 64 {
			t.Errorf("%d plans with %d moves", n, moves)
		}
	})
}

func TestASurgeWithSuccessorsMovesEachShardOnce(t *testing.T) {
	onTroupe(t, func(g *troupe) {
		g.come(1, 2, 3)
		time.Sleep(timing.PlanQuiet)
		moved, _ := g.settle()
		for n := range byte(3) {
			g.enlist.Succeeds = fmt.Sprint("c", n+1)
			g.come(n + 4)
			time.Sleep(5 * time.Second)
			g.wantSizes("standing by", []byte{n + 4}, 0)
			g.leave(n + 1)
			more, _ := g.settle()
			moved += more
		}
		if moved != 2*64 {
			t.Errorf("%d changes of owners", moved)
		}
		if n, moves := g.assigns(); n != 1 || moves != 64 {
			t.Errorf("%d plans with %d moves", n, moves)
		}
		g.wantSizes("after the surge", []byte{0, 4, 5, 6}, 0, 22, 21, 21)
	})
}

func TestADeclinedShardIsKeptFromItsCallerForATTL(t *testing.T) {
	onTroupe(t, func(g *troupe) {
		g.Must(machine.Bound{Term: 1, TTL: 10_000})
		g.enlist.Shards = 4
		g.Must(machine.Open{Session: sid(1), Client: "c1", Node: "n", TTL: 10_000})
		g.come(1)
		time.Sleep(timing.PlanQuiet)
		decline := func(n byte, shard uint32) {
			t.Helper()
			g.Must(machine.Decline{Session: sid(n), Seq: g.as[n].Seq, Shard: shard, Version: g.part(n).Version})
		}
		decline(1, 2)
		for range 9 {
			time.Sleep(time.Second)
			g.beat(1)
		}
		time.Sleep(time.Second - time.Millisecond)
		if got := g.assigned(); !slices.Equal(got, []byte{1, 1, 0, 1}) {
			t.Errorf("assigned %v", got)
		}
		time.Sleep(2 * time.Millisecond)
		if got := g.assigned(); !slices.Equal(got, []byte{1, 1, 1, 1}) {
			t.Errorf("assigned %v", got)
		}
	})
}

func TestNoShardOfTheNextNumberBeginsBesideOneOfTheOld(t *testing.T) {
	onTroupe(t, func(g *troupe) {
		g.enlist.Shards = 8
		g.come(1, 2)
		time.Sleep(timing.PlanQuiet)
		g.settle()
		g.Must(machine.Resize{Session: sid(1), Seq: g.seq(1), Group: "g", From: 8, To: 5})
		if p := g.part(1); !p.Resized || len(p.Mine) > 0 || p.Shards != 8 {
			t.Errorf("part %+v", p)
		}
		g.enlist.Shards = 5
		g.come(3)
		none := func(when string) {
			t.Helper()
			time.Sleep(time.Minute)
			if p := g.part(3); p.Version != 0 {
				t.Errorf("%s: part %+v", when, p)
			}
		}
		none("callers of the old number")
		g.leave(1)
		g.leave(2)
		none("keys of the old number")
		for i := range 8 {
			none(fmt.Sprint("key ", i))
			owner, token := g.Owner(fmt.Sprint("g/", i))
			if i == 4 {
				g.Lead() // a new leader goes on
			}
			g.Must(machine.Release{Session: owner, Token: token})
		}
		synctest.Wait()
		if p := g.part(3); p.Shards != 5 || p.Resized {
			t.Errorf("part %+v", p)
		}
		time.Sleep(timing.PlanQuiet)
		g.wantSizes("the next number", []byte{0, 3}, 0, 5)

		// Also without anybody: an operator has stopped all callers.
		g.leave(3)
		g.Must(machine.Resize{Session: sid(1), Seq: g.seq(1), Group: "g", From: 5, To: 6})
		synctest.Wait()
		g.enlist.Shards = 6
		g.come(1)
		if p := g.part(1); p.Shards != 6 {
			t.Errorf("part %+v", p)
		}
	})
}

// A plan of a leader that was replaced meanwhile changes nothing.
func TestAStaleLeadersPlanChangesNothing(t *testing.T) {
	onTroupe(t, func(g *troupe) {
		g.come(1, 2)
		resume := g.Pause()
		time.Sleep(10 * time.Second)
		g.Lead()
		time.Sleep(timing.PlanQuiet)
		before := g.assigned()
		resume()
		time.Sleep(10 * time.Second)
		if after := g.assigned(); !slices.Equal(before, after) || slices.Contains(after, 0) {
			t.Errorf("assigned %v, then %v", before, after)
		}
		if n, _ := g.assigns(); n != 1 {
			t.Errorf("%d plans", n)
		}
	})
}

// A plan whose fate is not known, or that was dropped, is made again.
func TestAPlanIsMadeUntilItIsDone(t *testing.T) {
	onTroupe(t, func(g *troupe) {
		g.come(1, 2)
		g.HoldEntries()
		time.Sleep(timing.PlanQuiet)
		synctest.Wait()
		g.Decide(termtest.Dropped)
		synctest.Wait()
		if n, _ := g.assigns(); n != 0 {
			t.Fatalf("%d plans", n)
		}
		g.ReleaseEntries()
		time.Sleep(time.Second)
		g.wantSizes("made again", []byte{0, 1, 2}, 0, 32, 32)
	})
	onTroupe(t, func(g *troupe) {
		g.come(1, 2)
		g.HoldEntries()
		time.Sleep(timing.PlanQuiet)
		synctest.Wait()
		g.come(3) // the plan in flight is of another version
		g.ReleaseEntries()
		time.Sleep(10 * timing.PlanQuiet)
		g.wantSizes("planned anew", []byte{0, 1, 2, 3}, 0, 22, 21, 21)
	})
}

// A group of which nobody is left costs the planner nothing.
func TestAGroupWithoutCallersIsForgotten(t *testing.T) {
	onTroupe(t, func(g *troupe) {
		g.come(1)
		time.Sleep(timing.PlanQuiet)
		g.settle()
		g.leave(1)
		synctest.Wait()
		if n := g.Term().Planned(); n != 0 {
			t.Errorf("%d groups are planned", n)
		}
		g.come(1)
		time.Sleep(timing.PlanQuiet)
		g.wantSizes("back", []byte{0, 1}, 0, 64)
	})
}

func TestAReaderOfAGroupIsToldChanges(t *testing.T) {
	onTroupe(t, func(g *troupe) {
		a := g.read(replica.Query{Group: "g"})
		if a.Group != nil || a.Version == 0 {
			t.Errorf("%+v of an unknown group", a)
		}
		ch := make(chan replica.Answer, 10)
		wait := func(q replica.Query) {
			g.Term().Read(q, func(a replica.Answer, _ wire.Code) { ch <- a })
			synctest.Wait()
		}
		wait(replica.Query{Group: "g", Version: a.Version})
		if len(ch) > 0 {
			t.Error("answered without a change")
		}
		g.come(1)
		a = <-ch
		if a.Group == nil || len(a.Group.Callers) != 1 || a.Group.Callers[0].Client != "c1" || a.Group.Orphans != 64 {
			t.Errorf("%+v", a.Group)
		}
		wait(replica.Query{Group: "g", Version: a.Version})
		g.acquire(1, g.seq(1), "g/0")
		if synctest.Wait(); len(ch) > 0 {
			t.Error("a key of a shard is no part of the group")
		}
		time.Sleep(timing.PlanQuiet)
		if a = <-ch; a.Group.Orphans != 0 || a.Group.Callers[0].Assigned != 64 {
			t.Errorf("%+v", a.Group)
		}
	})
}

// The largest answer about a group finds room in a frame.
func TestTheLargestGroupFitsAFrame(t *testing.T) {
	long := func(n int) string { return fmt.Sprintf("%0*d", machine.MaxName, n) }
	a := replica.Answer{Group: &machine.GroupStatus{Shards: 1 << 31, Version: 1 << 63}, Version: 1 << 63}
	for i := range machine.MaxCallers {
		a.Group.Callers = append(a.Group.Callers, machine.Caller{
			ID: 1 << 31, Session: sid(1), Seq: 1 << 63, Client: long(i), Node: long(i), Succeeds: long(i),
			Weight: 1 << 31, Absent: 1 << 63, Next: true, Assigned: 1 << 31,
		})
	}
	if n := wire.Size(&a); n > wire.MaxBody*3/4 {
		t.Errorf("%d bytes of %d", n, wire.MaxBody)
	}
}

// A caller on a new stream is told its part.
func TestAReturningSubscriberIsToldItsPart(t *testing.T) {
	onTroupe(t, func(g *troupe) {
		g.come(1, 2)
		time.Sleep(timing.PlanQuiet)
		g.assigned()
		parts := make(chan machine.Event, 10)
		again := &term.Subscriber{Node: "n", Event: func(e machine.Event) { parts <- e }}
		g.Term().Join(again)
		g.Term().Attach(again, keys(1), nil)
		synctest.Wait()
		e := <-parts
		p, err := machine.DecodePart([]byte(e.Value))
		if err != nil || e.Kind != machine.EventPart || e.Seq != g.as[1].Seq || len(p.Mine) != 32 || p.Shards != 64 {
			t.Errorf("%+v, %+v, %v", e, p, err)
		}
		if len(parts) > 0 {
			t.Errorf("%+v", <-parts)
		}
		g.leave(2)
		synctest.Wait()
		if p, _ := machine.DecodePart([]byte((<-parts).Value)); len(p.Mine) != 64 {
			t.Errorf("%+v", p)
		}
	})
}

// An operator ends a session with more callers than a slice takes. While the callers leave,
// the planner may assign shards to those that are still there. In the end each shard is
// assigned to a caller that lives, with Grace and a Resize on the way too.
func TestTheShardsOfARevokedSessionFindOthers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		grace time.Duration
	}{{"at once", 0}, {"after the grace", time.Minute}} {
		t.Run(tc.name, func(t *testing.T) {
			onTroupe(t, func(g *troupe) {
				g.enlist.Grace = uint64(tc.grace / time.Millisecond)
				for range 100 {
					g.come(1)
				}
				g.come(2)
				time.Sleep(timing.PlanMost + time.Second)
				if g.sizes(1)[0] == 0 {
					t.Fatal("nothing to move")
				}
				before, _ := g.assigns()
				g.open(9)
				g.Must(machine.EndSession{Session: sid(9), Ref: sid(1).Ref()})
				time.Sleep(tc.grace + 10*time.Second)
				g.wantSizes("after the order", []byte{0, 1, 2}, 0, 0, 64)
				if after, _ := g.assigns(); after-before > 100 {
					t.Errorf("%d plans", after-before)
				}
				g.Must(machine.Resize{Session: sid(2), Seq: g.seq(2), Group: "g", From: 64, To: 32})
				g.leave(2)
				g.enlist.Shards = 32
				g.come(2)
				time.Sleep(10 * time.Second)
				g.wantSizes("after the resize", []byte{0, 2}, 0, 32)
			})
		})
	}
}
