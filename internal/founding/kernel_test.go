package founding

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

func TestTheNumberOfFirstVotersFollowsThePresentFounders(t *testing.T) {
	for _, tt := range []struct {
		m, present, lasting, want int
		voters                    int // 0: the present ones do not suffice
	}{
		{m: 1, present: 1, want: 3, voters: 1},
		{m: 2, present: 2, want: 3, voters: 1}, // two voters bear no more than one
		{m: 2, present: 1, want: 3},
		{m: 3, present: 3, want: 3, voters: 3},
		{m: 3, present: 2, want: 3, voters: 2}, // one voter: b without memory, and c, would found beside a
		{m: 3, present: 1, want: 3},
		{m: 3, present: 2, want: 1},
		{m: 3, present: 3, want: 1, voters: 1},
		{m: 3, present: 2, lasting: 2, want: 3, voters: 1},
		{m: 3, present: 2, lasting: 1, want: 3, voters: 2},
		{m: 3, present: 1, lasting: 1, want: 3},
		{m: 4, present: 3, want: 3, voters: 3},
		{m: 5, present: 3, want: 3}, // beside 2 live voters 3 members could forget
		{m: 5, present: 4, want: 3, voters: 3},
		{m: 5, present: 4, want: 5, voters: 3},
		{m: 5, present: 5, want: 5, voters: 5},
		{m: 5, present: 3, lasting: 3, want: 3, voters: 3},
		{m: 5, present: 4, lasting: 3, want: 5, voters: 3},
		{m: 6, present: 4, want: 5, voters: 4}, // with 3 voters all but one must be present
		{m: 7, present: 5, want: 3},
		{m: 7, present: 6, want: 3, voters: 3},
		{m: 9, present: 7, want: 5, voters: 5},
	} {
		n, ok := voterCount(tt.present, tt.lasting, tt.m, tt.want)
		if ok != (tt.voters > 0) || ok && n != tt.voters {
			t.Errorf("%+v: %d voters, %t", tt, n, ok)
		}
	}
}

// However many founders are present: the founders outside a majority of the first
// voters, without memory, never suffice for a second founding.
func TestTheForgetfulNeverSuffice(t *testing.T) {
	for m := 1; m <= 12; m++ {
		for _, want := range []int{1, 3, 5, 7} {
			for present := 1; present <= m; present++ {
				n, ok := voterCount(present, 0, m, want)
				if !ok {
					continue
				}
				if n%2 == 0 && quorum(m, n-1) <= present {
					t.Errorf("%d of %d founders, %d wanted: %d voters, and %d would do", present, m, want, n, n-1)
				}
				for others := range m - majority(n) + 1 {
					if _, again := voterCount(others, 0, m, want); again {
						t.Errorf("%d of %d founders, %d wanted: %d voters, and %d others found again", present, m, want, n, others)
					}
				}
			}
		}
	}
}

func TestAClusterOfNamedFoundersKeepsAsManyVotersAsItsFoundingNeeds(t *testing.T) {
	for _, tt := range []struct{ founders, want, least int }{{1, 3, 1}, {2, 3, 1}, {3, 3, 2}, {4, 3, 2}, {5, 3, 2}, {5, 0, 2}, {7, 7, 4}} {
		if least := LeastVoters(tt.founders, tt.want); least != tt.least {
			t.Errorf("%d founders, %d wanted: at least %d voters, want %d", tt.founders, tt.want, least, tt.least)
		}
	}
}

func TestTheAutomaticNumberOfVoters(t *testing.T) {
	inMemory := map[string]wire.PrepareAnswer{"a": {}}
	onDisk := map[string]wire.PrepareAnswer{"a": {}, "b": {Durable: true}}
	for _, tt := range []struct {
		configured, m int
		promises      map[string]wire.PrepareAnswer
		want          int
	}{{0, 4, inMemory, 3}, {0, 5, inMemory, 5}, {0, 9, onDisk, 3}, {3, 9, inMemory, 3}, {7, 3, onDisk, 7}} {
		if n := automatic(tt.configured, tt.m, tt.promises); n != tt.want {
			t.Errorf("%+v: %d", tt, n)
		}
	}
}

// At most one value is ever chosen: messages may be lost, late or reordered,
// and any member may propose. Members without memory cannot found a second
// cluster while a majority of the voters runs.
func TestAtMostOneFoundingIsChosen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedule{t: t,
			m:    rapid.IntRange(1, 7).Draw(t, "members"),
			want: rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "voters"),
			told: make(map[string]uint64),
		}
		s.durable = rapid.Bool().Draw(t, "durable")
		s.promises, s.generations = make([]identity.Promise, s.m), make([]int, s.m)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				s.begin()
			case 9:
				if !s.durable {
					s.forget(rapid.IntRange(0, s.m-1).Draw(t, "forgets"))
				}
			default:
				if len(s.ballots) > 0 {
					s.deliver(rapid.SampledFrom(s.ballots).Draw(t, "ballot"), rapid.IntRange(0, s.m-1).Draw(t, "member"))
				}
			}
		}
	})
}

// Whichever quorum chooses a founding: its first token is above what the resource had
// told each of its guarded members, and no liar raises it by more than a day above the
// clock of an honest acceptor. Members' clocks are off by days, and the resource sees
// further tokens all the time.
func TestTheFirstTokenIsAboveWhatTheQuorumWasTold(t *testing.T) {
	chosen := 0
	rapid.Check(t, func(t *rapid.T) {
		s := schedule{t: t, durable: true,
			m:     rapid.IntRange(1, 5).Draw(t, "members"),
			want:  rapid.SampledFrom([]int{1, 3}).Draw(t, "voters"),
			liar:  memberName(rapid.IntRange(0, 9).Draw(t, "liar")),
			guard: tokenOf(noon), told: make(map[string]uint64),
		}
		s.promises, s.generations = make([]identity.Promise, s.m), make([]int, s.m)
		for range s.m {
			s.guarded = append(s.guarded, rapid.IntRange(0, 3).Draw(t, "guarded") > 0)
			s.clocks = append(s.clocks, noon.Add(time.Duration(rapid.IntRange(-30, 6).Draw(t, "clock"))*time.Hour))
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				s.begin()
			case 9:
				s.guard += uint64(rapid.IntRange(1, 1<<36).Draw(t, "seen"))
			default:
				if len(s.ballots) > 0 {
					s.deliver(rapid.SampledFrom(s.ballots).Draw(t, "ballot"), rapid.IntRange(0, s.m-1).Draw(t, "member"))
				}
			}
		}
		if s.chosen != nil {
			chosen++
		}
	})
	if chosen == 0 {
		t.Error("no schedule chose a founding")
	}
}

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// ask is the answer of member i's TokenFloor; ok is false while it does not count.
func (s *schedule) ask(i int) (told uint64, ok bool) {
	if s.guarded != nil && s.guarded[i] {
		told = s.guard
	}
	return told, s.guarded == nil || told <= tokenOf(s.clocks[i])+maxAhead
}

// tells is the token that member i tells, and whether the proposer p takes the promise.
func (s *schedule) tells(i, p int, told uint64) (uint64, bool) {
	if s.guarded == nil {
		return 0, true
	}
	if memberName(i) == s.liar {
		told = uint64(rapid.Int64Range(0, 1<<53).Draw(s.t, "lie"))
	}
	return told, told <= tokenOf(s.clocks[p])+maxAhead
}

// checkFirstToken is the property of a founding that the members of accepted have chosen.
func (s *schedule) checkFirstToken(v wire.Founding, accepted map[string]wire.PrepareAnswer) {
	bound := uint64(0)
	for i := range s.guarded {
		name := memberName(i)
		if _, ok := accepted[name]; !ok || name == s.liar {
			continue
		}
		if s.guarded[i] && v.Floor <= s.told[name] {
			s.t.Fatalf("%s was told of token %d, and the first token is %d", name, s.told[name], v.Floor)
		}
		if limit := tokenOf(s.clocks[i].Add(25 * time.Hour)); bound == 0 || limit < bound {
			bound = limit
		}
	}
	if bound > 0 && v.Floor > bound {
		s.t.Fatalf("the first token is %v ahead of what an honest member accepts", aheadOf(v.Floor, bound))
	}
}

// schedule is a random order of messages and restarts among m members.
type schedule struct {
	guarded     []bool            // by member: it has a TokenFloor; nil: no floors are played
	clocks      []time.Time       // by member
	guard       uint64            // the highest token that the resource has seen
	told        map[string]uint64 // by member: the resource's answer at its last acceptance
	liar        string
	t           *rapid.T
	m, want     int
	durable     bool
	promises    []identity.Promise // by member
	generations []int              // of the raft ID, by member; a restart without memory begins the next
	ballots     []*attempt
	chosen      *wire.Founding
}

// attempt is a ballot as seen by the proposer.
type attempt struct {
	ballot   wire.Ballot
	promises map[string]wire.PrepareAnswer
	value    *wire.Founding // nil: still collecting promises
	accepts  map[string]wire.PrepareAnswer
}

func memberName(i int) string { return fmt.Sprint("m", i) }

func (s *schedule) raftID(i int) string { return fmt.Sprintf("m%d#%d", i, s.generations[i]) }

// begin opens a ballot of a random proposer.
func (s *schedule) begin() {
	s.ballots = append(s.ballots, &attempt{
		ballot: wire.Ballot{
			Round: uint64(len(s.ballots) + 1),
			Name:  memberName(rapid.IntRange(0, s.m-1).Draw(s.t, "proposer")),
		},
		promises: map[string]wire.PrepareAnswer{}, accepts: map[string]wire.PrepareAnswer{},
	})
}

// deliver brings the ballot's present message to member i, and the answer back.
func (s *schedule) deliver(a *attempt, i int) {
	name := memberName(i)
	var ok bool
	var by int // the proposer
	fmt.Sscanf(a.ballot.Name, "m%d", &by)
	told, counts := s.ask(i)
	if !counts {
		return
	}
	if a.value == nil {
		if s.promises[i], ok = prepare(s.promises[i], a.ballot); ok {
			if token, sound := s.tells(i, by, told); sound {
				a.promises[name] = wire.PrepareAnswer{Accepted: s.promises[i].Accepted, Value: s.promises[i].Value, Raft: s.raftID(i), Durable: s.durable, Token: token}
			}
		}
		a.value = propose(a.promises, true, s.m, s.want, func(voters []string, promises map[string]wire.PrepareAnswer) wire.Founding {
			v := wire.Founding{Cluster: machine.ClusterID{byte(a.ballot.Round), 1}, Voters: voters}
			if s.guarded != nil {
				own, _ := s.ask(by)
				v.Floor = floorOf(s.clocks[by], own, promises, nil)
			}
			return v
		})
		return
	}
	if s.guarded != nil && name != s.liar {
		if checkFloor(*a.value, told, tokenOf(s.clocks[i])) != "" {
			return
		}
	}
	p, promised := a.promises[name]
	if !promised {
		return
	}
	if s.promises[i], ok = accept(s.promises[i], a.ballot, *a.value); ok {
		a.accepts[name] = p
		s.told[name] = told
	}
	if chosen(*a.value, a.accepts, true, s.m) {
		if s.chosen != nil && s.chosen.Cluster != a.value.Cluster {
			s.t.Fatalf("two foundings chosen: %v and %v", s.chosen, a.value)
		}
		s.chosen = a.value
		s.checkFirstToken(*a.value, a.accepts)
	}
}

// forget restarts member i without a Dir, if the rules of the argument allow a
// restart: once a cluster is founded, a majority of its voters stays; while a
// value may be half chosen, no member forgets.
func (s *schedule) forget(i int) {
	if s.chosen != nil {
		live := 0
		for j := range s.promises {
			if j != i && slices.Contains(s.chosen.Voters, s.raftID(j)) {
				live++
			}
		}
		if live < len(s.chosen.Voters)/2+1 {
			return
		}
	} else if slices.ContainsFunc(s.promises, func(p identity.Promise) bool { return p.Value != nil }) {
		return
	}
	s.promises[i] = identity.Promise{}
	s.generations[i]++
	for _, a := range s.ballots {
		// A promise of the earlier process does not bind the new one.
		delete(a.promises, memberName(i))
		delete(a.accepts, memberName(i))
	}
}

func TestProposeRepeatsTheNewestAccepted(t *testing.T) {
	voters := []string{"a#1", "b#1", "c#1"}
	older, newer := &wire.Founding{Cluster: machine.ClusterID{1}, Voters: voters}, &wire.Founding{Cluster: machine.ClusterID{2}, Voters: voters}
	promises := map[string]wire.PrepareAnswer{
		"a": {Accepted: wire.Ballot{Round: 1, Name: "z"}, Value: older, Raft: "a#1"},
		"b": {Accepted: wire.Ballot{Round: 2, Name: "a"}, Value: newer, Raft: "b#1"},
		"c": {Raft: "c#2"}, // a single lost store is no majority
	}
	fresh := func([]string, map[string]wire.PrepareAnswer) wire.Founding { return wire.Founding{} }
	if v := propose(promises, false, 3, 3, fresh); v != newer {
		t.Errorf("proposed %v", v)
	}
	promises["a"] = wire.PrepareAnswer{Raft: "a#2"}
	if v := propose(promises, false, 3, 3, fresh); v == newer || v == older {
		t.Error("repeated a value whose voters are gone")
	}
	if v := propose(map[string]wire.PrepareAnswer{"a": {}}, true, 3, 3, fresh); v != nil {
		t.Errorf("too few promises, but proposed %v", v)
	}
	if v := propose(map[string]wire.PrepareAnswer{"a": {}, "b": {}, "c": {}}, true, 5, 3, fresh); v != nil {
		t.Errorf("3 of 5 founders in memory are too few, but proposed %v", v)
	}
	onDisk := map[string]wire.PrepareAnswer{"a": {Durable: true}, "b": {Durable: true}, "c": {Durable: true}}
	if v := propose(onDisk, true, 5, 3, fresh); v == nil {
		t.Error("3 of 5 founders with a Dir are enough")
	}
	if v := propose(onDisk, false, 5, 3, fresh); v != nil {
		t.Errorf("of 5 members without declared names 3 are too few, but proposed %v", v)
	}
}

func TestDurableMembersVoteFirst(t *testing.T) {
	promises := map[string]wire.PrepareAnswer{
		"a": {Raft: "a#1"}, "b": {Raft: "b#1"}, "c": {Raft: "c#1", Durable: true},
	}
	if ids := chooseVoters(promises, 1); !slices.Equal(ids, []string{"c#1"}) {
		t.Errorf("one voter: %v", ids)
	}
	if ids := chooseVoters(promises, 3); !slices.Equal(ids, []string{"a#1", "b#1", "c#1"}) {
		t.Errorf("three voters: %v", ids)
	}
}

func TestLowerBallotsAreRefused(t *testing.T) {
	low, high := wire.Ballot{Round: 1, Name: "a"}, wire.Ballot{Round: 2, Name: "a"}
	v, w := wire.Founding{Floor: 1}, wire.Founding{Floor: 2}
	p, ok := prepare(identity.Promise{}, high)
	if !ok || p.Promised != high {
		t.Fatalf("first promise: %+v, %t", p, ok)
	}
	if q, ok := prepare(p, low); ok || q != p {
		t.Errorf("a lower ballot got the promise: %+v", q)
	}
	if q, ok := accept(p, low, v); ok || q != p {
		t.Errorf("a lower ballot was accepted: %+v", q)
	}
	if p, ok = accept(p, high, w); !ok || p.Accepted != high || p.Value.Floor != w.Floor {
		t.Errorf("the promised ballot was not accepted: %+v", p)
	}
}

func TestBallotsOrder(t *testing.T) {
	b := []wire.Ballot{{Round: 2, Name: "a"}, {Round: 1, Name: "b"}, {Round: 1, Name: "a"}, {}}
	slices.SortFunc(b, compareBallots)
	if !slices.IsSortedFunc(b, func(x, y wire.Ballot) int {
		return cmp.Or(cmp.Compare(x.Round, y.Round), cmp.Compare(x.Name, y.Name))
	}) {
		t.Error(b)
	}
}

func TestUnsoundFoundingsAreRefused(t *testing.T) {
	sound := func() wire.Founding {
		return wire.Founding{Cluster: machine.ClusterID{1}, Voters: []string{"a#1", "b#1", "c#1"}, Floor: 1}
	}
	if err := Check(sound()); err != nil {
		t.Fatal(err)
	}
	for claim, spoil := range map[string]func(*wire.Founding){
		"no cluster ID":         func(v *wire.Founding) { v.Cluster = machine.ClusterID{} },
		"no voters":             func(v *wire.Founding) { v.Voters = nil },
		"too many voters":       func(v *wire.Founding) { v.Voters = slices.Repeat(v.Voters, 3) },
		"its own predecessor":   func(v *wire.Founding) { v.Predecessors = []machine.ClusterID{v.Cluster} },
		"an endless lineage":    func(v *wire.Founding) { v.Predecessors = make([]machine.ClusterID, 65) },
		"a name that is twice":  func(v *wire.Founding) { v.Voters[1] = "a#2" },
		"no raft ID":            func(v *wire.Founding) { v.Voters[1] = "b" },
		"no floor under tokens": func(v *wire.Founding) { v.Floor = 0 },
	} {
		v := sound()
		if spoil(&v); Check(v) == nil {
			t.Errorf("%s: accepted", claim)
		}
	}
}
