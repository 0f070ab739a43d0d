package stream

import (
	"net"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// A peer that asks and does not read has its answers queued, within the budget: beyond, it
// loses its streams, and another peer is served as before.
func TestAnswersThatNobodyReadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(nil)
		answer := make([]byte, 500)
		serve := func(q *Request) { q.Answer(wire.CodeOK, answer) }
		ask := func(far net.Conn, n int) {
			request := frame(t, wire.Frame{Type: wire.Who, ID: 1})
			far.SetWriteDeadline(time.Now().Add(time.Second))
			for range n {
				if _, err := far.Write(request); err != nil {
					return
				}
			}
		}
		const streams, each = 40, 4000 // 2 MB each
		var deaf []*Stream
		for range streams {
			near, far := net.Pipe()
			s := New(charged{near, b.Share("mallory", netip.Addr{})}, serve)
			s.Start()
			deaf = append(deaf, s)
			ask(far, each)
			synctest.Wait()
			if held := b.Held(); held > budget.QueuedPerMember {
				t.Fatalf("%d bytes are queued for a member", held)
			}
		}
		alive := 0
		for _, s := range deaf {
			select {
			case <-s.Stopped():
				stoppedWith(t, s, ErrSlowPeer)
			default:
				alive++
				if !s.Full(1 << 20) {
					t.Error("large answers are still worth while")
				}
			}
		}
		if alive == 0 || alive == streams {
			t.Errorf("%d of %d streams are alive", alive, streams)
		}
		near, far := net.Pipe()
		honest := New(charged{near, b.Share("alice", netip.Addr{})}, serve)
		honest.Start()
		if honest.Full(1 << 20) {
			t.Error("a member without a queue is refused large answers")
		}
		go ask(far, 100)
		for range 100 {
			if f, err := wire.ReadFrame(far); err != nil || f.Code != wire.CodeOK {
				t.Fatal(f.Code, err)
			}
		}
		for _, s := range append(deaf, honest) {
			s.Close()
		}
		if held := b.Held(); held != 0 {
			t.Errorf("%d bytes are held after all streams have ended", held)
		}
	})
}

// The bytes of a queue count until they are written, and no longer.
func TestAQueueCountsUntilItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(nil)
		near, far := net.Pipe()
		s := New(charged{near, b.Share("slow", netip.Addr{})}, func(*Request) {})
		s.Start()
		defer s.Close()
		const frames, size = 30, 100_000
		for range frames {
			if err := s.Notify(wire.Event, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if held := b.Held(); held < frames*size-2*budget.QueuedLeast || held > frames*size+2*budget.QueuedLeast {
			t.Errorf("%d bytes are held with %d queued", held, frames*size)
		}
		for range frames {
			if _, err := wire.ReadFrame(far); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if held := b.Held(); held != 0 {
			t.Errorf("%d bytes are held for a peer that has read all", held)
		}
	})
}

// Others at the address read nothing. A member that reads keeps its stream, whatever it is
// sent; one of the others loses its own.
func TestAMemberThatReadsPaysForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(func(string, string) {})
		var deaf []*Stream
		for i := range 4 {
			near, _ := net.Pipe()
			s := New(charged{near, b.Share(string(rune('a'+i/2)), netip.Addr{})}, func(*Request) {})
			s.Start()
			deaf = append(deaf, s)
			for range 75 {
				s.Notify(wire.Event, make([]byte, 100_000))
			}
			synctest.Wait()
		}
		near, far := net.Pipe()
		honest := New(charged{near, b.Share("honest", netip.Addr{})}, func(*Request) {})
		honest.Start()
		if honest.Full(1<<20) || !deaf[3].Full(1<<20) {
			t.Error("a large answer is refused to the member that reads, or not to another")
		}
		const pushed, large = 3000, 8
		for range pushed {
			honest.Push(func() wire.Frame { return wire.Frame{Type: wire.Event, Body: make([]byte, 200)} })
		}
		for range large {
			if err := honest.Notify(wire.Event, make([]byte, 900_000)); err != nil {
				t.Fatal(err)
			}
		}
		for range pushed + large {
			if _, err := wire.ReadFrame(far); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		ended := 0
		for _, s := range deaf {
			select {
			case <-s.Stopped():
				stoppedWith(t, s, ErrSlowPeer)
				ended++
			default:
			}
		}
		if ended == 0 || ended == len(deaf) {
			t.Errorf("%d of %d streams have ended", ended, len(deaf))
		}
		for _, s := range append(deaf, honest) {
			s.Close()
		}
		if held := b.Held(); held != 0 {
			t.Errorf("%d bytes are held after all streams have ended", held)
		}
	})
}

// A stream that had much to write keeps no large buffer.
func TestALongQueueLeavesNoBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		s := New(near, func(*Request) {})
		s.Start()
		defer s.Close()
		for round := range 4 {
			for range 20 {
				s.Notify(wire.Event, make([]byte, 100_000))
			}
			for range 20 {
				if _, err := wire.ReadFrame(far); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			s.mu.Lock()
			if n := cap(s.out); n > mostKept {
				t.Errorf("round %d: a buffer of %d bytes", round, n)
			}
			s.mu.Unlock()
		}
	})
}

// Frames that wait unencoded count too.
func TestDelayedFramesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(func(string, string) {})
		near, _ := net.Pipe()
		s := New(charged{near, b.Share("deaf", netip.Addr{})}, func(*Request) {})
		s.Start()
		defer s.Close()
		body := make([]byte, 100)
		n := 0
		for ; s.Push(func() wire.Frame { return wire.Frame{Type: wire.Event, Body: body} }) == nil; n++ {
		}
		if most := budget.QueuedPerMember/delayedCost + 2*fullEnough/len(body); n < 100_000 || n > most {
			t.Errorf("%d frames wait, want %d at most", n, most)
		}
	})
}

// Others keep what is queued for all, for an address or for the other streams of a member
// between half of the bound and the bound. A stream with little queued gets large answers all
// the same.
func TestALargeAnswerPassesWhatOthersDoNotRead(t *testing.T) {
	for _, tt := range []struct {
		bound int
		deaf  func(i int) (name string, ip netip.Addr)
	}{
		{budget.Queued, func(i int) (string, netip.Addr) { return "deaf", netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}) }},
		{budget.QueuedPerAddress, func(i int) (string, netip.Addr) { return string(rune('a' + i)), netip.Addr{} }},
		{budget.QueuedPerMember, func(int) (string, netip.Addr) { return "honest", netip.Addr{} }},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := budget.New(nil)
			serve := func(name string, ip netip.Addr) (s *Stream, far net.Conn) {
				near, far := net.Pipe()
				s = New(charged{near, b.Share(name, ip)}, func(q *Request) {
					page := make([]byte, 1<<20-requestCost)
					if s.Full(len(page)) {
						q.Answer(wire.CodeBusy, nil)
						return
					}
					q.Answer(wire.CodeOK, page)
				})
				s.Start()
				return s, far
			}
			const each = 1500 << 10
			var deaf []*Stream
			for i := range tt.bound * 3 / 4 / each {
				s, _ := serve(tt.deaf(i))
				for range each / 100_000 {
					s.Notify(wire.Event, make([]byte, 100_000))
				}
				deaf = append(deaf, s)
			}
			if held := b.Held(); held < tt.bound/2 || held > tt.bound {
				t.Errorf("%d bytes are queued, with a bound of %d", held, tt.bound)
			}
			if !deaf[0].Full(1 << 20) {
				t.Error("a large answer is worth while for a peer that does not read")
			}
			s, far := serve("honest", netip.Addr{})
			asker := New(far, func(*Request) {})
			asker.Start()
			for range 3 {
				synctest.Wait() // the page before is written
				if f, err := asker.Call(t.Context(), wire.Scan, nil); err != nil || f.Code != wire.CodeOK {
					t.Errorf("with %d bytes queued for others, a page came to %v, %v", b.Held(), f.Code, err)
				}
			}
			for _, s := range append(deaf, s, asker) {
				s.Close()
			}
		})
	}
}

// Others fill the budget with requests that wait, at addresses of their own or at the member's,
// and ask again for each refused one. A member with 300 reads under way keeps its beats, its
// commands, and its attachment with the keys of thousands of sessions, on its stream and on a
// new one.
func TestReadsOfOthersLeaveRoom(t *testing.T) {
	for _, hosts := range []byte{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			b := budget.New(func(string, string) {})
			var streams []*Stream
			dial := func(name string, host byte) (asker *Stream) {
				near, far := net.Pipe()
				s := New(charged{near, b.Share(name, netip.AddrFrom4([4]byte{10, 0, 0, host}))}, func(q *Request) {
					if q.Type == wire.Attach {
						q.Answer(wire.CodeOK, nil)
					}
				})
				asker = New(far, func(*Request) {})
				s.Start()
				asker.Start()
				streams = append(streams, s, asker)
				return asker
			}
			busy := func(asker *Stream, typ wire.Type, n, size int) (refused int) {
				for range n {
					if _, err := asker.Begin(typ, make([]byte, size), func(f wire.Frame, err error) {
						if f.Code == wire.CodeBusy {
							refused++
						}
					}); err != nil {
						t.Fatal(err)
					}
					if size > mostBuffer {
						synctest.Wait()
					}
				}
				synctest.Wait()
				return refused
			}
			honest := dial("honest", 0)
			if n := busy(honest, wire.Read, 300, 100); n != 0 {
				t.Errorf("%d reads were refused in an empty budget", n)
			}
			var others []*Stream
			for i := range byte(4) {
				others = append(others, dial(string(rune('a'+i)), i%hosts))
			}
			press := func() {
				for _, o := range others {
					for busy(o, wire.Read, 1, 1<<20-requestCost)+busy(o, wire.Read, 1, 0) == 0 {
					}
				}
			}
			for round, asker := range []*Stream{honest, dial("honest", 0)} {
				for _, tt := range []struct {
					typ     wire.Type
					n, size int
				}{{wire.Beat, 300, 16}, {wire.Propose, 100, 1000}, {wire.Propose, 1, 1 << 19}, {wire.Attach, 16, 35_000}, {wire.Attach, 1, 557_000}} {
					press()
					if n := busy(asker, tt.typ, tt.n, tt.size); n != 0 {
						t.Errorf("stream %d: %d of %d requests of type %d were refused", round, n, tt.n, tt.typ)
					}
				}
			}
			for _, s := range streams {
				s.Close()
			}
			if held := b.Held(); held != 0 {
				t.Errorf("%d bytes are held after all streams have ended", held)
			}
		})
	}
}

// However many reads of a member wait, of whatever size, its own beats find room. Beats have a
// bound, too.
func TestOwnReadsLeaveRoomForBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(func(string, string) {})
		near, far := net.Pipe()
		s := New(charged{near, b.Share("honest", netip.Addr{})}, func(*Request) {})
		asker := New(far, func(*Request) {})
		s.Start()
		asker.Start()
		busy := make(map[wire.Type]int)
		ask := func(typ wire.Type, n, size int) {
			body := make([]byte, size)
			for i := range n {
				asker.Begin(typ, body, func(f wire.Frame, err error) {
					if f.Code == wire.CodeBusy {
						busy[typ]++
					}
				})
				if i%1024 == 0 {
					synctest.Wait()
				}
			}
			synctest.Wait()
		}
		const reads, size = 15_700, 512
		ask(wire.Read, reads, size)
		if n := reads - (budget.RequestsPerMember/2+budget.RequestsLeast)/(requestCost+size); busy[wire.Read] != n {
			t.Errorf("%d reads were refused, want %d", busy[wire.Read], n)
		}
		ask(wire.Beat, 10_000, 16)
		if busy[wire.Beat] != 0 {
			t.Errorf("%d beats were refused", busy[wire.Beat])
		}
		ask(wire.Beat, 10_000, 16)
		if busy[wire.Beat] == 0 {
			t.Error("beats have no bound")
		}
		s.Close()
		asker.Close()
	})
}

// A delayed frame counts as the memory that an event takes: a function with an event of its
// own, and its place.
func TestADelayedFrameCountsWhatItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, _ := net.Pipe()
		s := New(near, func(*Request) {})
		s.Start()
		defer s.Close()
		push := func(e machine.Event) {
			s.Push(func() wire.Frame { return wire.Frame{Type: wire.Event, Body: machine.AppendEvent(nil, e)} })
		}
		s.Notify(wire.Event, []byte{1})
		synctest.Wait() // the writer writes it for ever
		for !s.Full(0) {
			s.Notify(wire.Event, make([]byte, 1<<19))
		}
		heap := func() int {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc)
		}
		const frames = 50_000
		before := heap()
		for i := range frames {
			push(machine.Event{Kind: machine.EventGranted, Token: machine.Token(i)})
		}
		each := (heap() - before) / frames
		s.mu.Lock()
		n := len(s.delayed)
		s.mu.Unlock()
		if n != frames {
			t.Errorf("%d frames are delayed", n)
		}
		t.Logf("a delayed frame takes %d bytes", each)
		if each > delayedCost {
			t.Errorf("a delayed frame takes %d bytes, and counts %d", each, delayedCost)
		}
	})
}
