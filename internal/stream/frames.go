package stream

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// Sizes of a stream's buffer for received bytes.
const (
	leastBuffer = 1 << 10
	mostBuffer  = 16 << 10 // a TLS record: larger buffers are never filled by one read
)

// Sizes of a small frame and of a block of them.
const (
	smallFrame = 128
	smallBlock = 512
)

// frames reads the frames of a connection within bounds:
//
//   - The buffer has leastBuffer, and mostBuffer only while more bytes than that have
//     arrived and are not handled. A claimed length costs nothing.
//   - A frame larger than the buffer waits, once the buffer is full of it, for its
//     part of the node's budget; the peer is not read meanwhile.
//   - A frame that has begun must be complete within timing.FrameWithin, the wait for
//     the budget not counted, and sooner if it comes slowly while others wait for the
//     budget: so a frame that drips keeps no other one waiting for long. A
//     link so slow that 1 MiB takes longer delays the beats behind the frame as long,
//     and the sending side gives up such a link too, after timing.StreamWrite.
type frames struct {
	conn    net.Conn
	share   *budget.Share
	stopped <-chan struct{} // ends the wait for the budget

	block []byte       // the rest of the block for small frames
	small []byte       // leastBuffer
	buf   []byte       // small, or of buffers
	r, w  int          // buf[r:w] is unread
	timed bool         // conn has a read deadline
	taken *budget.Hold // of the budget, for the latest frame
}

// next returns the next frame, which owns its body. The caller calls done when the
// frame is handled.
func (f *frames) next() (wire.Frame, error) {
	for f.w-f.r < 4 {
		if err := f.fill(); err != nil {
			return wire.Frame{}, err
		}
	}
	size := binary.BigEndian.Uint32(f.buf[f.r:])
	if size == 0 || size > wire.MaxFrame {
		return wire.Frame{}, fmt.Errorf("cluster: frame of %d bytes, want 1 to %d", size, wire.MaxFrame)
	}
	n := int(size)
	for f.w-f.r < min(4+n, mostBuffer) {
		if err := f.fill(); err != nil {
			return wire.Frame{}, err
		}
	}
	if 4+n > mostBuffer && f.share != nil {
		f.untime()
		hold, ok := f.share.Take(n, f.stopped, func() { _ = f.conn.SetReadDeadline(time.Unix(1, 0)) })
		if !ok {
			return wire.Frame{}, ErrClosed
		}
		f.taken = hold
	}
	body := f.room(n)
	have := copy(body, f.buf[f.r+4:f.w])
	f.r += 4 + have
	if have < n {
		f.time()
		if _, err := io.ReadFull(f, body[have:]); err != nil {
			return wire.Frame{}, err
		}
	}
	f.taken.Complete()
	f.untime() // ends the deadline of a frame that was to give way and has come meanwhile
	return wire.DecodeFrame(body)
}

// Read reads bytes of a frame beyond the buffer.
func (f *frames) Read(b []byte) (int, error) {
	if f.taken.Over() { // the deadline of yield may have come before that of time
		return 0, os.ErrDeadlineExceeded
	}
	n, err := f.conn.Read(b)
	f.taken.Came(n)
	return n, err
}

// room returns memory for a frame. Small frames, which come by the thousand, share a block:
// no part of a block is used twice, and a frame that is kept for long keeps no more than
// smallBlock bytes beside itself from being freed.
func (f *frames) room(n int) []byte {
	if n > smallFrame {
		return make([]byte, n)
	}
	if n > len(f.block) {
		f.block = make([]byte, smallBlock)
	}
	room := f.block[:n:n]
	f.block = f.block[n:]
	return room
}

// done returns the budget of the latest frame.
func (f *frames) done() {
	f.taken.Give()
	f.taken = nil
}

// fill reads more bytes into the buffer, which has room after fill has made some.
func (f *frames) fill() error {
	if f.w > f.r {
		f.time() // the frame has begun
	}
	switch {
	case f.r == f.w:
		f.shrink()
	case f.w == len(f.buf) && f.r > 0:
		f.w = copy(f.buf, f.buf[f.r:f.w])
		f.r = 0
	}
	if f.w == len(f.buf) {
		f.grow()
	}
	n, err := f.conn.Read(f.buf[f.w:])
	f.w += n
	if n > 0 {
		if f.w == len(f.buf) && len(f.buf) == leastBuffer {
			f.grow() // the peer sends faster than small reads take
		}
		return nil
	}
	if err == io.EOF && f.w > f.r {
		return io.ErrUnexpectedEOF
	}
	return err
}

// buffers has buffers of mostBuffer: thousands of streams of a peer that sends now and then
// need few of them.
var buffers = sync.Pool{New: func() any { return new([mostBuffer]byte) }}

func (f *frames) grow() {
	large := buffers.Get().(*[mostBuffer]byte)[:]
	f.w = copy(large, f.buf[f.r:f.w])
	f.r, f.buf = 0, large
}

// shrink makes the buffer small. It is empty.
func (f *frames) shrink() {
	if f.small == nil {
		f.small = make([]byte, leastBuffer)
	}
	if len(f.buf) == mostBuffer {
		buffers.Put((*[mostBuffer]byte)(f.buf))
	}
	f.r, f.w, f.buf = 0, 0, f.small
}

// time begins the time of a frame, if it has not begun.
func (f *frames) time() {
	if !f.timed {
		f.timed = true
		_ = f.conn.SetReadDeadline(time.Now().Add(timing.FrameWithin))
	}
}

func (f *frames) untime() {
	if f.timed {
		f.timed = false
		_ = f.conn.SetReadDeadline(time.Time{})
	}
}
