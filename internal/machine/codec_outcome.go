package machine

import "encoding/binary"

// Bits of an encoded Outcome: never renumber. A later version adds its fields behind
// these, and an earlier version passes over the addition.
const (
	outcomeToken = 1 << iota
	outcomeBehind
	outcomeWaiters
	outcomeValue
	outcomeUnclean
	outcomeHolder
	outcomeLimit
	outcomeField
	outcomeCycle
	outcomeBits = 1<<iota - 1 // all of them
)

// AppendOutcome appends the encoding of o to dst.
func AppendOutcome(dst []byte, o Outcome) []byte {
	set := bit(o.Token != 0, outcomeToken) |
		bit(o.Behind != 0, outcomeBehind) |
		bit(o.Waiters != 0, outcomeWaiters) |
		bit(o.Value != "", outcomeValue) |
		bit(o.Unclean, outcomeUnclean) |
		bit(o.Holder != Holder{}, outcomeHolder) |
		bit(o.Limit != 0, outcomeLimit) |
		bit(o.Field != "", outcomeField) |
		bit(len(o.Cycle) > 0, outcomeCycle)
	b := binary.AppendUvarint(append(dst, byte(o.Code)), set)
	if set&outcomeToken != 0 {
		b = binary.AppendUvarint(b, uint64(o.Token))
	}
	if set&outcomeBehind != 0 {
		b = binary.AppendUvarint(b, uint64(o.Behind))
	}
	if set&outcomeWaiters != 0 {
		b = binary.AppendUvarint(b, uint64(o.Waiters))
	}
	if set&outcomeValue != 0 {
		b = appendBytes(b, o.Value)
	}
	if set&outcomeHolder != 0 {
		b = o.Holder.append(b)
	}
	if set&outcomeLimit != 0 {
		b = binary.AppendUvarint(b, o.Limit)
	}
	if set&outcomeField != 0 {
		b = appendBytes(b, o.Field)
	}
	if set&outcomeCycle != 0 {
		b = binary.AppendUvarint(b, uint64(len(o.Cycle)))
		for i := range o.Cycle {
			l := &o.Cycle[i]
			b = appendBytes(appendBytes(b, l.Client), l.Key)
			b = binary.AppendUvarint(b, uint64(l.Token))
		}
	}
	return b
}

// DecodeOutcome decodes one outcome, and passes over the fields of a later version.
func DecodeOutcome(b []byte) (Outcome, error) {
	r := reader{b: b}
	o, later := r.outcome()
	if err := r.finishAnswer(later); err != nil {
		return Outcome{}, err
	}
	return o, nil
}

// finishAnswer returns the first error, or errTrailing if bytes are left though
// no field of a later version is announced.
func (r *reader) finishAnswer(later uint64) error {
	if later != 0 {
		return r.err
	}
	return r.finish()
}

// outcome reads an outcome. The bits in later are of unknown fields, left unread.
func (r *reader) outcome() (o Outcome, later uint64) {
	o.Code = Code(r.byte())
	set := r.uvarint()
	o.Unclean = set&outcomeUnclean != 0
	if set&outcomeToken != 0 {
		o.Token = Token(r.nonzero())
	}
	if set&outcomeBehind != 0 {
		o.Behind = r.nonzero32()
	}
	if set&outcomeWaiters != 0 {
		o.Waiters = r.nonzero32()
	}
	if set&outcomeValue != 0 {
		o.Value = r.text()
	}
	if set&outcomeHolder != 0 {
		o.Holder.read(r)
	}
	if set&outcomeLimit != 0 {
		o.Limit = r.nonzero()
	}
	if set&outcomeField != 0 {
		o.Field = r.text()
	}
	if set&outcomeCycle != 0 {
		if n := r.nonzeroCount(MaxCycle); n > 0 {
			o.Cycle = make([]Link, n)
		}
		for i := range o.Cycle {
			o.Cycle[i] = Link{Client: r.string(), Key: r.string(), Token: Token(r.uvarint())}
		}
	}
	return o, set &^ outcomeBits
}

func (h *Holder) append(b []byte) []byte {
	b = append(b, h.Session[:]...)
	b = appendBytes(appendBytes(b, h.Client), h.Node)
	b = binary.AppendUvarint(b, uint64(h.Token))
	return appendBytes(b, h.Key)
}

func (h *Holder) read(r *reader) {
	*h = Holder{Session: r.id(), Client: r.string(), Node: r.string(), Token: Token(r.uvarint()), Key: r.string()}
	if *h == (Holder{}) {
		r.fail(errForm)
	}
}

// Bits of an encoded Event: never renumber. A later version adds its fields behind
// these, and an earlier version passes over the addition.
const (
	eventSession = 1 << iota
	eventSeq
	eventKey
	eventToken
	eventWaiters
	eventValue
	eventUnclean
	eventReason
	eventCode
	eventBy
	eventDelay
	eventBits = 1<<iota - 1 // all of them
)

// AppendEvent appends the encoding of e to dst.
func AppendEvent(dst []byte, e Event) []byte {
	set := bit(e.Session != SessionID{}, eventSession) |
		bit(e.Seq != 0, eventSeq) |
		bit(e.Key != "", eventKey) |
		bit(e.Token != 0, eventToken) |
		bit(e.Waiters != 0, eventWaiters) |
		bit(e.Value != "", eventValue) |
		bit(e.Unclean, eventUnclean) |
		bit(e.Reason != 0, eventReason) |
		bit(e.Code != 0, eventCode) |
		bit(e.By != "", eventBy) |
		bit(e.Delay != 0, eventDelay)
	b := binary.AppendUvarint(append(dst, byte(e.Kind)), set)
	if set&eventSession != 0 {
		b = append(b, e.Session[:]...)
	}
	if set&eventSeq != 0 {
		b = binary.AppendUvarint(b, e.Seq)
	}
	if set&eventKey != 0 {
		b = appendBytes(b, e.Key)
	}
	if set&eventToken != 0 {
		b = binary.AppendUvarint(b, uint64(e.Token))
	}
	if set&eventWaiters != 0 {
		b = binary.AppendUvarint(b, uint64(e.Waiters))
	}
	if set&eventValue != 0 {
		b = appendBytes(b, e.Value)
	}
	if set&eventReason != 0 {
		b = append(b, byte(e.Reason))
	}
	if set&eventCode != 0 {
		b = append(b, byte(e.Code))
	}
	if set&eventBy != 0 {
		b = appendBytes(b, e.By)
	}
	if set&eventDelay != 0 {
		b = binary.AppendUvarint(b, e.Delay)
	}
	return b
}

// DecodeEvent decodes one event, and passes over the fields of a later version.
func DecodeEvent(b []byte) (Event, error) {
	r := reader{b: b}
	e := Event{Kind: EventKind(r.byte())}
	set := r.uvarint()
	e.Unclean = set&eventUnclean != 0
	if set&eventSession != 0 {
		if e.Session = r.id(); e.Session == (SessionID{}) {
			r.fail(errForm)
		}
	}
	if set&eventSeq != 0 {
		e.Seq = r.nonzero()
	}
	if set&eventKey != 0 {
		e.Key = r.text()
	}
	if set&eventToken != 0 {
		e.Token = Token(r.nonzero())
	}
	if set&eventWaiters != 0 {
		e.Waiters = r.nonzero32()
	}
	if set&eventValue != 0 {
		e.Value = r.text()
	}
	if set&eventReason != 0 {
		e.Reason = Reason(r.nonzeroByte())
	}
	if set&eventCode != 0 {
		e.Code = Code(r.nonzeroByte())
	}
	if set&eventBy != 0 {
		e.By = r.text()
	}
	if set&eventDelay != 0 {
		e.Delay = r.nonzero()
	}
	if err := r.finishAnswer(set &^ eventBits); err != nil {
		return Event{}, err
	}
	return e, nil
}
