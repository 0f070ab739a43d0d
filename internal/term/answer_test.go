package term_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// A peer is the member's end of a stream to the leader.
type peer struct {
	*stream.Stream
	t      *testing.T
	events chan machine.Event
	bounds chan wire.AttachAnswer
	served chan struct{} // closed when the leader's end has returned
}

// text is a meta of n bytes.
func text(n int) string { return strings.Repeat("m", n) }

// connect opens a stream to the leader and shows the keys of sessions to be opened.
func (s *stage) connect(fresh ...machine.SessionKey) *peer {
	s.t.Helper()
	p := s.dial(func() *term.Term { return s.Term() })
	if f := p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{New: fresh})); f.Code != wire.CodeOK {
		s.t.Fatalf("attach: %v", f.Code)
	}
	return p
}

// guide is the knowledge of a node that does not run raft.
func (s *stage) guide(current func() *term.Term) term.Guide {
	return term.Guide{
		Current: current,
		Hint:    func() wire.Hint { return wire.Hint{Term: 7, Leader: "n7"} },
		Changed: func() <-chan struct{} { return nil },
		Heard:   func() time.Time { return time.Time{} },
		Bound:   s.bound,
	}
}

// charged is a connection with a share of a budget.
type charged struct {
	net.Conn
	share *budget.Share
}

func (c charged) Budget() *budget.Share { return c.share }

func (s *stage) dial(current func() *term.Term) *peer { return s.dialAs("n2", 7, current) }

// dialAs is dial as a process of the test's choice.
func (s *stage) dialAs(node string, boot uint64, current func() *term.Term) *peer {
	near, far := net.Pipe()
	p := &peer{t: s.t, events: make(chan machine.Event, 1000), bounds: make(chan wire.AttachAnswer, 10), served: make(chan struct{})}
	served := far
	if s.budget != nil {
		served = charged{far, s.budget.Share(node, netip.Addr{})}
	}
	go func() {
		defer close(p.served)
		term.ServeMember(served, node, boot, s.guide(current))
	}()
	p.Stream = stream.New(near, func(q *stream.Request) {
		switch q.Type {
		case wire.Event:
			e, err := machine.DecodeEvent(q.Body)
			if err != nil {
				s.t.Error(err)
			}
			p.events <- e
		case wire.Bound:
			var a wire.AttachAnswer
			if err := wire.Unmarshal(q.Body, &a); err != nil {
				s.t.Error(err)
			}
			p.bounds <- a
		}
	})
	p.Start()
	s.t.Cleanup(func() {
		p.Close()
		<-p.served
	})
	return p
}

func (p *peer) ask(t wire.Type, body []byte) wire.Frame {
	p.t.Helper()
	f, err := p.Call(p.t.Context(), t, body)
	if err != nil {
		p.t.Errorf("frame of type %d: %v", t, err)
	}
	return f
}

func (p *peer) read(q replica.Query) (a replica.Answer, size int) {
	p.t.Helper()
	f := p.ask(wire.Read, wire.Marshal(&q))
	if err := wire.Unmarshal(f.Body, &a); f.Code != wire.CodeOK || err != nil {
		p.t.Fatalf("read: code %d, %v", f.Code, err)
	}
	return a, len(f.Body)
}

func (p *peer) scan(q replica.Scan) (a replica.Scanned, size int) {
	p.t.Helper()
	f := p.ask(wire.Scan, wire.Marshal(&q))
	if err := wire.Unmarshal(f.Body, &a); f.Code != wire.CodeOK || err != nil {
		p.t.Fatalf("scan: code %d, %v", f.Code, err)
	}
	return a, len(f.Body)
}

// crowd has session 1 make many grants and waiters of a key, each with a large meta.
func (s *stage) crowd(seq *uint64, key string, holders, waiters int) {
	var batch []machine.Command
	for i := range holders + waiters {
		*seq++
		mode := machine.Shared
		if i >= holders {
			mode = machine.Exclusive
		}
		batch = append(batch, machine.Acquire{Session: sid(1), Seq: *seq, Key: key, Spec: machine.Spec{Mode: mode, Meta: text(machine.MaxMeta)}})
	}
	s.Apply(batch...)
}

// With very many grants, the longest names and the longest metas, an answer is one frame:
// metas are left out first, then the lists are cut.
func TestTheLargestAnswerFillsAFrame(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		name := strings.Repeat("n", machine.MaxName)
		s.Must(machine.Open{Session: sid(1), Client: name, Node: name, TTL: 3000, Meta: text(machine.MaxMeta)})
		seq := uint64(1)
		key := strings.Repeat("k", machine.MaxKey)
		token := s.acquire(1, seq, key)
		s.Must(machine.SetValue{Session: sid(1), Token: token, Rev: 1, Value: make([]byte, machine.MaxValue)},
			machine.Release{Session: sid(1), Token: token})
		s.crowd(&seq, key, 1100, 1100)
		q := replica.Query{Key: key, Waiters: replica.MaxListed, Value: true}
		told, size := s.connect().read(q)
		st := told.Status
		if st.Held != 1100 || st.Queue != 1100 || len(st.Value) != machine.MaxValue || len(st.Holders) != replica.MaxListed {
			t.Errorf("%d of %d holders, %d of %d waiters, %d bytes", len(st.Holders), st.Held, len(st.Waiters), st.Queue, len(st.Value))
		}
		t.Logf("%d waiters told, %d of %d bytes", len(st.Waiters), size, wire.MaxBody)
		one := st.Waiters[0]
		one.Meta = ""
		more := wire.Size(&one) // for another waiter
		if len(st.Waiters) == replica.MaxListed {
			more = machine.MaxMeta // for another meta
		}
		if size > wire.MaxBody || size < wire.MaxBody-more-16 {
			t.Errorf("%d of %d bytes, and there was room for %d", size, wire.MaxBody, more)
		}
		for _, g := range st.Holders {
			if len(g.Meta)+len(g.SessionMeta) > 0 && len(st.Waiters) < replica.MaxListed {
				t.Fatal("a meta took the place of a waiter")
			}
		}
		// A reader on the leader's own node is told the same.
		here := s.read(q)
		if len(here.Status.Holders) != len(st.Holders) || len(here.Status.Waiters) != len(st.Waiters) {
			t.Errorf("here %d holders and %d waiters are told", len(here.Status.Holders), len(here.Status.Waiters))
		}
	})
}

// Metas of any length that just find room, or just do not, leave the answer within
// its frame.
func TestMetasFillAFrameAndNoMore(t *testing.T) {
	long := strings.Repeat("n", machine.MaxName)
	for _, length := range []int{1, 31, 32, 100, 255, 256, 1000} {
		meta := strings.Repeat("m", length)
		a := replica.Answer{Status: machine.Status{Key: "k", Held: 800, Queue: 800}}
		for i := range 800 {
			a.Status.Holders = append(a.Status.Holders, machine.Grant{
				Client: long, Node: long, Seq: uint64(i), Spec: machine.Spec{Meta: meta}, SessionMeta: meta,
			})
			a.Status.Waiters = append(a.Status.Waiters, machine.Waiter{Client: long, Node: long, Seq: uint64(i), Spec: machine.Spec{Meta: meta}})
		}
		// The value leaves room for the lists and for some of the metas.
		bare := a
		bare.Status.Holders, bare.Status.Waiters = slices.Clone(a.Status.Holders), slices.Clone(a.Status.Waiters)
		for i := range 800 {
			bare.Status.Holders[i].Meta, bare.Status.Holders[i].SessionMeta, bare.Status.Waiters[i].Meta = "", "", ""
		}
		a.Status.Value = strings.Repeat("v", wire.MaxBody-wire.Size(&bare)-1500)
		_, size := term.FitAnswer(&a)
		st := a.Status
		if room := wire.MaxBody - size; room < 0 || room > length+32 || len(st.Holders) < 800 || len(st.Waiters) < 800 {
			t.Errorf("metas of %d bytes: %d of %d bytes, %d holders, %d waiters", length, size, wire.MaxBody, len(st.Holders), len(st.Waiters))
		}
	}
}

// With usual names, nothing is left out but metas.
func TestUsualNamesAreNotCut(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.Must(machine.Open{Session: sid(2), Client: "billing-7f9c", Node: "billing-7f9c", TTL: 3000, Meta: "{}"})
		var batch []machine.Command
		for i := range 2 * replica.MaxListed {
			mode := machine.Shared
			if i >= replica.MaxListed {
				mode = machine.Exclusive
			}
			batch = append(batch, machine.Acquire{Session: sid(2), Seq: uint64(i + 1), Key: "usual", Spec: machine.Spec{Mode: mode, Meta: text(200)}})
		}
		s.Apply(batch...)
		a, _ := s.connect().read(replica.Query{Key: "usual", Waiters: replica.MaxListed})
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
		if metas > term.MaxMetas || metas < term.MaxMetas-300 {
			t.Errorf("%d bytes of metas", metas)
		}
	})
}

// A scan of several frames goes on after the last key told, with every key
// whole, and so do the changes.
func TestALargeScanGoesOnAfterTheLastKeyTold(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		name := strings.Repeat("n", machine.MaxName)
		s.Must(machine.Open{Session: sid(1), Client: name, Node: name, TTL: 3000, Meta: text(machine.MaxMeta)})
		start, seq := uint64(0), uint64(0)
		s.View(func(m *machine.State) { start = m.Commands() })
		const keys = 160 // within the bytes of keys and metas of a session
		for i := range keys {
			s.crowd(&seq, fmt.Sprintf("%s%03d", strings.Repeat("p", machine.MaxKey-3), i), 20, 20)
		}
		p := s.connect()
		told, answers := 0, 0
		for from := ""; ; {
			a, size := p.scan(replica.Scan{Prefix: "p", From: from, Limit: replica.MaxScanned})
			for _, st := range a.Keys {
				if len(st.Holders) != replica.MaxScannedEach || len(st.Waiters) != replica.MaxScannedEach {
					t.Fatalf("%d holders, %d waiters", len(st.Holders), len(st.Waiters))
				}
			}
			here, _ := s.scan(replica.Scan{Prefix: "p", From: from, Limit: replica.MaxScanned}).answer()
			if len(here.Keys) != len(a.Keys) || here.More != a.More {
				t.Errorf("here %d keys are told, there %d", len(here.Keys), len(a.Keys))
			}
			answers++
			told += len(a.Keys)
			t.Logf("%d keys, %d of %d bytes", len(a.Keys), size, wire.MaxBody)
			if !a.More {
				break
			}
			from = a.Keys[len(a.Keys)-1].Key + "\x00"
		}
		if told != keys || answers < 2 {
			t.Errorf("%d keys told in %d answers", told, answers)
		}
		changed := make(map[string]bool)
		answers = 0
		for since := start; ; {
			a, _ := p.scan(replica.Scan{Prefix: "p", Limit: replica.MaxScanned, Since: since})
			for _, st := range a.Keys {
				changed[st.Key] = true
			}
			answers++
			if since = a.Version; !a.More || a.Lost {
				break
			}
		}
		if len(changed) != keys || answers < 2 {
			t.Errorf("%d keys that changed were told in %d answers", len(changed), answers)
		}
	})
}

func TestTheLeaderTellsDeadlinesAndBeats(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.acquire(1, 1, "k")
		holder := func() machine.Grant {
			t.Helper()
			a := s.read(replica.Query{Key: "k", Waiters: 5})
			if len(a.Status.Holders) != 1 {
				t.Fatalf("%+v", a)
			}
			return a.Status.Holders[0]
		}
		time.Sleep(time.Second)
		if g := holder(); g.Left != 2000 || g.Beats != 0 {
			t.Errorf("%+v", g)
		}
		for range 3 {
			<-s.beat(1)
			time.Sleep(timing.BeatsTogether)
		}
		time.Sleep(500*time.Millisecond - timing.BeatsTogether)
		if g := holder(); g.Left != 2500 || g.Beats != 3 {
			t.Errorf("%+v", g)
		}
		// An unconfirmed beat counts for nothing.
		s.HoldRounds()
		b := s.beat(1)
		s.AnswerRound(false)
		<-b
		s.ReleaseRounds()
		if g := holder(); g.Beats != 3 {
			t.Errorf("%+v", g)
		}
	})
}

// While a round is under way, the answers to any number of reads take so much memory
// and no more, those of one member half of it; and reads are answered again after the round.
func TestAnswersThatWaitForARoundAreBounded(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		var batch []machine.Command
		for i := range replica.MaxListed {
			batch = append(batch, machine.Acquire{Session: sid(1), Seq: uint64(i + 1), Key: "k", Spec: machine.Spec{Mode: machine.Shared, Meta: text(250)}})
		}
		s.Apply(batch...)
		size := wire.Size(s.read(replica.Query{Key: "k", Waiters: replica.MaxListed}))
		s.HoldRounds()
		codes := make(map[wire.Code]int) // never counted by two goroutines together
		const reads = 300
		read := func() {
			s.Term().Read(replica.Query{Key: "k", Waiters: replica.MaxListed}, func(_ replica.Answer, c wire.Code) { codes[c]++ })
			s.Term().Scan(replica.Scan{Limit: 1}, func(_ replica.Scanned, c wire.Code) { codes[c]++ })
		}
		for range reads {
			read()
		}
		full := func(most int64) {
			t.Helper()
			if n := s.Term().Held(); n > most || n < most-2*wire.MaxFrame || codes[wire.CodeBusy] == 0 {
				t.Errorf("%d bytes are held, verdicts %v, an answer has %d bytes", n, codes, size)
			}
		}
		full(term.MaxHeldOfOne)
		for i := range 2 * reads {
			s.Term().ReadFor(fmt.Sprint("m", i%3), replica.Query{Key: "k", Waiters: replica.MaxListed}, func(_ replica.Answer, c wire.Code) { codes[c]++ })
		}
		full(term.MaxHeld)
		s.ReleaseRounds()
		synctest.Wait()
		if n := s.Term().Held(); n != 0 {
			t.Errorf("%d bytes are still held", n)
		}
		clear(codes)
		read()
		synctest.Wait()
		if codes[wire.CodeOK] != 2 {
			t.Errorf("verdicts %v", codes)
		}
	})
}
