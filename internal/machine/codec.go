package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// The bytes of commands, entries, outcomes and events. Integers are unsigned
// varints in their shortest form, strings and bytes have their length before
// them, so every value has one encoding. Nothing is allocated on the word of a
// length: what is claimed must be there.
//
// Not msgpack or JSON: these bytes are made and read once per command on every
// voter, and must be the same for ever, which is easier to see of bytes that
// are written out. testdata/golden keeps them.

// EntryVersion is the version of log entries that EncodeEntry writes.
const EntryVersion = 1

// Kinds of commands in the log: never renumber.
const (
	kindFound       = 1
	kindLeaderStart = 2
	kindLift        = 3
	kindBound       = 4
	kindOpen        = 5
	kindAcquire     = 6
	kindWithdraw    = 7
	kindRelease     = 8
	kindSilence     = 9
	kindHear        = 10
	kindExpire      = 11
	kindClose       = 12
)

// Unknown stands for a command in a log entry that could not be decoded. It
// applies to BadCommand, so that the commands beside it keep their places. A
// voter of a later version may know what it is: whoever proposes a new kind
// sees to it first that every voter reads it.
type Unknown struct{ Raw string }

func (Unknown) command() {}

var (
	errShort    = errors.New("machine: encoding ends early")
	errTrailing = errors.New("machine: bytes left over after encoding")
	errVarint   = errors.New("machine: integer not in its shortest form")
	errFlag     = errors.New("machine: flag is neither 0 nor 1")
	errLimit    = errors.New("machine: count over its limit")
)

// EncodeEntry encodes one log entry of at most MaxCommands commands; DecodeEntry
// refuses more. Each command stands in a frame of its own.
func EncodeEntry(cmds []Command) []byte {
	b := make([]byte, 0, 16+96*len(cmds))
	b = append(b, EntryVersion)
	b = binary.AppendUvarint(b, uint64(len(cmds)))
	var frame []byte
	for _, c := range cmds {
		frame = AppendCommand(frame[:0], c)
		b = binary.AppendUvarint(b, uint64(len(frame)))
		b = append(b, frame...)
	}
	return b
}

// DecodeEntry decodes what EncodeEntry made. The number of commands is that of
// the frames: one that cannot be decoded becomes an Unknown. With an error, which
// means a foreign version or broken frames, there are no commands.
func DecodeEntry(b []byte) ([]Command, error) {
	if len(b) == 0 {
		return nil, errShort
	}
	if b[0] != EntryVersion {
		return nil, fmt.Errorf("machine: entry version %d, want %d", b[0], EntryVersion)
	}
	r := reader{b: b[1:]}
	n := r.count(MaxCommands)
	if r.err != nil {
		return nil, r.err
	}
	cmds := make([]Command, 0, n)
	for range n {
		frame := r.bytes()
		if r.err != nil {
			return nil, r.err
		}
		c, rest, err := DecodeCommand(frame)
		if err != nil || len(rest) > 0 {
			c = Unknown{Raw: string(frame)}
		}
		cmds = append(cmds, c)
	}
	return cmds, r.end()
}

// AppendCommand appends the encoding of c to dst. A nil command, or one that is
// not of this package's types, is encoded as nothing, which decodes as Unknown
// in an entry.
func AppendCommand(dst []byte, c Command) []byte {
	b := dst
	switch c := c.(type) {
	case Found:
		b = append(b, kindFound)
		b = append(b, c.Cluster[:]...)
		b = binary.AppendUvarint(b, uint64(c.Floor))
		b = binary.AppendUvarint(b, c.TTL)
	case LeaderStart:
		b = append(b, kindLeaderStart)
		b = binary.AppendUvarint(b, c.Term)
	case Lift:
		b = append(b, kindLift)
		b = binary.AppendUvarint(b, c.Term)
	case Bound:
		b = append(b, kindBound)
		b = binary.AppendUvarint(b, c.Term)
		b = binary.AppendUvarint(b, c.TTL)
	case Open:
		b = append(b, kindOpen)
		b = append(b, c.Session[:]...)
		b = appendBytes(b, c.Client)
		b = appendBytes(b, c.Node)
		b = binary.AppendUvarint(b, c.TTL)
		b = appendBytes(b, c.Meta)
	case Acquire:
		b = append(b, kindAcquire)
		b = append(b, c.Session[:]...)
		b = binary.AppendUvarint(b, c.Seq)
		b = appendBytes(b, c.Key)
		b = append(b, byte(c.Mode))
		b = appendFlag(b, c.Try)
		b = binary.AppendUvarint(b, uint64(c.MaxWaiters))
		b = appendBytes(b, c.Meta)
		b = appendSeqs(b, c.Seen)
	case Withdraw:
		b = append(b, kindWithdraw)
		b = append(b, c.Session[:]...)
		b = binary.AppendUvarint(b, c.Seq)
		b = appendSeqs(b, c.Seen)
	case Release:
		b = append(b, kindRelease)
		b = append(b, c.Session[:]...)
		b = binary.AppendUvarint(b, uint64(c.Token))
		b = appendSeqs(b, c.Seen)
	case Silence:
		b = appendVerdict(b, kindSilence, c.Session, c.Term)
	case Hear:
		b = appendVerdict(b, kindHear, c.Session, c.Term)
	case Expire:
		b = appendVerdict(b, kindExpire, c.Session, c.Term)
	case Close:
		b = append(b, kindClose)
		b = append(b, c.Session[:]...)
	case Unknown:
		b = append(b, c.Raw...)
	}
	return b
}

// DecodeCommand decodes one command and returns the bytes after it. It checks
// the shape of the bytes and the number of Seen; all other limits are for Apply
// to refuse, so that they are refused by outcome.
func DecodeCommand(b []byte) (Command, []byte, error) {
	r := reader{b: b}
	var c Command
	switch kind := r.byte(); kind {
	case kindFound:
		c = Found{Cluster: ClusterID(r.id()), Floor: Token(r.uvarint()), TTL: r.uvarint()}
	case kindLeaderStart:
		c = LeaderStart{Term: r.uvarint()}
	case kindLift:
		c = Lift{Term: r.uvarint()}
	case kindBound:
		c = Bound{Term: r.uvarint(), TTL: r.uvarint()}
	case kindOpen:
		c = Open{Session: r.id(), Client: r.string(), Node: r.string(), TTL: r.uvarint(), Meta: r.copy()}
	case kindAcquire:
		c = Acquire{
			Session:    r.id(),
			Seq:        r.uvarint(),
			Key:        r.string(),
			Mode:       Mode(r.byte()),
			Try:        r.flag(),
			MaxWaiters: r.uint32(),
			Meta:       r.copy(),
			Seen:       r.seqs(),
		}
	case kindWithdraw:
		c = Withdraw{Session: r.id(), Seq: r.uvarint(), Seen: r.seqs()}
	case kindRelease:
		c = Release{Session: r.id(), Token: Token(r.uvarint()), Seen: r.seqs()}
	case kindSilence:
		c = Silence{Session: r.id(), Term: r.uvarint()}
	case kindHear:
		c = Hear{Session: r.id(), Term: r.uvarint()}
	case kindExpire:
		c = Expire{Session: r.id(), Term: r.uvarint()}
	case kindClose:
		c = Close{Session: r.id()}
	default:
		r.fail(fmt.Errorf("machine: unknown command kind %d", kind))
	}
	if r.err != nil {
		return nil, nil, r.err
	}
	return c, r.b, nil
}

// AppendOutcome appends the encoding of o to dst.
func AppendOutcome(dst []byte, o Outcome) []byte {
	b := append(dst, byte(o.Code))
	b = binary.AppendUvarint(b, uint64(o.Token))
	b = binary.AppendUvarint(b, uint64(o.Behind))
	b = appendFlag(b, o.Holder != Holder{})
	if o.Holder != (Holder{}) {
		b = append(b, o.Holder.Session[:]...)
		b = appendBytes(b, o.Holder.Client)
		b = appendBytes(b, o.Holder.Node)
		b = binary.AppendUvarint(b, uint64(o.Holder.Token))
	}
	b = appendBytes(b, o.Field)
	return binary.AppendUvarint(b, o.Limit)
}

// DecodeOutcome decodes one outcome and returns the bytes after it.
func DecodeOutcome(b []byte) (Outcome, []byte, error) {
	r := reader{b: b}
	o := r.outcome()
	if r.err != nil {
		return Outcome{}, nil, r.err
	}
	return o, r.b, nil
}

func (r *reader) outcome() (o Outcome) {
	o.Code = Code(r.byte())
	o.Token = Token(r.uvarint())
	o.Behind = r.uint32()
	if r.flag() {
		o.Holder = Holder{Session: r.id(), Client: r.string(), Node: r.string(), Token: Token(r.uvarint())}
		if o.Holder == (Holder{}) {
			r.fail(errFlag)
		}
	}
	o.Field = r.string()
	o.Limit = r.uvarint()
	return o
}

// AppendEvent appends the encoding of e to dst.
func AppendEvent(dst []byte, e Event) []byte {
	b := append(dst, byte(e.Kind))
	b = append(b, e.Session[:]...)
	b = binary.AppendUvarint(b, e.Seq)
	b = appendBytes(b, e.Key)
	b = binary.AppendUvarint(b, uint64(e.Token))
	return append(b, byte(e.Reason))
}

// DecodeEvent decodes one event and returns the bytes after it.
func DecodeEvent(b []byte) (Event, []byte, error) {
	r := reader{b: b}
	e := Event{
		Kind:    EventKind(r.byte()),
		Session: r.id(),
		Seq:     r.uvarint(),
		Key:     r.string(),
		Token:   Token(r.uvarint()),
		Reason:  Reason(r.byte()),
	}
	if r.err != nil {
		return Event{}, nil, r.err
	}
	return e, r.b, nil
}

func appendVerdict(b []byte, kind byte, id SessionID, term uint64) []byte {
	b = append(b, kind)
	b = append(b, id[:]...)
	return binary.AppendUvarint(b, term)
}

func appendBytes[T string | []byte](b []byte, v T) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

func appendFlag(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendSeqs(b []byte, seqs []uint64) []byte {
	b = binary.AppendUvarint(b, uint64(len(seqs)))
	for _, seq := range seqs {
		b = binary.AppendUvarint(b, seq)
	}
	return b
}

// reader takes values off the front of b. After the first error it returns
// zeroes, and keeps that error.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

// end reports the first error, or that something is left.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		return errTrailing
	}
	return r.err
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.fail(errShort)
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) byte() byte {
	if v := r.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (r *reader) flag() bool {
	v := r.byte()
	if v > 1 {
		r.fail(errFlag)
	}
	return v == 1
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	switch {
	case n == 0:
		r.fail(errShort)
		return 0
	case n < 0 || n > 1 && r.b[n-1] == 0:
		r.fail(errVarint)
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) uint32() uint32 {
	v := r.uvarint()
	if v > 1<<32-1 {
		r.fail(errLimit)
		return 0
	}
	return uint32(v)
}

// count reads the number of elements that follow, of a byte at least each.
func (r *reader) count(limit int) int {
	v := r.uvarint()
	if v > uint64(limit) {
		r.fail(errLimit)
		return 0
	}
	if v > uint64(len(r.b)) {
		r.fail(errShort)
		return 0
	}
	return int(v)
}

// bytes returns a part of the input, not a copy.
func (r *reader) bytes() []byte { return r.take(r.count(len(r.b))) }

func (r *reader) string() string { return string(r.bytes()) }

// copy returns nil for no bytes.
func (r *reader) copy() []byte {
	v := r.bytes()
	if len(v) == 0 {
		return nil
	}
	return slices.Clone(v)
}

func (r *reader) id() (id [16]byte) {
	copy(id[:], r.take(len(id)))
	return id
}

func (r *reader) seqs() []uint64 {
	n := r.count(MaxSeen)
	if n == 0 {
		return nil
	}
	seqs := make([]uint64, n)
	for i := range seqs {
		seqs[i] = r.uvarint()
	}
	return seqs
}
