package attack

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// slandered is how long false leaders pose as honest followers. A false leader that is found out
// is left alone for a second, and then for twice as long each time: the fourth time comes within
// so long, and lasts for longer than a lock lives.
const slandered = 11 * time.Second

// slander runs a false leader in the name of each follower for a while, and ends the true leader
// then. The next one is a follower whose name was taken, and must serve the other.
func (w *town) slander(stay bool) string {
	a := w.attacker(member)
	defer a.close()
	var err error
	if a.know, err = w.learn(); err != nil {
		return fmt.Sprintf("nothing learnt: %v", err)
	}
	leader := w.leader()
	fakes := make(map[int]*fakeLeader)
	for i := range w.houses {
		if i == leader {
			continue
		}
		v := a.know.process(i)
		if fakes[i], err = a.fakeLeader(peer{v.Name, v.Boot + 1000}); err != nil {
			w.t.Fatal(err)
		}
	}
	a.openPackets()
	m := metadata(func(m *meta) { m.Cluster, m.Leads, m.Voter = a.know.cluster, math.MaxUint64, true })
	for n, began := uint32(1), time.Now(); time.Since(began) < slandered; n++ {
		a.rounds(1, func(_, i int) {
			for _, fake := range fakes {
				a.gossips(i, gossipNode(fake.as, fake.addr(), n, m))
			}
		})
	}
	for i, fake := range fakes {
		if fake.attached.Load() < 4 {
			return fmt.Sprintf("no attack: %d members asked the false %s", fake.attached.Load(), name(i))
		}
		if fake.used.Load() > 0 {
			return "a member uses a false leader"
		}
	}
	if !stay {
		a.close() // the false leaders have gone, and what members think of their names has not
	}
	w.houses[leader].kill()
	for key, h := range w.held {
		if h.i == leader {
			delete(w.held, key)
		}
	}
	for i := range fakes {
		if _, err := w.houses[i].ask("try", fmt.Sprint("next-", i), serveWithin); err != nil {
			return fmt.Sprintf("%s is not served: %v", name(i), err)
		}
	}
	w.start(leader)
	if _, err := w.houses[leader].ask("ready", "", 10*time.Second); err != nil {
		return err.Error()
	}
	time.Sleep(ttl) // harm shows late
	_, _, terms := w.leads()
	return w.harm(terms)
}

// A false leader in the name of an honest follower has nobody refuse the follower once that
// leads.
func TestAFalseLeaderIsNotTakenForItsNamesake(t *testing.T) {
	if !thorough() {
		t.Skip("part of the matrix")
	}
	for _, m := range []mode{withSecret, withShared} {
		t.Run(string(m), func(t *testing.T) {
			w := newTown(t, 3, m)
			w.tryAlone(member, "false leaders in the names of followers", func() string { return w.slander(false) })
		})
	}
}

// A false leader that is there while the true one ends is left for the next true leader.
func TestAFalseLeaderOutlivesNoLeader(t *testing.T) {
	if !thorough() {
		t.Skip("part of the matrix")
	}
	for _, m := range []mode{withSecret, withShared} {
		t.Run(string(m), func(t *testing.T) {
			w := newTown(t, 3, m)
			w.tryAlone(member, "false leaders beside an election", func() string { return w.slander(true) })
		})
	}
}
