package term_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"reflect"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/wire"
)

func TestAStreamCarriesCommandsBeatsAndEvents(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(2)
		token := s.acquire(2, 1, "k")
		p := s.connect(key(1))
		mine := opening(1)
		mine.Node, mine.Boot = "n2", 7
		for _, cmd := range []machine.Command{mine, machine.Acquire{Session: sid(1), Seq: 1, Key: "k"}} {
			f := p.ask(wire.Propose, machine.AppendCommand(nil, cmd))
			if f.Code != wire.CodeOK {
				t.Fatalf("%#v: %v", cmd, f.Code)
			}
			if o, err := machine.DecodeOutcome(f.Body); err != nil || o.Code != machine.OK && o.Code != machine.Queued {
				t.Errorf("%#v: %+v, %v", cmd, o, err)
			}
		}
		id := sid(1)
		if f := p.ask(wire.Beat, id[:]); f.Code != wire.CodeOK {
			t.Errorf("beat: %v", f.Code)
		}
		none := sid(9)
		if f := p.ask(wire.Beat, none[:]); f.Code != wire.CodeNoSession {
			t.Errorf("beat of no session: %v", f.Code)
		}
		if f := p.ask(wire.Ready, nil); f.Code != wire.CodeOK {
			t.Errorf("ready: %v", f.Code)
		}
		s.Must(machine.Release{Session: sid(2), Token: token})
		if e := <-p.events; e.Kind != machine.EventGranted || e.Session != sid(1) || e.Token <= token {
			t.Errorf("%+v", e)
		}
		s.Term().AnnounceBound(7000)
		if a := <-p.bounds; !reflect.DeepEqual(a, wire.AttachAnswer{Term: 1, TTL: 7000}) {
			t.Errorf("%+v", a)
		}
		if err := p.Notify(wire.Detach, id[:]); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		s.Must(machine.Close{Session: sid(1)})
		synctest.Wait()
		if len(p.events) > 0 {
			t.Errorf("told %+v after Detach", <-p.events)
		}
		// The end of the term ends the stream.
		s.Lead()
		<-p.served
		<-p.Stopped()
	})
}

// A command reserved to the leader is never taken from a stream, and neither is a
// malformed message or another process's departure.
func TestAStreamRefusesWhatItCannotTake(t *testing.T) {
	var departed string
	depart := func(name string, boot uint64, done func(wire.Code)) {
		departed = fmt.Sprint(name, boot)
		done(wire.CodeOK)
	}
	onStageWith(t, termtest.Config{Depart: depart, Refused: refusals()}, func(s *stage) {
		s.open(1)
		p := s.connect()
		before := len(s.Applied())
		expire := machine.AppendCommand(nil, machine.Expire{Session: sid(1), Term: 1})
		closing := machine.AppendCommand(nil, machine.Close{Session: sid(1)})
		for _, q := range []struct {
			t    wire.Type
			body []byte
		}{
			{wire.Propose, expire}, {wire.Propose, append(closing, 0)}, {wire.Propose, closing[:3]}, {wire.Propose, nil},
			{wire.Beat, []byte("short")}, {wire.Read, []byte{1}}, {wire.Scan, nil}, {wire.Depart, nil}, {wire.Confirm, nil},
			{wire.Read, wire.Marshal(&replica.Query{Waiters: replica.MaxListed + 1})},
			{wire.Scan, wire.Marshal(&replica.Scan{Limit: replica.MaxScanned + 1})},
			{wire.Attach, []byte{1}},
		} {
			if f := p.ask(q.t, q.body); f.Code != wire.CodeBad {
				t.Errorf("type %d, %d bytes: %v", q.t, len(q.body), f.Code)
			}
		}
		if n := len(s.Applied()); n != before {
			t.Errorf("%d commands were applied", n-before)
		}
		for _, other := range []wire.DepartRequest{{Name: "n3", Boot: 7}, {Name: "n2", Boot: 6}} {
			if f := p.ask(wire.Depart, wire.Marshal(&other)); f.Code != wire.CodeBad || departed != "" {
				t.Errorf("depart of another process: %v, %q", f.Code, departed)
			}
		}
		if f := p.ask(wire.Depart, wire.Marshal(&wire.DepartRequest{Name: "n2", Boot: 7})); f.Code != wire.CodeOK || departed != "n27" {
			t.Errorf("depart: %v, %q", f.Code, departed)
		}
	})
}

func TestAStreamBeginsWithAttach(t *testing.T) {
	onStage(t, func(s *stage) {
		p := s.dial(func() *term.Term { return s.Term() })
		p.Call(s.t.Context(), wire.Ready, nil)
		<-p.served

		nobody := s.dial(func() *term.Term { return nil })
		seen := s.dial(func() *term.Term { return s.Term() })
		for name, f := range map[string]wire.Frame{
			"a node that does not lead":             nobody.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{})),
			"a leader of an older term than seen 2": seen.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{Term: 2})),
		} {
			var hint wire.Hint
			if err := wire.Unmarshal(f.Body, &hint); f.Code != wire.CodeNotLeader || err != nil || hint.Leader != "n7" {
				t.Errorf("%s: %v, %+v, %v", name, f.Code, hint, err)
			}
		}
		f := seen.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{Term: 1}))
		var a wire.AttachAnswer
		if err := wire.Unmarshal(f.Body, &a); f.Code != wire.CodeOK || err != nil || a.Term != 1 || a.TTL != uint64(ttl/time.Millisecond) {
			t.Errorf("%v, %+v, %v", f.Code, a, err)
		}
	})
}

// However many reads of a member wait, the beats are answered; and when the reads
// are given up there is room for others.
func TestWaitingReadsLeaveRoomForBeats(t *testing.T) {
	onStageWith(t, termtest.Config{TTL: ttl}, func(s *stage) {
		p := s.connect()
		q := replica.Query{Key: "k"}
		a, _ := p.read(q)
		q.Version = a.Version
		body := wire.Marshal(&q)
		const more = 100
		codes := make(map[wire.Code]int) // the stream's goroutine counts
		var ids []uint64
		for i := range term.MaxReads + more {
			id, err := p.Begin(wire.Read, body, func(f wire.Frame, err error) { codes[f.Code]++ })
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
			if i%1024 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if n := s.Term().Watching("k"); n != term.MaxReads || codes[wire.CodeBusy] != more {
			t.Errorf("%d of %d reads wait, verdicts %v", n, term.MaxReads+more, codes)
		}
		none := sid(9)
		if f := p.ask(wire.Beat, none[:]); f.Code != wire.CodeNoSession {
			t.Errorf("beat: %v", f.Code)
		}
		for i, id := range ids {
			if err := p.Notify(wire.Cancel, wire.Marshal(id)); err != nil {
				t.Fatal(err)
			}
			if i%1024 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if n := s.Term().Watched(); n > 0 {
			t.Errorf("%d are watched for nobody", n)
		}
		// The stream counts a request until the request is answered.
		if n := codes[wire.CodeNotLeader]; n != term.MaxReads {
			t.Errorf("%d of %d cancelled reads were answered", n, term.MaxReads)
		}
		p.read(replica.Query{Key: "k"})
	})
}

// A member has 300 reads that wait, and others take the whole part of such requests. The
// member's session lives on: its beats and its commands are served, and the keys of thousands of
// sessions are shown on a new stream.
func TestReadsOfOthersLeaveASessionAlive(t *testing.T) {
	onStage(t, func(s *stage) {
		s.budget = budget.New(func(string, string) {})
		p := s.connect(key(1))
		mine := opening(1)
		mine.Node, mine.Boot = "n2", 7
		propose := func(cmd machine.Command) machine.Outcome {
			o, code := p.propose(cmd)
			if code != wire.CodeOK {
				t.Errorf("%#v: %v", cmd, code)
			}
			return o
		}
		propose(mine)
		token := propose(machine.Acquire{Session: sid(1), Seq: 1, Key: "k"}).Token
		q := replica.Query{Key: "k"}
		a, _ := p.read(q)
		q.Version = a.Version
		waiting := wire.Marshal(&q)
		wait := func() wire.Code {
			code := wire.CodeRequest
			p.Begin(wire.Read, waiting, func(f wire.Frame, err error) { code = f.Code })
			synctest.Wait()
			return code
		}
		for range 300 {
			if c := wait(); c != wire.CodeRequest {
				t.Fatalf("a read that waits: %v", c)
			}
		}
		for i := range 8 {
			other := s.budget.Share(fmt.Sprint("other", i), netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
			for n := 0; other.Count(budget.Lasting, n, n+64<<10); n += 64 << 10 {
			}
		}
		for _, typ := range []wire.Type{wire.Read, wire.Scan, wire.Sessions, wire.Ready, wire.Find} {
			if f := p.ask(typ, waiting); f.Code != wire.CodeBusy {
				t.Errorf("a question of type %d, which may wait, without room: %v", typ, f.Code)
			}
		}
		id := sid(1)
		for range 10 {
			time.Sleep(ttl / 3)
			if f := p.ask(wire.Beat, id[:]); f.Code != wire.CodeOK {
				t.Errorf("beat: %v", f.Code)
			}
		}
		propose(machine.Release{Session: sid(1), Token: token})
		fresh := s.connect()
		for i := range 16 {
			req := wire.AttachRequest{New: make([]machine.SessionKey, 1024)}
			for j := range req.New {
				req.New[j] = machine.SessionKey{byte(i), byte(j), byte(j >> 8), 1}
			}
			if f := fresh.ask(wire.Attach, wire.Marshal(&req)); f.Code != wire.CodeOK {
				t.Errorf("attach: %v", f.Code)
			}
		}
	})
}

// A read that waits takes few bytes more than the budget of its member is charged.
func TestAWaitingReadTakesFewBytes(t *testing.T) {
	onStageWith(t, termtest.Config{TTL: ttl}, func(s *stage) {
		p := s.connect()
		const reads = 8192
		heap := func() int64 {
			synctest.Wait()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		for i := range reads {
			q := replica.Query{Key: fmt.Sprint("key", i), Group: fmt.Sprint("group", i)}
			a, _ := p.read(q)
			q.Version = a.Version
			if _, err := p.Begin(wire.Read, wire.Marshal(&q), func(wire.Frame, error) {}); err != nil {
				t.Fatal(err)
			}
		}
		// Both ends of the stream are here, and the member's takes some 200 bytes.
		if each := (heap() - before) / reads; each > 1500 {
			t.Errorf("a read that waits takes %d bytes", each)
		} else {
			t.Logf("a read that waits takes %d bytes", each)
		}
	})
}

// The end of a stream ends the waiting reads.
func TestReadsAreCancelledWithTheirStream(t *testing.T) {
	onStage(t, func(s *stage) {
		p := s.connect()
		a, _ := p.read(replica.Query{Key: "k"})
		list, _ := p.scan(replica.Scan{Limit: 1})
		ignore := func(wire.Frame, error) {}
		p.Begin(wire.Read, wire.Marshal(&replica.Query{Key: "k", Version: a.Version}), ignore)
		p.Begin(wire.Scan, wire.Marshal(&replica.Scan{Limit: 1, Since: list.Version}), ignore)
		synctest.Wait()
		if s.Term().Watched() == 0 {
			t.Error("nothing waits")
		}
		p.Close()
		<-p.served
		if n := s.Term().Watched(); n > 0 {
			t.Errorf("%d are watched for nobody", n)
		}
	})
}

// A read that comes under the ID of a cancelled question, before the question's answer, is
// cancelled with its stream: it waited for as long as this node led, whoever came back.
func TestACancelledIDIsUsedAgain(t *testing.T) {
	onStage(t, func(s *stage) {
		p := s.connect()
		q := replica.Query{Key: "k"}
		a, _ := p.read(q)
		q.Version = a.Version
		near, far := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			term.ServeMember(far, "n3", 9, s.guide(func() *term.Term { return s.Term() }))
		}()
		go io.Copy(io.Discard, near)
		send := func(f wire.Frame) {
			b, err := wire.AppendFrame(nil, f)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := near.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		send(wire.Frame{Type: wire.Attach, ID: 1, Body: wire.Marshal(&wire.AttachRequest{Term: 1})})
		synctest.Wait()
		s.HoldRounds()
		send(wire.Frame{Type: wire.Summarize, ID: 5})
		send(wire.Frame{Type: wire.Cancel, Body: wire.Marshal(uint64(5))})
		send(wire.Frame{Type: wire.Read, ID: 5, Body: wire.Marshal(&q)})
		synctest.Wait()
		s.ReleaseRounds()
		synctest.Wait()
		if n := s.Term().Watched(); n != 1 {
			t.Fatalf("%d reads wait: the test shows nothing", n)
		}
		near.Close()
		<-served
		synctest.Wait()
		if n := s.Term().Watched(); n > 0 {
			t.Errorf("%d reads wait for nobody", n)
		}
	})
}
