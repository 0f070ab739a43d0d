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

// EntryVersion is the version of log entries that EncodeEntry writes. It is that
// of the frames: a new kind of command is a new frame, and the version stays.
const EntryVersion = 1

// MaxFormat is the format version that this package reads, with all before it.
const MaxFormat = 2

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

	// Since format 2.
	kindAcquire2  = 13 // what kindAcquire has no place for
	kindUpgrade   = 14
	kindDowngrade = 15
	kindSetValue  = 16
	kindRelease2  = 17 // with To
	kindAsk       = 18
	kindBreak     = 19
	kindEndDelay  = 20
	kindRaise     = 21
)

// Flags of kindAcquire2.
const (
	acquireTry = 1 << iota
	acquireTree
	acquireConditional
	acquireFlags = 1<<iota - 1 // all there are
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
	errFlags    = errors.New("machine: flag that nobody knows")
	errForm     = errors.New("machine: not the form in which this value is encoded")
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
		if !c.inFormat1() {
			b = appendAcquire2(b, &c)
			break
		}
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
		if c.To == "" {
			b = append(b, kindRelease)
		} else {
			b = append(b, kindRelease2)
		}
		b = append(b, c.Session[:]...)
		b = binary.AppendUvarint(b, uint64(c.Token))
		if c.To != "" {
			b = appendBytes(b, c.To)
		}
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
	case Upgrade:
		b = append(b, kindUpgrade)
		b = append(b, c.Session[:]...)
		b = binary.AppendUvarint(b, c.Seq)
		b = binary.AppendUvarint(b, uint64(c.Token))
		b = appendTokens(b, c.Under)
		b = appendSeqs(b, c.Seen)
	case Downgrade:
		b = append(b, kindDowngrade)
		b = append(b, c.Session[:]...)
		b = binary.AppendUvarint(b, uint64(c.Token))
		b = appendSeqs(b, c.Seen)
	case SetValue:
		b = append(b, kindSetValue)
		b = append(b, c.Session[:]...)
		b = binary.AppendUvarint(b, uint64(c.Token))
		b = binary.AppendUvarint(b, c.Rev)
		b = appendBytes(b, c.Value)
		b = appendFlag(b, c.Fade)
		b = appendSeqs(b, c.Seen)
	case Ask:
		b = append(b, kindAsk)
		b = append(b, c.Session[:]...)
		b = appendBytes(b, c.Key)
	case Break:
		b = append(b, kindBreak)
		b = append(b, c.Session[:]...)
		b = appendBytes(b, c.Key)
		b = binary.AppendUvarint(b, uint64(c.Token))
	case Raise:
		b = append(b, kindRaise)
		b = binary.AppendUvarint(b, c.Term)
		b = binary.AppendUvarint(b, c.Format)
	case EndDelay:
		b = append(b, kindEndDelay)
		b = binary.AppendUvarint(b, uint64(c.Token))
		b = binary.AppendUvarint(b, c.Term)
	case Unknown:
		b = append(b, c.Raw...)
	}
	return b
}

// Format returns the least format version whose voters read c: 1 if it is
// encoded as they did at first, and 2 otherwise. Who proposes c sees to it that
// no voter is of an earlier one: to that voter c would be Unknown, and its table
// would part from the others'.
func Format(c Command) int {
	switch c := c.(type) {
	case Found, LeaderStart, Lift, Bound, Open, Withdraw, Silence, Hear, Expire, Close:
		return 1
	case Acquire:
		if c.inFormat1() {
			return 1
		}
	case Release:
		if c.To == "" {
			return 1
		}
	}
	return 2
}

// inFormat1 reports whether kindAcquire says all of c. It has a place for the
// mode, but nobody read another than Exclusive there: who did not know Shared and
// Permit refused them, so they are never written there, and read as Unknown. A
// mode that is none, refused then and now, keeps its place.
func (c *Acquire) inFormat1() bool {
	return len(c.Keys) == 0 &&
		c.Mode != Shared && c.Mode != Permit && c.Of == 0 &&
		!c.Tree && c.Priority == 0 && c.Delay == 0 &&
		!c.Conditional && c.IfToken == 0 &&
		len(c.Under) == 0
}

func appendAcquire2(b []byte, c *Acquire) []byte {
	b = append(b, kindAcquire2)
	b = append(b, c.Session[:]...)
	b = binary.AppendUvarint(b, c.Seq)
	b = appendBytes(b, c.Key)
	b = appendStrings(b, c.Keys)
	var flags byte
	if c.Try {
		flags |= acquireTry
	}
	if c.Tree {
		flags |= acquireTree
	}
	if c.Conditional {
		flags |= acquireConditional
	}
	b = append(b, byte(c.Mode), flags, byte(c.Priority))
	b = binary.AppendUvarint(b, uint64(c.Of))
	b = binary.AppendUvarint(b, uint64(c.MaxWaiters))
	b = binary.AppendUvarint(b, c.Delay)
	b = binary.AppendUvarint(b, uint64(c.IfToken))
	b = appendTokens(b, c.Under)
	b = appendBytes(b, c.Meta)
	return appendSeqs(b, c.Seen)
}

func (r *reader) acquire2() (c Acquire) {
	c.Session = r.id()
	c.Seq = r.uvarint()
	c.Key = r.string()
	c.Keys = r.strings(MaxKeys)
	c.Mode = Mode(r.byte())
	flags := r.flags(acquireFlags)
	c.Try = flags&acquireTry != 0
	c.Tree = flags&acquireTree != 0
	c.Conditional = flags&acquireConditional != 0
	c.Priority = int8(r.byte())
	c.Of = r.uint32()
	c.MaxWaiters = r.uint32()
	c.Delay = r.uvarint()
	c.IfToken = Token(r.uvarint())
	c.Under = r.tokens(MaxUnder)
	c.Meta = r.copy()
	c.Seen = r.seqs()
	if c.inFormat1() {
		r.fail(errForm)
	}
	return c
}

// DecodeCommand decodes one command and returns the bytes after it. It checks
// the shape of the bytes and the numbers of Keys, Under and Seen; all other
// limits are for Apply to refuse, so that they are refused by outcome.
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
		a := Acquire{
			Session:    r.id(),
			Seq:        r.uvarint(),
			Key:        r.string(),
			Mode:       Mode(r.byte()),
			Try:        r.flag(),
			MaxWaiters: r.uint32(),
			Meta:       r.copy(),
			Seen:       r.seqs(),
		}
		if !a.inFormat1() {
			r.fail(errForm)
		}
		c = a
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
	case kindAcquire2:
		c = r.acquire2()
	case kindUpgrade:
		c = Upgrade{Session: r.id(), Seq: r.uvarint(), Token: Token(r.uvarint()), Under: r.tokens(MaxUnder), Seen: r.seqs()}
	case kindDowngrade:
		c = Downgrade{Session: r.id(), Token: Token(r.uvarint()), Seen: r.seqs()}
	case kindSetValue:
		c = SetValue{Session: r.id(), Token: Token(r.uvarint()), Rev: r.uvarint(), Value: r.copy(), Fade: r.flag(), Seen: r.seqs()}
	case kindRelease2:
		a := Release{Session: r.id(), Token: Token(r.uvarint()), To: r.string(), Seen: r.seqs()}
		if a.To == "" {
			r.fail(errForm)
		}
		c = a
	case kindAsk:
		c = Ask{Session: r.id(), Key: r.string()}
	case kindBreak:
		c = Break{Session: r.id(), Key: r.string(), Token: Token(r.uvarint())}
	case kindEndDelay:
		c = EndDelay{Token: Token(r.uvarint()), Term: r.uvarint()}
	case kindRaise:
		c = Raise{Term: r.uvarint(), Format: r.uvarint()}
	default:
		r.fail(fmt.Errorf("machine: unknown command kind %d", kind))
	}
	if r.err != nil {
		return nil, nil, r.err
	}
	return c, r.b, nil
}

// AppendOutcome appends the encoding of o to dst. What few outcomes have stands
// at the end, after a flag that says whether there is any of it.
func AppendOutcome(dst []byte, o Outcome) []byte {
	b := append(dst, byte(o.Code))
	b = binary.AppendUvarint(b, uint64(o.Token))
	b = binary.AppendUvarint(b, uint64(o.Behind))
	holder := o.Holder
	holder.Key = "" // stands at the end
	b = appendFlag(b, holder != Holder{})
	if holder != (Holder{}) {
		b = append(b, o.Holder.Session[:]...)
		b = appendBytes(b, o.Holder.Client)
		b = appendBytes(b, o.Holder.Node)
		b = binary.AppendUvarint(b, uint64(o.Holder.Token))
	}
	b = appendBytes(b, o.Field)
	b = binary.AppendUvarint(b, o.Limit)
	b = appendFlag(b, o.more())
	if !o.more() {
		return b
	}
	b = binary.AppendUvarint(b, uint64(o.Waiters))
	b = appendBytes(b, o.Value)
	b = appendFlag(b, o.Unclean)
	b = appendBytes(b, o.Holder.Key)
	b = binary.AppendUvarint(b, uint64(len(o.Cycle)))
	for i := range o.Cycle {
		l := &o.Cycle[i]
		b = appendBytes(b, l.Client)
		b = appendBytes(b, l.Key)
		b = binary.AppendUvarint(b, uint64(l.Token))
	}
	return b
}

// more reports whether o has anything that few outcomes have.
func (o *Outcome) more() bool {
	return o.Waiters != 0 || o.Value != "" || o.Unclean || o.Holder.Key != "" || len(o.Cycle) > 0
}

// DecodeOutcome decodes one outcome and returns the bytes after it. A leader of
// format 1 sends no end, and one of its members passes over ours.
func DecodeOutcome(b []byte) (Outcome, []byte, error) {
	r := reader{b: b}
	o := r.outcomeHead()
	if r.err == nil && len(r.b) > 0 {
		r.outcomeEnd(&o)
	}
	if r.err != nil {
		return Outcome{}, nil, r.err
	}
	return o, r.b, nil
}

func (r *reader) outcome() Outcome {
	o := r.outcomeHead()
	r.outcomeEnd(&o)
	return o
}

func (r *reader) outcomeEnd(o *Outcome) {
	if !r.flag() {
		return
	}
	o.Waiters = r.uint32()
	o.Value = r.string()
	o.Unclean = r.flag()
	o.Holder.Key = r.string()
	if n := r.count(MaxCycle); n > 0 {
		o.Cycle = make([]Link, n)
		for i := range o.Cycle {
			o.Cycle[i] = Link{Client: r.string(), Key: r.string(), Token: Token(r.uvarint())}
		}
	}
	if !o.more() {
		r.fail(errForm)
	}
}

// outcomeHead reads what an outcome begins with, which in format 1 was all of it.
// Images of that format have such outcomes.
func (r *reader) outcomeHead() (o Outcome) {
	o.Code = Code(r.byte())
	o.Token = Token(r.uvarint())
	o.Behind = r.uint32()
	if r.flag() {
		o.Holder = Holder{Session: r.id(), Client: r.string(), Node: r.string(), Token: Token(r.uvarint())}
		if o.Holder == (Holder{}) {
			r.fail(errForm)
		}
	}
	o.Field = r.string()
	o.Limit = r.uvarint()
	return o
}

// AppendEvent appends the encoding of e to dst. What few events have stands at
// the end, after a flag that says whether there is any of it.
func AppendEvent(dst []byte, e Event) []byte {
	b := append(dst, byte(e.Kind))
	b = append(b, e.Session[:]...)
	b = binary.AppendUvarint(b, e.Seq)
	b = appendBytes(b, e.Key)
	b = binary.AppendUvarint(b, uint64(e.Token))
	b = append(b, byte(e.Reason))
	b = appendFlag(b, e.more())
	if !e.more() {
		return b
	}
	b = append(b, byte(e.Code))
	b = binary.AppendUvarint(b, uint64(e.Waiters))
	b = appendBytes(b, e.Value)
	b = appendFlag(b, e.Unclean)
	b = appendBytes(b, e.By)
	return binary.AppendUvarint(b, e.Delay)
}

// more reports whether e has anything that few events have.
func (e *Event) more() bool {
	return e.Code != 0 || e.Waiters != 0 || e.Value != "" || e.Unclean || e.By != "" || e.Delay != 0
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
	if r.err == nil && len(r.b) > 0 && r.flag() { // format 1 ends here
		e.Code = Code(r.byte())
		e.Waiters = r.uint32()
		e.Value = r.string()
		e.Unclean = r.flag()
		e.By = r.string()
		e.Delay = r.uvarint()
		if !e.more() {
			r.fail(errForm)
		}
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

func appendTokens(b []byte, tokens []Token) []byte {
	b = binary.AppendUvarint(b, uint64(len(tokens)))
	for _, t := range tokens {
		b = binary.AppendUvarint(b, uint64(t))
	}
	return b
}

func appendStrings(b []byte, texts []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(texts)))
	for _, t := range texts {
		b = appendBytes(b, t)
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

// flags reads a byte of flags, of which only the known ones may be set.
func (r *reader) flags(known byte) byte {
	v := r.byte()
	if v&^known != 0 {
		r.fail(errFlags)
		return 0
	}
	return v
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

func (r *reader) tokens(limit int) []Token {
	n := r.count(limit)
	if n == 0 {
		return nil
	}
	tokens := make([]Token, n)
	for i := range tokens {
		tokens[i] = Token(r.uvarint())
	}
	return tokens
}

func (r *reader) strings(limit int) []string {
	n := r.count(limit)
	if n == 0 {
		return nil
	}
	texts := make([]string, n)
	for i := range texts {
		texts[i] = r.string()
	}
	return texts
}
