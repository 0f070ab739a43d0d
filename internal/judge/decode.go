package judge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

var errFrame = errors.New("malformed raft message")

// firstRead is the memory taken for a frame before its bytes arrive.
const firstRead = 4 << 10

// Unasked is how many bytes of a frame are read before room is asked for the frame. It is also
// the size of the largest frame whose memory may be used again after DecodeRequest: the
// entries of a larger one stay in it.
const Unasked = 16 << 10

// ReadRequest reads the frame of a request into buf, which grows with the bytes that
// arrive up to Unasked, and returns the frame without its length. The error is io.EOF at the end of
// the stream between two frames.
//
// Room is called for a frame of n bytes, more than Unasked, before the rest of it is read.
// An error of room ends the reading.
func ReadRequest(r io.Reader, buf []byte, room func(n int) error) ([]byte, error) {
	return readFrame(r, buf, MaxFrame, room)
}

// ReadAnswer is ReadRequest for the frame of an answer, which is small.
func ReadAnswer(r io.Reader, buf []byte) ([]byte, error) { return readFrame(r, buf, maxAnswer, nil) }

func readFrame(r io.Reader, buf []byte, limit uint32, room func(n int) error) ([]byte, error) {
	if cap(buf) < firstRead {
		buf = make([]byte, 0, firstRead)
	}
	head := buf[:4]
	if _, err := io.ReadFull(r, head); err != nil {
		return buf[:0], err
	}
	n := binary.BigEndian.Uint32(head)
	if n == 0 || n > limit {
		return buf[:0], fmt.Errorf("%w: %d bytes, want 1 to %d", errFrame, n, limit)
	}
	buf = buf[:0]
	for end := min(int(n), Unasked); ; end = int(n) {
		for len(buf) < end {
			if len(buf) == cap(buf) { // at most twice the bytes that have arrived
				buf = append(make([]byte, 0, min(2*cap(buf), end)), buf...)
			}
			start := len(buf)
			buf = buf[:min(cap(buf), end)]
			if _, err := io.ReadFull(r, buf[start:]); err != nil {
				return buf[:0], noEnd(err)
			}
		}
		if end == int(n) {
			return buf, nil
		}
		if err := room(int(n)); err != nil {
			return buf[:0], err
		}
		buf = slices.Grow(buf, int(n)-len(buf))
	}
}

// noEnd turns io.EOF in the middle of a frame into another error.
func noEnd(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// open checks the checksum and the version of a frame without its length, and returns
// the kind and a decoder of the fields.
func open(frame []byte) (decoder, kind, error) {
	if len(frame) < 6 || binary.BigEndian.Uint32(frame) != crc32.Checksum(frame[4:], castagnoli) {
		return decoder{}, 0, fmt.Errorf("%w: damaged", errFrame)
	}
	if frame[4] != version {
		return decoder{}, 0, fmt.Errorf("%w: version %d, want %d", errFrame, frame[4], version)
	}
	return decoder{b: frame[6:]}, kind(frame[5]), nil
}

// DecodeRequest decodes a frame without its length into one of raft's five requests.
// The request shares no memory with a frame of up to Unasked bytes. The entries of a larger
// one are part of the frame.
func DecodeRequest(frame []byte) (request any, err error) {
	d, k, err := open(frame)
	if err != nil {
		return nil, err
	}
	d.shares = len(frame) > Unasked
	h := d.header()
	switch k {
	case appendEntries:
		m := &raft.AppendEntriesRequest{RPCHeader: h}
		d.entries(m)
		request = m
	case requestVote:
		m := &raft.RequestVoteRequest{RPCHeader: h}
		d.numbers(&m.Term, &m.LastLogIndex, &m.LastLogTerm)
		m.LeadershipTransfer = d.flag()
		request = m
	case requestPreVote:
		m := &raft.RequestPreVoteRequest{RPCHeader: h}
		d.numbers(&m.Term, &m.LastLogIndex, &m.LastLogTerm)
		request = m
	case installSnapshot:
		m := &raft.InstallSnapshotRequest{RPCHeader: h, Leader: h.ID, SnapshotVersion: raft.SnapshotVersionMax}
		var size uint64
		d.numbers(&m.Term, &m.LastLogIndex, &m.LastLogTerm, &m.ConfigurationIndex, &size)
		if size > MaxSnapshot {
			d.fail()
		}
		m.Size = int64(size)
		m.Configuration = d.bytes(maxConfig)
		request = m
	case timeoutNow:
		request = &raft.TimeoutNowRequest{RPCHeader: h}
	default:
		return nil, fmt.Errorf("%w: kind %d", errFrame, k)
	}
	if err := d.finish(); err != nil {
		return nil, err
	}
	return request, nil
}

// RefusedError is the answer of a voter that refused a request.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return "refused by the voter: " + e.Reason }

// DecodeAnswer decodes a frame without its length into answer, a pointer to one of
// raft's five answers, and sets each field that travels. A refusal is returned as a
// *RefusedError.
func DecodeAnswer(frame []byte, answer any) error {
	d, k, err := open(frame)
	if err != nil {
		return err
	}
	if k == answers {
		reason := d.bytes(maxReason)
		if err := d.finish(); err != nil {
			return err
		}
		return &RefusedError{string(reason)}
	}
	var want kind
	switch m := answer.(type) {
	case *raft.AppendEntriesResponse:
		want = appendEntries
		d.numbers(&m.Term, &m.LastLog)
		m.Success, m.NoRetryBackoff = d.flag(), d.flag()
	case *raft.RequestVoteResponse:
		want = requestVote
		d.numbers(&m.Term)
		m.Granted = d.flag()
	case *raft.RequestPreVoteResponse:
		want = requestPreVote
		d.numbers(&m.Term)
		m.Granted = d.flag()
	case *raft.InstallSnapshotResponse:
		want = installSnapshot
		d.numbers(&m.Term)
		m.Success = d.flag()
	case *raft.TimeoutNowResponse:
		want = timeoutNow
	}
	if k != answers+want {
		d.fail()
	}
	return d.finish()
}

// decoder takes fields off the front of a frame. After a failure all fields are zero.
type decoder struct {
	b      []byte
	shares bool // the entries may be part of b
	err    error
}

func (d *decoder) fail() {
	d.err, d.b = errFrame, nil
}

func (d *decoder) finish() error {
	if len(d.b) > 0 {
		d.fail()
	}
	return d.err
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) flag() bool {
	v := d.byte()
	if v > 1 {
		d.fail()
	}
	return v == 1
}

// numbers takes numbers of at most MaxNumber, each in its shortest form.
func (d *decoder) numbers(to ...*uint64) {
	for _, p := range to {
		*p = d.number()
	}
}

func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 || v > MaxNumber {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// view takes a length of at most limit and so many bytes of the frame.
func (d *decoder) view(limit int) []byte {
	n := d.number()
	if n > uint64(limit) || n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

// bytes is view with a copy.
func (d *decoder) bytes(limit int) []byte { return append([]byte(nil), d.view(limit)...) }

func (d *decoder) header() raft.RPCHeader {
	id := d.bytes(maxID)
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: id, Addr: id}
}

func (d *decoder) entries(m *raft.AppendEntriesRequest) {
	var n uint64
	d.numbers(&m.Term, &m.PrevLogEntry, &m.PrevLogTerm, &m.LeaderCommitIndex, &n)
	if n > MaxEntries || n > uint64(len(d.b)) {
		d.fail()
	}
	if n == 0 || d.err != nil {
		return
	}
	// One block for the data of all entries. The frame is longer than the data, so
	// the block never grows: the entries share it.
	logs := make([]raft.Log, n)
	var block []byte
	if !d.shares {
		block = make([]byte, 0, len(d.b))
	}
	m.Entries = make([]*raft.Log, n)
	for i := range logs {
		l := &logs[i]
		m.Entries[i] = l
		l.Index, l.Type = m.PrevLogEntry+1+uint64(i), raft.LogType(d.byte())
		l.Term = d.number()
		if at := d.time(); at != math.MinInt64 {
			l.AppendedAt = time.Unix(0, at)
		}
		if l.Data = d.view(MaxEntry); d.shares {
			continue
		}
		start := len(block)
		block = append(block, l.Data...)
		l.Data = block[start:len(block):len(block)]
	}
}

func (d *decoder) time() int64 {
	if len(d.b) < 8 {
		d.fail()
		return 0
	}
	v := int64(binary.BigEndian.Uint64(d.b))
	d.b = d.b[8:]
	return v
}
