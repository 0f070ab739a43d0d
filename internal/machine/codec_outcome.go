package machine

// The encodings of outcomes and events. A later version adds its fields at the end,
// and an earlier version passes over the addition.

// AppendOutcome appends the encoding of o to dst.
func AppendOutcome(dst []byte, o Outcome) []byte {
	c := coder{out: dst}
	o.code(&c)
	return c.out
}

// DecodeOutcome decodes one outcome, and passes over the fields of a later version.
func DecodeOutcome(b []byte) (o Outcome, err error) {
	c := newDecoder(b)
	if err := c.in.finishAnswer(o.code(&c)); err != nil {
		return Outcome{}, err
	}
	return o, nil
}

// AppendEvent appends the encoding of e to dst.
func AppendEvent(dst []byte, e Event) []byte {
	c := coder{out: dst}
	e.code(&c)
	return c.out
}

// DecodeEvent decodes one event, and passes over the fields of a later version.
func DecodeEvent(b []byte) (e Event, err error) {
	c := newDecoder(b)
	if err := c.in.finishAnswer(e.code(&c)); err != nil {
		return Event{}, err
	}
	return e, nil
}

// finishAnswer returns the first error, or errTrailing if bytes are left though
// no field of a later version is announced.
func (r *reader) finishAnswer(later uint64) error {
	if later != 0 {
		return r.err
	}
	return r.finish()
}

// code codes an outcome. The bits in later are of unknown fields, left unread.
func (o *Outcome) code(c *coder) (later uint64) {
	c.byte((*byte)(&o.Code))
	f := c.fields()
	integer(&f, &o.Token)
	integer(&f, &o.Behind)
	integer(&f, &o.Waiters)
	f.text(&o.Value)
	f.flag(&o.Unclean)
	if f.has(o.Holder != Holder{}) {
		o.Holder.code(c)
		f.refuseZero(o.Holder == Holder{})
	}
	integer(&f, &o.Limit)
	f.text(&o.Field)
	for i := range list(&f, &o.Cycle, MaxCycle, 3) {
		l := &o.Cycle[i]
		c.texts(&l.Client, &l.Key)
		c.numbers((*uint64)(&l.Token))
	}
	integer(&f, &o.Block)
	return f.later()
}

func (h *Holder) code(c *coder) {
	c.id((*[16]byte)(&h.Session))
	c.texts(&h.Client, &h.Node)
	c.numbers((*uint64)(&h.Token))
	c.texts(&h.Key)
}

// code codes an event. The bits in later are of unknown fields, left unread.
func (e *Event) code(c *coder) (later uint64) {
	c.byte((*byte)(&e.Kind))
	f := c.fields()
	if f.has(e.Session != SessionID{}) {
		c.id((*[16]byte)(&e.Session))
		f.refuseZero(e.Session == SessionID{})
	}
	integer(&f, &e.Seq)
	f.text(&e.Key)
	integer(&f, &e.Token)
	integer(&f, &e.Waiters)
	f.text(&e.Value)
	f.flag(&e.Unclean)
	octet(&f, &e.Reason)
	octet(&f, &e.Code)
	f.text(&e.By)
	integer(&f, &e.Delay)
	integer(&f, &e.Limit)
	integer(&f, &e.Block)
	return f.later()
}
