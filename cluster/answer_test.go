package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// keysOf lists the keys of an answer, those held with a star.
func keysOf(a replica.Scanned) string {
	var out []string
	for _, st := range a.Keys {
		if st.Held > 0 {
			st.Key += "*"
		}
		out = append(out, st.Key)
	}
	return strings.Join(out, " ")
}

func (s *stage) acquire(id byte, seq uint64, key string) machine.Token {
	s.t.Helper()
	o := s.table.apply(machine.EncodeCommands([]machine.Command{machine.Acquire{Session: sid(id), Seq: seq, Key: key}}), time.Now())[0]
	if o.Code != machine.Granted && o.Code != machine.Queued {
		s.t.Fatalf("%+v", o)
	}
	return o.Token
}

// scanning is a scan under way.
type scanning struct {
	answers chan replica.Scanned
	codes   chan wire.Code
	cancel  func()
}

func (s *stage) scan(q replica.Scan) scanning {
	r := scanning{answers: make(chan replica.Scanned, 1), codes: make(chan wire.Code, 1)}
	r.cancel = s.l.scan(q, func(a replica.Scanned, c wire.Code) { r.answers <- a; r.codes <- c })
	return r
}

// answer is what the scan was answered with by now; ok is false if it waits.
func (r scanning) answer() (replica.Scanned, bool) {
	synctest.Wait()
	select {
	case a := <-r.answers:
		return a, <-r.codes == wire.CodeOK
	default:
		return replica.Scanned{}, false
	}
}

// onWatchingStage runs the stage's watches too.
func onWatchingStage(t *testing.T, f func(s *stage)) {
	onStage(t, func(s *stage) {
		s.l.wg.Go(func() { s.l.watches.run(s.l.ctx) })
		f(s)
	})
}

func TestAScanWaitsForChangesOfItsPrefixOnly(t *testing.T) {
	onWatchingStage(t, func(s *stage) {
		s.open(1)
		first := s.acquire(1, 1, "a/1")
		s.acquire(1, 2, "b/1")
		list, ok := s.scan(replica.Scan{Prefix: "a/", Limit: 10}).answer()
		if !ok || keysOf(list) != "a/1*" || list.More || list.Version == 0 {
			t.Fatalf("%+v", list)
		}
		w := s.scan(replica.Scan{Prefix: "a/", Limit: 10, Since: list.Version})
		s.acquire(1, 3, "b/2")
		s.acquire(1, 4, "a")
		if a, ok := w.answer(); ok {
			t.Fatalf("woken by another prefix's key: %+v", a)
		}
		s.apply(machine.Release{Session: sid(1), Token: first})
		a, ok := w.answer()
		if !ok || keysOf(a) != "a/1" || a.Version <= list.Version || a.More || a.Lost {
			t.Fatalf("%+v", a)
		}
		// What came before the question is told at once.
		s.acquire(1, 5, "a/2")
		s.acquire(1, 6, "a/3")
		a, ok = s.scan(replica.Scan{Prefix: "a/", Limit: 1, Since: a.Version}).answer()
		if !ok || keysOf(a) != "a/2*" || !a.More {
			t.Fatalf("%+v", a)
		}
		a, ok = s.scan(replica.Scan{Prefix: "a/", Limit: 1, Since: a.Version}).answer()
		if !ok || keysOf(a) != "a/3*" || a.More {
			t.Fatalf("%+v", a)
		}
		// Given up, it leaves nothing behind.
		w = s.scan(replica.Scan{Prefix: "a/", Limit: 10, Since: a.Version})
		v := s.scan(replica.Scan{Prefix: "a/", Limit: 10, Since: a.Version})
		synctest.Wait()
		w.cancel()
		w.cancel()
		v.cancel()
		ws := s.l.watches
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if len(ws.prefixes)+len(ws.lengths)+len(ws.keys)+len(ws.dirty) > 0 {
			t.Errorf("left behind: %v %v", ws.prefixes, ws.lengths)
		}
	})
}

// One that was registered after its change came is answered all the same; one
// prefix's end is not that of another of its length; and a key begins with itself.
func TestScansDoNotMissWhatTheyWaitFor(t *testing.T) {
	onWatchingStage(t, func(s *stage) {
		s.open(1)
		list, _ := s.scan(replica.Scan{Limit: 10}).answer()
		s.acquire(1, 1, "early")
		late := scanning{answers: make(chan replica.Scanned, 1), codes: make(chan wire.Code, 1)}
		s.l.watches.scan(replica.Scan{Limit: 10, Since: list.Version}, func(a replica.Scanned, c wire.Code) { late.answers <- a; late.codes <- c })
		if a, ok := late.answer(); !ok || keysOf(a) != "early*" {
			t.Errorf("%+v", a)
		}
		answers := make(chan replica.Answer, 1)
		s.l.watches.read(replica.Query{Key: "early", Version: 1}, func(a replica.Answer, c wire.Code) { answers <- a })
		synctest.Wait()
		if len(answers) != 1 {
			t.Error("a read of what has changed waits")
		}
		list, _ = s.scan(replica.Scan{Limit: 10}).answer()
		gone := s.scan(replica.Scan{Prefix: "a/1", Limit: 10, Since: list.Version})
		stays := s.scan(replica.Scan{Prefix: "b/1", Limit: 10, Since: list.Version})
		synctest.Wait()
		gone.cancel()
		s.acquire(1, 2, "b/1")
		if a, ok := stays.answer(); !ok || keysOf(a) != "b/1*" {
			t.Errorf("%+v", a)
		}
	})
}

func TestAScanOfAQuietPrefixIsNotLeftBehind(t *testing.T) {
	onWatchingStage(t, func(s *stage) {
		s.open(1)
		list, _ := s.scan(replica.Scan{Prefix: "quiet/", Limit: 10}).answer()
		w := s.scan(replica.Scan{Prefix: "quiet/", Limit: 10, Since: list.Version})
		synctest.Wait()
		changed := 0
		// More changes than are remembered in all.
		for i := range machine.MaxChanges/2/100 + 10 {
			var batch []machine.Command
			for j := range 100 {
				seq := uint64(i*100 + j + 1)
				batch = append(batch, machine.Acquire{Session: sid(1), Seq: seq, Key: "x"}, machine.Withdraw{Session: sid(1), Seq: seq})
				changed += 2
			}
			s.table.apply(machine.EncodeCommands(batch), time.Now())
			synctest.Wait()
		}
		s.table.view(func(m *machine.State) {
			if _, _, ok := m.Changes("quiet/", list.Version, 1); ok {
				t.Fatalf("%d changes are still remembered", changed)
			}
		})
		s.acquire(1, 1<<30, "quiet/1")
		if a, ok := w.answer(); !ok || a.Lost || keysOf(a) != "quiet/1*" {
			t.Errorf("%+v", a)
		}
	})
}

// What is not remembered, or is too much for one answer, is said to be lost.
func TestAScanThatCannotGoOnSaysSo(t *testing.T) {
	onWatchingStage(t, func(s *stage) {
		s.open(1)
		list, _ := s.scan(replica.Scan{Prefix: "k/", Limit: 10}).answer()
		var keys []string
		for i := range 300 {
			keys = append(keys, fmt.Sprintf("k/%03d", i))
		}
		s.table.apply(machine.EncodeCommands([]machine.Command{machine.Acquire{Session: sid(1), Seq: 1, Keys: keys}}), time.Now())
		a, ok := s.scan(replica.Scan{Prefix: "k/", Limit: 256, Since: list.Version}).answer()
		if !ok || !a.Lost || len(a.Keys) > 0 || a.Version <= list.Version {
			t.Fatalf("%d keys, %+v", len(a.Keys), a)
		}
		var all []string
		for from := ""; ; {
			page, ok := s.scan(replica.Scan{Prefix: "k/", From: from, Limit: 128}).answer()
			if !ok || len(page.Keys) == 0 {
				t.Fatalf("%+v", page)
			}
			for _, st := range page.Keys {
				all = append(all, st.Key)
			}
			if !page.More {
				break
			}
			from = all[len(all)-1] + "\x00"
		}
		if !slices.Equal(all, keys) {
			t.Errorf("listed %d keys: %q", len(all), all)
		}
		// A table that came from a snapshot does not know what changed before.
		var image bytes.Buffer
		if err := s.table.snapshot().writeTo(&image); err != nil {
			t.Fatal(err)
		}
		if err := s.table.restore(&image); err != nil {
			t.Fatal(err)
		}
		if a, ok := s.scan(replica.Scan{Prefix: "k/", Limit: 256, Since: list.Version}).answer(); !ok || !a.Lost {
			t.Errorf("after a restore: %+v", a)
		}
		w := s.scan(replica.Scan{Prefix: "k/", Limit: 256, Since: a.Version})
		s.acquire(1, 2, "k/new")
		if a, ok := w.answer(); !ok || a.Lost || keysOf(a) != "k/new*" {
			t.Errorf("after a restore: %+v", a)
		}
	})
}

// However long names and metas are, and however many, an answer is one frame.
func TestAnswersFitInAFrame(t *testing.T) {
	onWatchingStage(t, func(s *stage) {
		name, meta := strings.Repeat("n", machine.MaxName), make([]byte, machine.MaxMeta)
		s.apply(machine.Open{Session: sid(1), Client: name, Node: name, TTL: uint64(stageTTL / time.Millisecond), Meta: string(meta)})
		seq := uint64(0)
		// A thousand holders of key, then a thousand waiters.
		fill := func(key string, value bool, holders, waiters int) {
			var batch []machine.Command
			flush := func() { s.table.apply(machine.EncodeCommands(batch), time.Now()); batch = nil }
			if value {
				seq++
				token := s.acquire(1, seq, key)
				s.apply(machine.SetValue{Session: sid(1), Token: token, Rev: 1, Value: make([]byte, machine.MaxValue)},
					machine.Release{Session: sid(1), Token: token})
			}
			for i := range holders + waiters {
				seq++
				mode := machine.Shared
				if i >= holders {
					mode = machine.Exclusive
				}
				batch = append(batch, machine.Acquire{Session: sid(1), Seq: seq, Key: key, Spec: machine.Spec{Mode: mode, Meta: string(meta)}})
				if len(batch) == 100 {
					flush()
				}
			}
			flush()
		}
		size := func(v any) int {
			t.Helper()
			f, err := wire.AppendFrame(nil, wire.Frame{Type: wire.Read, ID: 1 << 60, Code: wire.CodeOK, Body: wire.Marshal(v)})
			if err != nil {
				t.Error(err)
			}
			return len(f)
		}
		key := strings.Repeat("k", machine.MaxKey)
		fill(key, true, 1100, 1100)
		q := replica.Query{Key: key, Waiters: replica.MaxListed, Value: true}
		for range replica.MaxAlso {
			q.Also = append(q.Also, key)
		}
		a := s.table.answer(q)
		s.l.keeper.describe(a.Status.Holders)
		st := a.Status
		if st.Held != 1100 || st.Queue != 1100 || len(st.Value) != machine.MaxValue || len(st.Holders) != replica.MaxListed {
			t.Errorf("%d of %d holders, %d of %d waiters, %d bytes", len(st.Holders), st.Held, len(st.Waiters), st.Queue, len(st.Value))
		}
		t.Logf("%d waiters told, %d bytes", len(st.Waiters), size(answerToWire(a)))

		// With names as people choose them nothing is cut but metas.
		s.apply(machine.Open{Session: sid(2), Client: "billing-7f9c", Node: "billing-7f9c", TTL: uint64(stageTTL / time.Millisecond), Meta: "{}"})
		for i := range 2 * replica.MaxListed {
			mode := machine.Shared
			if i >= replica.MaxListed {
				mode = machine.Exclusive
			}
			s.table.apply(machine.EncodeCommands([]machine.Command{
				machine.Acquire{Session: sid(2), Seq: uint64(i + 1), Key: "usual", Spec: machine.Spec{Mode: mode, Meta: string(meta[:200])}},
			}), time.Now())
		}
		a = s.table.answer(replica.Query{Key: "usual", Waiters: replica.MaxListed})
		if len(a.Status.Holders) != replica.MaxListed || len(a.Status.Waiters) != replica.MaxListed {
			t.Errorf("%d holders and %d waiters", len(a.Status.Holders), len(a.Status.Waiters))
		}
		metas := 0
		for _, g := range a.Status.Holders {
			metas += len(g.Meta) + len(g.SessionMeta)
		}
		for _, w := range a.Status.Waiters {
			metas += len(w.Meta)
		}
		if metas > metaRoom || metas < metaRoom-300 {
			t.Errorf("%d bytes of metas", metas)
		}
		size(answerToWire(a))

		start := uint64(0)
		s.table.view(func(m *machine.State) { start = m.Commands() })
		for i := range 100 {
			fill(fmt.Sprintf("%s%03d", strings.Repeat("p", machine.MaxKey-3), i), false, 20, 20)
		}
		told := 0
		for from := ""; ; {
			a := s.table.scan(replica.Scan{Prefix: "p", From: from, Limit: replica.MaxScanned})
			for i := range a.Keys {
				s.l.keeper.describe(a.Keys[i].Holders)
				if st := a.Keys[i]; len(st.Holders) != replica.MaxScannedEach || len(st.Waiters) != replica.MaxScannedEach {
					t.Fatalf("%d holders, %d waiters", len(st.Holders), len(st.Waiters))
				}
			}
			told += len(a.Keys)
			t.Logf("%d keys, %d bytes", len(a.Keys), size((*wire.Scanned)(&a)))
			if !a.More {
				break
			}
			from = a.Keys[len(a.Keys)-1].Key + "\x00"
		}
		if told != 100 {
			t.Errorf("%d keys told", told)
		}
		changed := make(map[string]bool)
		for since := start; ; {
			a := s.table.scan(replica.Scan{Prefix: "p", Limit: replica.MaxScanned, Since: since})
			size((*wire.Scanned)(&a))
			for _, st := range a.Keys {
				changed[st.Key] = true
			}
			if since = a.Version; !a.More || a.Lost {
				break
			}
		}
		if len(changed) != 100 {
			t.Errorf("%d keys that changed were told", len(changed))
		}
	})
}

func TestAReaderOfItsPlaceIsWokenWhenItMoves(t *testing.T) {
	onWatchingStage(t, func(s *stage) {
		for id := byte(1); id <= 4; id++ {
			s.open(id)
		}
		token := s.acquire(1, 1, "k")
		for id := byte(2); id <= 4; id++ {
			s.acquire(id, 1, "k")
		}
		q := replica.Query{Key: "k", Session: sid(4), Seq: 1}
		var places []string
		for range 4 {
			answers := make(chan replica.Answer, 1)
			s.l.read(q, func(a replica.Answer, c wire.Code) { answers <- a })
			synctest.Wait()
			var a replica.Answer
			select {
			case a = <-answers:
			default:
				switch len(places) {
				case 1:
					s.apply(machine.Withdraw{Session: sid(3), Seq: 1})
				case 2:
					s.apply(machine.Release{Session: sid(1), Token: token})
				case 3:
					s.apply(machine.Close{Session: sid(2)})
				}
				a = <-answers
			}
			q.Version = a.Version
			places = append(places, fmt.Sprint(a.Behind, a.Waits))
		}
		if got := strings.Join(places, ", "); got != "3 true, 2 true, 1 true, 0 false" {
			t.Error(got)
		}
	})
}

func TestTheLeaderTellsDeadlinesAndBeats(t *testing.T) {
	onWatchingStage(t, func(s *stage) {
		s.open(1)
		s.acquire(1, 1, "k")
		read := func() machine.Grant {
			t.Helper()
			answers := make(chan replica.Answer, 1)
			s.l.read(replica.Query{Key: "k", Waiters: 5}, func(a replica.Answer, c wire.Code) { answers <- a })
			a := <-answers
			if len(a.Status.Holders) != 1 {
				t.Fatalf("%+v", a)
			}
			return a.Status.Holders[0]
		}
		time.Sleep(time.Second)
		if g := read(); g.Left != 2000 || g.Beats != 0 {
			t.Errorf("%+v", g)
		}
		for range 3 {
			<-s.beat(1)
		}
		time.Sleep(500 * time.Millisecond)
		if g := read(); g.Left != 2500 || g.Beats != 3 {
			t.Errorf("%+v", g)
		}
		// A beat that is not confirmed counts for nothing.
		s.set(nil, make(chan bool))
		b := s.beat(1)
		s.asks <- false
		<-b
		s.set(nil, nil)
		if g := read(); g.Beats != 3 {
			t.Errorf("%+v", g)
		}
	})
}

func TestEventsOfNobodysSessionAreNotPushed(t *testing.T) {
	onWatchingStage(t, func(s *stage) {
		var got []string
		m := &member{push: func(e machine.Event) { got = append(got, fmt.Sprintf("%d %v %s", e.Kind, e.Session[0], e.Key)) }}
		s.l.join(m)
		s.l.mu.Lock()
		s.l.sessions[machine.SessionID{}] = m // as a forged Attach might
		s.l.mu.Unlock()
		s.open(1)
		s.apply(machine.Open{Session: sid(2), Client: "other", Node: "n", TTL: 3000})
		s.l.bind(m, sid(1))
		s.l.bind(m, sid(2))
		s.table.apply(machine.EncodeCommands([]machine.Command{
			machine.Acquire{Session: sid(1), Seq: 1, Key: "k", Spec: machine.Spec{Delay: 1000}},
			machine.Acquire{Session: sid(2), Seq: 1, Key: "k"},
			machine.Acquire{Session: sid(1), Seq: 2, Key: "j"},
			machine.Ask{Session: sid(1), Key: "j"},
		}), time.Now())
		s.apply(machine.Expire{Session: sid(1), Term: 1})
		// Contended, asked, twice lost, and ended. That k is delayed is for
		// the leader alone.
		if got := strings.Join(got, ", "); got != "7 1 k, 6 1 j, 2 1 k, 2 1 j, 3 1 " {
			t.Errorf("pushed %s", got)
		}
	})
}

func TestAThinMemberScansAcrossALeaderChange(t *testing.T) {
	for range 5 {
		inBubble(t, func(b *bubble) {
			b.form()
			thin := b.start("thin", func(c *Config) { c.InitialSize = 0 })
			b.ready(thin)
			other := b.start("other", func(c *Config) { c.InitialSize = 0 })
			b.ready(other)
			b.holder(other, 1, "jobs/1")
			defer b.beating(other, 1)()
			list, err := thin.link.Scan(b.within(10*time.Second), replica.Scan{Prefix: "jobs/", Limit: 10})
			if err != nil || keysOf(list) != "jobs/1*" {
				t.Fatalf("%+v, %v", list, err)
			}
			type verdict struct {
				a   replica.Scanned
				err error
			}
			got := make(chan verdict, 1)
			go func() {
				a, err := thin.link.Scan(b.within(time.Minute), replica.Scan{Prefix: "jobs/", Limit: 10, Since: list.Version})
				got <- verdict{a, err}
			}()
			time.Sleep(time.Second)
			b.crash(b.leader().Name())
			b.propose(other, machine.Acquire{Session: sid(1), Seq: 2, Key: "jobs/2"})
			select {
			case v := <-got:
				if v.err != nil || keysOf(v.a) != "jobs/2*" || v.a.Version <= list.Version {
					t.Errorf("%+v, %v", v.a, v.err)
				}
			case <-time.After(20 * time.Second):
				t.Error("the change was not told")
			}
			// A wait can be given up.
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if _, err := thin.link.Scan(ctx, replica.Scan{Prefix: "none/", Limit: 1, Since: list.Version + 1000}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			var bad *ConfigError
			if _, err := thin.link.Scan(b.within(time.Second), replica.Scan{Limit: replica.MaxScanned + 1}); !errors.As(err, &bad) {
				t.Errorf("%v", err)
			}
		})
	}
}

// Each read and scan that waited, and was given up, frees its place.
func TestCancelledScansFreeTheStream(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		leader := b.leader()
		thin := b.start("thin", func(c *Config) { c.InitialSize = 0 })
		b.ready(thin)
		list, err := thin.link.Scan(b.within(10*time.Second), replica.Scan{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			thin.link.Scan(ctx, replica.Scan{Limit: 1, Since: list.Version})
			cancel()
		}
		time.Sleep(time.Second)
		ws := leader.leader.Load().watches
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if len(ws.prefixes) > 0 {
			t.Errorf("%d scans wait for nobody", len(ws.prefixes[""]))
		}
	})
}

// The largest query and the largest answer are one frame each, so that a thin
// member can ask what a leader can.
func TestTheLargestQueryIsAnswered(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		thin := b.start("thin", func(c *Config) { c.InitialSize = 0 })
		b.ready(thin)
		q := replica.Query{Key: strings.Repeat("k", machine.MaxKey), Waiters: replica.MaxListed, Value: true, Session: sid(1), Seq: 1 << 62}
		for i := range replica.MaxAlso {
			q.Also = append(q.Also, fmt.Sprintf("%0*d", replica.MaxAlsoBytes/replica.MaxAlso, i))
		}
		for _, n := range []*Node{thin, b.leader()} {
			if a, err := n.link.Read(b.within(10*time.Second), q); err != nil || len(a.Also) != replica.MaxAlso {
				t.Errorf("%s: %d told, %v", n.Name(), len(a.Also), err)
			}
		}
		q.Also[0] += "0"
		var bad *ConfigError
		if _, err := thin.link.Read(b.within(10*time.Second), q); !errors.As(err, &bad) {
			t.Errorf("over the limit: %v", err)
		}
	})
}
