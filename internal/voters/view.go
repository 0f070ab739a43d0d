package voters

import (
	"cmp"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

// scene is the leader's knowledge of the configuration and the members at one
// moment.
type scene struct {
	self      string // the leader's raft ID
	durable   bool   // this member has a Dir; voters either all have a Dir or none has
	format    int    // the least format of a new voter
	started   time.Time
	now       time.Time
	config    []member.Server
	sightings []member.Sighting
	departs   map[string]bool // raft IDs of departing members
}

// view joins the raft configuration with gossip. It returns the servers of the
// configuration, the leader last, and the candidates for a vote, the earliest
// process first. The caller must still ask the silent servers for an answer, and
// the living non-voters for their progress.
func (sc *scene) view() (servers []server, candidates []member.Sighting) {
	taken := make(map[string]bool) // names with a part in the configuration
	for _, line := range sc.config {
		name, generation, err := member.ParseRaftID(line.ID)
		if err != nil {
			continue
		}
		s, succeeded := sc.look(line, name, generation)
		taken[name] = !succeeded
		servers = append(servers, s)
	}
	for _, m := range sc.sightings {
		if !taken[m.Name] && sc.mayVote(m) {
			candidates = append(candidates, m)
		}
	}
	// The leader itself leaves last.
	if i := slices.IndexFunc(servers, func(s server) bool { return s.id == sc.self }); i >= 0 {
		self := servers[i]
		servers = append(slices.Delete(servers, i, i+1), self)
	}
	slices.SortStableFunc(candidates, func(a, b member.Sighting) int { return cmp.Compare(a.Boot, b.Boot) })
	return servers, candidates
}

// look describes one server of the configuration. Succeeded reports that the
// member of the name runs without the server's store: the server will not vote
// again under this ID, and the member may be invited under a new ID.
func (sc *scene) look(line member.Server, name string, generation uint64) (s server, succeeded bool) {
	s = server{id: line.ID, voter: line.Voter, leaving: sc.departs[line.ID]}
	last := sc.started // when a process of the name was last seen to change
	for _, m := range sc.sightings {
		switch {
		case m.Name != name:
		case m.Alive && m.Meta.Generation == generation:
			s.alive = true
			s.leaving = s.leaving || m.Meta.Leaving
		case m.Alive && m.Meta.InCluster():
			succeeded = true
		case m.Since.After(last):
			last = m.Since
		}
	}
	switch {
	case s.id == sc.self:
		s.alive, succeeded = true, false
	case s.alive:
		succeeded = false
	case succeeded:
		s.gone = true
	default:
		s.silent = sc.now.Sub(last) > sc.patience()
	}
	if !s.voter && member.FormatOf(sc.sightings, s.id) < sc.format {
		s.gone = true // added before the format was raised
	}
	return s, succeeded
}

// patience is how long a silent server is waited for.
func (sc *scene) patience() time.Duration {
	if sc.durable {
		return timing.DeadDurable
	}
	return timing.DeadInMemory
}

// mayVote reports whether a member outside the configuration could become a voter.
func (sc *scene) mayVote(m member.Sighting) bool {
	return m.Alive && !m.Meta.Leaving &&
		m.Meta.InCluster() &&
		m.Meta.Generation != 0 &&
		m.Meta.Version == member.ProtocolVersion &&
		m.Meta.Durable == sc.durable &&
		m.Meta.ReadsFormat() >= sc.format &&
		sc.now.Sub(m.Since) >= timing.StableMember
}

// trials remembers the progress of non-voters, and the failed candidates.
type trials struct {
	passed map[string]int               // by raft ID: checks passed in a row
	since  map[string]time.Time         // by raft ID: first seen, and not ready since
	failed map[member.Process]time.Time // failed candidates, and the time of failure
}

func newTrials() *trials {
	return &trials{make(map[string]int), make(map[string]time.Time), make(map[member.Process]time.Time)}
}

// Limits for a server to have caught up.
const (
	catchUpLag    = 64 // entries behind the leader
	catchUpChecks = 2  // checks in a row within catchUpLag
)

// check notes how many entries s is behind, and sets s.ready.
func (t *trials) check(s *server, lag uint64) {
	if lag < catchUpLag {
		t.passed[s.id]++
	} else {
		delete(t.passed, s.id)
	}
	s.ready = t.passed[s.id] >= catchUpChecks
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

// fail has the candidate p passed over for a while.
func (t *trials) fail(p member.Process, now time.Time) { t.failed[p] = now }

// passOver removes all candidates with a failure a short time ago.
func (t *trials) passOver(candidates []member.Sighting, now time.Time) []member.Sighting {
	return slices.DeleteFunc(candidates, func(c member.Sighting) bool {
		at, failed := t.failed[c.Process]
		return failed && now.Sub(at) < timing.CandidateShy
	})
}
