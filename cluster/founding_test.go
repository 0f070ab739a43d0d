package cluster

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

func TestFoundingQuorum(t *testing.T) {
	for _, tt := range []struct{ m, want, voters, quorum int }{
		{1, 3, 1, 1},
		{2, 3, 1, 2}, // one voter; both must agree which
		{3, 3, 3, 3}, // all voters must take part
		{4, 3, 3, 3},
		{5, 3, 3, 4}, // a majority of 5 is 3, but beside 2 live voters 3 could forget
		{5, 5, 5, 5},
		{7, 3, 3, 6},
		{7, 1, 1, 7},
		{9, 5, 5, 7},
	} {
		v := firstVoters(tt.m, tt.want)
		if q := foundingQuorum(tt.m, v); v != tt.voters || q != tt.quorum {
			t.Errorf("%d members, %d voters wanted: %d voters, quorum %d; want %d, %d", tt.m, tt.want, v, q, tt.voters, tt.quorum)
		}
	}
}

// At most one value is ever chosen, whatever messages are lost, late or
// reordered, and whoever proposes; and a majority of its voters that runs
// cannot be joined by a second cluster of members that have forgotten.
func TestAtMostOneFoundingIsChosen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.IntRange(1, 7).Draw(t, "members")
		want := rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "voters")
		durable := rapid.Bool().Draw(t, "durable")
		n := firstVoters(m, want)
		quorum := foundingQuorum(m, n)
		members := make([]acceptor, m)
		gens := make([]int, m) // a member that forgets comes back as another raft ID
		id := func(i int) string { return fmt.Sprintf("m%d#%d", i, gens[i]) }

		type attempt struct {
			ballot   wire.Ballot
			promises map[string]wire.PrepareAnswer
			value    *wire.Founding
			accepts  map[string]bool
		}
		var attempts []*attempt
		var chosen *wire.Founding
		round := uint64(0)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				round++
				attempts = append(attempts, &attempt{
					ballot:   wire.Ballot{Round: round, Name: fmt.Sprint("m", rapid.IntRange(0, m-1).Draw(t, "proposer"))},
					promises: map[string]wire.PrepareAnswer{}, accepts: map[string]bool{},
				})
			case 1, 2, 3, 4, 5, 6, 7, 8:
				if len(attempts) == 0 {
					continue
				}
				a := rapid.SampledFrom(attempts).Draw(t, "attempt")
				i := rapid.IntRange(0, m-1).Draw(t, "member")
				name := fmt.Sprint("m", i)
				if a.value == nil {
					var ok bool
					if members[i], ok = members[i].prepare(a.ballot); ok {
						a.promises[name] = wire.PrepareAnswer{Accepted: members[i].Accepted, Value: members[i].Value, Raft: id(i)}
					}
					a.value = propose(a.promises, m, want, func(voters []string, _ map[string]wire.PrepareAnswer) wire.Founding {
						return wire.Founding{Cluster: machine.ClusterID{byte(a.ballot.Round), 1}, Voters: voters}
					})
					continue
				}
				if _, promised := a.promises[name]; !promised {
					continue
				}
				var ok bool
				if members[i], ok = members[i].accept(a.ballot, *a.value); ok {
					a.accepts[name] = true
				}
				if len(a.accepts) >= quorum {
					if chosen != nil && chosen.Cluster != a.value.Cluster {
						t.Fatalf("two foundings chosen: %v and %v", chosen, a.value)
					}
					chosen = a.value
				}
			case 9:
				// A member without a Dir restarts and forgets; once a cluster
				// is founded, only while a majority of its voters stays.
				if durable {
					continue
				}
				i := rapid.IntRange(0, m-1).Draw(t, "forgets")
				live := 0
				if chosen != nil {
					for j := range members {
						if j != i && slices.Contains(chosen.Voters, id(j)) {
							live++
						}
					}
					if live < len(chosen.Voters)/2+1 {
						continue
					}
				} else if slices.ContainsFunc(members, func(a acceptor) bool { return a.Value != nil }) {
					// While a value may be half chosen, the promise holds for
					// members that remember.
					continue
				}
				members[i], gens[i] = acceptor{}, gens[i]+1
				for _, a := range attempts {
					// What it promised as another is not its promise now.
					delete(a.promises, fmt.Sprint("m", i))
					delete(a.accepts, fmt.Sprint("m", i))
				}
			}
		}
	})
}

func TestProposeRepeatsTheNewestAccepted(t *testing.T) {
	voters := []string{"a#1", "b#1", "c#1"}
	older, newer := &wire.Founding{Cluster: machine.ClusterID{1}, Voters: voters}, &wire.Founding{Cluster: machine.ClusterID{2}, Voters: voters}
	promises := map[string]wire.PrepareAnswer{
		"a": {Accepted: wire.Ballot{Round: 1, Name: "z"}, Value: older, Raft: "a#1"},
		"b": {Accepted: wire.Ballot{Round: 2, Name: "a"}, Value: newer, Raft: "b#1"},
		"c": {Raft: "c#2"}, // one lost store is no majority
	}
	fresh := func([]string, map[string]wire.PrepareAnswer) wire.Founding { return wire.Founding{} }
	if v := propose(promises, 3, 3, fresh); v != newer {
		t.Errorf("proposed %v", v)
	}
	promises["a"] = wire.PrepareAnswer{Raft: "a#2"}
	if v := propose(promises, 3, 3, fresh); v == newer || v == older {
		t.Error("repeated a value whose voters are gone")
	}
	if v := propose(map[string]wire.PrepareAnswer{"a": {}, "b": {}}, 3, 3, fresh); v != nil {
		t.Errorf("too few promises, but proposed %v", v)
	}
	if v := propose(map[string]wire.PrepareAnswer{"a": {Members: 5}, "b": {}, "c": {}}, 3, 3, fresh); v != nil {
		t.Errorf("3 of 5 seen members are too few, but proposed %v", v)
	}
}

// Whatever is cut, lost or restarted while three to seven members found, no two
// clusters come of it.
func TestFoundingUnderFaultsMakesOneCluster(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for round := range rounds {
		inBubble(t, func(b *bubble) {
			r := rand.New(rand.NewPCG(uint64(round), 1))
			m := 3 + r.IntN(5)
			var names []string
			var hosts []string
			for i := range m {
				names = append(names, fmt.Sprint("n", i+1))
				hosts = append(hosts, b.host(names[i]))
			}
			founders := r.IntN(2) == 0
			b.net.SetDefault(transportLink(r))
			start := func(name string) {
				b.start(name, func(c *Config) {
					c.InitialSize, c.Join = m, nil
					// Differing views: each member knows only some others.
					for _, other := range names {
						if r.IntN(2) == 0 {
							c.Join = append(c.Join, b.addr(other))
						}
					}
					c.Join = append(c.Join, b.addr(names[0]))
					if founders {
						c.InitialSize, c.Founders = 0, names
					}
				})
			}
			for _, name := range names {
				start(name)
				time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			}
			restarted := 0
			for range 6 {
				time.Sleep(time.Duration(r.IntN(800)) * time.Millisecond)
				switch r.IntN(4) {
				case 0:
					cut := 1 + r.IntN(m-1)
					r.Shuffle(m, func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
					b.net.Partition(hosts[:cut], hosts[cut:])
				case 1:
					b.net.Cut(hosts[r.IntN(m)], hosts[r.IntN(m)])
				case 2:
					b.net.Heal()
				case 3:
					// No member is named twice among the forgetful: a group
					// that lost its majority must not found again by itself,
					// but may then be without a quorum for good.
					if restarted == 0 {
						restarted++
						name := names[r.IntN(m)]
						b.crash(name)
						start(name)
					}
				}
			}
			b.net.Heal()
			var nodes []*Node
			for _, name := range names {
				nodes = append(nodes, b.nodes[name])
			}
			b.readyWithin(2*time.Minute, nodes...)
			for _, n := range nodes {
				if n.clusterID() != nodes[0].clusterID() {
					t.Errorf("round %d: two clusters: %v and %v", round, n.clusterID(), nodes[0].clusterID())
				}
			}
		})
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

func TestPlanVoters(t *testing.T) {
	ok := serverView{voter: true, alive: true}
	as := func(id string, s serverView) serverView { s.id = id; return s }
	gone, dead := serverView{voter: true, gone: true}, serverView{voter: true}
	leaving := serverView{voter: true, alive: true, leaving: true}
	behind, ready := serverView{alive: true}, serverView{alive: true, ready: true}
	for _, tt := range []struct {
		claim      string
		servers    []serverView
		candidates int
		want       int
		step       step
	}{
		{"a full set stays", []serverView{as("a", ok), as("b", ok), as("c", ok)}, 5, 3, step{}},
		{"one voter and one candidate stay one: two bear no loss either", []serverView{as("a", ok)}, 1, 3, step{}},
		{"one voter and two candidates grow", []serverView{as("a", ok)}, 2, 3, step{kind: stepInvite}},
		{"the second is invited before the first is promoted", []serverView{as("a", ok), as("b", ready)}, 1, 3, step{kind: stepInvite}},
		{"both are promoted once both are ready", []serverView{as("a", ok), as("b", ready), as("c", ready)}, 0, 3, step{stepPromote, "b"}},
		{"not before", []serverView{as("a", ok), as("b", ready), as("c", behind)}, 0, 3, step{}},
		{"from two voters one more is enough", []serverView{as("a", ok), as("b", ok), as("c", ready)}, 0, 3, step{stepPromote, "c"}},
		{"a dead voter without a successor is kept", []serverView{as("a", ok), as("b", ok), as("c", gone)}, 0, 3, step{}},
		{"its successor is invited", []serverView{as("a", ok), as("b", ok), as("c", gone)}, 1, 3, step{kind: stepInvite}},
		{"and waited for", []serverView{as("a", ok), as("b", ok), as("c", gone), as("d", behind)}, 0, 3, step{}},
		{"then the dead one goes", []serverView{as("a", ok), as("b", ok), as("c", gone), as("d", ready)}, 0, 3, step{stepRemove, "c"}},
		{"a leaver's successor votes first", []serverView{as("a", ok), as("b", ok), as("c", leaving), as("d", ready)}, 0, 3, step{stepPromote, "d"}},
		{"then the leaver goes", []serverView{as("a", ok), as("b", ok), as("c", leaving), as("d", ok)}, 0, 3, step{stepRemove, "c"}},
		{"a leaver that nobody can succeed goes too", []serverView{as("a", ok), as("b", ok), as("c", leaving)}, 0, 3, step{stepRemove, "c"}},
		{"but not beside a dead one: that would cost the quorum", []serverView{as("a", ok), as("b", dead), as("c", leaving)}, 0, 3, step{}},
		{"the dead one goes first, once it is given up", []serverView{as("a", ok), as("b", gone), as("c", leaving)}, 0, 3, step{stepRemove, "b"}},
		{"then the leaver", []serverView{as("a", ok), as("c", leaving)}, 0, 3, step{stepRemove, "c"}},
		{"the only voter stays", []serverView{as("a", leaving)}, 0, 3, step{}},
		{"a dead non-voter goes at once", []serverView{as("a", ok), as("b", serverView{gone: true})}, 0, 3, step{stepRemove, "b"}},
		{"no standing non-voters", []serverView{as("a", ok), as("b", ok), as("c", ok), as("d", ready)}, 0, 3, step{stepRemove, "d"}},
		{"fewer wanted, one goes", []serverView{as("a", ok), as("b", ok), as("c", ok), as("d", ok), as("e", ok)}, 0, 3, step{stepRemove, "e"}},
		{"five want five", []serverView{as("a", ok), as("b", ok), as("c", ok)}, 2, 5, step{kind: stepInvite}},
		{"but four are three", []serverView{as("a", ok), as("b", ok), as("c", ok)}, 1, 5, step{}},
	} {
		if got := planVoters(tt.servers, tt.candidates, tt.want); got != tt.step {
			t.Errorf("%s: got %+v, want %+v", tt.claim, got, tt.step)
		}
	}
}

// From any configuration the steps lead to a stable one without ever leaving
// fewer living voters than a majority needs.
func TestPlanVotersConvergesSafely(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SampledFrom([]int{1, 3, 5, 7}).Draw(t, "want")
		var servers []serverView
		for i := range rapid.IntRange(1, 7).Draw(t, "voters") {
			s := serverView{id: fmt.Sprint("v", i), voter: true, alive: true}
			switch rapid.IntRange(0, 6).Draw(t, "state") {
			case 0:
				s.alive, s.gone = false, true
			case 1:
				s.leaving = true
			case 2:
				s.alive = false // and will be given up in time
			}
			servers = append(servers, s)
		}
		living := func() (living, voters int) {
			for _, s := range servers {
				if s.voter {
					voters++
					if s.alive {
						living++
					}
				}
			}
			return
		}
		if l, v := living(); l < v/2+1 {
			return // no quorum: raft would take no step
		}
		candidates := rapid.IntRange(0, 8).Draw(t, "candidates")
		for i := 0; ; i++ {
			if i > 200 {
				t.Fatalf("no end: %+v", servers)
			}
			s := planVoters(servers, candidates, want)
			at := slices.IndexFunc(servers, func(v serverView) bool { return v.id == s.id })
			switch s.kind {
			case stepInvite:
				if candidates == 0 {
					t.Fatal("invited nobody")
				}
				candidates--
				servers = append(servers, serverView{id: fmt.Sprint("c", i), alive: true})
			case stepPromote:
				if servers[at].voter || !servers[at].ready {
					t.Fatalf("promoted %+v", servers[at])
				}
				servers[at].voter = true
			case stepRemove:
				servers = slices.Delete(servers, at, at+1)
			case stepNone:
				waiting := false
				for j := range servers {
					if !servers[j].voter && !servers[j].ready {
						servers[j].ready, waiting = true, true
					}
					if servers[j].voter && !servers[j].alive && !servers[j].gone {
						servers[j].gone, waiting = true, true
					}
				}
				if waiting {
					continue
				}
				l, v := living()
				if l < v/2+1 {
					t.Fatalf("ended without a quorum: %+v", servers)
				}
				last := v == 1 || l-1 < (v-1)/2+1
				if slices.ContainsFunc(servers, func(s serverView) bool { return s.leaving && !last || !s.voter }) {
					t.Fatalf("ended unsettled: %+v", servers)
				}
				return
			}
			if l, v := living(); l < v/2+1 {
				t.Fatalf("after %+v there is no quorum: %+v", s, servers)
			}
		}
	})
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
