package machine

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// commands draws commands of a small world, so that they meet: three sessions,
// three keys, a dozen seqs, and now and then a copy of an earlier command.
type commands struct {
	past []Command
}

// neighbours are keys of one shard, so that the order of its map could show.
var neighbours = func() (keys []string) {
	for i := 0; len(keys) < 3; i++ {
		if key := fmt.Sprint("key ", i); hashKey(key) == 7 {
			keys = append(keys, key)
		}
	}
	return keys
}()

func (g *commands) draw(t *rapid.T, s *State) Command {
	if len(g.past) > 0 && rapid.IntRange(0, 9).Draw(t, "copy") == 0 {
		return rapid.SampledFrom(g.past).Draw(t, "past")
	}
	c := drawCommand(t, s)
	g.past = append(g.past, c)
	return c
}

func drawCommand(t *rapid.T, s *State) Command {
	id := session16(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "session"))
	seq := rapid.Uint64Range(1, 12)
	seen := func() []uint64 { return rapid.SliceOfN(seq, 0, 2).Draw(t, "seen") }
	meta := func() []byte { return rapid.SampledFrom([][]byte{nil, {1}, {2, 2}}).Draw(t, "meta") }
	term := func() uint64 {
		return s.Term() + uint64(rapid.SampledFrom([]int{0, 0, 0, 0, -1, 1}).Draw(t, "term"))
	}
	switch n := rapid.IntRange(0, 99).Draw(t, "kind"); {
	case n < 40:
		return Acquire{
			Session:    id,
			Seq:        seq.Draw(t, "seq"),
			Key:        rapid.SampledFrom(neighbours).Draw(t, "key"),
			Try:        rapid.IntRange(0, 3).Draw(t, "try") == 0,
			MaxWaiters: rapid.SampledFrom([]uint32{0, 0, 0, 1, 2}).Draw(t, "waiters"),
			Meta:       meta(),
			Seen:       seen(),
		}
	case n < 60:
		back := rapid.Uint64Range(0, 4).Draw(t, "token")
		return Release{Session: id, Token: s.LastToken() - Token(back), Seen: seen()}
	case n < 68:
		return Withdraw{Session: id, Seq: seq.Draw(t, "seq"), Seen: seen()}
	case n < 82:
		return Open{Session: id, Client: "client", Node: "node", TTL: rapid.Uint64Range(299, 1001).Draw(t, "ttl"), Meta: meta()}
	case n < 85:
		return Expire{Session: id, Term: term()}
	case n < 87:
		return Close{Session: id}
	case n < 90:
		return Silence{Session: id, Term: term()}
	case n < 92:
		return Hear{Session: id, Term: term()}
	case n < 94:
		return LeaderStart{Term: term()}
	case n < 97:
		return Lift{Term: term()}
	case n < 98:
		return Bound{Term: term(), TTL: 1000}
	case n < 99:
		return Found{Cluster: ClusterID{1}, Floor: 5, TTL: 1000}
	default:
		return rapid.SampledFrom([]Command{nil, Unknown{Raw: "?"}, &Close{}}).Draw(t, "bad")
	}
}

// witness watches outcomes and events alone, and knows what must never be seen.
type witness struct {
	holder map[string]request
	queue  map[string][]request
	key    map[request]string // of all that hold or wait
	token  map[request]Token  // of all that hold
	gave   map[request]bool   // granted in the session's present life
	last   Token
	done   map[request]bool // withdrawn or released in it
}

func newWitness() *witness {
	return &witness{
		holder: make(map[string]request),
		queue:  make(map[string][]request),
		key:    make(map[request]string),
		token:  make(map[request]Token),
		gave:   make(map[request]bool),
		done:   make(map[request]bool),
	}
}

func (w *witness) grant(q request, key string, token Token) error {
	if other, ok := w.holder[key]; ok {
		return fmt.Errorf("%q granted to %v while %v holds it", key, q, other)
	}
	if token <= w.last {
		return fmt.Errorf("token %d granted after token %d", token, w.last)
	}
	if w.gave[q] || w.done[q] {
		return fmt.Errorf("%v granted again", q)
	}
	w.holder[key], w.key[q], w.token[q], w.gave[q], w.last = q, key, token, true, token
	return nil
}

func (w *witness) drop(q request) {
	key := w.key[q]
	if w.holder[key] == q {
		delete(w.holder, key)
	}
	w.queue[key] = slices.DeleteFunc(w.queue[key], func(o request) bool { return o == q })
	delete(w.key, q)
	delete(w.token, q)
}

func (w *witness) see(c Command, out Outcome, events []Event) error {
	switch c := c.(type) {
	case Acquire:
		q := request{c.Session, c.Seq}
		switch out.Code {
		case Granted:
			if w.token[q] == out.Token {
				break // told again
			}
			if len(w.queue[c.Key]) > 0 {
				return fmt.Errorf("%v granted %q before those who wait", q, c.Key)
			}
			if err := w.grant(q, c.Key, out.Token); err != nil {
				return err
			}
		case Queued:
			key, ok := w.key[q]
			if !ok {
				key = c.Key
				w.key[q] = key
				w.queue[key] = append(w.queue[key], q)
			}
			behind := slices.Index(w.queue[key], q)
			if _, ok := w.holder[key]; ok {
				behind++
			}
			if w.gave[q] || w.done[q] || behind != int(out.Behind) {
				return fmt.Errorf("%v queued behind %d, not %d", q, out.Behind, behind)
			}
		case Held:
			if h := w.holder[c.Key]; !w.done[q] && h != (request{}) && w.gave[q] {
				return fmt.Errorf("%v refused, and granted before", q)
			}
			w.done[q] = true
		case TooManyWaiters, Founding, Withdrawn:
			w.done[q] = true
		}
	case Withdraw:
		if out.Code == OK {
			q := request{c.Session, c.Seq}
			w.drop(q)
			w.done[q] = true
		}
	case Release:
		if out.Code == OK {
			n := 0
			for q, token := range w.token {
				if token == c.Token && q.session == c.Session {
					w.drop(q)
					w.done[q] = true
					n++
				}
			}
			if n != 1 {
				return fmt.Errorf("release of token %d freed %d grants", c.Token, n)
			}
		}
	}

	var ended SessionID
	stage := EventKind(0)
	var changed []string
	for _, e := range events {
		switch e.Kind {
		case EventLost:
			q := request{e.Session, e.Seq}
			if w.token[q] != e.Token || w.key[q] != e.Key {
				return fmt.Errorf("%v lost %q under token %d, which it does not hold", q, e.Key, e.Token)
			}
			w.drop(q)
			w.leave(e.Session)
			ended = e.Session
		case EventGranted:
			q := request{e.Session, e.Seq}
			if e.Session == ended {
				return fmt.Errorf("granted to the session that ends")
			}
			if len(w.queue[e.Key]) == 0 || w.queue[e.Key][0] != q {
				return fmt.Errorf("%v granted %q before its turn: %v", q, e.Key, w.queue[e.Key])
			}
			w.queue[e.Key] = w.queue[e.Key][1:]
			if err := w.grant(q, e.Key, e.Token); err != nil {
				return err
			}
		case EventEnded:
			w.leave(e.Session)
			for _, m := range []map[request]bool{w.gave, w.done} {
				for q := range m {
					if q.session == e.Session {
						delete(m, q)
					}
				}
			}
			for q := range w.token {
				if q.session == e.Session {
					return fmt.Errorf("session ended, %v still holds", q)
				}
			}
		case EventChanged:
			changed = append(changed, e.Key)
		}
		if max(stage, EventEnded) > e.Kind && stage >= EventEnded {
			return fmt.Errorf("event %d after %d", e.Kind, stage)
		}
		stage = e.Kind
	}
	if !slices.IsSorted(changed) || len(slices.Compact(slices.Clone(changed))) != len(changed) {
		return fmt.Errorf("changed keys %v", changed)
	}
	return nil
}

// leave takes a session's waiters out of all queues.
func (w *witness) leave(id SessionID) {
	for key, queue := range w.queue {
		w.queue[key] = slices.DeleteFunc(queue, func(q request) bool {
			if q.session == id {
				delete(w.key, q)
			}
			return q.session == id
		})
	}
}

func restored(s *State) (*State, error) {
	var b bytes.Buffer
	if _, err := s.Snapshot().WriteTo(&b); err != nil {
		return nil, err
	}
	return Restore(&b)
}

// TestAnyCommandsKeepTheInvariants feeds one sequence of commands to three
// tables: one that only applies, one whose commands went through the log's
// encoding, and one that is restored from its own image again and again. They
// must not differ in anything that can be seen.
func TestAnyCommandsKeepTheInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g commands
		w := newWitness()
		plain, logged, copied := New(), New(), New()
		step := func(c Command) {
			out, events := plain.Apply(c)
			if err := plain.Check(); err != nil {
				t.Fatalf("after %#v: %v", c, err)
			}
			if err := w.see(c, out, events); err != nil {
				t.Fatalf("after %#v: %v", c, err)
			}
			cmds, err := DecodeEntry(EncodeEntry([]Command{c}))
			if err != nil || len(cmds) != 1 {
				t.Fatalf("%#v does not survive the log: %v", c, err)
			}
			for name, s := range map[string]*State{"logged": logged, "copied": copied} {
				in := c
				if s == logged {
					in = cmds[0]
				}
				out2, events2 := s.Apply(in)
				if out2 != out || !reflect.DeepEqual(events, events2) {
					t.Fatalf("%#v: the %s table says\n%+v %+v, not\n%+v %+v", c, name, out2, events2, out, events)
				}
			}
		}
		// Most runs skip what is dull: a table without a founding.
		if rapid.IntRange(0, 4).Draw(t, "start") > 0 {
			step(Found{Cluster: ClusterID{1}, Floor: 5, TTL: 1000})
			step(LeaderStart{Term: 1})
			for _, n := range []string{"a", "b", "c"} {
				step(Open{Session: session16(n), Client: n, TTL: 1000})
			}
			if rapid.IntRange(0, 4).Draw(t, "lift") > 0 {
				step(Lift{Term: 1})
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			step(g.draw(t, plain))
			switch rapid.IntRange(0, 7).Draw(t, "between") {
			case 0:
				r, err := restored(copied)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Check(); err != nil {
					t.Fatal(err)
				}
				copied = r
			case 1:
				plain.Snapshot()
			}
			compare(t, plain, copied)
		}
		if d := plain.Digest(); d != logged.Digest() || d != copied.Digest() {
			t.Fatal("digests differ")
		}
	})
}

// compare asks two tables all that can be asked.
func compare(t *rapid.T, a, b *State) {
	ca, fa := a.Cluster()
	cb, fb := b.Cluster()
	if ca != cb || fa != fb || a.Term() != b.Term() || a.Bound() != b.Bound() || a.Lifted() != b.Lifted() ||
		a.LastToken() != b.LastToken() || a.Commands() != b.Commands() || a.Counts() != b.Counts() {
		t.Fatal("tables differ")
	}
	for _, key := range neighbours {
		sa, sb := a.Status(key, 100), b.Status(key, 100)
		if !reflect.DeepEqual(sa, sb) || a.Version(key) != b.Version(key) {
			t.Fatalf("%q differs:\n%+v\n%+v", key, sa, sb)
		}
		id, token := a.Owner(key)
		if len(sa.Holders) > 0 && (sa.Holders[0].Session != id || sa.Holders[0].Token != token) {
			t.Fatalf("%q: Owner %v %d, Status %+v", key, id, token, sa)
		}
	}
	open := 0
	a.Sessions(func(st SessionStatus) bool {
		open++
		other, ok := b.Session(st.ID)
		if !ok || other != st {
			t.Fatalf("session differs: %+v, %+v", st, other)
		}
		if pa, pb := a.Pending(st.ID), b.Pending(st.ID); !reflect.DeepEqual(pa, pb) {
			t.Fatalf("pending differs: %+v, %+v", pa, pb)
		}
		return true
	})
	if open != b.Counts().Sessions {
		t.Fatalf("%d sessions, %d", open, b.Counts().Sessions)
	}
}

// TestSpansAreASet compares spans with a map.
func TestSpansAreASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p spans
		in := make(map[uint64]bool)
		edge := rapid.SampledFrom([]uint64{1, 1 << 40, ^uint64(0) - 20}).Draw(t, "edge")
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			seq := edge + rapid.Uint64Range(0, 20).Draw(t, "seq")
			if !p.add(seq) {
				t.Fatal("full")
			}
			in[seq] = true
			if !p.valid() {
				t.Fatalf("%v", p)
			}
		}
		for seq := edge; ; seq++ {
			if p.has(seq) != in[seq] {
				t.Fatalf("%d in %v: %t", seq, p, p.has(seq))
			}
			if seq-edge == 20 {
				break
			}
		}
	})
}
