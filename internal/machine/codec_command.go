package machine

import "encoding/binary"

// Kinds of commands in the log: never renumber.
const (
	kindFound       = 1
	kindLeaderStart = 2
	kindRaise       = 3
	kindLift        = 4
	kindBound       = 5
	kindOpen        = 6
	kindClose       = 7
	kindSilence     = 8
	kindHear        = 9
	kindExpire      = 10
	kindAcquire     = 11
	kindUpgrade     = 12
	kindDowngrade   = 13
	kindSetValue    = 14
	kindWithdraw    = 15
	kindRelease     = 16
	kindAsk         = 17
	kindBreak       = 18
	kindEndDelay    = 19
	kindForget      = 20
	kindEnlist      = 21
	kindDelist      = 22
	kindDecline     = 23
	kindResize      = 24
	kindAssign      = 25
	kindDismiss     = 26
	kindReshard     = 27
	kindSetCapacity = 28
	kindEndSession  = 29
	kindEndSlice    = 30
	kindExtend      = 31
	kindAdmitSlice  = 32

	kinds = kindAdmitSlice // how many there are
)

// Bits of an encoded Acquire: never renumber. See Spec for the attributes that
// the table keeps.
const (
	acquireTry = 1 << iota
	acquireKeys
	acquireMaxWaiters
	acquireUnder
	acquireFreed
	acquireBits = 1<<iota - 1 // all of them
)

// Unknown stands for a command of a log entry that this version cannot decode. Apply
// refuses an Unknown as BadCommand, so the other commands of the entry keep their
// places. A voter of a later version may be able to decode the command: see Raise.
type Unknown struct{ Raw string }

func (Unknown) command() {}

// EncodeCommand returns the encoding of c: see AppendCommand.
func EncodeCommand(c Command) []byte { return AppendCommand(make([]byte, 0, 128), c) }

// AppendCommand appends the encoding of c to dst. A nil command, or a type foreign
// to this package, is encoded as no bytes, and decoded from an entry as Unknown.
func AppendCommand(dst []byte, c Command) []byte {
	switch c := c.(type) {
	case Acquire:
		return appendAcquire(dst, &c)
	case Found:
		b := append(append(dst, kindFound), c.Cluster[:]...)
		return appendUvarints(b, uint64(c.Floor), c.TTL)
	case LeaderStart:
		return appendUvarints(append(dst, kindLeaderStart), c.Term)
	case Raise:
		return appendUvarints(append(dst, kindRaise), c.Term, c.Format)
	case Lift:
		return appendUvarints(append(dst, kindLift), c.Term)
	case Bound:
		return appendUvarints(append(dst, kindBound), c.Term, c.TTL)
	case Open:
		b := appendSession(dst, kindOpen, c.Session)
		b = appendBytes(appendBytes(b, c.Client), c.Node)
		b = append(appendUvarints(b, c.Boot), c.Dir[:]...)
		return appendBytes(appendUvarints(b, c.TTL), c.Meta)
	case Close:
		return appendSession(dst, kindClose, c.Session)
	case Silence:
		return appendUvarints(appendSession(dst, kindSilence, c.Session), c.Term)
	case Hear:
		return appendUvarints(appendSession(dst, kindHear, c.Session), c.Term)
	case Expire:
		return appendUvarints(appendSession(dst, kindExpire, c.Session), c.Term)
	case Upgrade:
		b := appendUvarints(appendSession(dst, kindUpgrade, c.Session), c.Seq, uint64(c.Token))
		return appendNumbers(appendNumbers(b, c.Under), c.Seen)
	case Downgrade:
		b := appendUvarints(appendSession(dst, kindDowngrade, c.Session), uint64(c.Token))
		return appendNumbers(b, c.Seen)
	case SetValue:
		b := appendUvarints(appendSession(dst, kindSetValue, c.Session), uint64(c.Token), c.Rev)
		b = appendFlag(appendBytes(b, c.Value), c.Fade)
		return appendNumbers(b, c.Seen)
	case Extend:
		b := appendUvarints(appendSession(dst, kindExtend, c.Session), uint64(c.Token), uint64(c.Last), uint64(c.Block))
		return appendNumbers(b, c.Seen)
	case Withdraw:
		b := appendUvarints(appendSession(dst, kindWithdraw, c.Session), c.Seq)
		return appendNumbers(appendNumbers(b, c.More), c.Seen)
	case Release:
		b := appendUvarints(appendSession(dst, kindRelease, c.Session), uint64(c.Token))
		return appendNumbers(appendBytes(b, c.To), c.Seen)
	case Ask:
		b := appendBytes(appendSession(dst, kindAsk, c.Session), c.Key)
		return appendUvarints(b, uint64(c.Token))
	case Break:
		b := appendBytes(appendSession(dst, kindBreak, c.Session), c.Key)
		return appendUvarints(b, uint64(c.Token))
	case EndDelay:
		return appendUvarints(append(dst, kindEndDelay), uint64(c.Token), c.Term)
	case Forget:
		b := appendUvarints(appendBytes(append(dst, kindForget), c.Node), c.Boot)
		return append(b, c.Dir[:]...)
	case SetCapacity:
		b := appendUvarints(appendSession(dst, kindSetCapacity, c.Session), c.Seq)
		b = appendFlag(appendUvarints(appendBytes(b, c.Key), uint64(c.Of)), c.Compare)
		return appendNumbers(appendUvarints(b, uint64(c.From)), c.Seen)
	case EndSession:
		return append(appendSession(dst, kindEndSession, c.Session), c.Ref[:]...)
	case EndSlice:
		return appendSession(dst, kindEndSlice, c.Session)
	case AdmitSlice:
		return append(dst, kindAdmitSlice)
	case Unknown:
		return append(dst, c.Raw...)
	}
	return appendGroupCommand(dst, c)
}

// An Acquire is written out for speed: a coder takes twice the time.
func appendAcquire(b []byte, c *Acquire) []byte {
	b = binary.AppendUvarint(appendSession(b, kindAcquire, c.Session), c.Seq)
	b = appendBytes(b, c.Key)
	set := bit(c.Try, acquireTry) |
		bit(len(c.Keys) > 0, acquireKeys) |
		bit(c.MaxWaiters != 0, acquireMaxWaiters) |
		bit(len(c.Under) > 0, acquireUnder) |
		bit(len(c.Freed) > 0, acquireFreed)
	b = binary.AppendUvarint(b, set)
	if set&acquireKeys != 0 {
		b = appendStrings(b, c.Keys)
	}
	if set&acquireMaxWaiters != 0 {
		b = binary.AppendUvarint(b, uint64(c.MaxWaiters))
	}
	if set&acquireUnder != 0 {
		b = appendNumbers(b, c.Under)
	}
	if set&acquireFreed != 0 {
		b = appendNumbers(b, c.Freed)
	}
	spec := coder{out: b}
	c.Spec.code(&spec)
	return appendNumbers(spec.out, c.Seen)
}

func (d *coder) acquire() (c Acquire) {
	r := &d.in
	c.Session = r.id()
	c.Seq = r.uvarint()
	c.Key = r.string()
	set := r.bits(acquireBits)
	c.Try = set&acquireTry != 0
	if set&acquireKeys != 0 {
		c.Keys = readStrings(r, r.nonzeroCount(MaxKeys))
	}
	if set&acquireMaxWaiters != 0 {
		c.MaxWaiters = r.nonzero32()
	}
	if set&acquireUnder != 0 {
		c.Under = readNumbers[Token](r, r.nonzeroCount(MaxUnder))
	}
	if set&acquireFreed != 0 {
		c.Freed = readNumbers[Token](r, r.nonzeroCount(MaxFreed))
	}
	c.Spec.code(d)
	c.Seen = r.seqs()
	return c
}

// DecodeCommand decodes one command from all of b. DecodeCommand checks the form of
// the bytes and the numbers of Keys, Under, Freed and Seen. Apply checks all other limits,
// so an outcome refuses a command over a limit. The command does not refer to b.
func DecodeCommand(b []byte) (Command, error) {
	d := newDecoder(b)
	c := d.command()
	if err := d.in.finish(); err != nil {
		return nil, err
	}
	return c, nil
}

func (d *coder) command() Command {
	r := &d.in
	switch kind := r.byte(); kind {
	case kindFound:
		return Found{Cluster: ClusterID(r.id()), Floor: Token(r.uvarint()), TTL: r.uvarint()}
	case kindLeaderStart:
		return LeaderStart{Term: r.uvarint()}
	case kindRaise:
		return Raise{Term: r.uvarint(), Format: r.uvarint()}
	case kindLift:
		return Lift{Term: r.uvarint()}
	case kindBound:
		return Bound{Term: r.uvarint(), TTL: r.uvarint()}
	case kindOpen:
		return Open{Session: r.id(), Client: r.string(), Node: r.string(), Boot: r.uvarint(), Dir: r.id(), TTL: r.uvarint(), Meta: r.string()}
	case kindClose:
		return Close{Session: r.id()}
	case kindSilence:
		return Silence{Session: r.id(), Term: r.uvarint()}
	case kindHear:
		return Hear{Session: r.id(), Term: r.uvarint()}
	case kindExpire:
		return Expire{Session: r.id(), Term: r.uvarint()}
	case kindAcquire:
		return d.acquire()
	case kindUpgrade:
		return Upgrade{Session: r.id(), Seq: r.uvarint(), Token: Token(r.uvarint()), Under: readNumbers[Token](r, r.count(MaxUnder)), Seen: r.seqs()}
	case kindDowngrade:
		return Downgrade{Session: r.id(), Token: Token(r.uvarint()), Seen: r.seqs()}
	case kindSetValue:
		return SetValue{Session: r.id(), Token: Token(r.uvarint()), Rev: r.uvarint(), Value: r.copy(), Fade: r.flag(), Seen: r.seqs()}
	case kindWithdraw:
		return Withdraw{Session: r.id(), Seq: r.uvarint(), More: readNumbers[uint64](r, r.count(MaxWithdrawn)), Seen: r.seqs()}
	case kindRelease:
		return Release{Session: r.id(), Token: Token(r.uvarint()), To: r.string(), Seen: r.seqs()}
	case kindAsk:
		return Ask{Session: r.id(), Key: r.string(), Token: Token(r.uvarint())}
	case kindBreak:
		return Break{Session: r.id(), Key: r.string(), Token: Token(r.uvarint())}
	case kindEndDelay:
		return EndDelay{Token: Token(r.uvarint()), Term: r.uvarint()}
	case kindForget:
		return Forget{Node: r.string(), Boot: r.uvarint(), Dir: r.id()}
	case kindSetCapacity:
		return SetCapacity{Session: r.id(), Seq: r.uvarint(), Key: r.string(), Of: r.uint32(), Compare: r.flag(), From: r.uint32(), Seen: r.seqs()}
	case kindEndSession:
		return EndSession{Session: r.id(), Ref: SessionRef(r.id())}
	case kindEndSlice:
		return EndSlice{Session: r.id()}
	case kindAdmitSlice:
		return AdmitSlice{}
	case kindExtend:
		return Extend{Session: r.id(), Token: Token(r.uvarint()), Last: Token(r.uvarint()), Block: r.uint32(), Seen: r.seqs()}
	default:
		return d.groupCommand(kind)
	}
}

func appendSession(b []byte, kind byte, id SessionID) []byte {
	return append(append(b, kind), id[:]...)
}

func appendUvarints(b []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}
