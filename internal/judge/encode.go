package judge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/hashicorp/raft"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errForeign = errors.New("judge: raft has made a message that has no encoding")

// AppendRequest appends the frame of a request, a pointer to one of raft's five
// requests, to dst. After an error dst is unchanged: raft has made a message with a
// field that no receiver would take.
func AppendRequest(dst []byte, request any) ([]byte, error) {
	e := encoder{b: append(dst, 0, 0, 0, 0, 0, 0, 0, 0, version)}
	switch m := request.(type) {
	case *raft.AppendEntriesRequest:
		e.header(appendEntries, &m.RPCHeader)
		e.entries(m)
	case *raft.RequestVoteRequest:
		e.header(requestVote, &m.RPCHeader)
		e.numbers(m.Term, m.LastLogIndex, m.LastLogTerm)
		e.flag(m.LeadershipTransfer)
	case *raft.RequestPreVoteRequest:
		e.header(requestPreVote, &m.RPCHeader)
		e.numbers(m.Term, m.LastLogIndex, m.LastLogTerm)
	case *raft.InstallSnapshotRequest:
		e.header(installSnapshot, &m.RPCHeader)
		if m.SnapshotVersion != raft.SnapshotVersionMax || m.Size < 0 {
			e.err = errForeign
		}
		e.numbers(m.Term, m.LastLogIndex, m.LastLogTerm, m.ConfigurationIndex, uint64(m.Size))
		e.bytes(m.Configuration)
	case *raft.TimeoutNowRequest:
		e.header(timeoutNow, &m.RPCHeader)
	default:
		e.err = errForeign
	}
	return e.frame(dst, MaxFrame)
}

// AppendAnswer appends the frame of an answer to dst: a pointer to one of raft's
// five answers, or a refusal with the reason. An answer that has no encoding becomes
// a refusal.
func AppendAnswer(dst []byte, answer any, refusal error) []byte {
	e := encoder{b: append(dst, 0, 0, 0, 0, 0, 0, 0, 0, version)}
	if refusal == nil {
		e.answer(answer)
		if b, err := e.frame(dst, maxAnswer); err == nil {
			return b
		}
		refusal = errForeign
	}
	e = encoder{b: append(dst, 0, 0, 0, 0, 0, 0, 0, 0, version, byte(answers))}
	text := refusal.Error()
	e.bytes([]byte(text[:min(len(text), maxReason)]))
	b, _ := e.frame(dst, maxAnswer)
	return b
}

func (e *encoder) answer(answer any) {
	switch m := answer.(type) {
	case *raft.AppendEntriesResponse:
		e.b = append(e.b, byte(answers+appendEntries))
		e.numbers(m.Term, m.LastLog)
		e.flag(m.Success)
		e.flag(m.NoRetryBackoff)
	case *raft.RequestVoteResponse:
		e.b = append(e.b, byte(answers+requestVote))
		e.numbers(m.Term)
		e.flag(m.Granted)
	case *raft.RequestPreVoteResponse:
		e.b = append(e.b, byte(answers+requestPreVote))
		e.numbers(m.Term)
		e.flag(m.Granted)
	case *raft.InstallSnapshotResponse:
		e.b = append(e.b, byte(answers+installSnapshot))
		e.numbers(m.Term)
		e.flag(m.Success)
	case *raft.TimeoutNowResponse:
		e.b = append(e.b, byte(answers+timeoutNow))
	default:
		e.err = errForeign
	}
}

// encoder appends fields to a frame.
type encoder struct {
	b   []byte
	err error
}

// header appends the kind and the sender. Address and ID are equal in wardmote, so
// only the ID travels.
func (e *encoder) header(k kind, h *raft.RPCHeader) {
	if h.ProtocolVersion != raft.ProtocolVersionMax || len(h.ID) == 0 || len(h.ID) > maxID || string(h.Addr) != string(h.ID) {
		e.err = errForeign
	}
	e.b = append(e.b, byte(k))
	e.bytes(h.ID)
}

func (e *encoder) entries(m *raft.AppendEntriesRequest) {
	e.numbers(m.Term, m.PrevLogEntry, m.PrevLogTerm, m.LeaderCommitIndex, uint64(len(m.Entries)))
	if len(m.Entries) > MaxEntries {
		e.err = errForeign
	}
	for i, l := range m.Entries {
		if l.Index != m.PrevLogEntry+1+uint64(i) || len(l.Extensions) > 0 || len(l.Data) > MaxEntry {
			e.err = fmt.Errorf("%w: entry %d of %d bytes", errForeign, l.Index, len(l.Data))
			return
		}
		e.b = append(e.b, byte(l.Type))
		e.numbers(l.Term)
		at := int64(math.MinInt64) // no time
		if !l.AppendedAt.IsZero() {
			at = l.AppendedAt.UnixNano()
		}
		e.b = binary.BigEndian.AppendUint64(e.b, uint64(at))
		e.bytes(l.Data)
	}
}

func (e *encoder) numbers(n ...uint64) {
	for _, v := range n {
		e.b = binary.AppendUvarint(e.b, v)
	}
}

func (e *encoder) flag(v bool) {
	b := byte(0)
	if v {
		b = 1
	}
	e.b = append(e.b, b)
}

func (e *encoder) bytes(b []byte) {
	e.numbers(uint64(len(b)))
	e.b = append(e.b, b...)
}

// frame writes the length and the checksum in front of the fields. The frame begins
// behind dst.
func (e *encoder) frame(dst []byte, limit int) ([]byte, error) {
	n := len(e.b) - len(dst) - 4
	if e.err == nil && n > limit {
		e.err = fmt.Errorf("judge: frame of %d bytes exceeds %d", n, limit)
	}
	if e.err != nil {
		return dst, e.err
	}
	binary.BigEndian.PutUint32(e.b[len(dst):], uint32(n))
	binary.BigEndian.PutUint32(e.b[len(dst)+4:], crc32.Checksum(e.b[len(dst)+8:], castagnoli))
	return e.b, nil
}
