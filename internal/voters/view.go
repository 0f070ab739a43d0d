package voters

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

// scene is the leader's knowledge of the configuration and the members at one
// moment.
type scene struct {
	self      string   // the leader's raft ID
	durable   bool     // this member has a Dir; voters either all have a Dir or none has
	format    int      // the least format of a new voter
	only      []string // the names that may vote; nil: all
	started   time.Time
	now       time.Time
	config    []member.Server
	sightings []member.Sighting
	own       func(member.Sighting) (meta member.Metadata, ok bool) // the process's own description, if it is attached
	departs   map[string]bool                                       // raft IDs of departing members

	ended   func(name string, boot uint64) bool
	leaves  func(name string, boot uint64) bool // asked to leave
	contact func(raftID string) member.Contact
	missed  func(raftID string) time.Time // since when the former leader missed the voter; zero: did not

	next time.Duration // until the earliest end of a wait, as found by view and stable
}

// view joins the raft configuration with gossip, proof and raft's contacts. It
// returns the servers of the configuration, the candidates for a vote, the earliest
// process first, and beside each candidate its part in the plan.
func (sc *scene) view() (servers []server, candidates []member.Sighting) {
	taken := make(map[string]bool) // names with a part in the configuration
	for _, line := range sc.config {
		name, generation, err := member.ParseRaftID(line.ID)
		if err != nil {
			continue
		}
		s := sc.look(line, name, generation)
		taken[name] = taken[name] || !s.proved
		servers = append(servers, s)
	}
	newest := make(map[string]uint64) // boots of the latest living attached processes with a store, by name
	for _, m := range sc.sightings {
		var ok bool
		if m.Meta, ok = sc.own(m); !ok || !m.Alive {
			continue
		}
		if m.Meta.Generation != 0 {
			// A process without the voter role under a certificate of many describes no
			// store: it may be a stranger to the name, and takes nobody's place.
			newest[m.Name] = max(newest[m.Name], m.Boot)
		}
		if !taken[m.Name] && sc.mayVote(m) {
			candidates = append(candidates, m)
		}
	}
	candidates = slices.DeleteFunc(candidates, func(m member.Sighting) bool { return m.Boot < newest[m.Name] })
	slices.SortStableFunc(candidates, func(a, b member.Sighting) int { return cmp.Compare(a.Boot, b.Boot) })
	for i := range servers {
		s := &servers[i]
		if s.silent && (!sc.durable || len(candidates) > 0) {
			// With a Dir the voter is expected back, and keeps its place until
			// another member can take the place.
			s.gone = true
		}
	}
	return servers, candidates
}

// look describes one server of the configuration.
//
// The server has ended for certain if every known process with this generation has
// ended, and the store is lost with the process: in memory, or because a later
// process of the name runs with another store. A Dir keeps the store for the next
// process, which is the same voter. No word counts while the server answers raft: a
// holder of a shared secret can say goodbye in another's name, and raft's connections to
// a process that has ended fail at once.
//
// A voter loses its place by its own word alone: that the voter leaves, and that a
// later process has another store, is believed only from the description that the
// process gives of itself to the leader. Gossip carries words about any member by
// any member, so gossip serves here as a hint about life, which proof confirms.
func (sc *scene) look(line member.Server, name string, generation uint64) server {
	s := server{id: line.ID, voter: line.Voter, self: line.ID == sc.self, leaving: sc.departs[line.ID]}
	known, succeeded, invited := false, false, false
	described, older := uint64(0), false // the latest process of this store to have described itself, and whether it reads too old a format
	for _, m := range sc.sightings {
		switch {
		case m.Name != name:
		case m.Meta.Generation == generation:
			known = true
			s.zone = m.Meta.Zone
			if own, ok := sc.own(m); ok && own.Generation == generation && m.Boot >= described {
				described, older = m.Boot, own.ReadsFormat() < sc.format
			}
			if m.Alive && !sc.ended(m.Name, m.Boot) {
				s.alive = true
				own, _ := sc.own(m)
				s.leaving = s.leaving || own.Leaving || own.Thin
			}
		case !m.Alive || !m.Meta.InCluster() || sc.ended(m.Name, m.Boot):
		case m.Meta.Generation > generation:
			own, _ := sc.own(m)
			succeeded = succeeded || own.InCluster() && own.Generation > generation
		default:
			invited = true // a moment ago, maybe: the description comes by gossip
			if !known {
				s.zone = m.Meta.Zone
			}
		}
	}
	// Whoever takes the name has no description of this store either, and keeps no voter whose
	// next store has told of itself.
	s.alive = s.alive || invited && !succeeded
	contact := sc.contact(line.ID)
	reached := !contact.Failing && !contact.Last.IsZero() && sc.now.Sub(contact.Last) <= timing.VoterMissed
	switch {
	case s.self:
		s.alive, s.up, s.ready = true, true, true
		return s
	case s.alive, s.voter && reached:
	case succeeded, known && !sc.durable && sc.allEnded(name, generation):
		s.gone, s.proved = true, true
	}
	s.ready = contact.Current
	if !s.voter {
		s.up = s.alive
		s.gone = s.gone || older // added before the format was raised
		return s
	}
	silence := sc.now.Sub(sc.lastAnswer(line.ID, contact))
	s.up = !s.gone && reached
	s.silent = !s.up && silence >= sc.patience()
	if s.up {
		sc.wait(timing.VoterMissed - sc.now.Sub(contact.Last) + 1)
	} else {
		sc.wait(sc.patience() - silence)
	}
	return s
}

// lastAnswer is when raft last reached a voter, as far as this leader can tell:
//
//   - by this leader's own exchanges;
//   - for a new leader, from the former leader's words: a follower exchanges
//     nothing with the other followers, but the leader tells all members which
//     voters it misses. So the wait for a voter does not begin anew with each
//     election;
//   - at the latest the beginning of the term, if nobody has missed the voter
//     before.
//
// Not taken: gossip's time of death, since gossip may see a voter that raft cannot
// reach.
func (sc *scene) lastAnswer(id string, contact member.Contact) time.Time {
	last := sc.missed(id)
	if last.IsZero() {
		last = sc.started
	}
	if contact.Last.After(last) {
		last = contact.Last
	}
	return last
}

// allEnded reports whether every known process of this generation has ended.
func (sc *scene) allEnded(name string, generation uint64) bool {
	return !slices.ContainsFunc(sc.sightings, func(m member.Sighting) bool {
		return m.Name == name && m.Meta.Generation == generation && !sc.ended(m.Name, m.Boot)
	})
}

// patience is how long the leader waits for a voter that raft does not reach.
func (sc *scene) patience() time.Duration {
	if sc.durable {
		return timing.DeadDurable
	}
	return timing.DeadInMemory
}

// mayVote reports whether a member outside the configuration could become a voter.
// m has the member's own description.
func (sc *scene) mayVote(m member.Sighting) bool {
	return m.Alive && !m.Meta.Leaving && !m.Meta.Thin &&
		m.Meta.InCluster() &&
		(sc.only == nil || slices.Contains(sc.only, m.Name)) &&
		m.Meta.Generation != 0 &&
		m.Meta.Version == member.ProtocolVersion &&
		m.Meta.Durable == sc.durable &&
		m.Meta.ReadsFormat() >= sc.format &&
		!sc.ended(m.Name, m.Boot) && !sc.leaves(m.Name, m.Boot)
}

// stable reports whether a candidate has lived for a while. A member that is needed
// may vote at once, a member that only improves the voter set must be stable.
func (sc *scene) stable(m member.Sighting) bool {
	sc.wait(timing.StableMember - sc.now.Sub(m.Since))
	return sc.now.Sub(m.Since) >= timing.StableMember
}

// wait notes that a wait ends in d.
func (sc *scene) wait(d time.Duration) {
	if d > 0 && (sc.next == 0 || d < sc.next) {
		sc.next = d
	}
}

// trials remembers how long non-voters take, and the failed candidates.
type trials struct {
	since  map[string]time.Time         // by raft ID: first seen, and not ready since
	failed map[member.Process]time.Time // failed candidates, and the time of failure
}

func newTrials() *trials {
	return &trials{make(map[string]time.Time), make(map[member.Process]time.Time)}
}

// overdue reports whether s is a non-voter and has not caught up in time, so
// another member should be tried.
func (t *trials) overdue(s *server, now time.Time) bool {
	switch {
	case s.voter || s.ready:
		delete(t.since, s.id)
	case t.since[s.id].IsZero():
		t.since[s.id] = now
	default:
		return now.Sub(t.since[s.id]) > timing.CatchUp
	}
	return false
}

// forgetAllBut forgets the servers that are in the configuration no more: one that was
// removed before it had caught up comes back under another raft ID.
func (t *trials) forgetAllBut(servers []server) {
	maps.DeleteFunc(t.since, func(id string, _ time.Time) bool {
		return !slices.ContainsFunc(servers, func(s server) bool { return s.id == id })
	})
}

// fail has the candidate p passed over for a while.
func (t *trials) fail(p member.Process, now time.Time) { t.failed[p] = now }

// passOver removes all candidates with a failure a short time ago. Older failures are
// forgotten: each restart of a member is another process.
func (t *trials) passOver(candidates []member.Sighting, now time.Time) []member.Sighting {
	maps.DeleteFunc(t.failed, func(_ member.Process, at time.Time) bool { return now.Sub(at) >= timing.CandidateShy })
	return slices.DeleteFunc(candidates, func(c member.Sighting) bool {
		_, failed := t.failed[c.Process]
		return failed
	})
}
