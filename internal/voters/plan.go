package voters

// server is a line of the raft configuration as seen by the leader.
type server struct {
	id      string
	voter   bool
	self    bool // the leader
	gone    bool // does not come back under this ID, or is given up
	leaving bool // asked to be replaced, or may not vote any more
	up      bool // a voter that raft reaches, or a non-voter that gossip sees
	ready   bool // has the log, but for one exchange
	zone    string

	proved bool // gone for certain, not only for its silence
	alive  bool // a process with this ID is seen by gossip
	silent bool // raft has missed the server for longer than the leader waits
}

// candidate is a member that could become a voter.
type candidate struct {
	zone   string
	stable bool // alive for a while
}

// goal is the wanted state of the voters.
type goal struct {
	want  int // the number of voters
	least int // no removal makes fewer voters than this
}

// A step is a change on the way to the wanted configuration.
type step struct {
	kind stepKind
	id   string // of the server
	with int    // the candidate's place in the list
}

type stepKind uint8

const (
	stepNone     stepKind = iota
	stepInvite            // candidate with becomes a non-voter
	stepAdd               // candidate with becomes a voter at once
	stepPromote           // non-voter id becomes a voter
	stepMakeRoom          // voter id, which is gone, leaves for candidate with, which is at hand
	stepRemove            // server id leaves
	stepTransfer          // the leader, which leaves, hands over to voter id
)

// majority is how many of n voters are a majority.
func majority(n int) int { return n/2 + 1 }

// oddBelow is the largest odd number up to n.
func oddBelow(n int) int { return n - (n+1)%2 }

// tally is the configuration, sorted by the state of the servers.
type tally struct {
	voters  int // lines that vote
	least   int // see goal
	up      int // voters that raft reaches
	fit     int // voters that raft reaches, and that have the log
	healthy []server
	gone    []server
	leaving []server
	coming  []server // non-voters
	broken  []server // non-voters that will not vote
	zones   map[string]int
}

func count(servers []server) tally {
	t := tally{zones: make(map[string]int)}
	for _, s := range servers {
		if s.voter {
			t.voters++
			if s.up {
				t.up++
			}
			if s.up && s.ready {
				t.fit++
			}
		}
		switch {
		case !s.voter && (s.gone || s.leaving || !s.up):
			t.broken = append(t.broken, s)
		case !s.voter:
			t.coming = append(t.coming, s)
		case s.gone:
			t.gone = append(t.gone, s)
		case s.leaving:
			t.leaving = append(t.leaving, s)
		default:
			t.healthy = append(t.healthy, s)
			t.zones[s.zone]++
		}
	}
	return t
}

// target is the number of voters to aim at: the wanted number, or the largest odd
// number that the living allow. An even number of voters bears no more losses than
// the odd number below.
// The least number of voters is kept even if it is even.
func (t *tally) target(g goal, candidates int) int {
	living := len(t.healthy) + len(t.coming) + candidates
	return max(oddBelow(min(g.want, living)), min(g.least, living))
}

// spares reports whether the cluster decides on without voter s: the other voters
// that raft reaches, and that have the log, are a majority of all others. Voters
// out of reach do not count, though they may come back. The least number of voters
// is spared by nobody, not even for a moment: the voters are what keeps founders
// without memory from founding anew.
func (t *tally) spares(s server) bool {
	if t.voters-1 < t.least {
		return false
	}
	fit := t.fit
	if s.up && s.ready {
		fit--
	}
	return fit >= majority(t.voters-1)
}

// admits reports whether a further voter, perhaps lagging behind, leaves a majority
// of fit voters.
func (t *tally) admits() bool { return t.voters%2 == 0 && t.fit >= majority(t.voters+1) }

// planVoters chooses the next step. Three rules carry the rest:
//
// A new voter may lag behind if the number of voters is even. Of n voters, n even,
// n/2+1 are a majority, and of n+1 voters n/2+1 are one too. Every set of servers
// that could decide before can decide now, whatever the newcomer does; and the
// newcomer cannot lead or commit anything before it has the log. With C gone from
// {A,B,C}, removing C and adding C' needs A and B at each moment, as before. From
// an odd number on the majority grows by one, and the newcomer might be needed:
// then it catches up first, as a non-voter.
//
// Removing a gone voter never costs anything, since the majority of the others is
// no larger than before. But a voter that is only silent may come back, so it goes
// only for a successor at hand, which has answered an invitation; or if so many
// are gone that fewer voters need a smaller majority.
//
// Shrinking removes followers. The leader hands over for one reason only: it
// leaves itself, and a voter that stays can lead.
func planVoters(servers []server, candidates []candidate, g goal) step {
	g.want = max(g.want, g.least)
	t := count(servers)
	t.least = g.least
	if t.up < majority(t.voters) {
		return step{} // nothing can be committed
	}
	if len(t.broken) > 0 {
		return step{kind: stepRemove, id: t.broken[0].id} // a non-voter counts for nothing yet
	}
	target := t.target(g, len(candidates))
	need := target - len(t.healthy)
	ready := firstReady(t.coming)
	if need > 0 {
		if s, ok := t.grow(target, ready, candidates); ok {
			return s
		}
		if len(t.coming) > 0 {
			return step{} // wait until the non-voters have caught up
		}
	}
	switch {
	case len(t.leaving) > 0:
		if s, ok := t.dismiss(); ok {
			return s
		}
	case len(t.gone) > 0 && (len(t.healthy) >= target && t.voters > g.want || majority(t.voters-len(t.gone)) < majority(t.voters)):
		if s := t.gone[0]; t.spares(s) {
			return step{kind: stepRemove, id: s.id}
		}
	case len(t.healthy) > g.want:
		return t.shrink()
	}
	return t.spread(ready, candidates, g)
}

// firstReady returns the first server that has caught up, or nil.
func firstReady(servers []server) *server {
	for i := range servers {
		if servers[i].ready {
			return &servers[i]
		}
	}
	return nil
}

// grow takes a step towards the target. It returns false if nobody is ready or can
// be asked.
func (t *tally) grow(target int, ready *server, candidates []candidate) (step, bool) {
	need := target - len(t.healthy)
	ok := func(s step) (step, bool) { return s, true }
	best := pick(candidates, t.zones)
	atHand := len(t.coming) > 0 || best >= 0
	switch {
	case t.admits() && len(t.coming) > 0:
		s := t.coming[0] // ready or not
		if ready != nil {
			s = *ready
		}
		return ok(step{kind: stepPromote, id: s.id})
	case t.admits() && best >= 0:
		return ok(step{kind: stepAdd, with: best})
	case len(t.gone) > 0 && atHand && t.spares(t.gone[0]):
		if len(t.coming) > 0 {
			return ok(step{kind: stepRemove, id: t.gone[0].id})
		}
		return ok(step{kind: stepMakeRoom, id: t.gone[0].id, with: best})
	case ready != nil && t.voters%2 == 1 && (len(t.leaving) > 0 || countReady(t.coming) > 1 || target%2 == 0 || len(t.gone) > 0 && t.voters <= t.least):
		// An even number is seldom the goal: the second one stands by, or a
		// leaving one goes next, or nobody could make room before.
		return ok(step{kind: stepPromote, id: ready.id})
	case t.voters%2 == 1 && need > len(t.coming) && best >= 0:
		return ok(step{kind: stepInvite, with: best})
	}
	return step{}, false
}

func countReady(servers []server) (n int) {
	for _, s := range servers {
		if s.ready {
			n++
		}
	}
	return n
}

// dismiss removes a leaving voter. The leader stays until the others have gone, and
// then hands over to a voter that stays: handing over to a voter that leaves would
// go on for ever.
func (t *tally) dismiss() (step, bool) {
	for _, s := range t.leaving {
		if !s.self && t.spares(s) {
			return step{kind: stepRemove, id: s.id}, true
		}
	}
	if len(t.gone) > 0 && t.spares(t.gone[0]) {
		return step{kind: stepRemove, id: t.gone[0].id}, true // in the way of the leaving voter
	}
	for _, s := range t.leaving {
		if !s.self || !t.spares(s) {
			continue
		}
		for _, h := range t.healthy {
			if h.up && h.ready {
				return step{kind: stepTransfer, id: h.id}, true
			}
		}
	}
	return step{}, false
}

// shrink removes a follower: from the zone with most voters, and of those the one
// out of reach or the last in the list.
func (t *tally) shrink() step {
	var out *server
	for i := range t.healthy {
		s := &t.healthy[i]
		if s.self || !t.spares(*s) {
			continue
		}
		if out == nil || t.crowd(s) > t.crowd(out) || t.crowd(s) == t.crowd(out) && (!s.up || out.up) {
			out = s
		}
	}
	if out == nil {
		return step{}
	}
	return step{kind: stepRemove, id: out.id}
}

// crowd is the number of voters in the server's zone. A server without a zone has a
// zone of its own.
func (t *tally) crowd(s *server) int {
	if s.zone == "" {
		return 1
	}
	return t.zones[s.zone]
}

// spread improves the zones of a voter set that lacks nothing: one voter of a zone
// with several voters is replaced by a stable candidate of a zone without one. The
// newcomer catches up and votes first; then the set is too large, and shrink
// removes a voter of the crowded zone. Each replacement makes the voters' zones
// more, so this ends.
func (t *tally) spread(ready *server, candidates []candidate, g goal) step {
	crowded := false
	for i := range t.healthy {
		s := &t.healthy[i]
		if !s.up || !s.ready {
			crowded = false
			break
		}
		crowded = crowded || t.crowd(s) > 1 && !s.self
	}
	improves := crowded && len(t.healthy) == g.want && len(t.gone) == 0 && len(t.leaving) == 0 && g.want > 1
	free := func(zone string) bool { return zone != "" && t.zones[zone] == 0 }
	for _, s := range t.coming {
		if !improves || !free(s.zone) {
			return step{kind: stepRemove, id: s.id} // no standing non-voters
		}
	}
	switch {
	case !improves:
	case ready != nil:
		return step{kind: stepPromote, id: ready.id}
	case len(t.coming) > 0: // catching up
	default:
		for i, c := range candidates {
			if c.stable && free(c.zone) {
				return step{kind: stepInvite, with: i}
			}
		}
	}
	return step{}
}

// pick returns the place of the candidate to ask first: of a zone without a voter,
// if there is one, and else the first. It returns -1 without candidates.
func pick(candidates []candidate, zones map[string]int) int {
	best := -1
	for i, c := range candidates {
		free := c.zone == "" || zones[c.zone] == 0
		if best < 0 {
			best = i
		}
		if free {
			return i
		}
	}
	return best
}
