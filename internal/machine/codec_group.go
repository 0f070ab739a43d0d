package machine

import (
	"encoding/binary"
	"fmt"
)

// appendGroupCommand appends the encoding of a command about groups.
func appendGroupCommand(dst []byte, c Command) []byte {
	switch c := c.(type) {
	case Enlist:
		b := appendUvarints(appendSession(dst, kindEnlist, c.Session), c.Seq)
		b = appendUvarints(appendBytes(b, c.Group), uint64(c.Shards), uint64(c.Weight))
		b = appendUvarints(appendBytes(b, c.Succeeds), c.Drain, c.Grace, uint64(c.MaxMoves))
		return appendNumbers(b, c.Seen)
	case Delist:
		b := appendUvarints(appendSession(dst, kindDelist, c.Session), c.Seq)
		return appendNumbers(b, c.Seen)
	case Decline:
		b := appendUvarints(appendSession(dst, kindDecline, c.Session), c.Seq, uint64(c.Shard), c.Version)
		return appendNumbers(b, c.Seen)
	case Resize:
		b := appendUvarints(appendSession(dst, kindResize, c.Session), c.Seq)
		b = appendUvarints(appendBytes(b, c.Group), uint64(c.From), uint64(c.To))
		return appendNumbers(b, c.Seen)
	case Assign:
		b := appendBytes(appendUvarints(append(dst, kindAssign), c.Term), c.Group)
		b = appendUvarints(b, c.Version, uint64(len(c.Moves)))
		for _, m := range c.Moves {
			b = binary.AppendUvarint(b, uint64(m.Shard))
			b = binary.AppendUvarint(b, uint64(m.Caller))
		}
		return b
	case Dismiss:
		b := appendBytes(appendUvarints(append(dst, kindDismiss), c.Term), c.Group)
		return appendUvarints(b, uint64(c.Caller), c.Since)
	case Reshard:
		b := appendBytes(appendUvarints(append(dst, kindReshard), c.Term), c.Group)
		return appendUvarints(b, c.Version)
	}
	return dst
}

// groupCommand decodes a command about groups.
func (d *coder) groupCommand(kind byte) Command {
	r := &d.in
	switch kind {
	case kindEnlist:
		return Enlist{
			Session: r.id(), Seq: r.uvarint(), Group: r.string(), Shards: r.uint32(), Weight: r.uint32(),
			Succeeds: r.string(), Drain: r.uvarint(), Grace: r.uvarint(), MaxMoves: r.uint32(), Seen: r.seqs(),
		}
	case kindDelist:
		return Delist{Session: r.id(), Seq: r.uvarint(), Seen: r.seqs()}
	case kindDecline:
		return Decline{Session: r.id(), Seq: r.uvarint(), Shard: r.uint32(), Version: r.uvarint(), Seen: r.seqs()}
	case kindResize:
		return Resize{Session: r.id(), Seq: r.uvarint(), Group: r.string(), From: r.uint32(), To: r.uint32(), Seen: r.seqs()}
	case kindAssign:
		c := Assign{Term: r.uvarint(), Group: r.string(), Version: r.uvarint()}
		for i := range elements(d, &c.Moves, MaxShards, 2) {
			c.Moves[i] = Move{Shard: r.uint32(), Caller: r.uint32()}
		}
		return c
	case kindDismiss:
		return Dismiss{Term: r.uvarint(), Group: r.string(), Caller: r.uint32(), Since: r.uvarint()}
	case kindReshard:
		return Reshard{Term: r.uvarint(), Group: r.string(), Version: r.uvarint()}
	}
	r.fail(fmt.Errorf("machine: unknown command kind %d", kind))
	return nil
}

// The fewest bytes of a caller.
const minCaller = 6

func codeGroup(c *coder, name *string, v **group) {
	c.texts(name)
	g := element(c, v)
	c.numbers(&g.version)
	f := c.fields()
	integer(&f, &g.shards)
	integer(&f, &g.next)
	integer(&f, &g.ids)
	integer(&f, &g.moves)
	integer(&f, &g.drain)
	integer(&f, &g.grace)
	f.flag(&g.settled)
	f.flag(&g.resized)
	f.text(&g.node)
	for i := range list(&f, &g.callers, MaxCallers, minCaller) {
		g.callers[i].code(c)
	}
	for i := range list(&f, &g.assigned, MaxShards, 1) {
		c.number32(&g.assigned[i])
	}
	f.done()
}

func (by *caller) code(c *coder) {
	c.number32(&by.id)
	c.texts(&by.client, &by.node)
	f := c.fields()
	integer(&f, &by.weight)
	f.text(&by.succeeds)
	integer(&f, &by.part)
	f.flag(&by.next)
	if f.has(by.absent != 0) {
		c.numbers(&by.absent)
		f.refuseZero(by.absent == 0)
	} else {
		by.requestID.code(c)
	}
	f.done()
}

func (c *coder) number32(v *uint32) {
	if c.decoding {
		*v = c.in.uint32()
	} else {
		c.out = binary.AppendUvarint(c.out, uint64(*v))
	}
}
