package machine

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// drains is an oracle that knows nothing of deadlock.go. It lets go, on a copy, of
// every grant under which nobody waits, until nothing moves; who waits then waits
// for ever. The lineage is by requestID, so that tokens that rise do not matter.
func drains(t *testing.T, s *State, lineage map[requestID][]requestID) bool {
	c, err := restored(s)
	if err != nil {
		t.Fatal(err)
	}
	for {
		busy := map[requestID]bool{}
		c.sessions.all(func(id SessionID, o *session) bool {
			for seq, at := range o.index.requests {
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
		for token := range c.delays {
			c.Apply(EndDelay{Token: token, Term: c.term})
			moved = true
		}
		var free []requestID
		c.sessions.all(func(id SessionID, o *session) bool {
			for seq, at := range o.index.requests {
				if at.phase == granted || at.phase == seen {
					_, _, g := c.grantOf(o, at.token)
					if !busy[requestID{id, seq}] || g.broken {
						free = append(free, requestID{id, seq})
					}
				}
			}
			return true
		})
		slices.SortFunc(free, compareRequests)
		for _, q := range free {
			o, _ := c.sessions.get(q.session)
			if at, ok := o.index.requests[q.seq]; ok && (at.phase == granted || at.phase == seen) {
				c.Apply(Release{Session: q.session, Token: at.token})
				moved = true
			}
		}
		if !moved {
			return c.keys.waiters == 0
		}
	}
}

// TestDeadlocksAreExact: what is queued can be granted one day, and what is refused
// as a deadlock could not.
func TestDeadlocksAreExact(t *testing.T) {
	keys := []string{"k", "l", "t", "t/1", "t/1/x"}
	missed, falseAlarms, refused, queued := 0, 0, 0, 0
	for run := range testrounds.Rounds(40, 400) {
		r := rand.New(rand.NewSource(int64(run)))
		s := founded()
		names := []string{"a", "b", "c", "d"}
		for _, n := range names {
			s.Apply(Open{Session: session16(n), Client: []string{"one", "two"}[r.Intn(2)], TTL: 1000})
		}
		lineage := map[requestID][]requestID{}
		var trace []string
		seq := uint64(0)
		feature := r.Intn(6)
		// pick draws a grant: who holds it, its token, and its name in a lineage.
		pick := func() (requestID, Token, Token, bool) {
			var all []requestID
			s.sessions.all(func(id SessionID, o *session) bool {
				for q, at := range o.index.requests {
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
			o, _ := s.sessions.get(q.session)
			token := o.index.requests[q.seq].token
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
					a.Mode, a.Of = Permit, 2
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
				if r.Intn(3) == 0 {
					c = Expire{Session: id, Term: 1}
				} else {
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
					o, _ := b.sessions.get(c.Session)
					o = b.editSession(o)
					_, at, g := b.grantOf(o, c.Token)
					w := waiter{session: c.Session, seq: c.Seq, since: b.commands, upgrade: g.token, Spec: Spec{Tree: g.Tree}}
					o.spent.add(c.Seq)
					b.change(at.key, func(r *record) { r.insertWaiter(0, w) })
					o.index.queued(w.seq, location{key: at.key, phase: waiting})
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
