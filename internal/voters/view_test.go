package voters

import (
	"fmt"
	"slices"
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
func thin(s *member.Sighting)               { s.Meta.Thin = true }
func newer(s *member.Sighting)              { s.Meta.Version++ }

// posed is what the leader keeps of the description that a process without the voter role
// gives of itself under a certificate of many: see internal/term.
var posed = member.Metadata{Version: member.ProtocolVersion, Cluster: ours}

func (s server) String() string {
	out := s.id
	for _, f := range []struct {
		is   bool
		name string
	}{
		{s.voter, "voter"}, {s.self, "self"}, {s.alive, "alive"}, {s.leaving, "leaving"}, {s.gone, "gone"}, {s.proved, "proved"},
		{s.silent, "silent"}, {s.up, "up"}, {s.ready, "ready"},
	} {
		if f.is {
			out += " " + f.name
		}
	}
	return out
}

func TestServersAreSeenByRaftGossipAndProof(t *testing.T) {
	const now = time.Hour
	recent := now - time.Second
	missed := func(since time.Duration) func(*scene) {
		return func(sc *scene) {
			sc.contact = func(string) member.Contact { return member.Contact{Last: epoch.Add(since), Failing: true} }
		}
	}
	with := func(fs ...func(*scene)) func(*scene) {
		return func(sc *scene) {
			for _, f := range fs {
				f(sc)
			}
		}
	}
	ended := func(boots ...uint64) func(*scene) {
		return func(sc *scene) {
			sc.ended = func(_ string, boot uint64) bool { return slices.Contains(boots, boot) }
		}
	}
	inDir := func(sc *scene) { sc.durable = true }
	never := func(sc *scene) { sc.contact = func(string) member.Contact { return member.Contact{} } }
	poses := func(boot uint64) func(*scene) {
		return func(sc *scene) {
			said := sc.own
			sc.own = func(m member.Sighting) (member.Metadata, bool) {
				if m.Boot == boot {
					return posed, true
				}
				return said(m)
			}
		}
	}
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
			servers:   "b#1 voter alive up ready",
		},
		{
			claim:   "a voter that raft reaches is up, even if gossip does not know it",
			servers: "b#1 voter up ready",
		},
		{
			claim:   "a voter never reached counts from the term's start",
			change:  never,
			servers: "b#1 voter gone silent",
		},
		{
			claim:   "and is waited for while the term is young",
			change:  with(never, func(sc *scene) { sc.started = epoch.Add(recent) }),
			servers: "b#1 voter",
		},
		{
			claim: "but the former leader's silence counts too",
			change: with(never, func(sc *scene) {
				sc.started = epoch.Add(recent)
				sc.missed = func(string) time.Time { return epoch.Add(now - timing.DeadInMemory) }
			}),
			servers: "b#1 voter gone silent",
		},
		{
			claim:     "a voter that raft missed a moment ago is waited for",
			change:    missed(recent),
			sightings: []member.Sighting{seen("b", 2)},
			servers:   "b#1 voter alive",
		},
		{
			claim:     "a voter that raft has missed for long is gone, even if gossip sees it",
			change:    missed(now - timing.DeadInMemory),
			sightings: []member.Sighting{seen("b", 2)},
			servers:   "b#1 voter alive gone silent",
		},
		{
			claim:     "with a Dir, long is longer",
			change:    with(inDir, missed(now-timing.DeadDurable+1)),
			sightings: []member.Sighting{seen("b", 2, durable), seen("c", 3, durable)},
			servers:   "b#1 voter alive", candidates: "c/3",
		},
		{
			claim:     "and without a spare the voter keeps its place",
			change:    with(inDir, missed(0)),
			sightings: []member.Sighting{seen("b", 2, durable)},
			servers:   "b#1 voter alive silent",
		},
		{
			claim:     "which it loses to a spare",
			change:    with(inDir, missed(now-timing.DeadDurable)),
			sightings: []member.Sighting{seen("b", 2, durable), seen("c", 3, durable)},
			servers:   "b#1 voter alive gone silent", candidates: "c/3",
		},
		{
			claim:     "in memory a process that has ended is gone at once, though gossip takes it for alive",
			change:    with(missed(recent), ended(2)),
			sightings: []member.Sighting{seen("b", 2)},
			servers:   "b#1 voter gone proved",
		},
		{
			claim:      "and its successor is a candidate at once",
			change:     with(missed(recent), ended(2)),
			sightings:  []member.Sighting{seen("b", 2), seen("b", 3, generation(9), since(now))},
			servers:    "b#1 voter gone proved",
			candidates: "b/3",
		},
		{
			claim:     "with a Dir, an ended process is waited for",
			change:    with(inDir, missed(recent), ended(2)),
			sightings: []member.Sighting{seen("b", 2, durable)},
			servers:   "b#1 voter",
		},
		{
			claim:     "and the next process with the same store is the same voter",
			change:    with(inDir, ended(2)),
			sightings: []member.Sighting{seen("b", 2, durable), seen("b", 3, durable)},
			servers:   "b#1 voter alive up ready",
		},
		{
			claim:      "with another store it is another one",
			change:     with(inDir, ended(2), missed(recent)),
			sightings:  []member.Sighting{seen("b", 2, durable), seen("b", 3, durable, generation(9))},
			servers:    "b#1 voter gone proved",
			candidates: "b/3",
		},
		{
			claim:      "a voter whose name runs without its store is gone, once gossip knows its death",
			change:     missed(recent),
			sightings:  []member.Sighting{seen("b", 2, dead(recent)), seen("b", 3, generation(9))},
			servers:    "b#1 voter gone proved",
			candidates: "b/3",
		},
		{
			claim:      "a poser under its name, without a store, does not keep it",
			change:     with(inDir, missed(recent), poses(4)),
			sightings:  []member.Sighting{seen("b", 2, durable, dead(recent)), seen("b", 3, durable, generation(9)), seen("b", 4, generation(0))},
			servers:    "b#1 voter gone proved",
			candidates: "b/3",
		},
		{
			claim:     "a successor that is in no cluster yet is none",
			change:    missed(recent),
			sightings: []member.Sighting{seen("b", 3, generation(9), foreign, since(recent))},
			servers:   "b#1 voter",
		},
		{
			claim:     "beside the voter itself, another process of the name changes nothing",
			sightings: []member.Sighting{seen("b", 2), seen("b", 3, generation(9))},
			servers:   "b#1 voter alive up ready",
		},
		{
			claim:     "a server invited a moment ago lives, though its description is an earlier one",
			change:    func(sc *scene) { sc.config[0] = member.Server{ID: "b#7"} },
			sightings: []member.Sighting{seen("b", 2)},
			servers:   "b#7 alive up ready",
		},
		{
			claim:     "a voter leaves if gossip says so",
			sightings: []member.Sighting{seen("b", 2, leaves)},
			servers:   "b#1 voter alive leaving up ready",
		},
		{
			claim:     "or if it has asked to leave",
			change:    func(sc *scene) { sc.departs = map[string]bool{"b#1": true} },
			sightings: []member.Sighting{seen("b", 2)},
			servers:   "b#1 voter alive leaving up ready",
		},
		{
			claim:     "or if it has become thin",
			sightings: []member.Sighting{seen("b", 2, thin)},
			servers:   "b#1 voter alive leaving up ready",
		},
		{
			claim:     "a non-voter that does not read the format is gone",
			change:    func(sc *scene) { sc.config[0].Voter, sc.format = false, newest },
			sightings: []member.Sighting{seen("b", 2, format(older))},
			servers:   "b#1 alive gone up ready",
		},
		{
			claim:     "another's word that it does not read the format counts for nothing",
			change:    func(sc *scene) { sc.config[0].Voter, sc.format = false, newest },
			sightings: []member.Sighting{seen("b", 2), seen("b", 9, format(older), dead(0))},
			servers:   "b#1 alive up ready",
		},
		{
			claim:     "the word of its latest process counts",
			change:    func(sc *scene) { sc.config[0].Voter, sc.format = false, newest },
			sightings: []member.Sighting{seen("b", 3), seen("b", 2, format(older))},
			servers:   "b#1 alive up ready",
		},
		{
			claim:     "and no process without the voter role is its latest one",
			change:    with(poses(9), func(sc *scene) { sc.config[0].Voter, sc.format = false, newest }),
			sightings: []member.Sighting{seen("b", 2), seen("b", 9)},
			servers:   "b#1 alive up ready",
		},
		{
			claim:     "a voter that does not read the format stays",
			change:    func(sc *scene) { sc.format = newest },
			sightings: []member.Sighting{seen("b", 2, format(older))},
			servers:   "b#1 voter alive up ready",
		},
		{
			claim:     "the leader is fit",
			change:    with(missed(0), func(sc *scene) { sc.self = "b#1" }),
			sightings: []member.Sighting{seen("b", 2)},
			servers:   "b#1 voter self alive up ready",
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
			claim:      "the latest process of a name is the candidate",
			change:     func(sc *scene) { sc.config = nil },
			sightings:  []member.Sighting{seen("c", 3), seen("c", 9, generation(9))},
			candidates: "c/9",
		},
		{
			claim:      "a later process without the voter role takes no candidate's place",
			change:     with(poses(9), func(sc *scene) { sc.config = nil }),
			sightings:  []member.Sighting{seen("c", 3), seen("c", 9, generation(9))},
			candidates: "c/3",
		},
		{
			claim:  "a candidate lives, stays, may vote, is in this cluster, has a store like the leader's, and reads the format",
			change: with(func(sc *scene) { sc.config, sc.format = nil, newest }, ended(11)),
			sightings: []member.Sighting{
				seen("dead", 2, dead(0)), seen("leaves", 4, leaves),
				seen("foreign", 5, foreign), seen("storeless", 6, generation(0)), seen("durable", 7, durable),
				seen("newer", 8, newer), seen("old", 9, format(older)), seen("good", 10, since(now)),
				seen("ended", 11), seen("thin", 12, thin), seen("asked", 13),
			},
			candidates: "good/10",
		},
	} {
		sc := scene{
			self: "a#1", started: epoch, now: epoch.Add(now),
			config: []member.Server{{ID: "b#1", Voter: true}}, sightings: tt.sightings,
			ended:   func(string, uint64) bool { return false },
			contact: func(string) member.Contact { return member.Contact{Last: epoch.Add(now), Current: true} },
			leaves:  func(_ string, boot uint64) bool { return boot == 13 },
			missed:  func(string) time.Time { return time.Time{} },
			own:     func(m member.Sighting) (member.Metadata, bool) { return m.Meta, m.Alive },
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

// Five voters in memory while five members live. A rolling restart of five, each
// away for a while, does not change the number.
func TestFiveMembersInMemoryAreFiveVoters(t *testing.T) {
	young, old := candidate{}, candidate{stable: true}
	five := []server{{voter: true}, {voter: true}, {voter: true}, {voter: true}, {voter: true}}
	four := append(slices.Clone(five[:4]), server{voter: true, gone: true})
	three := five[:3]
	for _, tt := range []struct {
		claim      string
		size       size
		fewer      time.Duration // since when fewer than five live; 0: five live
		servers    []server
		candidates []candidate
		want       int
	}{
		{"three members are three voters", size{}, 0, three, nil, 3},
		{"four are three", size{}, 0, three, []candidate{old}, 3},
		{"five are five", size{}, 0, three, []candidate{old, old}, 5},
		{"once they are stable", size{}, 0, three, []candidate{old, young}, 3},
		{"five with a Dir are three", size{durable: true}, 0, three, []candidate{old, old}, 3},
		{"an explicit number stands", size{explicit: 1}, 0, three, []candidate{old, old}, 1},
		{"one of five away: five", size{}, 0, four, nil, 5},
		{"for a while", size{}, timing.FewerVoters - 1, four, nil, 5},
		{"not for ever", size{}, timing.FewerVoters, four, nil, 3},
		{"back at once, and young: five", size{}, timing.FewerVoters, four, []candidate{young}, 5},
	} {
		if tt.fewer > 0 {
			tt.size.fewer = epoch.Add(-tt.fewer)
		}
		if got := tt.size.want(tt.servers, tt.candidates, epoch); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.claim, got, tt.want)
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
