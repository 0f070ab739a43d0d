package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/vmihailenco/msgpack/v5"
)

// MaxFrame bounds a frame, its length prefix not counted. It is checked before
// anything is allocated.
const MaxFrame = 1 << 20

// Frame is one message on a stream.
type Frame struct {
	Type Type
	ID   uint64 // of a request and of its answer; 0 for a notice
	Code Code   // CodeRequest, or an answer's verdict
	Body []byte
}

// Type says what a frame's body is. Types travel on the wire: never renumber.
type Type uint8

// On KindMember streams, member to leader, except Event.
const (
	Attach  Type = 1  // AttachRequest → AttachAnswer: begins every member stream
	Propose Type = 2  // machine command → machine outcome
	Beat    Type = 3  // session ID → nothing
	Read    Type = 4  // Query → Answer
	Ready   Type = 5  // nothing → nothing, once the cluster grants
	Detach  Type = 6  // session ID; notice
	Cancel  Type = 7  // the ID of a Read or Scan that nobody waits for any more; notice
	Depart  Type = 8  // DepartRequest → nothing, once the voter is replaced
	Scan    Type = 9  // ScanQuery → Scanned
	Event   Type = 16 // leader to member: machine event; notice
	Bound   Type = 17 // leader to member: AttachAnswer, when the bound of TTLs changes; notice
)

// On KindControl streams, any member to any member.
const (
	Confirm  Type = 32 // ConfirmRequest → nothing: CodeOK is a yes
	Prepare  Type = 33 // PrepareRequest → PrepareAnswer
	Accept   Type = 34 // AcceptRequest → nothing
	Chosen   Type = 35 // Founding → nothing
	Who      Type = 36 // nothing → WhoAnswer
	Invite   Type = 37 // InviteRequest → InviteAnswer
	Progress Type = 38 // nothing → ProgressAnswer
	Removed  Type = 39 // RemovedNotice → nothing
	InConfig Type = 40 // InConfigRequest → nothing: CodeOK yes, CodeNo no
)

// Asks reports whether a frame of this type must be answered, and so has an ID.
// Of types that this version does not know it says no: a later one may send
// notices that mean nothing here.
func (t Type) Asks() bool {
	switch t {
	case Attach, Propose, Beat, Read, Ready, Depart, Scan,
		Confirm, Prepare, Accept, Chosen, Who, Invite, Progress, Removed, InConfig:
		return true
	}
	return false
}

// Code is the verdict of an answer. Codes travel on the wire: never renumber.
type Code uint8

const (
	CodeRequest   Code = 0
	CodeOK        Code = 1
	CodeNo        Code = 2 // asked and answered: no
	CodeNotLeader Code = 3 // definite: nothing was appended; body is a Hint
	CodeUnknown   Code = 4 // may have been appended, or may yet be
	CodeNoSession Code = 5 // the session is not open
	CodeBusy      Code = 6 // definite: a queue is full, try again later
	CodeBad       Code = 7 // malformed, or not known to this version
	CodeVersion   Code = 8 // definite: some voter does not read such a command yet
)

var errFrame = errors.New("wire: malformed frame")

// AppendFrame appends f, with its length prefix, to dst. It fails only if the
// frame exceeds MaxFrame, and then returns dst as it was.
func AppendFrame(dst []byte, f Frame) ([]byte, error) {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = append(dst, 0x94) // array of 4
	dst = appendUint(dst, uint64(f.Type))
	dst = appendUint(dst, f.ID)
	dst = appendUint(dst, uint64(f.Code))
	dst = appendBin(dst, f.Body)
	n := len(dst) - start - 4
	if n > MaxFrame {
		return dst[:start], fmt.Errorf("wire: frame of %d bytes exceeds %d", n, MaxFrame)
	}
	binary.BigEndian.PutUint32(dst[start:], uint32(n))
	return dst, nil
}

func appendUint(b []byte, v uint64) []byte {
	if v < 0x80 {
		return append(b, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
}

func appendBin(b, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(append(b, 0xc6), uint32(len(body))), body...)
}

// DecodeFrame decodes a frame without its length prefix. The body aliases b.
func DecodeFrame(b []byte) (Frame, error) {
	var f Frame
	if len(b) == 0 || b[0] != 0x94 {
		return f, errFrame
	}
	b = b[1:]
	var n [3]uint64
	for i := range n {
		switch {
		case len(b) >= 1 && b[0] < 0x80:
			n[i], b = uint64(b[0]), b[1:]
		case len(b) >= 9 && b[0] == 0xcf:
			n[i], b = binary.BigEndian.Uint64(b[1:]), b[9:]
		default:
			return f, errFrame
		}
	}
	if n[0] > 255 || n[2] > 255 {
		return f, errFrame
	}
	if len(b) < 5 || b[0] != 0xc6 || uint64(binary.BigEndian.Uint32(b[1:])) != uint64(len(b)-5) {
		return f, errFrame
	}
	return Frame{Type: Type(n[0]), ID: n[1], Code: Code(n[2]), Body: b[5:]}, nil
}

// ReadFrame reads one frame from r. The frame owns its body.
func ReadFrame(r io.Reader) (Frame, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > MaxFrame {
		return Frame{}, fmt.Errorf("wire: frame of %d bytes, want 1 to %d", n, MaxFrame)
	}
	// A peer that claims a large frame and then drips it must not cost its
	// claim in memory: grow as the bytes arrive.
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, r, int64(n)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return DecodeFrame(buf.Bytes())
}

// Marshal encodes a message of messages.go.
func Marshal(v any) []byte {
	var buf bytes.Buffer
	if err := msgpack.NewEncoder(&buf).Encode(v); err != nil {
		// Messages are plain structs of this package and encode into memory:
		// an error is a type that msgpack cannot encode, found by any test.
		panic(err)
	}
	return buf.Bytes()
}

// Unmarshal decodes a message of messages.go from untrusted bytes. It takes
// memory in proportion to len(b), whatever b claims.
func Unmarshal(b []byte, v any) error {
	if err := validate(b); err != nil {
		return fmt.Errorf("wire: %T: %w", v, err)
	}
	if err := msgpack.NewDecoder(bytes.NewReader(b)).Decode(v); err != nil {
		return fmt.Errorf("wire: %T: %w", v, err)
	}
	return nil
}
