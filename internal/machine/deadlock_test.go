package machine

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// drains is an oracle without knowledge of deadlock.go. On a copy, it releases every
// grant without waiters under it, until nothing moves. A request that still waits
// then waits for ever. The lineage is by request, so rising tokens do not matter.
func drains(t *testing.T, s *State, lineage map[requestID][]requestID) bool {
	c, err := restored(s)
	if err != nil {
		t.Fatal(err)
	}
	for {
		busy := map[requestID]bool{}
		c.sessions.all(func(id SessionID, o *session) bool {
			for seq, at := range o.index.requests.all() {
				if at.phase == waiting {
					for _, g := range lineage[requestID{id, seq}] {
						busy[g] = true
					}
				}
			}
			return true
		})
		if c.keys.waiters == 0 {
			return true
		}
		moved := false
		for _, id := range c.Unfinished() {
			c.Apply(EndSlice{Session: id})
			moved = true
		}
		for token := range c.delays {
			c.Apply(EndDelay{Token: token, Term: c.term})
			moved = true
		}
		var free []requestID
		c.sessions.all(func(id SessionID, o *session) bool {
			for seq, at := range o.index.requests.all() {
				if at.phase == granted || at.phase == seen {
					_, _, g := c.grantOf(o, at.token)
					if !busy[requestID{id, seq}] || g.is(markBroken) || o.dead() {
						free = append(free, requestID{id, seq})
					}
				}
			}
			return true
		})
		slices.SortFunc(free, compareRequests)
		for _, q := range free {
			o := c.sessions.get(q.session)
			if o == nil || o.ending != 0 {
				continue // by EndSlice
			}
			if at, ok := o.index.requests.get(q.seq); ok && (at.phase == granted || at.phase == seen) {
				c.Apply(Release{Session: q.session, Token: at.token})
				moved = true
			}
		}
		if !moved {
			return c.keys.waiters == 0
		}
	}
}

// vertexOf returns the vertex of a waiting request.
func (s *State) vertexOf(q requestID) vertex {
	w := s.waiterOf(q, s.sessions.get(q.session).index.requests.at(q.seq))
	return vertex{requestID: q, order: w.order}
}

// TestDeadlocksAreExact: every queued request can be granted one day, and no request
// refused as a deadlock could.
func TestDeadlocksAreExact(t *testing.T) {
	all := []string{"k", "l", "t", "t/1", "t/1/x"}
	missed, falseAlarms, refused, queued := 0, 0, 0, 0
	for run := range testrounds.Rounds(60, 400) {
		r := rand.New(rand.NewSource(int64(run)))
		s := founded()
		if r.Intn(2) == 0 {
			s.slice = 1 + r.Intn(2)
		}
		names := []string{"a", "b", "c", "d"}
		for _, n := range names {
			s.Apply(Open{Session: session16(n), Client: []string{"one", "two"}[r.Intn(2)], TTL: 1000})
		}
		lineage := map[requestID][]requestID{}
		var trace []string
		seq := uint64(0)
		feature, keys := r.Intn(6), all
		if feature == 2 {
			keys = all[:2] // where permits meet
		}
		// pick draws a grant: the request, its token, and its lineage token.
		pick := func() (requestID, Token, Token, bool) {
			var all []requestID
			s.sessions.all(func(id SessionID, o *session) bool {
				for q, at := range o.index.requests.all() {
					if at.phase == granted || at.phase == seen {
						all = append(all, requestID{id, q})
					}
				}
				return true
			})
			if len(all) == 0 {
				return requestID{}, 0, 0, false
			}
			slices.SortFunc(all, compareRequests)
			q := all[r.Intn(len(all))]
			o := s.sessions.get(q.session)
			token := o.index.requests.at(q.seq).token
			_, _, g := s.grantOf(o, token)
			return q, token, g.lineageToken(), true
		}
		for range 45 {
			seq++
			id := session16(names[r.Intn(len(names))])
			var under []Token
			var lin []requestID
			for range r.Intn(3) {
				if q, _, name, ok := pick(); ok && !slices.Contains(under, name) {
					under, lin = append(under, name), append(lin, q)
				}
			}
			var c Command
			q := requestID{id, seq}
			switch n := r.Intn(20); {
			case n < 11:
				a := Acquire{Session: id, Seq: seq, Key: keys[r.Intn(len(keys))], Under: under}
				switch f := r.Intn(8); {
				case f == 0 || feature == 1 && f < 5:
					a.Mode = Shared
				case f == 1 || feature == 2 && f < 5:
					a.Mode, a.N, a.Of = Permit, uint16(1+r.Intn(3)), 4
				case f == 2 || feature == 3 && f < 5:
					a.Tree = true
					if r.Intn(2) == 0 {
						a.Mode = Shared
					}
				case f == 3 || feature == 4 && f < 5:
					a.Keys = []string{"k", "l", "t/1"}[r.Intn(2):]
					a.Key = ""
				case f == 4:
					a.Priority = 1
				case f == 5:
					a.Delay = 5
				}
				c = a
			case n >= 16 && feature == 2:
				// A lower capacity closes cycles without a new request.
				c = SetCapacity{Session: id, Seq: seq, Key: keys[r.Intn(2)], Of: uint32(1 + r.Intn(4))}
			case n < 14:
				g, tok, _, ok := pick()
				if !ok {
					continue
				}
				q = requestID{g.session, seq}
				c = Upgrade{Session: g.session, Seq: seq, Token: tok, Under: under}
				lin = append(lin, g)
			case n < 15:
				g, tok, _, ok := pick()
				if !ok {
					continue
				}
				c = Downgrade{Session: g.session, Token: tok}
			case n < 17:
				g, tok, _, ok := pick()
				if !ok {
					continue
				}
				to := ""
				if r.Intn(3) == 0 {
					to = "two"
				}
				c = Release{Session: g.session, Token: tok, To: to}
			case n < 18:
				switch r.Intn(6) {
				case 0, 1:
					c = Expire{Session: id, Term: 1}
				case 2, 3:
					if list := s.Unfinished(); len(list) > 0 {
						c = EndSlice{Session: list[0]}
						break
					}
					c = EndSession{Session: id, Ref: session16(names[r.Intn(len(names))]).Ref()}
				default:
					c = Withdraw{Session: id, Seq: uint64(r.Intn(int(seq))) + 1}
				}
			case n < 19:
				_, tok, _, ok := pick()
				if !ok {
					continue
				}
				c = Break{Session: id, Key: keys[r.Intn(len(keys))], Token: tok}
			default:
				c = Open{Session: id, Client: []string{"one", "two"}[r.Intn(2)], TTL: 1000}
			}
			before, _ := restored(s)
			out, _ := s.Apply(c)
			trace = append(trace, fmt.Sprintf("%T%+v -> %d %d", c, c, out.Code, out.Token))
			if e, ok := c.(Expire); ok {
				for k := range lineage {
					if k.session == e.Session {
						delete(lineage, k)
					}
				}
			}
			if out.Code == Queued {
				lineage[q] = lin
				queued++
				// A search ends at the same step on every voter, so it has as many
				// steps in a restored table.
				c, err := restored(s)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := c.search(math.MaxInt, c.vertexOf(q)).steps, s.search(math.MaxInt, s.vertexOf(q)).steps; got != want {
					t.Fatalf("run %d: %d steps in a restored table, %d in the other", run, got, want)
				}
			}
			if out.Code == Deadlock {
				refused++
				lineage[q] = lin
				b := before
				switch c := c.(type) {
				case Acquire:
					c.Under = nil
					if o, _ := b.Apply(c); o.Code != Queued {
						t.Fatal("not queued")
					}
				case Upgrade:
					o := b.sessions.get(c.Session)
					o = b.editSession(o)
					_, at, g := b.grantOf(o, c.Token)
					w := waiter{requestID: requestID{c.Session, c.Seq}, since: b.commands, upgrade: g.token, Spec: Spec{Tree: g.Tree}}
					o.spent.add(c.Seq)
					b.change(at.key, func(r *record) { r.insertWaiter(0, w) })
					o.index.queued(w.seq, location{key: at.key, phase: waiting}, weight{})
				}
				if drains(t, b, lineage) {
					falseAlarms++
					if falseAlarms == 1 {
						t.Errorf("run %d: false alarm:", run)
						for _, l := range trace {
							t.Log(l)
						}
					}
				}
				delete(lineage, q)
			}
			if !drains(t, s, lineage) {
				missed++
				if missed == 1 {
					t.Errorf("run %d: deadlock not found:", run)
					for _, l := range trace {
						t.Log(l)
					}
				}
				break
			}
		}
	}
	t.Logf("%d queued, %d refused, %d false alarms, %d missed", queued, refused, falseAlarms, missed)
}

// TestCyclesAreToldInPart: an outcome has the first MaxCycle links of a long cycle.
func TestCyclesAreToldInPart(t *testing.T) {
	s := withA(t)
	a := session16("a")
	const n = MaxCycle + 10
	for i := range uint64(n) {
		apply(t, s, Acquire{Session: a, Seq: i + 1, Key: fmt.Sprint("k", i)}, Granted)
	}
	for i := range uint64(n) {
		c := Acquire{Session: a, Seq: n + i + 1, Key: fmt.Sprint("k", (i+1)%n), Under: []Token{Token(i + 1)}}
		want := Queued
		if i == n-1 {
			want = Deadlock
		}
		if out, _ := apply(t, s, c, want); len(out.Cycle) > MaxCycle || want == Deadlock && len(out.Cycle) != MaxCycle {
			t.Error(len(out.Cycle))
		}
	}
}

// How the search for deadlocks grows, in steps: no voter applies commands meanwhile.

// crossing returns a table where b holds l, under token 2, and a holds k.
func crossing(t testing.TB) *State {
	s := withA(t)
	apply(t, s, Open{Session: session16("b"), Client: "b", TTL: 1000}, OK)
	apply(t, s, Acquire{Session: session16("a"), Seq: 1, Key: "k"}, Granted)
	apply(t, s, Acquire{Session: session16("b"), Seq: 1, Key: "l"}, Granted)
	return s
}

// queuedUnder makes b wait for key while b holds l, and returns the steps of this
// search.
func queuedUnder(t *testing.T, s *State, c Acquire) int {
	t.Helper()
	c.Session, c.Under = session16("b"), []Token{2}
	apply(t, s, c, Queued)
	d := s.search(math.MaxInt, s.vertexOf(requestID{c.Session, c.Seq}))
	return d.steps
}

func TestTheSearchIsLinearInWhomItMeets(t *testing.T) {
	const n = MaxWaiters - 2
	a, c := session16("a"), session16("c")
	for name, fill := range map[string]func(s *State) (key string){
		"readers": func(s *State) string {
			for i := range uint64(n) {
				apply(t, s, Acquire{Session: a, Seq: i + 2, Key: "k", Spec: Spec{Mode: Shared}}, Queued)
			}
			return "k"
		},
		"readers and writers in turn": func(s *State) string {
			for i := range uint64(n) {
				apply(t, s, Acquire{Session: a, Seq: i + 2, Key: "k", Spec: Spec{Mode: Mode(i % 2)}}, Queued)
			}
			return "k"
		},
		"writers behind readers, while a delay runs elsewhere": func(s *State) string {
			apply(t, s, Open{Session: c, Client: "c", TTL: 1000}, OK)
			apply(t, s, Acquire{Session: c, Seq: 1, Key: "x", Spec: Spec{Delay: 5}}, Granted)
			apply(t, s, Expire{Session: c, Term: 1}, OK)
			for i := range uint64(n / 2) {
				apply(t, s, Acquire{Session: a, Seq: i + 2, Key: "m", Spec: Spec{Mode: Shared}}, Granted)
			}
			for i := range uint64(n / 2) {
				apply(t, s, Acquire{Session: a, Seq: i + 2 + n/2, Key: "m"}, Queued)
			}
			return "m"
		},
		"readers under one grant, and writers in turn": func(s *State) string {
			out, _ := apply(t, s, Acquire{Session: a, Seq: n + 2, Key: "base"}, Granted)
			for i := range uint64(n) {
				apply(t, s, Acquire{Session: a, Seq: i + 2, Key: "k", Spec: Spec{Mode: Mode(i % 2)}, Under: []Token{out.Token}[:i%2]}, Queued)
			}
			return "base"
		},
		"writers under one grant": func(s *State) string {
			out, _ := apply(t, s, Acquire{Session: a, Seq: n + 2, Key: "base"}, Granted)
			for i := range uint64(n) {
				apply(t, s, Acquire{Session: a, Seq: i + 2, Key: "k", Under: []Token{out.Token}}, Queued)
			}
			return "base"
		},
		"waiters for more and more permits": func(s *State) string {
			for i := range uint64(n / 2) {
				apply(t, s, Acquire{Session: a, Seq: i + 2, Key: "p", Spec: Spec{Mode: Permit, N: 1, Of: n / 2}}, Granted)
			}
			for i := range uint64(n / 2) {
				apply(t, s, Acquire{Session: a, Seq: i + 2 + n/2, Key: "p", Spec: Spec{Mode: Permit, N: uint16(i + 1)}}, Queued)
			}
			return "p"
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := crossing(t)
			steps := queuedUnder(t, s, Acquire{Seq: 2, Key: fill(s)})
			if steps < n || steps > MaxSearch {
				t.Errorf("%d steps for %d waiters and holders", steps, n)
			}
		})
	}
}

// Thousands of waiters wait for thousands of others above and below their keys. A search
// that met each pair of them would take minutes, and all memory.
func TestTheSearchIsLinearInTrees(t *testing.T) {
	const n = 1000
	a, tree, shared := session16("a"), Spec{Tree: true}, Spec{Mode: Shared, Tree: true}
	child := func(i int) string { return fmt.Sprintf("t/%04d", i) }
	for name, fill := range map[string]func(ask func(key string, spec Spec, want Code)) Acquire{
		"holders above": func(ask func(string, Spec, Code)) (c Acquire) {
			for range n {
				ask("t", shared, Granted)
			}
			for i := range n {
				ask(child(i), Spec{}, Queued)
				c.Keys = append(c.Keys, child(i))
			}
			return c
		},
		"waiters above": func(ask func(string, Spec, Code)) Acquire {
			ask("t", tree, Granted)
			for range n {
				ask("t", tree, Queued)
				ask("t/x", Spec{}, Queued)
			}
			return Acquire{Key: "t/x"}
		},
		"waiters below": func(ask func(string, Spec, Code)) Acquire {
			ask("t", tree, Granted)
			for i := range n {
				ask(child(i), Spec{}, Queued)
				ask("t", tree, Queued)
			}
			return Acquire{Key: "t", Spec: tree}
		},
		"readers above": func(ask func(string, Spec, Code)) (c Acquire) {
			ask("t", tree, Granted)
			for range n {
				ask("t", shared, Queued)
			}
			for i := range n {
				ask(child(i), Spec{}, Queued)
				c.Keys = append(c.Keys, child(i))
			}
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, seq := crossing(t), uint64(1)
			c := fill(func(key string, spec Spec, want Code) {
				seq++
				apply(t, s, Acquire{Session: a, Seq: seq, Key: key, Spec: spec}, want)
			})
			c.Seq = 2
			if steps := queuedUnder(t, s, c); steps < n || steps > 100*n {
				t.Errorf("%d steps", steps)
			}
		})
	}
}

// TestGrantsThatEndedAreNotLookedForAgain: the search visits all sessions once for
// an ended grant in a lineage, and not again and again.
func TestGrantsThatEndedAreNotLookedForAgain(t *testing.T) {
	s := crossing(t)
	const sessions, waiters, names = 500, 20, 100
	for i := range sessions {
		apply(t, s, Open{Session: session16(fmt.Sprint("s", i)), Client: "c", TTL: 1000}, OK)
	}
	a, seq := session16("a"), uint64(1)
	var ended []Token
	for range waiters * names {
		seq++
		out, _ := apply(t, s, Acquire{Session: a, Seq: seq, Key: "x"}, Granted)
		apply(t, s, Release{Session: a, Token: out.Token}, OK)
		ended = append(ended, out.Token)
	}
	apply(t, s, Acquire{Session: a, Seq: seq + 1, Key: "t/1"}, Granted)
	for i := range waiters {
		c := Acquire{Session: a, Seq: seq + 2 + uint64(i), Key: "t/1", Under: ended[i*names : (i+1)*names]}
		apply(t, s, c, Queued)
	}
	queuedUnder(t, s, Acquire{Seq: 2, Key: "t", Spec: Spec{Tree: true}})
	if steps := queuedUnder(t, s, Acquire{Seq: 3, Key: "t", Spec: Spec{Tree: true}}); steps > 20*waiters*names {
		t.Errorf("%d steps for %d waiters", steps, waiters)
	}
}

// TestALongSearchIsRefused: a request whose search takes too many steps is refused, and the
// refusal changes nothing. So is it in a restored table, and no voter goes its own way.
func TestALongSearchIsRefused(t *testing.T) {
	s := founded()
	a, b, c := session16("a"), session16("b"), session16("c")
	for _, id := range []SessionID{a, b, c} {
		apply(t, s, Open{Session: id, Client: "client", TTL: 1000}, OK)
	}
	out, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "mine"}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "mine"}, Queued)
	for i := range 2 * MaxWaiters {
		s.Apply(Acquire{Session: c, Seq: uint64(i + 1), Key: fmt.Sprint("r/", i%4000)})
	}
	other, err := restored(s)
	if err != nil {
		t.Fatal(err)
	}
	request := Acquire{Session: a, Seq: 2, Key: "r", Spec: Spec{Tree: true}, Under: []Token{out.Token}}
	before := s.Counts()
	before.Answers++
	for _, s := range []*State{s, other} {
		if out, _ := apply(t, s, request, TooManyWaiters); out.Limit != 0 {
			t.Errorf("%+v", out)
		}
		if now := s.Counts(); now != before {
			t.Errorf("%+v, before %+v", now, before)
		}
	}
	if s.Digest() != other.Digest() {
		t.Error("the tables differ")
	}
	// Nobody waits for a key of the same request's caller: there is nothing to search.
	free, _ := apply(t, s, Acquire{Session: a, Seq: 3, Key: "free"}, Granted)
	request.Seq, request.Under = 4, []Token{free.Token}
	apply(t, s, request, Queued)
}

// TestALoweredCapacityRefusesAfterALongSearch: the waiters with a lineage that may be stuck
// are refused, and no cycle stays.
func TestALoweredCapacityRefusesAfterALongSearch(t *testing.T) {
	s := founded()
	a, c := session16("a"), session16("c")
	for _, id := range []SessionID{a, c} {
		apply(t, s, Open{Session: id, Client: "client", TTL: 1000}, OK)
	}
	const of = 4
	permit := Spec{Mode: Permit, N: 1, Of: of}
	var held []Token
	for i := range of {
		out, _ := apply(t, s, Acquire{Session: a, Seq: uint64(i + 1), Key: "p", Spec: permit}, Granted)
		held = append(held, out.Token)
	}
	apply(t, s, Acquire{Session: a, Seq: 11, Key: "p", Spec: permit, Under: held[:2]}, Queued)
	for i := range MaxHeld / 3 {
		key := fmt.Sprint("r", i)
		s.Apply(Acquire{Session: c, Seq: uint64(i + 1), Key: key})
		s.Apply(Acquire{Session: a, Seq: uint64(i + 12), Key: key, Under: held[:1]})
	}
	_, events := apply(t, s, SetCapacity{Session: c, Seq: MaxHeld, Key: "p", Of: 2}, OK)
	refused := slices.ContainsFunc(events, func(e Event) bool {
		return e.Kind == EventRefused && e.Session == a && e.Seq == 11 && e.Code == TooManyWaiters
	})
	if !refused {
		t.Errorf("%d events without the refusal", len(events))
	}
}
