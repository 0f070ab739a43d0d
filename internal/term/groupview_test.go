package term_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/wire"
)

// A reader that names its version is told the callers that have changed since, and no
// others.
func TestAReaderOfAGroupIsToldWhatHasChanged(t *testing.T) {
	onTroupe(t, func(g *troupe) {
		for n := byte(1); n <= 50; n++ {
			g.come(n)
		}
		time.Sleep(5 * time.Second)
		first := g.read(replica.Query{Group: "g"})
		if len(first.Group.Callers) != 50 || first.Since != 0 {
			t.Fatalf("%d callers since %d", len(first.Group.Callers), first.Since)
		}
		read := func(since *machine.GroupStatus) replica.Answer {
			return g.read(replica.Query{Group: "g", Since: since.Version})
		}
		if a := read(first.Group); len(a.Group.Callers) != 0 || a.Since != first.Group.Version || len(a.Gone) != 0 {
			t.Errorf("nothing has changed: %+v", a)
		}
		g.come(51)
		a := read(first.Group)
		if len(a.Group.Callers) != 1 || a.Group.Callers[0].Client != "c51" || len(a.Gone) != 0 || a.Group.Orphans != 0 {
			t.Errorf("a caller has come: %+v, gone %v", a.Group, a.Gone)
		}
		t.Logf("%d bytes for 51 callers, %d for one", wire.Size(&first), wire.Size(&a))
		a.Complete(first.Group)
		joined := a.Group
		g.leave(3)
		time.Sleep(5 * time.Second)
		for _, before := range []*machine.GroupStatus{first.Group, joined} {
			a := read(before)
			if len(a.Gone) != 1 || a.Since == 0 || len(a.Group.Callers) > 4 {
				t.Errorf("a caller has gone: %d callers, gone %v", len(a.Group.Callers), a.Gone)
			}
			a.Complete(before)
			if whole := g.read(replica.Query{Group: "g"}); fmt.Sprint(*a.Group) != fmt.Sprint(*whole.Group) {
				t.Errorf("%+v\nbut whole %+v", a.Group, whole.Group)
			}
		}
		// A version that no reader was told of here, as another leader's.
		g.come(52)
		before := g.state()
		g.come(53)
		if a := read(&before); a.Since != 0 || len(a.Group.Callers) != 52 {
			t.Errorf("an unknown version: %d callers since %d", len(a.Group.Callers), a.Since)
		}
	})
}

// Readers that look now and then know the group as well as a reader of the whole.
func TestReadersOfAGroupKeepUp(t *testing.T) {
	for round := range testrounds.Rounds(1, 50) {
		onTroupe(t, func(g *troupe) {
			rng := rand.New(rand.NewPCG(uint64(round), 3))
			g.enlist.Grace = uint64(rng.IntN(2) * 1000)
			states := make([]*machine.GroupStatus, 4)
			there := make(map[byte]bool)
			whole, parts := 0, 0
			for range 200 {
				switch n := byte(1 + rng.IntN(30)); {
				case !there[n]:
					g.come(n)
					there[n] = true
				case rng.IntN(2) == 0:
					g.leave(n)
					delete(there, n)
				}
				if rng.IntN(10) == 0 {
					time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
				}
				reader := rng.IntN(len(states) * (1 + rng.IntN(3))) // some are late
				if reader >= len(states) {
					continue
				}
				q := replica.Query{Group: "g"}
				if states[reader] != nil {
					q.Since = states[reader].Version
				}
				synctest.Wait() // for the planner
				a := g.read(q)
				if a.Since != 0 {
					parts++
				} else {
					whole++
				}
				a.Complete(states[reader])
				states[reader] = a.Group
				want := g.state()
				if a.Group == nil && want.Version == 0 {
					continue
				}
				if a.Group == nil || fmt.Sprint(*a.Group) != fmt.Sprint(want) {
					t.Fatalf("round %d: %+v\nbut the table has %+v", round, a.Group, want)
				}
			}
			if parts < whole {
				t.Errorf("round %d: %d answers in part, %d whole", round, parts, whole)
			}
		})
	}
}

// state returns the state of the group as the table has it.
func (g *troupe) state() (st machine.GroupStatus) {
	g.View(func(m *machine.State) { st, _ = m.Group("g") })
	return st
}

// Readers of more groups than the leader keeps in mind, and of large groups, are answered
// all the same.
func TestTheLeaderKeepsTheGroupsThatAreRead(t *testing.T) {
	onStage(t, func(s *stage) {
		const groups, sessions = term.MaxViews + 50, 8
		s.SetCheck(false)
		for n := byte(1); n <= sessions; n++ {
			s.open(n)
		}
		name := func(i int) string { return fmt.Sprint("g", i) }
		for i := range groups {
			s.Must(machine.Enlist{Session: sid(byte(1 + i%sessions)), Seq: uint64(i + 1), Group: name(i), Shards: 1, Weight: 100})
		}
		synctest.Wait()
		for i := range groups {
			if a := s.read(replica.Query{Group: name(i)}); a.Group == nil || len(a.Group.Callers) != 1 {
				t.Fatalf("%+v", a.Group)
			}
			s.read(replica.Query{Group: name(0)}) // the one that is read again and again stays
		}
		views, callers := s.Table().Views()
		if views != term.MaxViews || callers != views {
			t.Errorf("%d views with %d callers", views, callers)
		}
		a := s.read(replica.Query{Group: name(0)})
		if a := s.read(replica.Query{Group: name(0), Since: a.Group.Version}); a.Since == 0 {
			t.Error("the group that is read most is forgotten")
		}
		if a := s.read(replica.Query{Group: name(2), Since: a.Group.Version}); a.Since != 0 || len(a.Group.Callers) != 1 {
			t.Errorf("a forgotten group: since %d, %+v", a.Since, a.Group)
		}
	})
}
