package cluster

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// What comes to a member all at once may be more than is ever queued for one that
// does not read. It reads, so it must not lose its stream: it would come back to
// the same, again and again, until its sessions have expired.

func TestManyLargeAnswersDoNotCostTheStream(t *testing.T) {
	inBubble(t, func(b *bubble) {
		long := func(c *Config) { c.TTL = time.Minute }
		b.readyWithin(3*time.Minute, b.start("n1", long), b.start("n2", long), b.start("n3", long))
		thin := b.start("thin", func(c *Config) { c.InitialSize, c.TTL = 0, time.Minute })
		b.ready(thin)
		leader := b.leader()
		name := strings.Repeat("n", machine.MaxName)
		b.propose(leader, machine.Open{Session: sid(1), Client: name, Node: name, TTL: 60_000})
		for i := range replica.MaxListed {
			leader.leader.Load().propose(machine.Acquire{
				Session: sid(1), Seq: uint64(i + 1), Key: "k", Spec: machine.Spec{Mode: machine.Shared, Meta: string(make([]byte, 250))},
			}, func(machine.Outcome, wire.Code) {})
		}
		time.Sleep(2 * time.Second)
		up, _ := thin.link.current()
		const readers = 25
		done := make(chan error, readers)
		for range readers {
			go func() {
				a, err := thin.link.Read(b.within(20*time.Second), replica.Query{Key: "k", Waiters: replica.MaxListed})
				if err == nil && len(a.Status.Holders) != replica.MaxListed {
					err = fmt.Errorf("%d holders told", len(a.Status.Holders))
				}
				done <- err
			}()
		}
		for range readers {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		select {
		case <-up.gone():
			t.Error("the stream was lost")
		default:
		}
	})
}

func TestManyLargeEventsDoNotCostTheStream(t *testing.T) {
	inBubble(t, func(b *bubble) {
		long := func(c *Config) { c.TTL = time.Minute }
		b.readyWithin(3*time.Minute, b.start("n1", long), b.start("n2", long), b.start("n3", long))
		thin := b.start("thin", func(c *Config) { c.InitialSize, c.TTL = 0, time.Minute })
		b.ready(thin)
		leader := b.leader()
		// More than maxOutgoing, of one entry: many wait to read one large value.
		const waiters = 200
		events := make(chan machine.Event, 10*waiters)
		thin.link.Attach(sid(2), func(e machine.Event) { events <- e })
		b.propose(leader, machine.Open{Session: sid(1), Client: "a", Node: "n", TTL: 60_000})
		b.propose(thin, machine.Open{Session: sid(2), Client: "b", Node: "n", TTL: 60_000})
		o := b.propose(leader, machine.Acquire{Session: sid(1), Seq: 1, Key: "k"})
		b.propose(leader, machine.SetValue{Session: sid(1), Token: o.Token, Rev: 1, Value: make([]byte, machine.MaxValue)})
		for i := range waiters {
			b.propose(thin, machine.Acquire{Session: sid(2), Seq: uint64(i + 1), Key: "k", Spec: machine.Spec{Mode: machine.Shared}})
		}
		up, _ := thin.link.current()
		b.propose(leader, machine.Release{Session: sid(1), Token: o.Token})
		last := uint64(0)
		for range waiters {
			e := next(t, events, 10*time.Second)
			if e.Kind != machine.EventGranted || e.Seq != last+1 || len(e.Value) != machine.MaxValue {
				t.Fatalf("event of kind %d and seq %d after %d, value of %d bytes", e.Kind, e.Seq, last, len(e.Value))
			}
			last = e.Seq
		}
		if err := thin.link.Beat(b.within(2*time.Second), sid(2)); err != nil {
			t.Error("beat:", err)
		}
		select {
		case <-up.gone():
			t.Error("the stream was lost")
		default:
		}
		// And once more when it attaches anew: none has been marked as seen.
		up.(*remote).rpc.stop(errStreamClosed)
		for told := 0; told < waiters; {
			if e := next(t, events, 10*time.Second); e.Kind == machine.EventGranted {
				if told++; e.Seq != uint64(told) {
					t.Fatalf("told of seq %d again, not %d", e.Seq, told)
				}
			}
		}
	})
}

// Nor do the answers to many requests that are granted at once, each with the value
// that it finds.
func TestManyLargeOutcomesDoNotCostTheStream(t *testing.T) {
	inBubble(t, func(b *bubble) {
		long := func(c *Config) { c.TTL = time.Minute }
		b.readyWithin(3*time.Minute, b.start("n1", long), b.start("n2", long), b.start("n3", long))
		thin := b.start("thin", func(c *Config) { c.InitialSize, c.TTL = 0, time.Minute })
		b.ready(thin)
		leader := b.leader()
		b.propose(leader, machine.Open{Session: sid(1), Client: "a", Node: "n", TTL: 60_000})
		b.propose(thin, machine.Open{Session: sid(2), Client: "b", Node: "n", TTL: 60_000})
		o := b.propose(leader, machine.Acquire{Session: sid(1), Seq: 1, Key: "k"})
		b.propose(leader, machine.SetValue{Session: sid(1), Token: o.Token, Rev: 1, Value: make([]byte, machine.MaxValue)})
		b.propose(leader, machine.Release{Session: sid(1), Token: o.Token})
		up, _ := thin.link.current()
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				o, err := thin.link.Propose(b.within(10*time.Second), machine.Acquire{Session: sid(2), Seq: uint64(i + 1), Key: "k", Spec: machine.Spec{Mode: machine.Shared}})
				if err != nil || o.Code != machine.Granted || len(o.Value) != machine.MaxValue {
					t.Errorf("request %d: code %d, value of %d bytes, %v", i+1, o.Code, len(o.Value), err)
				}
			})
		}
		wg.Wait()
		if err := thin.link.Beat(b.within(2*time.Second), sid(2)); err != nil {
			t.Error("beat:", err)
		}
		select {
		case <-up.gone():
			t.Error("the stream was lost")
		default:
		}
	})
}

// While a round is under way, answers to whatever many reads take so much memory
// and no more; and all is well after it.
func TestAnswersThatWaitForARoundAreBounded(t *testing.T) {
	onWatchingStage(t, func(s *stage) {
		s.open(1)
		var batch []machine.Command
		for i := range replica.MaxListed {
			batch = append(batch, machine.Acquire{Session: sid(1), Seq: uint64(i + 1), Key: "k", Spec: machine.Spec{Mode: machine.Shared, Meta: string(make([]byte, 250))}})
		}
		s.table.apply(machine.EncodeCommands(batch), time.Now())
		s.set(nil, make(chan bool))
		codes := make(map[wire.Code]int) // done is called here and by one goroutine, of which one waits
		const reads = 300
		read := func() {
			s.l.read(replica.Query{Key: "k", Waiters: replica.MaxListed}, func(_ replica.Answer, c wire.Code) { codes[c]++ })
			s.l.scan(replica.Scan{Limit: 1}, func(_ replica.Scanned, c wire.Code) { codes[c]++ })
		}
		for range reads {
			read()
		}
		if n := s.l.held.Load(); n > heldRoom || codes[wire.CodeBusy] == 0 || codes[wire.CodeBusy] > reads {
			t.Errorf("%d bytes are held, verdicts %v", n, codes)
		}
		s.set(nil, nil)
		synctest.Wait()
		if n := s.l.held.Load(); n != 0 {
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

// While an entry is in flight, however long its disk takes, the commands that
// queue up behind it are bounded by what they take.
func TestCommandsThatWaitForAnEntryAreBounded(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		token := s.acquire(1, 1, "k")
		s.set(make(chan struct{}), nil)
		codes := make(map[wire.Code]int) // see above
		value := make([]byte, machine.MaxValue)
		const commands = 3000 // of 64 KiB each
		for i := range commands {
			s.l.propose(machine.SetValue{Session: sid(1), Token: token, Rev: uint64(i + 1), Value: value},
				func(_ machine.Outcome, c wire.Code) { codes[c]++ })
			synctest.Wait() // the first is on its way
		}
		if n := codes[wire.CodeBusy]; n < commands/2 || n > commands-maxQueueBytes/(2*machine.MaxValue) {
			t.Errorf("%d of %d refused", n, commands)
		}
		s.set(nil, nil) // what is in flight fails, and the rest goes through
		synctest.Wait()
		if codes[wire.CodeUnknown] != 1 || codes[wire.CodeOK]+codes[wire.CodeBusy] != commands-1 {
			t.Errorf("verdicts %v", codes)
		}
	})
}

// However many reads of a member wait, its beats are answered; and when they are
// given up there is room for others.
func TestWaitingReadsLeaveRoomForBeats(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		thin := b.start("thin", func(c *Config) { c.InitialSize = 0 })
		b.ready(thin)
		b.holder(thin, 9, "other")
		defer b.beating(thin, 9)()
		a, err := thin.link.Read(b.within(5*time.Second), replica.Query{Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		many := make([]string, replica.MaxAlso)
		for i := range many {
			many[i] = "none"
		}
		up, _ := thin.link.current()
		for _, tt := range []struct {
			reads, most int
			also        []string
		}{
			{maxServing + 100, maxReads, nil},
			{100, maxReadKeys / (replica.MaxAlso + 1), many},
		} {
			q := replica.Query{Key: "k", Also: tt.also}
			if a, err = thin.link.Read(b.within(5*time.Second), q); err != nil {
				t.Fatal(err)
			}
			q.Version = a.Version
			var cancels []func()
			for i := range tt.reads {
				cancels = append(cancels, up.read(q, func(replica.Answer, wire.Code) {}))
				if i%4096 == 0 {
					time.Sleep(50 * time.Millisecond)
				}
			}
			time.Sleep(time.Second)
			ws := b.leader().leader.Load().watches
			ws.mu.Lock()
			waiting := len(ws.keys["k"])
			ws.mu.Unlock()
			if waiting != tt.most {
				t.Errorf("%d of %d reads wait", waiting, tt.reads)
			}
			if err := thin.link.Beat(b.within(time.Second), sid(9)); err != nil {
				t.Errorf("beat: %v", err)
			}
			for _, cancel := range cancels {
				cancel()
			}
			time.Sleep(time.Second)
			if _, err := thin.link.Read(b.within(time.Second), replica.Query{Key: "k"}); err != nil {
				t.Error(err)
			}
			ws.mu.Lock()
			if len(ws.keys) > 0 {
				t.Errorf("%d reads wait for nobody", len(ws.keys["k"]))
			}
			ws.mu.Unlock()
		}
	})
}
