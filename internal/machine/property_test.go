package machine

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// again applies a second copy of a command at once: nothing must change. A copy with
// a Seen list is left out, since the first copy may have granted a listed seq.
func again(t *rapid.T, s *State, c Command, step func(Command) []Event) {
	if _, seen := asks(c); len(seen) > 0 {
		return
	}
	if _, ok := c.(EndSlice); ok {
		return // takes the next slice
	}
	if _, ok := c.(AdmitSlice); ok {
		return // takes the next slice
	}
	if f, ok := c.(Forget); ok && s.IsLeft(f) {
		return // ends more of the sessions
	}
	before := content(s)
	events := step(c)
	if content(s) != before {
		t.Fatalf("a second copy of %#v changes the table", c)
	}
	if _, ok := c.(Ask); len(events) > 0 && !ok {
		t.Fatalf("a second copy of %#v: %+v", c, events)
	}
}

func onlyWaits(s *State, c Command) bool {
	a, ok := c.(Acquire)
	return ok && s.OnlyWaits(&a)
}

// TestAnyCommandsKeepTheInvariants feeds one sequence of commands to three tables.
// The first only applies the commands. The second gets them through the log's
// encoding. The third is restored from an image of its own again and again. No query
// must show a difference.
func TestAnyCommandsKeepTheInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := commands{kinds: ofAll, keys: neighbours, like: rapid.IntRange(0, 7).Draw(t, "like")}
		steps, dull := rapid.IntRange(1, 80), rapid.IntRange(0, 4).Draw(t, "start") == 0
		switch rapid.IntRange(0, 4).Draw(t, "world") {
		case 0:
			g.keys = neighbours[:1] // where they meet most
		case 1:
			g.keys = neighbours[2:]
		case 2, 3:
			g.kinds, g.changes = ofChanges, true
			g.keys = rapid.SampledFrom([][]string{neighbours[:2], neighbours[2:4]}).Draw(t, "two")
			g.like = 1 // shared
			steps, dull = rapid.IntRange(30, 100), false
		}
		w, refused := newWitness(), make(refusals)
		plain, logged, copied := New(), New(), New()
		// Mostly, sessions end in slices.
		slice := rapid.SampledFrom([]int{1, 1, 2, MaxSlice}).Draw(t, "slice")
		plain.slice, logged.slice, copied.slice = slice, slice, slice
		admits := rapid.SampledFrom([]int{1, 1, 2, MaxAdmitted}).Draw(t, "admits")
		plain.admits, logged.admits, copied.admits = admits, admits, admits
		quota := rapid.SampledFrom([]nodeQuota{defaultQuota, defaultQuota, defaultQuota, {sessions: 3, waits: 4, keys: 7, bytes: 300}}).Draw(t, "quota")
		plain.quota, logged.quota, copied.quota = quota, quota, quota
		progress := make(map[SessionID]int)
		step := func(c Command) []Event {
			held, freed, patient := means(plain, c), frees(plain, c), onlyWaits(plain, c)
			out, events := plain.Apply(c)
			t.Logf("%T%+v: %+v %+v", c, c, out, events)
			told := slices.ContainsFunc(events, func(e Event) bool { return e.Kind != EventChanged })
			if patient && (told || out.Code == Granted || out.Code == Held || out.Code == NoSession) {
				t.Fatalf("%#v does more than wait", c)
			}
			if err := plain.Check(); err != nil {
				t.Fatalf("after %#v: %v", c, err)
			}
			if err := noteProgress(plain, c, out, progress); err != nil {
				t.Fatalf("after %#v: %v", c, err)
			}
			if err := w.see(c, held, freed, out, events); err != nil {
				t.Fatalf("after %#v: %v", c, err)
			}
			if g.changes {
				moment, err := refused.see(c, out, events)
				if err != nil {
					t.Fatalf("after %#v: %v", c, err)
				}
				if moment {
					g.refused = append(g.refused, c)
				}
			}
			cmds, err := DecodeEntry(EncodeCommands([]Command{c}))
			if err != nil || len(cmds) != 1 {
				t.Fatalf("%#v does not survive the log: %v", c, err)
			}
			for name, s := range map[string]*State{"logged": logged, "copied": copied} {
				in := c
				if s == logged {
					in = cmds[0]
				}
				out2, events2 := s.Apply(in)
				if !reflect.DeepEqual(out2, out) || !reflect.DeepEqual(events, events2) {
					t.Fatalf("%#v: the %s table says\n%+v %+v, not\n%+v %+v", c, name, out2, events2, out, events)
				}
			}
			return events
		}
		// Most runs skip the dull case: a table without a founding.
		if !dull {
			step(Found{Cluster: ClusterID{1}, Floor: 5, TTL: 1000})
			step(LeaderStart{Term: 1})
			if g.changes || rapid.IntRange(0, 9).Draw(t, "raise") > 0 {
				step(Raise{Term: 1, Format: MaxFormat})
			}
			for _, n := range []string{"a", "b", "c"} {
				step(Open{Session: session16(n), Client: clientOf(session16(n)), Node: "node", Boot: 1, Dir: DirID{1}, TTL: 1000})
			}
			if g.changes || rapid.IntRange(0, 4).Draw(t, "lift") > 0 {
				step(Lift{Term: 1})
			}
		}
		for range steps.Draw(t, "steps") {
			c := g.draw(t, plain)
			step(c)
			if rapid.IntRange(0, 5).Draw(t, "again") == 0 {
				again(t, plain, c, step)
			}
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
		for i := 0; plain.HasPutOff(); i++ {
			if step(AdmitSlice{}); i > 1000 {
				t.Fatal("queues are put off again and again")
			}
		}
		if d := plain.Digest(); d != logged.Digest() || d != copied.Digest() {
			t.Fatal("digests differ")
		}
	})
}

// noteProgress judges that the rest of an ending session never grows, and that each slice
// takes something of it.
func noteProgress(s *State, c Command, out Outcome, left map[SessionID]int) error {
	if e, ok := c.(EndSlice); ok && (out.Code == Unfinished) != s.IsUnfinished(e.Session) {
		return fmt.Errorf("the slice of session %x says %d", e.Session, out.Code)
	}
	for id, o := range s.sessions.all {
		before, known := left[id]
		if o.ending == 0 {
			delete(left, id)
			continue
		}
		n := o.index.requests.len() + len(o.index.enlisted)
		e, slice := c.(EndSlice)
		slice = slice && e.Session == id && o.begun
		if known && (n > before || slice && n == before) {
			return fmt.Errorf("session %x had %d requests left, and then %d", id, before, n)
		}
		left[id] = n
	}
	return nil
}

// compare puts all queries to two tables.
func compare(t *rapid.T, a, b *State) {
	ca, fa := a.Cluster()
	cb, fb := b.Cluster()
	if ca != cb || fa != fb || a.Term() != b.Term() || a.Bound() != b.Bound() || a.Lifted() != b.Lifted() ||
		a.LastToken() != b.LastToken() || a.Commands() != b.Commands() || a.Counts() != b.Counts() {
		t.Fatal("tables differ")
	}
	for _, key := range neighbours {
		sa, sb := a.Status(key, 100), b.Status(key, 100)
		if a.Value(key) != b.Value(key) {
			t.Fatalf("value of %q differs: %q, %q", key, a.Value(key), b.Value(key))
		}
		if !reflect.DeepEqual(sa, sb) || a.Version(key) != b.Version(key) {
			t.Fatalf("%q differs:\n%+v\n%+v", key, sa, sb)
		}
		id, token := a.Owner(key)
		if len(sa.Holders) > 0 && (sa.Holders[0].Session != id || sa.Holders[0].Token != token) {
			t.Fatalf("%q: Owner %v %d, Status %+v", key, id, token, sa)
		}
	}
	for _, name := range groupNames {
		ga, oka := a.Group(name)
		gb, okb := b.Group(name)
		if oka != okb || !reflect.DeepEqual(ga, gb) || !slices.Equal(a.Assignment(name, nil), b.Assignment(name, nil)) {
			t.Fatalf("group %q differs:\n%+v\n%+v", name, ga, gb)
		}
	}
	open := 0
	a.Sessions(func(st SessionStatus) bool {
		open++
		other, ok := b.Session(st.ID)
		if !ok || other != st {
			t.Fatalf("session differs: %+v, %+v", st, other)
		}
		pa, pb := a.Pending(st.ID), b.Pending(st.ID)
		if n := a.Pends(st.ID); len(pa) > 4*n {
			t.Fatalf("%d events of %d requests and callers", len(pa), n)
		}
		if !reflect.DeepEqual(pa, pb) {
			t.Fatalf("pending differs: %+v, %+v", pa, pb)
		}
		return true
	})
	if open != b.Counts().Sessions {
		t.Fatalf("%d sessions, %d", open, b.Counts().Sessions)
	}
}
