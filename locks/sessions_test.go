package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

func isEndSession(c machine.Command) bool { _, ok := c.(machine.EndSession); return ok }

// refOf returns the Ref of c's present session.
func refOf(c *Client) string { return c.currentSession().id.Ref().String() }

// sessions lists all sessions.
func sessions(t *testing.T, c *Client) (list []Session) {
	t.Helper()
	for s, err := range c.Sessions(within(time.Minute)) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

func TestSessionsShowsWhoIsThere(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		m := w.join("node-b")
		b := m.client(Options{Name: "b", TTL: 5 * time.Second, Meta: map[string]string{"zone": "1"}})
		t.Cleanup(func() { shutdown(t, b) })
		opened := time.Now()
		acquire(t, a, "k")
		acquireAll(t, b, []string{"x", "y"})
		acquire(t, b, "z")
		waiting(t, within(time.Minute), b, "k")
		time.Sleep(time.Second)
		list := sessions(t, b)
		if len(list) != 2 || !slices.IsSortedFunc(list, func(a, b Session) int { return strings.Compare(a.Ref, b.Ref) }) {
			t.Fatalf("%+v", list)
		}
		i := slices.IndexFunc(list, func(s Session) bool { return s.Client == "b" })
		s := list[i]
		if s.Ref != refOf(b) || s.Node != "node-b" || !s.Self || s.TTL != 5*time.Second || s.Opened.Sub(opened).Abs() > time.Second ||
			s.Left <= 0 || s.Left > 5*time.Second || s.Ending || s.Keys != 3 || s.Waits != 1 || s.Meta["zone"] != "1" {
			t.Errorf("%+v", s)
		}
		if o := list[1-i]; o.Ref != refOf(a) || o.Self || o.Keys != 1 || o.Waits != 0 || o.Meta != nil {
			t.Errorf("%+v", o)
		}
		// The same after a change of the leader, and after a restart from a snapshot.
		for _, change := range []func(){w.Lead, w.LeadFromSnapshot} {
			change()
			if again := sessions(t, a); len(again) != 2 || again[0].Ref != list[0].Ref || again[1].Ref != list[1].Ref || again[i].Keys != 3 {
				t.Errorf("%+v", again)
			}
		}
	})
}

// Sessions come in pages, with others opened and ended meanwhile, and the leader
// changed: each of the others comes once, and a break of the loop ends it.
func TestSessionsInPages(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "c")
		w.SetCheck(false)
		const all = 600
		want := make(map[string]bool)
		for i := range all {
			id := machine.SessionKey{1, byte(i), byte(i >> 8)}.ID()
			w.Must(machine.Open{Session: id, Client: fmt.Sprint(i), Node: "n", TTL: uint64(testTTL / time.Millisecond), Meta: strings.Repeat("m", i%4*1000)})
			want[id.Ref().String()] = true
		}
		n := 0
		last := ""
		for s, err := range c.Sessions(bg) {
			if err != nil {
				t.Fatal(err)
			}
			if s.Ref <= last {
				t.Fatalf("%s after %s", s.Ref, last)
			}
			last = s.Ref
			delete(want, s.Ref)
			if n++; n%200 == 0 {
				w.Lead()
				w.Must(machine.Open{Session: machine.SessionKey{2, byte(n)}.ID(), Client: "new", Node: "n", TTL: 1000})
			}
		}
		if len(want) != 0 {
			t.Errorf("%d sessions were not listed", len(want))
		}
		for range c.Sessions(bg) {
			break
		}
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		n = 0
		for _, err := range c.Sessions(ctx) {
			if cancel(); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			n++
		}
		if n > 257 {
			t.Errorf("%d after the end of ctx", n)
		}
	})
}

// Every lock is lost, by its reason, before any key is free; waits are lost too and
// asked again behind the others.
func TestEndSessionTellsTheClientFirst(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		op, _ := w.client(t, "op")
		l1, l2 := acquire(t, a, "k1"), acquire(t, a, "k2", Delay(time.Hour))
		lb := acquire(t, b, "b")
		ctx1, ctx2 := l1.Context(), l2.Context()
		waits := waiting(t, bg, a, "b")
		next := waiting(t, bg, b, "k1")
		ref, id := refOf(a), a.currentSession().id
		m.SetHooks(termtest.Hooks{Proposed: func(cmd machine.Command) {
			if isClose(cmd) && cmd == (machine.Close{Session: id}) && (ctx1.Err() == nil || ctx2.Err() == nil) {
				t.Error("the keys were freed under a holder who did not know")
			}
		}})
		began := time.Now()
		if err := op.EndSession(within(time.Second), ref); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 10*time.Millisecond {
			t.Errorf("it took %v", d)
		}
		wantLost(t, l1, SessionEnded)
		wantLost(t, l2, SessionEnded)
		if !errors.Is(l1.Err(), ErrSessionEnded) || !errors.Is(context.Cause(ctx2), ErrSessionEnded) || !errors.Is(context.Cause(ctx2), ErrLost) {
			t.Error(l1.Err(), context.Cause(ctx2))
		}
		if n := next.ok(t); n.Token() <= l1.Token() {
			t.Errorf("token %d after %d", n.Token(), l1.Token())
		} else if _, clean := n.Value(); clean {
			t.Error("the ended holder is said to have released")
		}
		if !w.free("k2") {
			t.Error("a delay keeps the key")
		}
		// The wait is asked again in the next session.
		waits.pends(t)
		release(t, lb)
		if n := waits.ok(t); n.Err() != nil || refOf(a) == ref {
			t.Error(n.Err())
		}
		if err := op.EndSession(bg, ref); !errors.Is(err, ErrNoSuchSession) {
			t.Errorf("again: %v", err)
		}
		acquire(t, a, "k2") // it is not shut out
	})
}

// A frozen holder keeps its keys until its trust has ended, and no longer, although its
// beats would arrive again: they do not count any more.
func TestEndSessionOfAFrozenHolderWaitsForItsTrustToEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		op, _ := w.client(t, "op")
		l := acquire(t, a, "k")
		ref := refOf(a)
		time.Sleep(testTTL) // beats have been confirmed
		m.Isolate()
		began := time.Now()
		if err := op.EndSession(within(time.Second), ref); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("end: %v", err)
		}
		if l.Err() != nil {
			t.Error(l.Err())
		}
		if _, token := w.Owner("k"); token == 0 {
			t.Error("the key is free though its holder does not know")
		}
		list := sessions(t, op)
		if i := slices.IndexFunc(list, func(s Session) bool { return s.Ref == ref }); i < 0 || !list[i].Ending || list[i].Keys != 1 {
			t.Errorf("%+v", list)
		}
		w.Lead() // gives no fresh TTL to a revoked session
		w.LeadFromSnapshot()
		if err := op.EndSession(bg, ref); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); l.Err() == nil || d > testTTL+2*time.Second {
			t.Errorf("%v after %v", l.Err(), d)
		}
		m.Heal()
	})
}

// A client that ignores the order and goes on beating keeps its keys for a TTL.
func TestABuggyClientDoesNotOutliveTheOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		op, _ := w.client(t, "op")
		m := w.join("bug")
		key := machine.SessionKey{9}
		id := key.ID()
		m.Claim(key)
		if out, err := m.Propose(bg, machine.Open{Session: id, Client: "bug", Node: m.Member(), Boot: m.Boot(), TTL: uint64(testTTL / time.Millisecond)}); err != nil || out.Code != machine.OK {
			t.Fatal(out, err)
		}
		m.Attach(id, func(machine.Event) {})
		if out, err := m.Propose(bg, machine.Acquire{Session: id, Seq: 1, Key: "k"}); err != nil || out.Code != machine.Granted {
			t.Fatal(out, err)
		}
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		confirmed := make(chan time.Time, 1000)
		beats := start(func() (int, error) {
			for ctx.Err() == nil {
				bctx, cancel := context.WithTimeout(ctx, time.Second)
				if m.Beat(bctx, id) == nil {
					confirmed <- time.Now()
				}
				cancel()
				time.Sleep(100 * time.Millisecond)
			}
			return 0, nil
		})
		time.Sleep(3 * time.Second)
		ordered := time.Now()
		if err := op.EndSession(bg, id.Ref().String()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(ordered); d > testTTL+2*time.Second {
			t.Errorf("it took %v", d)
		}
		cancel()
		beats.ok(t)
		for len(confirmed) > 0 {
			if at := <-confirmed; at.After(ordered.Add(time.Millisecond)) {
				t.Errorf("a beat was confirmed %v after the order", at.Sub(ordered))
			}
		}
		if out, _ := m.Propose(bg, machine.Acquire{Session: id, Seq: 2, Key: "k"}); out.Code != machine.NoSession {
			t.Errorf("%+v", out)
		}
	})
}

// The order is applied once, whatever copies of it and answers to it get lost, with the
// leader dying in the middle.
func TestEndSessionSurvivesTheLeader(t *testing.T) {
	for _, fate := range []termtest.Fate{termtest.Dropped, termtest.Unheard, termtest.Committed} {
		t.Run(fmt.Sprint(fate), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, _ := w.client(t, "a")
				op, _ := w.client(t, "op")
				acquire(t, op, "other")
				l := acquire(t, a, "k")
				w.HoldEntries()
				ends := start(func() (struct{}, error) { return struct{}{}, op.EndSession(bg, l.g.s.id.Ref().String()) })
				ends.pends(t)
				w.Decide(fate)
				w.ReleaseEntries()
				w.Lead()
				ends.ok(t)
				wantLost(t, l, SessionEnded)
				if !w.free("k") {
					t.Error("the key is still taken")
				}
			})
		})
	}
}

// Own sessions, unknown Refs and other texts.
func TestEndSessionOfOddRefs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		l := acquire(t, a, "k")
		if err := a.EndSession(bg, refOf(a)); err != nil {
			t.Error(err)
		}
		wantLost(t, l, SessionEnded)
		acquire(t, a, "k")
		before := w.Sent(isEndSession)
		if err := a.EndSession(bg, machine.SessionID{7}.Ref().String()); !errors.Is(err, ErrNoSuchSession) {
			t.Error(err)
		}
		id := a.currentSession().id
		for _, ref := range []string{"", "x", fmt.Sprintf("%x", id[:4]), strings.ToUpper(refOf(a)) + " ", strings.Repeat("z", 32)} {
			var config *cluster.ConfigError
			if err := a.EndSession(bg, ref); !errors.As(err, &config) || config.Field != "ref" {
				t.Errorf("%q: %v", ref, err)
			}
		}
		// The ID itself is not its Ref.
		if err := a.EndSession(bg, fmt.Sprintf("%x", id)); !errors.Is(err, ErrNoSuchSession) {
			t.Error(err)
		}
		if w.Sent(isEndSession) != before {
			t.Error("a command was sent")
		}
	})
}

// Do ends with the loss, Elect is elected anew, after an ended session.
func TestEndedSessionOfDoAndElect(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		op, _ := w.client(t, "op")
		ctx, cancel := context.WithCancel(bg)
		terms := make(chan struct{}, 10)
		do := start(func() (struct{}, error) {
			return struct{}{}, a.Do(bg, "do", func(ctx context.Context, l *Lock) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		})
		elect := start(func() (struct{}, error) {
			return struct{}{}, a.Elect(ctx, "elect", func(ctx context.Context, l *Lock) error {
				terms <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
		})
		<-terms
		do.pends(t)
		if err := op.EndSession(bg, refOf(a)); err != nil {
			t.Error(err)
		}
		var lost *LostError
		if _, err := do.ends(t); !errors.As(err, &lost) || lost.Reason != SessionEnded {
			t.Error(err)
		}
		<-terms // elected again, in a new session
		cancel()
		elect.ends(t)
	})
}
