package voters

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// parseServers reads a configuration, for example "a b:g c:n@east": the leader a,
// the voter b, which is gone, and the non-voter c in the zone east. A voter without
// flags lives and has the log. Flags: g gone, l leaving, d down, b behind, n a
// non-voter behind, r a non-voter that has caught up.
func parseServers(text string) (servers []server) {
	for _, word := range strings.Fields(text) {
		word, zone, _ := strings.Cut(word, "@")
		id, flags, _ := strings.Cut(word, ":")
		s := server{id: id, zone: zone, self: id == "a", voter: true, up: true, ready: true}
		for _, f := range flags {
			switch f {
			case 'g':
				s.gone, s.up = true, false
			case 'l':
				s.leaving = true
			case 'd':
				s.up = false
			case 'b':
				s.ready = false
			case 'n':
				s.voter, s.ready = false, false
			case 'r':
				s.voter = false
			}
		}
		servers = append(servers, s)
	}
	return servers
}

// parseCandidates reads candidates, for example "@east young": a stable one in a
// zone, and one that is not stable yet.
func parseCandidates(text string) (out []candidate) {
	for _, word := range strings.Fields(text) {
		name, zone, _ := strings.Cut(word, "@")
		out = append(out, candidate{zone: zone, stable: name != "young"})
	}
	return out
}

func (s step) String() string {
	words := map[stepKind]string{stepNone: "-", stepInvite: "invite", stepAdd: "add", stepPromote: "promote", stepMakeRoom: "make room", stepRemove: "remove", stepTransfer: "transfer"}
	out := strings.TrimSpace(words[s.kind] + " " + s.id)
	if s.with > 0 {
		out += fmt.Sprint(" #", s.with)
	}
	return out
}

func TestTheNextStep(t *testing.T) {
	for _, tt := range []struct {
		claim      string
		servers    string
		candidates string
		goal       goal
		step       string
	}{
		{"a full set stays", "a b c", "x x x", goal{want: 3}, "-"},
		{"one voter and one candidate stay one: two bear no loss either", "a", "x", goal{want: 3}, "-"},
		{"one voter and two candidates grow", "a", "x x", goal{want: 3}, "invite"},
		{"the second is invited before the first is promoted", "a b:r", "x", goal{want: 3}, "invite"},
		{"of two that are coming, one votes once both are ready", "a b:r c:r", "", goal{want: 3}, "promote b"},
		{"not before: an odd number needs the newcomer", "a b:r c:n", "", goal{want: 3}, "-"},
		{"an even number does not, so the newcomer may lag", "a b c:n", "", goal{want: 3}, "promote c"},
		{"to two voters a candidate is added at once, young or not", "a b", "young", goal{want: 3}, "add"},
		{"but not while one of the two is out of reach", "a b:d", "x", goal{want: 3}, "-"},
		{"a dead voter without a successor is kept", "a b c:g", "", goal{want: 3}, "-"},
		{"it makes room for a candidate at hand", "a b c:g", "young", goal{want: 3}, "make room c"},
		{"or for a non-voter that is coming already", "a b c:g d:n", "", goal{want: 3}, "remove c"},
		{"but not if the others could not decide without it", "a b:d c:g", "x", goal{want: 3}, "-"},
		{"two dead of five without successors make the majority smaller by going", "a b c d:g e:g", "", goal{want: 5}, "remove d"},
		{"both of them", "a b c e:g", "", goal{want: 5}, "remove e"},
		{"one dead of five is kept", "a b c d e:g", "", goal{want: 5}, "-"},
		{"unless three are enough", "a b c d e:g", "", goal{want: 3}, "remove e"},
		{"a leaver's successor is invited", "a b c:l", "x", goal{want: 3}, "invite"},
		{"it votes first", "a b c:l d:r", "", goal{want: 3}, "promote d"},
		{"once it has caught up", "a b c:l d:n", "", goal{want: 3}, "-"},
		{"then the leaver goes", "a b c:l d", "", goal{want: 3}, "remove c"},
		{"but not while the successor lags", "a b c:l d:b e:d", "", goal{want: 3}, "-"},
		{"a leaver that nobody can succeed goes too", "a b c:l", "", goal{want: 3}, "remove c"},
		{"but not beside a dead one: that would cost the quorum", "a b:d c:l", "", goal{want: 3}, "-"},
		{"the dead one goes first, once it is given up", "a b:g c:l", "", goal{want: 3}, "remove b"},
		{"then the leaver", "a c:l", "", goal{want: 3}, "remove c"},
		{"unless fewer than two would rest on the founders' names", "a c:l", "", goal{want: 3, least: 2}, "-"},
		{"where a candidate comes first", "a c:l", "x", goal{want: 3, least: 2}, "add"},
		{"nor do the dead go below it", "a b c d:g e:g", "", goal{want: 5, least: 4}, "remove d"},
		{"not one more", "a b c e:g", "", goal{want: 5, least: 4}, "-"},
		{"nor for a moment", "a b:b c e:g", "x", goal{want: 5, least: 4}, "-"},
		{"a set that is too small grows first", "a b c:g d:r", "", goal{want: 5, least: 4}, "promote d"},
		{"a smaller number wanted counts for nothing", "a b c e:g", "", goal{want: 3, least: 4}, "-"},
		{"nor does a leader go that leaves", "a:l b", "", goal{want: 1, least: 2}, "-"},
		{"the only voter stays", "a:l", "", goal{want: 3}, "-"},
		{"a leader that leaves goes last", "a:l b c:l", "", goal{want: 3}, "remove c"},
		{"and hands over", "a:l b", "", goal{want: 3}, "transfer b"},
		{"to nobody that leaves too", "a:l b:ld c:ld", "", goal{want: 3}, "-"},
		{"a non-voter that is gone goes at once", "a b:ng", "", goal{want: 3}, "remove b"},
		{"no standing non-voters", "a b c d:r", "", goal{want: 3}, "remove d"},
		{"fewer wanted: a follower goes, also if the leader stands last", "b c d e a", "", goal{want: 3}, "remove e"},
		{"the one out of reach first", "a b c:d d e", "", goal{want: 3}, "remove c"},
		{"with two voters and one wanted the leader stays too", "b a", "", goal{want: 1}, "remove b"},
		{"five want five", "a b c", "x x", goal{want: 5}, "invite"},
		{"but four are three", "a b c", "x", goal{want: 5}, "-"},
		{"the candidate of a free zone first", "a@1 b@2 c:g", "@1 @3", goal{want: 3}, "make room c #1"},
		{"two voters in a zone and a spare in a free zone: the spare is invited", "a@1 b@1 c@2", "@2 @3", goal{want: 3}, "invite #1"},
		{"not before it is stable", "a@1 b@1 c@2", "young@3", goal{want: 3}, "-"},
		{"not for a zone that has a voter", "a@1 b@1 c@2", "@2", goal{want: 3}, "-"},
		{"not while a voter is out of reach", "a@1 b@1 c:d@2", "@3", goal{want: 3}, "-"},
		{"not for voters without zones", "a b c", "@3", goal{want: 3}, "-"},
		{"it catches up", "a@1 b@1 c@2 d:n@3", "", goal{want: 3}, "-"},
		{"it votes", "a@1 b@1 c@2 d:r@3", "", goal{want: 3}, "promote d"},
		{"then the follower of the crowded zone goes", "a@1 b@1 c@2 d@3", "", goal{want: 3}, "remove b"},
	} {
		if got := planVoters(parseServers(tt.servers), parseCandidates(tt.candidates), tt.goal).String(); got != tt.step {
			t.Errorf("%s: %s + %q: got %q, want %q", tt.claim, tt.servers, tt.candidates, got, tt.step)
		}
	}
}

// world is a configuration and candidates that a test changes as planVoters asks.
type world struct {
	servers    []server
	candidates []candidate
	added      int
}

// numbers counts the voters that live with the log, the voters that live, and all
// voters.
func (w *world) numbers() (fit, living, voters int) {
	for _, s := range w.servers {
		if s.voter {
			voters++
			if s.up {
				living++
				if s.ready {
					fit++
				}
			}
		}
	}
	return fit, living, voters
}

// do makes a step, and fails the test if the step makes no sense.
func (w *world) do(t *rapid.T, s step, lead *int) {
	at := slices.IndexFunc(w.servers, func(v server) bool { return v.id == s.id })
	take := func(voter bool) {
		c := w.candidates[s.with]
		w.candidates = slices.Delete(w.candidates, s.with, s.with+1)
		w.added++
		w.servers = append(w.servers, server{id: fmt.Sprint("c", w.added), voter: voter, up: true, zone: c.zone})
	}
	switch s.kind {
	case stepInvite:
		take(false)
	case stepAdd:
		take(true)
	case stepPromote:
		if w.servers[at].voter {
			t.Fatalf("promoted %+v", w.servers[at])
		}
		w.servers[at].voter = true
	case stepMakeRoom, stepRemove:
		if w.servers[at].self {
			t.Fatalf("the leader removes itself: %+v", w.servers)
		}
		if s.kind == stepMakeRoom && !w.servers[at].gone {
			t.Fatalf("room is made by %+v", w.servers[at])
		}
		w.servers = slices.Delete(w.servers, at, at+1)
	case stepTransfer:
		if *lead++; *lead > 1 {
			t.Fatalf("leadership is handed over again and again: %+v", w.servers)
		}
		for i := range w.servers {
			w.servers[i].self = false
		}
		if !w.servers[at].voter || !w.servers[at].up || !w.servers[at].ready {
			t.Fatalf("handed over to %+v", w.servers[at])
		}
		w.servers[at].self = true
	}
}

// pass lets time pass: newcomers catch up, and voters out of reach are given up. It
// returns false if nothing has changed.
func (w *world) pass() (changed bool) {
	for i := range w.servers {
		s := &w.servers[i]
		if s.up && !s.ready {
			s.ready, changed = true, true
		}
		if s.voter && !s.up && !s.gone {
			s.gone, changed = true, true
		}
	}
	return changed
}

// From any configuration with a quorum the steps lead to a stable configuration. No
// step leaves fewer living voters than a majority needs, and no step makes a
// majority out of reach that was in reach, even if newcomers lag. Leadership is
// handed over once at most.
func TestStepsConvergeAndKeepAQuorum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := goal{want: rapid.SampledFrom([]int{1, 3, 5, 7}).Draw(t, "want"), least: rapid.SampledFrom([]int{0, 2, 4}).Draw(t, "least")}
		zones := rapid.SampledFrom([]string{"", "1", "2", "3", "4"})
		w := &world{}
		for i := range rapid.IntRange(1, 7).Draw(t, "voters") {
			s := server{id: fmt.Sprint("v", i), voter: true, up: true, ready: true, zone: zones.Draw(t, "zone")}
			switch rapid.IntRange(0, 6).Draw(t, "state") {
			case 0:
				s.up, s.gone = false, true
			case 1:
				s.leaving = true
			case 2:
				s.up = false // and will be given up in time
			}
			w.servers = append(w.servers, s)
		}
		self := slices.IndexFunc(w.servers, func(s server) bool { return s.up })
		if self < 0 {
			return
		}
		w.servers[self].self = true
		if f, _, v := w.numbers(); f < majority(v) {
			return // no quorum: raft would take no step
		}
		for range rapid.IntRange(0, 8).Draw(t, "candidates") {
			w.candidates = append(w.candidates, candidate{zone: zones.Draw(t, "zone"), stable: rapid.Bool().Draw(t, "stable")})
		}
		transfers := 0
		for i := 0; ; i++ {
			if i > 300 {
				t.Fatalf("no end: %+v", w.servers)
			}
			s := planVoters(w.servers, w.candidates, g)
			if s.kind == stepNone {
				for j := range w.candidates {
					w.candidates[j].stable = true
				}
				if w.pass() {
					continue
				}
				if s = planVoters(w.servers, w.candidates, g); s.kind == stepNone {
					break
				}
			}
			_, _, before := w.numbers()
			w.do(t, s, &transfers)
			if _, _, v := w.numbers(); v < before && v < g.least {
				t.Fatalf("%v leaves %d voters, the least are %d: %+v", s, v, g.least, w.servers)
			}
			if f, _, v := w.numbers(); f < majority(v) {
				t.Fatalf("after %v there is no quorum: %+v", s, w.servers)
			}
			if rapid.Bool().Draw(t, "time") {
				w.pass()
			}
		}
		f, _, v := w.numbers()
		last := v <= max(1, g.least) || f-1 < majority(v-1)
		for _, s := range w.servers {
			if !s.voter || s.leaving && !last {
				t.Fatalf("ended unsettled: %+v", w.servers)
			}
		}
		if v > max(g.want, g.least) && !last {
			t.Fatalf("ended with %d voters, %d wanted: %+v", v, g.want, w.servers)
		}
	})
}
