package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// charged is a connection with a share of a budget.
type charged struct {
	net.Conn
	share *budget.Share
}

func (c charged) Budget() *budget.Share { return c.share }

// claim is the beginning of a frame of the largest size.
var claim = binary.BigEndian.AppendUint32(nil, wire.MaxFrame)

// Peers that claim large frames, and peers that send a part of each, cost a bounded
// amount of memory.
func TestClaimsOfLargeFramesCostLittle(t *testing.T) {
	for _, x := range []struct {
		name string
		sent int // bytes of each claimed frame
		most int // bytes of memory for each stream
	}{
		{"five bytes", 5, 32 << 10},
		// Four of a member have their part of the budget; the others wait.
		{"a sixteenth", 64 << 10, 128 << 10},
	} {
		t.Run(x.name, func(t *testing.T) {
			const streams = 100
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			b := budget.New(nil)
			before := inUse()
			var open []*Stream
			for range streams {
				far, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer far.Close()
				near, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				s := New(charged{near, b.Share("mallory", netip.MustParseAddr("127.0.0.1"))}, func(*Request) { t.Error("a frame is complete") })
				s.Start()
				defer s.Close()
				open = append(open, s)
				if _, err := far.Write(append(claim[:4:4], make([]byte, x.sent-4)...)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(200 * time.Millisecond) // for as much as the readers take
			if cost := (inUse() - before) / streams; cost > x.most {
				t.Errorf("a stream costs %d bytes", cost)
			} else {
				t.Logf("a stream costs %d bytes", cost)
			}
			runtime.KeepAlive(open)
		})
	}
}

func inUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// Of the frames that drip one ends its stream, and the next frame gets its part of the budget.
func TestAFrameThatDripsEndsItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(nil)
		share := b.Share("mallory", netip.Addr{})
		var dripping []*Stream
		for range budget.FramesPerMember / wire.MaxFrame {
			near, far := net.Pipe()
			s := New(charged{near, share}, func(*Request) { t.Error("a frame is complete") })
			s.Start()
			defer s.Close()
			dripping = append(dripping, s)
			go func() {
				defer far.Close()
				if _, err := far.Write(append(claim[:4:4], make([]byte, mostBuffer)...)); err != nil {
					return
				}
				for {
					if _, err := far.Write([]byte{0}); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			}()
		}
		synctest.Wait()
		// An honest stream of the same member waits until slow frames give way.
		near, far := net.Pipe()
		defer far.Close()
		var served atomic.Bool
		s := New(charged{near, share}, func(q *Request) { served.Store(true); q.Answer(wire.CodeOK, nil) })
		s.Start()
		defer s.Close()
		go io.Copy(io.Discard, far)
		begun := time.Now()
		if _, err := far.Write(frame(t, wire.Frame{Type: wire.Propose, ID: 1, Body: make([]byte, wire.MaxFrame-100)})); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if took := time.Since(begun); took != timing.FrameYields || !served.Load() {
			t.Errorf("the honest frame was served after %v: %v", took, served.Load())
		}
		ended := 0
		for _, s := range dripping {
			select {
			case <-s.Stopped():
				stoppedWith(t, s, os.ErrDeadlineExceeded)
				ended++
			default:
				s.Close()
			}
		}
		if ended != 1 {
			t.Errorf("%d streams ended for one frame", ended)
		}
		time.Sleep(time.Second) // the drips end
	})
}

// Frames that drip, of one name at many addresses, fill the budget. A command of usual size
// and the beat behind it wait for none of them, and a larger one until they give way.
func TestAnHonestBeatWaitsForNoFrameThatDrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(nil)
		var streams []*Stream
		open := func(name string, host int, handle func(*Request)) net.Conn {
			near, far := net.Pipe()
			s := New(charged{near, b.Share(name, netip.AddrFrom4([4]byte{10, 0, 0, byte(host)}))}, handle)
			s.Start()
			streams = append(streams, s)
			return far
		}
		for i := range 64 {
			far := open("guest", i%8, func(*Request) {})
			go func() {
				defer far.Close()
				if _, err := far.Write(append(claim[:4:4], make([]byte, mostBuffer)...)); err != nil {
					return
				}
				for {
					if _, err := far.Write([]byte{0}); err != nil {
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
			}()
		}
		synctest.Wait()
		if b.Held() < budget.Frames {
			t.Errorf("%d bytes are held, want %d", b.Held(), budget.Frames)
		}
		for size, most := range map[int]time.Duration{20 << 10: 0, 512 << 10: timing.FrameYields} {
			begun := time.Now()
			beat := make(chan struct{})
			far := open("honest", 200, func(q *Request) {
				if q.Type == wire.Beat {
					close(beat)
				}
			})
			go func() {
				_, _ = far.Write(append(frame(t, wire.Frame{Type: wire.Propose, ID: 1, Body: make([]byte, size)}), frame(t, wire.Frame{Type: wire.Beat, ID: 2})...))
			}()
			<-beat
			if took := time.Since(begun); took > most {
				t.Errorf("a beat behind %d bytes is read after %v", size, took)
			}
			_ = far.Close()
		}
		for _, s := range streams {
			s.Close()
		}
		time.Sleep(time.Second) // the drips end
	})
}

// A slow frame counts from its first byte, and a pause between frames is no drip.
func TestAStreamMayBeIdleBetweenFrames(t *testing.T) {
	served := 0
	inBubble(t, func(q *Request) { served++ }, func(t *testing.T, s *Stream, far net.Conn) {
		b := frame(t, wire.Frame{Type: wire.Cancel, Body: []byte("body")})
		for range 3 {
			far.Write(b[:3])
			time.Sleep(timing.FrameWithin - time.Second)
			far.Write(b[3:])
			time.Sleep(time.Hour)
		}
		synctest.Wait()
		if served != 3 {
			t.Errorf("%d frames were served", served)
		}
		far.Write(b[:3])
		time.Sleep(timing.FrameWithin + time.Second)
		stoppedWith(t, s, os.ErrDeadlineExceeded)
	})
}

// The requests under way are bounded in bytes, and the bound comes back when they are
// answered or their stream ends.
func TestRequestsUnderWayAreBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		b := budget.New(func(string, string) { told++ })
		var open []*Request
		var streams []*Stream
		busy := 0
		flood := func() {
			near, far := net.Pipe()
			s := New(charged{near, b.Share("mallory", netip.Addr{})}, func(q *Request) { open = append(open, q) })
			asker := New(far, func(*Request) {})
			s.Start()
			asker.Start()
			streams = append(streams, s, asker)
			for range budget.RequestsPerMember>>20 + 2 {
				_, err := asker.Begin(wire.Propose, make([]byte, 1<<20-requestCost), func(f wire.Frame, err error) {
					if f.Code == wire.CodeBusy {
						busy++
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
		}
		flood()
		if len(open) != budget.RequestsPerMember>>20 || busy != 2 || told != 2 {
			t.Fatalf("%d requests under way, %d refused, %d told", len(open), busy, told)
		}
		for range 4 {
			flood()
		}
		if n := len(open) << 20; n > budget.Requests+5*budget.RequestsLeast {
			t.Errorf("%d bytes of requests under way", n)
		}
		open[0].Answer(wire.CodeOK, nil)
		for _, s := range streams {
			s.Close()
		}
		for _, q := range open[1:] {
			q.Answer(wire.CodeOK, nil)
		}
		n := len(open)
		flood()
		if len(open)-n != budget.RequestsPerMember>>20 {
			t.Errorf("%d requests under way after the others ended", len(open)-n)
		}
		for _, s := range streams {
			s.Close()
		}
	})
}

// piecewise is a connection from which bytes arrive in pieces of the given sizes.
type piecewise struct {
	net.Conn
	bytes  *bytes.Reader
	pieces []byte
}

func (p *piecewise) Read(b []byte) (int, error) {
	n := len(b)
	if len(p.pieces) > 0 {
		n = min(n, 1+int(p.pieces[0])<<(p.pieces[0]%8))
		p.pieces = p.pieces[1:]
	}
	return p.bytes.Read(b[:n])
}

func (*piecewise) SetReadDeadline(time.Time) error { return nil }

// In whichever pieces bytes arrive, frames reads from them what wire.ReadFrame reads.
func FuzzFrames(f *testing.F) {
	var some []byte
	for i, n := range []int{0, 1, 100, leastBuffer - 20, mostBuffer - 21, mostBuffer - 20, 3 * mostBuffer, 7} {
		some, _ = wire.AppendFrame(some, wire.Frame{Type: wire.Propose, ID: uint64(i), Body: make([]byte, n)})
	}
	f.Add(some, []byte{1, 2, 3, 200, 0, 0, 7})
	f.Add(append(some[:50:50], 0xff, 0xff, 0xff, 0xff), []byte{})
	f.Add(claim, []byte{3})
	f.Fuzz(func(t *testing.T, b, pieces []byte) {
		share := budget.New(nil).Share("", netip.Addr{})
		in := frames{conn: &piecewise{nil, bytes.NewReader(b), pieces}, share: share, stopped: make(chan struct{})}
		r := bytes.NewReader(b)
		for {
			want, wantErr := wire.ReadFrame(r)
			got, err := in.next()
			if (err == nil) != (wantErr == nil) || errors.Is(err, io.EOF) != errors.Is(wantErr, io.EOF) {
				t.Fatalf("%v, want %v", err, wantErr)
			}
			if err != nil {
				return
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v, want %+v", got, want)
			}
			in.done()
		}
	})
}

// Small frames share blocks of memory, and nobody's part is written again: a handler may keep
// a body for as long as it likes, and append to it.
func TestKeptFramesStayAsTheyWere(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	const n = 500
	sent := func(i int) []byte { return bytes.Repeat([]byte{byte(i), byte(i >> 8)}, i%100) }
	go func() {
		defer far.Close()
		for i := range n {
			b, err := wire.AppendFrame(nil, wire.Frame{Type: wire.Propose, ID: uint64(i + 1), Body: sent(i)})
			if err != nil {
				t.Error(err)
			}
			far.Write(b)
		}
	}()
	in := frames{conn: near, stopped: make(chan struct{})}
	var kept []wire.Frame
	for range n {
		f, err := in.next()
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, f)
		_ = append(f.Body, 0xff, 0xff, 0xff, 0xff)
		in.done()
	}
	for i, f := range kept {
		if f.ID != uint64(i+1) || !bytes.Equal(f.Body, sent(i)) {
			t.Fatalf("frame %d became %+v", i+1, f)
		}
	}
	if n := testing.AllocsPerRun(100, func() { in.room(40) }); n > 0.2 {
		t.Errorf("%.2f allocations for a small frame", n)
	}
}
