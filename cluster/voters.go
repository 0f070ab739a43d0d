package cluster

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// serverView is one line of the raft configuration, as the leader sees it.
type serverView struct {
	id      string
	voter   bool
	gone    bool // will not come back, or not soon
	leaving bool // asked to be replaced
	ready   bool // a non-voter that has caught up
	alive   bool
}

// A step is one change on the way to the wanted configuration.
type step struct {
	kind stepKind
	id   string
}

type stepKind uint8

const (
	stepNone    stepKind = iota
	stepInvite           // the next candidate becomes a non-voter
	stepPromote          // non-voter id becomes a voter
	stepRemove           // server id leaves
)

// planVoters chooses the next step. It never counts on more than it sees: the
// target is the wanted number, or the largest odd one that the living allow; a
// dead voter is kept until its successor has caught up, so that it may still
// return; repair comes before growth; and growth goes from odd to odd, since an
// even number of voters bears no more losses than the odd one below it.
func planVoters(servers []serverView, candidates, want int) step {
	var healthy, voters, up int
	var gone, leaving, ready, living []serverView
	for _, s := range servers {
		if s.voter && s.alive {
			up++
		}
		switch {
		case !s.voter && (s.gone || s.leaving || !s.alive):
			return step{stepRemove, s.id} // it counts for nothing yet
		case !s.voter:
			living = append(living, s)
			if s.ready {
				ready = append(ready, s)
			}
		case s.gone:
			voters++
			gone = append(gone, s)
		case s.leaving:
			voters++
			leaving = append(leaving, s)
		default:
			voters++
			healthy++
		}
	}
	target := min(want, healthy+len(living)+candidates)
	if target%2 == 0 {
		target--
	}
	need := target - healthy
	// A living voter may go only if those that live without it are a majority
	// of those left: a dead one that may still return does not count.
	spare := up-1 >= (voters-1)/2+1
	switch {
	case need > 0 && len(gone) > 0 && len(ready) > 0:
		return step{stepRemove, gone[0].id}
	case need > 0 && len(ready) > 0 && (len(leaving) > 0 || voters%2 == 0 || len(ready) > 1):
		return step{stepPromote, ready[0].id}
	case need > len(living) && candidates > 0:
		return step{kind: stepInvite}
	case need > 0 && len(living) > 0:
		return step{} // wait for them to catch up
	case len(leaving) > 0 && spare:
		return step{stepRemove, leaving[0].id}
	case len(gone) > 0 && (healthy >= want || len(leaving) > 0):
		// Not needed, or in the way of one that wants to leave.
		return step{stepRemove, gone[0].id}
	case len(living) > 0:
		return step{stepRemove, living[0].id} // no standing non-voters
	case healthy > want && spare:
		return step{stepRemove, servers[len(servers)-1].id}
	}
	return step{}
}

const (
	reconcileEvery = time.Second
	stableAfter    = 3 * time.Second  // alive for so long, a member may be made a voter
	deadInMemory   = 15 * time.Second // a voter silent for so long is replaced
	deadDurable    = 5 * time.Minute
	catchUpLag     = 64 // entries
	catchUpChecks  = 2
	catchUpLimit   = time.Minute      // in which a non-voter must catch up
	shyFor         = 30 * time.Second // a candidate that failed is passed over
)

// reconcile keeps the voters as configured for as long as this node leads, one
// change at a time.
func (l *leader) reconcile(ctx context.Context) {
	t := time.NewTicker(reconcileEvery)
	defer t.Stop()
	checks := make(map[string]int)
	shy := make(map[place]time.Time) // candidates that failed, and when
	tried := make(map[string]time.Time)
	known := make(map[string]bool)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-l.departing:
		}
		l.reconcileBound()
		l.reconcileFormat()
		servers, candidates := l.viewServers(ctx, checks)
		now := time.Now()
		for i := range servers {
			s := &servers[i]
			if s.voter || s.ready {
				delete(tried, s.id)
				continue
			}
			if tried[s.id].IsZero() {
				tried[s.id] = now
			} else if now.Sub(tried[s.id]) > catchUpLimit {
				s.gone = true // another may do better
				if at, err := l.n.resolve(s.id); err == nil {
					shy[at] = now
				}
			}
		}
		candidates = slices.DeleteFunc(candidates, func(c sighting) bool {
			since, failed := shy[c.at()]
			return failed && now.Sub(since) < shyFor
		})
		l.tellVoters(servers, known)
		l.answerDeparts(servers)
		s := planVoters(servers, len(candidates), l.n.cfg.Voters)
		if s.kind == stepNone || !l.raft.leads(l.term) {
			continue
		}
		if err := l.take(ctx, s, candidates); err != nil {
			l.n.log.Debug("voter change", "step", s.kind, "raft", s.id, "error", err)
			if s.kind == stepInvite {
				shy[candidates[0].at()] = now
			}
		}
	}
}

// take makes one change of the configuration.
func (l *leader) take(ctx context.Context, s step, candidates []sighting) error {
	l.changing.Store(true)
	defer l.changing.Store(false)
	prev := l.table.configIndex()
	switch s.kind {
	case stepInvite:
		c := candidates[0]
		ask, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		var a wire.InviteAnswer
		if err := l.n.control.askInto(ask, c.at(), wire.Invite, wire.Marshal(&wire.InviteRequest{Term: l.term}), &a); err != nil {
			return err
		}
		l.n.log.Info("adding a voter", "raft", a.Raft)
		return l.raft.addNonvoter(a.Raft, prev)
	case stepPromote:
		return l.raft.addVoter(s.id, prev)
	case stepRemove:
		if s.id == l.raft.id {
			// Others remove a leader that has handed over.
			return l.raft.transfer(ctx)
		}
		l.n.log.Info("removing a voter", "raft", s.id)
		if err := l.raft.removeServer(s.id, prev); err != nil {
			return err
		}
		l.n.control.begin(ctx, s.id, wire.Removed, wire.Marshal(&wire.RemovedNotice{Raft: s.id, Term: l.term}), func(wire.Frame, error) {})
	}
	return nil
}

// viewServers joins the raft configuration with what gossip says, and lists
// the members that could become voters, best first.
func (l *leader) viewServers(ctx context.Context, checks map[string]int) (servers []serverView, candidates []sighting) {
	now := time.Now()
	sightings := l.n.gossip.all()
	durable := l.n.cfg.Dir != ""
	patience := deadInMemory
	if durable {
		patience = deadDurable
	}
	l.mu.Lock()
	departs := make(map[string]bool, len(l.departs))
	for id := range l.departs {
		departs[id] = true
	}
	l.mu.Unlock()

	format := l.required()
	taken := make(map[string]bool)
	for _, s := range l.raft.servers() {
		name, gen, err := splitRaftID(s.ID)
		if err != nil {
			continue
		}
		v := serverView{id: s.ID, voter: s.Voter, leaving: departs[s.ID]}
		taken[name] = true
		var successor bool
		last := l.started
		for _, m := range sightings {
			switch {
			case m.name != name:
			case m.alive && m.meta.Generation == gen:
				v.alive = true
				v.leaving = v.leaving || m.meta.Leaving
			case m.alive && m.meta.Cluster != (machine.ClusterID{}):
				successor = true
			case m.since.After(last):
				last = m.since
			}
		}
		switch {
		case s.ID == l.raft.id:
			v.alive = true
		case v.alive:
		case successor:
			// The member runs without this store: it will not vote again
			// under this ID.
			v.gone, taken[name] = true, false
		default:
			v.gone = now.Sub(last) > patience && !l.answers(ctx, s.ID)
		}
		if !s.Voter && l.n.gossip.format(s.ID) < format {
			v.gone = true // it came before the format was raised
		}
		if !s.Voter && v.alive {
			if l.lag(ctx, s.ID) < catchUpLag {
				checks[s.ID]++
			} else {
				delete(checks, s.ID)
			}
			v.ready = checks[s.ID] >= catchUpChecks
		}
		servers = append(servers, v)
	}
	for _, m := range sightings {
		if m.alive && !taken[m.name] && max(int(m.meta.Format), leastFormat) >= format && m.meta.Version == protocolVersion && m.meta.Durable == durable && !m.meta.Leaving && m.meta.Generation != 0 &&
			m.meta.Cluster != (machine.ClusterID{}) && now.Sub(m.since) >= stableAfter {
			candidates = append(candidates, m)
		}
	}
	// The leader itself leaves last.
	slices.SortStableFunc(servers, func(a, b serverView) int {
		if self := l.raft.id; (a.id == self) != (b.id == self) {
			if a.id == self {
				return 1
			}
			return -1
		}
		return 0
	})
	slices.SortStableFunc(candidates, func(a, b sighting) int { return cmp.Compare(a.boot, b.boot) })
	return servers, candidates
}

// progress asks how far the raft of the given ID has come.
func (l *leader) progress(ctx context.Context, id string) (a wire.ProgressAnswer, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	at, err := l.n.resolve(id)
	if err != nil || l.n.control.askInto(ctx, at, wire.Progress, nil, &a) != nil {
		return a, false
	}
	return a, a.Raft == id
}

func (l *leader) answers(ctx context.Context, id string) bool {
	_, ok := l.progress(ctx, id)
	return ok
}

func (l *leader) lag(ctx context.Context, id string) uint64 {
	a, ok := l.progress(ctx, id)
	if !ok {
		return ^uint64(0)
	}
	last := l.raft.lastIndex()
	return last - min(last, a.Applied)
}

// tellVoters tells the user who became a voter, and who is one no more.
func (l *leader) tellVoters(servers []serverView, known map[string]bool) {
	first := len(known) == 0
	now := make(map[string]bool)
	for _, s := range servers {
		if s.voter {
			now[s.id] = true
			if !known[s.id] && !first {
				l.n.event(Event{Kind: VoterAdded, Member: l.n.memberOf(s.id)})
			}
		}
	}
	for id := range known {
		if !now[id] {
			l.n.event(Event{Kind: VoterRemoved, Member: l.n.memberOf(id)})
		}
	}
	clear(known)
	for id := range now {
		known[id] = true
	}
}

// depart has the member's raft ID replaced, and done called when it is out of
// the configuration.
func (l *leader) depart(name string, boot uint64, done func(wire.Code)) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		done(wire.CodeNotLeader)
		return
	}
	var id string
	for _, s := range l.raft.servers() {
		if n, _, _ := splitRaftID(s.ID); n == name {
			id = s.ID
		}
	}
	for _, m := range l.n.gossip.all() {
		if m.alive && m.name == name && m.boot > boot {
			id = "" // a newer process of that name runs: this one has no part any more
		}
	}
	if id == "" {
		l.mu.Unlock()
		done(wire.CodeOK)
		return
	}
	earlier := l.departs[id]
	l.departs[id] = done
	l.mu.Unlock()
	if earlier != nil {
		earlier(wire.CodeNotLeader)
	}
	select {
	case l.departing <- struct{}{}:
	default:
	}
}

func (l *leader) answerDeparts(servers []serverView) {
	var left []func(wire.Code)
	l.mu.Lock()
	for id, done := range l.departs {
		if !slices.ContainsFunc(servers, func(s serverView) bool { return s.id == id }) {
			left = append(left, done)
			delete(l.departs, id)
		}
	}
	l.mu.Unlock()
	for _, done := range left {
		done(wire.CodeOK)
	}
}

// reconcileBound keeps the bound of sessions' TTLs at the largest that a living
// member advertises: it rises with the first, and falls with the last.
func (l *leader) reconcileBound() {
	var most uint64
	for _, m := range l.n.gossip.alive() {
		if m.meta.TTL >= machine.MinTTL && m.meta.TTL <= machine.MaxTTL {
			most = max(most, m.meta.TTL)
		}
	}
	lifted := false
	l.table.view(func(m *machine.State) { lifted = m.Lifted() })
	if most == 0 || most == l.bound() || !lifted && most < l.bound() {
		return
	}
	l.propose(machine.Bound{Term: l.term, TTL: most}, func(o machine.Outcome, c wire.Code) {
		if c != wire.CodeOK || o.Code != machine.OK {
			return
		}
		l.n.log.Info("bound of session TTLs changed", "ttl", time.Duration(most)*time.Millisecond)
		l.mu.Lock()
		members := make([]*member, 0, len(l.members))
		for m := range l.members {
			members = append(members, m)
		}
		l.mu.Unlock()
		for _, m := range members {
			m.bound(wire.AttachAnswer{Term: l.term, TTL: most})
		}
	})
}
