package voters

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

// newest is the newest format of the program under test, and older an earlier format.
const (
	older  = member.LeastFormat
	newest = older + 2
)

var (
	epoch  = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ours   = machine.ClusterID{1}
	oldest = member.Sighting{
		Process: member.Process{Boot: 1, Addr: "10.0.0.1:7000"},
		Meta:    member.Metadata{Version: member.ProtocolVersion, Cluster: ours, Generation: 1, TTL: 2000, Format: newest},
		Alive:   true, Since: epoch,
	}
)

// seen returns a sighting of a living member, changed by each of change.
func seen(name string, boot uint64, change ...func(*member.Sighting)) member.Sighting {
	s := oldest
	s.Name, s.Boot = name, boot
	for _, f := range change {
		f(&s)
	}
	return s
}

func generation(g uint64) func(*member.Sighting) {
	return func(s *member.Sighting) { s.Meta.Generation = g }
}
func dead(after time.Duration) func(*member.Sighting) {
	return func(s *member.Sighting) { s.Alive, s.Since = false, epoch.Add(after) }
}
func since(after time.Duration) func(*member.Sighting) {
	return func(s *member.Sighting) { s.Since = epoch.Add(after) }
}
func format(f uint8) func(*member.Sighting) { return func(s *member.Sighting) { s.Meta.Format = f } }
func leaves(s *member.Sighting)             { s.Meta.Leaving = true }
func foreign(s *member.Sighting)            { s.Meta.Cluster = machine.ClusterID{} }
func durable(s *member.Sighting)            { s.Meta.Durable = true }
func newer(s *member.Sighting)              { s.Meta.Version++ }

func (s server) String() string {
	out := s.id
	for _, f := range []struct {
		is   bool
		name string
	}{
		{s.voter, "voter"}, {s.alive, "alive"}, {s.leaving, "leaving"}, {s.gone, "gone"}, {s.silent, "silent"}, {s.ready, "ready"},
	} {
		if f.is {
			out += " " + f.name
		}
	}
	return out
}

func TestServersAreSeenByConfigurationAndGossip(t *testing.T) {
	const now = time.Hour
	recent := now - time.Second
	for _, tt := range []struct {
		claim      string
		change     func(*scene)
		sightings  []member.Sighting
		servers    string
		candidates string
	}{
		{
			claim:     "a voter that lives",
			sightings: []member.Sighting{seen("b", 2)},
			servers:   "b#1 voter alive",
		},
		{
			claim:   "a voter that gossip does not know counts from the term's start",
			servers: "b#1 voter silent",
		},
		{
			claim:   "and is waited for while the term is young",
			change:  func(sc *scene) { sc.started = epoch.Add(recent) },
			servers: "b#1 voter",
		},
		{
			claim:     "a voter that died a moment ago is waited for",
			sightings: []member.Sighting{seen("b", 2, dead(recent))},
			servers:   "b#1 voter",
		},
		{
			claim:     "a voter that died long ago is silent",
			sightings: []member.Sighting{seen("b", 2, dead(now-timing.DeadInMemory-1))},
			servers:   "b#1 voter silent",
		},
		{
			claim:     "with a Dir, long is longer",
			change:    func(sc *scene) { sc.durable = true },
			sightings: []member.Sighting{seen("b", 2, dead(now-timing.DeadDurable))},
			servers:   "b#1 voter",
		},
		{
			claim:      "a voter whose name runs without its store is gone, and its successor a candidate",
			sightings:  []member.Sighting{seen("b", 2, dead(recent)), seen("b", 3, generation(9))},
			servers:    "b#1 voter gone",
			candidates: "b/3",
		},
		{
			claim:     "a successor that is in no cluster yet is none",
			sightings: []member.Sighting{seen("b", 3, generation(9), foreign, since(recent))},
			servers:   "b#1 voter",
		},
		{
			claim:     "beside the voter itself, another process of the name changes nothing",
			sightings: []member.Sighting{seen("b", 2), seen("b", 3, generation(9))},
			servers:   "b#1 voter alive",
		},
		{
			claim:     "a voter leaves if gossip says so",
			sightings: []member.Sighting{seen("b", 2, leaves)},
			servers:   "b#1 voter alive leaving",
		},
		{
			claim:     "or if it has asked to leave",
			change:    func(sc *scene) { sc.departs = map[string]bool{"b#1": true} },
			sightings: []member.Sighting{seen("b", 2)},
			servers:   "b#1 voter alive leaving",
		},
		{
			claim:     "a non-voter that does not read the format is gone",
			change:    func(sc *scene) { sc.config[0].Voter, sc.format = false, newest },
			sightings: []member.Sighting{seen("b", 2, format(older))},
			servers:   "b#1 alive gone",
		},
		{
			claim:     "a voter that does not read the format stays",
			change:    func(sc *scene) { sc.format = newest },
			sightings: []member.Sighting{seen("b", 2, format(older))},
			servers:   "b#1 voter alive",
		},
		{
			claim:     "the leader lives, and stands last",
			change:    func(sc *scene) { sc.self = "b#1"; sc.config = append(sc.config, member.Server{ID: "c#1", Voter: true}) },
			sightings: []member.Sighting{seen("c", 2)},
			servers:   "c#1 voter alive, b#1 voter alive",
		},
		{
			claim:   "a line that is no raft ID is passed over",
			change:  func(sc *scene) { sc.config[0].ID = "b" },
			servers: "",
		},
		{
			claim:      "candidates stand in the order of their starts",
			change:     func(sc *scene) { sc.config = nil },
			sightings:  []member.Sighting{seen("x", 7), seen("y", 5), seen("z", 6)},
			candidates: "y/5, z/6, x/7",
		},
		{
			claim:  "a candidate lives, stays, votes for this cluster, has a store like the leader's, and reads the format",
			change: func(sc *scene) { sc.config, sc.format = nil, newest },
			sightings: []member.Sighting{
				seen("dead", 2, dead(0)), seen("young", 3, since(now-timing.StableMember+1)), seen("leaves", 4, leaves),
				seen("foreign", 5, foreign), seen("thin", 6, generation(0)), seen("durable", 7, durable),
				seen("newer", 8, newer), seen("old", 9, format(older)), seen("good", 10, since(now-timing.StableMember)),
			},
			candidates: "good/10",
		},
	} {
		sc := scene{
			self: "a#1", started: epoch, now: epoch.Add(now),
			config: []member.Server{{ID: "b#1", Voter: true}}, sightings: tt.sightings,
		}
		if tt.change != nil {
			tt.change(&sc)
		}
		servers, candidates := sc.view()
		var views, names []string
		for _, s := range servers {
			views = append(views, s.String())
		}
		for _, c := range candidates {
			names = append(names, fmt.Sprintf("%s/%d", c.Name, c.Boot))
		}
		if got := strings.Join(views, ", "); got != tt.servers {
			t.Errorf("%s: servers %q, want %q", tt.claim, got, tt.servers)
		}
		if got := strings.Join(names, ", "); got != tt.candidates {
			t.Errorf("%s: candidates %q, want %q", tt.claim, got, tt.candidates)
		}
	}
}

func TestAServerIsReadyAfterTwoChecksInARow(t *testing.T) {
	tr := newTrials()
	for i, tt := range []struct {
		lag   uint64
		ready bool
	}{
		{1000, false}, {catchUpLag - 1, false}, {0, true}, {catchUpLag, false}, {0, false}, {0, true}, {0, true},
	} {
		s := server{id: "b#1", alive: true}
		if tr.check(&s, tt.lag); s.ready != tt.ready {
			t.Errorf("check %d, %d entries behind: ready %v", i+1, tt.lag, s.ready)
		}
	}
}

func TestAServerIsOverdueAfterTheLimit(t *testing.T) {
	tr := newTrials()
	behind, ready := &server{id: "b#1"}, &server{id: "b#1", ready: true}
	for i, tt := range []struct {
		s       *server
		at      time.Duration
		overdue bool
	}{
		{behind, 0, false},
		{behind, timing.CatchUp, false},
		{behind, timing.CatchUp + 1, true},
		{ready, timing.CatchUp + 2, false},
		{behind, timing.CatchUp + 3, false},
		{behind, 2*timing.CatchUp + 4, true},
	} {
		if got := tr.overdue(tt.s, epoch.Add(tt.at)); got != tt.overdue {
			t.Errorf("line %d: overdue %v", i+1, got)
		}
	}
}

func TestACandidateThatFailedIsPassedOverForAWhile(t *testing.T) {
	tr := newTrials()
	b := seen("b", 2)
	tr.fail(b.Process, epoch)
	for _, tt := range []struct {
		candidate member.Sighting
		after     time.Duration
		left      int
	}{
		{b, timing.CandidateShy - 1, 0},
		{b, timing.CandidateShy, 1},
		{seen("b", 3), 0, 1}, // another process
	} {
		if got := tr.passOver([]member.Sighting{tt.candidate}, epoch.Add(tt.after)); len(got) != tt.left {
			t.Errorf("boot %d after %v: %d candidates", tt.candidate.Boot, tt.after, len(got))
		}
	}
}

func TestTheReadableFormatIsTheLeastOfAllServers(t *testing.T) {
	config := []member.Server{{ID: "a#1", Voter: true}, {ID: "b#1"}}
	for _, tt := range []struct {
		claim     string
		config    []member.Server
		sightings []member.Sighting
		want      int
	}{
		{"all read everything", config, []member.Sighting{seen("a", 1), seen("b", 2)}, newest},
		{"a server that catches up counts", config, []member.Sighting{seen("a", 1), seen("b", 2, format(older))}, older},
		{"a dead server counts: it may come back", config, []member.Sighting{seen("a", 1), seen("b", 2, format(older), dead(0))}, older},
		{"a server that gossip does not know reads the least", config, []member.Sighting{seen("a", 1)}, member.LeastFormat},
		{"thin members do not count", config, []member.Sighting{seen("a", 1), seen("b", 2), seen("c", 3, format(older))}, newest},
		{"a format that this program does not read is none", config, []member.Sighting{seen("a", 1, format(newest+1)), seen("b", 2, format(newest+1))}, newest},
		{"nothing is raised without a configuration", nil, nil, member.LeastFormat},
	} {
		if got := Readable(tt.config, tt.sightings, newest); got != tt.want {
			t.Errorf("%s: format %d, want %d", tt.claim, got, tt.want)
		}
	}
}
