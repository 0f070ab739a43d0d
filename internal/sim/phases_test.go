package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/host"
)

// A phase is a stretch of faults. It ends with the faults that it made still there, half of
// the time: the run heals some and lets others meet the next phase.
type phase struct {
	name string
	run  func(a *act)
}

// An act is one run of a phase.
type act struct {
	w     *town
	r     *rand.Rand
	disk  *host.Disk // hangs, until
	until time.Time
}

func (a *act) upTo(d time.Duration) time.Duration { return time.Duration(1 + a.r.Int64N(int64(d))) }

func (a *act) ttl() time.Duration { return a.w.shape.ttl }

// wait lets time pass, until a hung disk must go on at the latest.
func (a *act) wait(d time.Duration) {
	t := time.NewTimer(max(a.bounded(d), 0))
	defer t.Stop()
	<-t.C
}

func (a *act) bounded(d time.Duration) time.Duration {
	if a.disk != nil {
		return min(d, time.Until(a.until))
	}
	return d
}

// any returns a site with a process, other than the given ones; nil if there is none.
func (a *act) any(but ...*site) *site {
	for _, i := range a.r.Perm(len(a.w.sites)) {
		if s := a.w.sites[i]; a.w.running(s) != nil && !slices.Contains(but, s) {
			return s
		}
	}
	return nil
}

// leader returns the site of the newest leader, or any.
func (a *act) leader() *site {
	a.w.mu.Lock()
	by := a.w.leads.by
	a.w.mu.Unlock()
	if by != nil && a.w.running(by.site) == by {
		return by.site
	}
	return a.any()
}

// quorum reports whether the voters bear the loss of the site for good: in memory a lost
// majority brings nothing back, but a successor of the cluster, where Join is complete and
// somebody remembers the cluster. A voter that has ended counts until the leader has replaced
// it, and gossip has forgotten it by then: so each voter's own configuration is asked.
func (a *act) quorum(s *site) bool {
	switch {
	case a.w.shape.dir != noDir:
		return true
	case a.w.shape.complete:
		return a.w.remembered(s)
	}
	if leader := a.leader(); leader == nil || a.w.isFrozen(leader) || a.w.isFrozen(s) {
		return false
	}
	whole := make(map[string]bool) // by raft ID: it votes without s
	var sets [][]string
	for _, o := range a.w.sites {
		p := a.w.running(o)
		if p == nil || p.failed || a.w.netOf(o) != netWhole {
			continue
		}
		if r := p.node.Report().Raft; r != nil && r.Votes {
			whole[r.ID] = o != s
			sets = append(sets, r.Voters)
		}
	}
	for _, set := range sets {
		n := 0
		for _, id := range set {
			if whole[id] {
				n++
			}
		}
		if n <= len(set)/2 || len(set) < min(3, a.w.shape.members) {
			return false
		}
	}
	return len(sets) > 0
}

// mayKill returns s if its process may be killed, after the cluster has had time to mend;
// else nil.
func (a *act) mayKill(s *site) *site {
	if s != nil && a.quorum(s) {
		return s
	}
	a.w.heal()
	a.w.revive()
	for range 20 {
		a.wait(500 * time.Millisecond)
		if s = a.leader(); s != nil && a.quorum(s) {
			return s
		}
	}
	return nil
}

// split draws two groups of sites, the first not larger.
func (a *act) split() (few, most []*site) {
	order := a.r.Perm(len(a.w.sites))
	at := 1 + a.r.IntN(len(order)/2)
	for i, n := range order {
		if i < at {
			few = append(few, a.w.sites[n])
		} else {
			most = append(most, a.w.sites[n])
		}
	}
	return few, most
}

// randomPhases are the faults of any test of this kind.
var randomPhases = []phase{
	{"partition", func(a *act) {
		few, most := a.split()
		a.w.part(few, most)
		a.wait(a.upTo(3 * a.ttl()))
	}},
	{"cut off", func(a *act) {
		if s := a.any(); s != nil {
			a.w.isolate(s)
			a.wait(a.upTo(2 * a.ttl()))
		}
	}},
	{"one way", func(a *act) {
		s := a.any()
		if a.r.IntN(2) == 0 {
			s = a.leader()
		}
		if s == nil {
			return
		}
		if a.r.IntN(2) == 0 {
			a.w.deafen(s)
		} else {
			a.w.mute(s)
		}
		a.wait(a.upTo(3 * a.ttl()))
	}},
	{"slow", func(a *act) {
		if s := a.any(); s != nil {
			a.w.slow(s, a.r.Float64()*0.4, a.upTo(a.ttl()/6))
			a.wait(a.upTo(3 * a.ttl()))
		}
	}},
	{"pause", func(a *act) {
		if s := a.any(); s != nil && !a.w.isFrozen(s) {
			a.w.pause(s)
			a.wait(a.upTo(2 * a.ttl()))
		}
	}},
	{"freeze", func(a *act) {
		if s := a.any(); s != nil {
			a.w.freeze(s)
			a.wait(a.upTo(2 * a.ttl()))
			a.w.thaw(s)
			a.wait(a.upTo(a.ttl() / 2))
		}
	}},
	{"kill the leader", func(a *act) {
		if s := a.mayKill(a.leader()); s != nil {
			a.w.crash(s)
			a.wait(a.upTo(2 * a.ttl()))
			a.w.revive()
			a.wait(a.upTo(2 * time.Second))
		}
	}},
	{"kill any", func(a *act) {
		if s := a.mayKill(a.any()); s != nil {
			a.w.crash(s)
			a.wait(a.upTo(3 * a.ttl()))
		}
	}},
	{"restart at once", func(a *act) {
		if s := a.mayKill(a.any()); s != nil {
			a.w.crash(s)
			a.w.revive()
			a.wait(a.upTo(a.ttl()))
		}
	}},
	{"stop", func(a *act) {
		if s := a.mayKill(a.leader()); s != nil {
			a.w.fault(s, "told to end")
			a.w.stop(s, a.r.IntN(2) == 0)
			a.wait(a.upTo(2 * a.ttl()))
		}
	}},
	{"hang", func(a *act) {
		if s := a.leader(); s != nil {
			a.w.hang(s)
			a.wait(a.upTo(8 * time.Second))
			if p := a.w.running(s); p != nil {
				p.disk.Heal()
			}
		}
	}},
	{"failing store", func(a *act) {
		if s := a.mayKill(a.any()); s != nil {
			a.w.fail(s)
			a.wait(a.upTo(2 * a.ttl()))
			a.w.revive()
		}
	}},
	{"massacre", func(a *act) {
		if a.w.shape.dir == noDir && !a.w.shape.complete || a.r.IntN(2) == 0 {
			a.wait(a.upTo(time.Second))
			return
		}
		for _, i := range a.r.Perm(len(a.w.sites))[:1+len(a.w.sites)/2] {
			if s := a.w.sites[i]; a.w.shape.dir != noDir || a.w.remembered(s) {
				a.w.crash(s)
			}
		}
		a.wait(a.upTo(2 * a.ttl()))
		a.w.revive()
		a.wait(a.upTo(8 * time.Second))
	}},
	{"secrets", func(a *act) {
		x := a.w.shape.secrets
		if x == nil {
			return
		}
		a.w.fault(nil, "the secrets are rotated")
		x.known = append([][]byte{x.known[0]}, x.make())
		a.setSecrets(x.known)
		slices.Reverse(x.known)
		a.setSecrets(x.known)
		x.known = x.known[:1]
		a.setSecrets(x.known)
	}},
	{"clock steps", func(a *act) {
		s := a.any()
		i := s.i
		a.w.fault(s, "its wall clock is set forward")
		a.w.shape.offsets[i] += a.upTo(time.Hour)
		s.clock.Set(a.w.shape.rate(i), a.w.shape.offset(i))
	}},
}

// setSecrets has each process, one after the other, know these secrets.
func (a *act) setSecrets(known [][]byte) {
	for _, s := range a.w.sites {
		if p := a.w.running(s); p != nil && !a.w.isFrozen(s) {
			if err := p.node.SetSecrets(known...); err != nil && p.ctx.Err() == nil {
				a.w.breaks("secrets", "%s: %v", p.name, err)
			}
			a.wait(a.upTo(time.Second))
		}
	}
}
