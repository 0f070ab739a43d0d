package sim

import (
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/history"
)

// directedPhases are schedules in which a weaker rule breaks.
var directedPhases = []phase{
	{"the old leader wakes", (*act).oldLeaderWakes},
	{"a minority is cut, and the leader dies", func(a *act) {
		leader := a.leader()
		few, most := a.split()
		if slices.Contains(few, leader) || leader == nil {
			return
		}
		if a.mayKill(leader) != leader {
			return
		}
		a.wait(a.upTo(a.ttl() / 3)) // holders' beats are confirmed
		a.w.part(few, most)
		a.wait(a.upTo(a.ttl() / 8))
		a.w.crash(leader)
		a.wait(a.ttl() + a.upTo(a.ttl()/2))
	}},
	{"a pause across the end of trust", func(a *act) {
		s := a.any(a.leader())
		if s == nil {
			return
		}
		a.w.freeze(s)
		a.wait(a.ttl() - a.margin() - a.ttl()/3 + a.upTo(a.ttl()/3+2*a.margin()))
		a.w.thaw(s)
		a.wait(a.upTo(a.ttl() / 4))
	}},
	{"a leader flaps", func(a *act) {
		for range 3 {
			if s := a.leader(); s != nil {
				a.w.isolate(s)
				a.wait(a.upTo(a.ttl()/2) + time.Second)
				a.w.mendNet()
				a.wait(a.upTo(time.Second))
			}
		}
	}},
	{"a session is cut while it is marked", func(a *act) {
		s := a.any(a.leader())
		if s == nil {
			return
		}
		a.w.isolate(s)
		marked := a.w.log.next(history.Marked)
		a.await(marked, a.ttl())
		a.w.mendNet()
		a.wait(a.upTo(a.ttl() / 6))
		a.strike(s)
		a.wait(a.upTo(a.ttl()))
	}},
	{"a restored member leads", (*act).restoredLeads},
	{"a beat while its session ends", (*act).beatMeetsEnd},
}

// await waits for a fact, at most for d.
func (a *act) await(told <-chan history.Fact, d time.Duration) (f history.Fact, ok bool) {
	t := time.NewTimer(max(a.bounded(d), 0))
	defer t.Stop()
	select {
	case f = <-told:
		return f, true
	case <-t.C:
		return f, false
	}
}

// oldLeaderWakes freezes the leader in the middle of a write, cut off with one member that
// does not vote or whose vote is not needed. The two go on after the others have elected
// another leader and before that member's trust is spent: the old leader does not know yet,
// and answers the member's beats, unless it asks the other voters first.
func (a *act) oldLeaderWakes() {
	old := a.leader()
	if old == nil || a.w.isFrozen(old) {
		return
	}
	friend := a.friend(old)
	if friend == nil {
		return
	}
	p := a.w.running(old)
	a.w.fault(old, "stands still in a write, with %d", friend.i)
	hung := time.Now()
	p.disk.Hang()
	a.await(a.w.log.next(history.Queued), 200*time.Millisecond)
	a.wait(100 * time.Millisecond) // the next entry hangs, and raft with it
	pair := []*site{old, friend}
	rest := slices.DeleteFunc(slices.Clone(a.w.sites), func(s *site) bool { return slices.Contains(pair, s) })
	a.w.part(pair, rest)
	a.w.freeze(old)
	if a.r.IntN(3) > 0 {
		a.w.freeze(friend)
	}
	if _, ok := a.await(a.w.log.next(history.Leads), 2500*time.Millisecond); ok {
		a.wait(a.margin() + a.upTo(300*time.Millisecond))
	}
	a.w.thaw(old)
	a.w.thaw(friend)
	a.wait(min(a.upTo(800*time.Millisecond), 2900*time.Millisecond-time.Since(hung)))
	p.disk.Heal() // raft looks at its lease, and steps down
	a.wait(a.ttl() + a.upTo(a.ttl()/3))
	a.w.mendNet()
}

// restoredLeads kills a member that does not lead, and leaders until that member leads: in
// memory, or behind a short log, its table is a snapshot's.
func (a *act) restoredLeads() {
	s := a.any(a.leader())
	if s == nil || a.mayKill(s) != s {
		return
	}
	a.w.crash(s)
	a.wait(a.upTo(a.ttl()))
	a.w.revive()
	a.wait(time.Second + a.upTo(2*time.Second))
	for range len(a.w.sites) {
		leader := a.leader()
		if leader == s || a.mayKill(leader) != leader {
			break
		}
		next := a.w.log.next(history.Leads)
		a.w.crash(leader)
		a.w.revive()
		a.await(next, 5*time.Second)
		a.wait(a.upTo(time.Second))
	}
	a.wait(a.ttl() + a.upTo(a.ttl()))
}

// beatMeetsEnd has the leader's store hang when a cut-off session's mark or end is due, and
// lets the session's beats through meanwhile. An answer to such a beat would be trusted until
// the session has long ended: the member is cut off again, and the leader too half of the time.
func (a *act) beatMeetsEnd() {
	leader := a.leader()
	s := a.any(leader)
	if leader == nil || s == nil || a.w.isFrozen(leader) || a.w.isFrozen(s) {
		return
	}
	p := a.w.running(leader)
	a.w.isolate(s)
	if a.r.IntN(2) == 0 {
		a.await(a.w.log.next(history.Marked), a.ttl())
		a.wait(a.ttl()/2 - a.upTo(a.ttl()/4))
	} else {
		a.wait(a.ttl()/3 - 200*time.Millisecond + a.upTo(a.ttl()/3)) // the mark comes two thirds of a TTL after the last beat
	}
	a.w.hang(leader)
	a.wait(a.upTo(time.Second))
	a.w.mendNet()
	a.wait(a.upTo(time.Second))
	p.disk.Heal()
	a.wait(a.upTo(50 * time.Millisecond))
	a.w.isolate(s)
	if a.r.IntN(2) == 0 {
		a.w.isolate(leader)
	}
	a.wait(a.ttl() + a.upTo(a.ttl()/4))
}

// margin is the difference between the TTL and the trust of a holder.
func (a *act) margin() time.Duration { return margin(a.ttl()) }

func margin(ttl time.Duration) time.Duration { return min(ttl/100+100*time.Millisecond, ttl/4) }

// friend returns a member whose vote the others do not need, or nil.
func (a *act) friend(leader *site) *site {
	votes := make(map[string]bool)
	n := 0
	for _, m := range a.w.running(leader).node.Members() {
		if votes[m.Name] = m.Voter; m.Voter {
			n++
		}
	}
	for _, i := range a.r.Perm(len(a.w.sites)) {
		s := a.w.sites[i]
		p := a.w.running(s)
		if s == leader || p == nil || votes[p.node.Name()] && n < 5 {
			continue
		}
		return s
	}
	return nil
}

// ambushes wait for a fact of the log and strike at that moment, so that answers and the
// consequences of the entry are lost.
func ambushes() (list []phase) {
	for _, kind := range []string{
		history.Granted, history.Queued, history.Opened, history.Marked, history.Heard, history.Expired, history.Closed,
		history.Leads, history.Assigned, history.Extended, "contended",
	} {
		list = append(list, phase{"ambush at " + kind, func(a *act) {
			if kind == history.Marked || kind == history.Expired || kind == history.Heard {
				if s := a.any(a.leader()); s != nil {
					a.w.isolate(s)
					if kind == history.Heard {
						a.await(a.w.log.next(history.Marked), 2*a.ttl())
						a.w.mendNet()
					}
				}
			}
			if kind == history.Leads {
				a.w.isolate(a.leader())
			}
			f, ok := a.await(a.w.log.next(kind), 3*a.ttl())
			if !ok {
				return
			}
			a.strike(a.member(f.Node))
			a.wait(a.upTo(3 * a.ttl() / 2))
		}})
	}
	return list
}

// member returns the site of a member by name, or the leader's.
func (a *act) member(name string) *site {
	for _, s := range a.w.sites {
		if p := a.w.running(s); p != nil && p.node.Name() == name {
			return s
		}
	}
	return a.leader()
}

// strike hits the leader, or a member, or the way between them, at once.
func (a *act) strike(s *site) {
	leader := a.leader()
	if leader == nil || s == nil {
		return
	}
	switch a.r.IntN(9) {
	case 0, 1:
		if a.quorum(leader) {
			a.w.crash(leader)
			return
		}
		a.w.isolate(leader)
	case 2:
		a.w.isolate(leader)
	case 3:
		a.w.mute(leader)
	case 4:
		a.w.freeze(leader)
		a.wait(a.upTo(3 * a.ttl() / 2))
		a.w.thaw(leader)
	case 5:
		if a.quorum(s) {
			a.w.crash(s)
			a.w.revive()
		}
	case 6:
		a.w.isolate(s)
	case 7:
		a.w.freeze(s)
		a.wait(a.upTo(3 * a.ttl() / 2))
		a.w.thaw(s)
	case 8:
		a.w.deafen(s)
	}
}
