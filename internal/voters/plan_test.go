package voters

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestTheNextStep(t *testing.T) {
	ok := server{voter: true, alive: true}
	as := func(id string, s server) server { s.id = id; return s }
	gone, dead := server{voter: true, gone: true}, server{voter: true}
	leaving := server{voter: true, alive: true, leaving: true}
	behind, ready := server{alive: true}, server{alive: true, ready: true}
	for _, tt := range []struct {
		claim      string
		servers    []server
		candidates int
		want       int
		step       step
	}{
		{"a full set stays", []server{as("a", ok), as("b", ok), as("c", ok)}, 5, 3, step{}},
		{"one voter and one candidate stay one: two bear no loss either", []server{as("a", ok)}, 1, 3, step{}},
		{"one voter and two candidates grow", []server{as("a", ok)}, 2, 3, step{kind: stepInvite}},
		{"the second is invited before the first is promoted", []server{as("a", ok), as("b", ready)}, 1, 3, step{kind: stepInvite}},
		{"both are promoted once both are ready", []server{as("a", ok), as("b", ready), as("c", ready)}, 0, 3, step{stepPromote, "b"}},
		{"not before", []server{as("a", ok), as("b", ready), as("c", behind)}, 0, 3, step{}},
		{"from two voters one more is enough", []server{as("a", ok), as("b", ok), as("c", ready)}, 0, 3, step{stepPromote, "c"}},
		{"a dead voter without a successor is kept", []server{as("a", ok), as("b", ok), as("c", gone)}, 0, 3, step{}},
		{"its successor is invited", []server{as("a", ok), as("b", ok), as("c", gone)}, 1, 3, step{kind: stepInvite}},
		{"and waited for", []server{as("a", ok), as("b", ok), as("c", gone), as("d", behind)}, 0, 3, step{}},
		{"then the dead one goes", []server{as("a", ok), as("b", ok), as("c", gone), as("d", ready)}, 0, 3, step{stepRemove, "c"}},
		{"a leaver's successor votes first", []server{as("a", ok), as("b", ok), as("c", leaving), as("d", ready)}, 0, 3, step{stepPromote, "d"}},
		{"then the leaver goes", []server{as("a", ok), as("b", ok), as("c", leaving), as("d", ok)}, 0, 3, step{stepRemove, "c"}},
		{"a leaver that nobody can succeed goes too", []server{as("a", ok), as("b", ok), as("c", leaving)}, 0, 3, step{stepRemove, "c"}},
		{"but not beside a dead one: that would cost the quorum", []server{as("a", ok), as("b", dead), as("c", leaving)}, 0, 3, step{}},
		{"the dead one goes first, once it is given up", []server{as("a", ok), as("b", gone), as("c", leaving)}, 0, 3, step{stepRemove, "b"}},
		{"then the leaver", []server{as("a", ok), as("c", leaving)}, 0, 3, step{stepRemove, "c"}},
		{"the only voter stays", []server{as("a", leaving)}, 0, 3, step{}},
		{"a dead non-voter goes at once", []server{as("a", ok), as("b", server{gone: true})}, 0, 3, step{stepRemove, "b"}},
		{"no standing non-voters", []server{as("a", ok), as("b", ok), as("c", ok), as("d", ready)}, 0, 3, step{stepRemove, "d"}},
		{"fewer wanted, one goes", []server{as("a", ok), as("b", ok), as("c", ok), as("d", ok), as("e", ok)}, 0, 3, step{stepRemove, "e"}},
		{"five want five", []server{as("a", ok), as("b", ok), as("c", ok)}, 2, 5, step{kind: stepInvite}},
		{"but four are three", []server{as("a", ok), as("b", ok), as("c", ok)}, 1, 5, step{}},
	} {
		if got := planVoters(tt.servers, tt.candidates, tt.want); got != tt.step {
			t.Errorf("%s: got %+v, want %+v", tt.claim, got, tt.step)
		}
	}
}

// From any configuration the steps lead to a stable configuration, and never leave
// fewer living voters than a majority needs.
func TestStepsConvergeAndKeepAQuorum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SampledFrom([]int{1, 3, 5, 7}).Draw(t, "want")
		var servers []server
		for i := range rapid.IntRange(1, 7).Draw(t, "voters") {
			s := server{id: fmt.Sprint("v", i), voter: true, alive: true}
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
			at := slices.IndexFunc(servers, func(v server) bool { return v.id == s.id })
			switch s.kind {
			case stepInvite:
				if candidates == 0 {
					t.Fatal("invited nobody")
				}
				candidates--
				servers = append(servers, server{id: fmt.Sprint("c", i), alive: true})
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
				if slices.ContainsFunc(servers, func(s server) bool { return s.leaving && !last || !s.voter }) {
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
