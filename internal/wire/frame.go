package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MaxFrame is the largest length of a frame in bytes, without the length prefix.
// The length is checked before memory is allocated.
const MaxFrame = 1 << 20

// Frame is one message on a stream.
type Frame struct {
	Type Type
	ID   uint64 // equal in a request and its answer; 0 in a notice
	Code Code   // CodeRequest in a request or notice, another Code in an answer
	Body []byte

	// Mere says that the answer came from a process without the voter role. Mere is
	// no part of the encoding: the asking side sets it, by the answerer's handshake.
	Mere bool
}

// Type names the message in a frame's body. Types travel on the wire: never
// renumber.
type Type uint8

// Types on KindMember streams. The comments give the body of the request and the
// body of the answer; "empty" is a body of no bytes. The member sends requests and
// notices to the leader, except Event and Bound.
const (
	Attach    Type = 1  // AttachRequest → AttachAnswer: before all others, Find excepted
	Propose   Type = 2  // machine command → machine outcome
	Beat      Type = 3  // session ID → Summary
	Read      Type = 4  // replica.Query → replica.Answer
	Ready     Type = 5  // empty → empty, as soon as the cluster grants
	Detach    Type = 6  // notice: session ID
	Cancel    Type = 7  // notice: the ID of a request with no caller waiting: a Propose that may be taken back, a Read, Scan or Sessions
	Depart    Type = 8  // DepartRequest → empty, after the voter is replaced
	Scan      Type = 9  // replica.Scan → replica.Scanned
	Find      Type = 10 // FindRequest → Hint, as soon as there is news; before Attach too
	Values    Type = 11 // replica.ValuesQuery → replica.ValuesPage
	Sessions  Type = 12 // replica.SessionsQuery → replica.SessionsPage
	Event     Type = 16 // notice from leader to member: machine event
	Bound     Type = 17 // notice from leader to member: AttachAnswer with a new TTL bound
	Voters    Type = 18 // notice from leader to member: VoterSet
	Summarize Type = 20 // empty → Summary
	Describe  Type = 19 // notice: the member's own description, member.Metadata; after Attach and after each change
)

// Types on KindControl streams. Any member sends requests to any member.
const (
	Confirm  Type = 32 // ConfirmRequest → empty: CodeOK means yes
	Prepare  Type = 33 // PrepareRequest → PrepareAnswer
	Accept   Type = 34 // AcceptRequest → empty, or AcceptAnswer with a refusal
	Chosen   Type = 35 // Founding → empty
	Who      Type = 36 // empty → WhoAnswer
	Invite   Type = 37 // InviteRequest → InviteAnswer
	Progress Type = 38 // empty → ProgressAnswer
	Removed  Type = 39 // RemovedNotice → empty
	InConfig Type = 40 // InConfigRequest → empty: CodeOK means yes, CodeNo means no
	Goodbye  Type = 41 // GoodbyeNotice → empty: CodeNo if the preamble named another process
	Vouch    Type = 42 // VouchRequest → VouchAnswer from the confirmed leader; CodeNotLeader with a Hint from others
	Retire   Type = 43 // RetireRequest → RetireAnswer
	Stand    Type = 44 // StandRequest → StandAnswer: CodeOK means yes, CodeNo means no
	Lineage  Type = 45 // LineageRequest → LineageAnswer: between two clusters of one name
	Follows  Type = 46 // FollowsRequest → FollowsAnswer; CodeNo from another raft ID
	Attest   Type = 47 // AttestRequest → empty: CodeOK means yes, CodeNo means no
)

// Asks reports whether a frame of type t is a request, which has an ID and must be
// answered. For types unknown to this version Asks returns false: a next version
// may send new notices, and members of this version skip them.
func (t Type) Asks() bool {
	switch t {
	case Attach, Propose, Beat, Summarize, Read, Ready, Depart, Scan, Find, Values, Sessions,
		Confirm, Prepare, Accept, Chosen, Who, Invite, Progress, Removed, InConfig, Vouch, Retire, Lineage, Goodbye, Stand, Follows, Attest:
		return true
	}
	return false
}

// Tells reports whether a frame of type t is a notice to the leader, which has no ID and no
// answer.
func (t Type) Tells() bool { return t == Cancel || t == Detach || t == Describe }

// Waits reports whether a request of type t may stay without an answer for as long as its
// sender likes: for a change, or for news of a leader. All others end by themselves, most of
// them with a round or with an entry of the log. A Depart waits too, one for each voter.
func (t Type) Waits() bool {
	switch t {
	case Read, Scan, Sessions, Ready, Find:
		return true
	}
	return false
}

// Code is the verdict of an answer. Codes travel on the wire: never renumber. A
// definite refusal means that nothing was appended to the log.
type Code uint8

const (
	CodeRequest   Code = 0 // not an answer: a request or a notice
	CodeOK        Code = 1
	CodeNo        Code = 2  // the answer to the question is no
	CodeNotLeader Code = 3  // definite refusal; the body is a Hint
	CodeUnknown   Code = 4  // the command may be in the log, or may get there later
	CodeNoSession Code = 5  // the session is not open
	CodeBusy      Code = 6  // definite refusal: a queue is full, try again later
	CodeBad       Code = 7  // the request is malformed, or unknown to this version
	CodeVersion   Code = 8  // definite refusal: some voter does not know the command yet
	CodeDenied    Code = 9  // definite refusal by Security.Authorize; the body is a DeniedReason
	CodeStranger  Code = 10 // definite refusal: the session is another process's, or its key was not shown
)

var errFrame = errors.New("wire: malformed frame")

// AppendFrame appends f, with its length prefix, to dst. If the frame exceeds
// MaxFrame, AppendFrame returns an error and the unchanged dst.
func AppendFrame(dst []byte, f Frame) ([]byte, error) {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = append(dst, 0x94) // array of 4
	dst = appendUint(dst, uint64(f.Type))
	dst = appendUint(dst, f.ID)
	dst = appendUint(dst, uint64(f.Code))
	dst = binary.BigEndian.AppendUint32(append(dst, 0xc6), uint32(len(f.Body)))
	dst = append(dst, f.Body...)
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

// DecodeFrame decodes a frame without its length prefix. The body shares the memory
// of b.
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

// ReadFrame reads the next frame from r. The frame owns its body.
func ReadFrame(r io.Reader) (Frame, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > MaxFrame {
		return Frame{}, fmt.Errorf("wire: frame of %d bytes, want 1 to %d", n, MaxFrame)
	}
	// The buffer grows as bytes arrive. Not allocated at once, because a peer may
	// announce a large frame and then send the bytes slowly or never.
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, r, int64(n)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return DecodeFrame(buf.Bytes())
}
