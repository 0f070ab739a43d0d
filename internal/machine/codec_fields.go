package machine

import "encoding/binary"

// coder encodes values to out, or decodes values from in. A value has one method for
// both directions, so that the two cannot differ. Encoding writes to out only, and
// not to the value: an image is encoded while others read its records.
type coder struct {
	decoding bool
	in       reader
	out      []byte
	refill   func(in *reader) // appends what follows; nil: nothing does

	// Of the record and the grant being decoded.
	extra extra
	terms terms
}

func newDecoder(b []byte) coder { return coder{decoding: true, in: reader{b: b}} }

// window is more than any element of an image takes, but for a record: of that it is more than
// each item of its lists takes, and more than the least bytes of all items together. The
// largest other element is a session with MaxGaps spans.
const window = 2 << 20

// top makes sure that a decoder whose input comes in pieces has window bytes or all that are
// left.
func (c *coder) top() {
	for c.refill != nil && c.in.err == nil && len(c.in.b) < window {
		before := len(c.in.b)
		if c.refill(&c.in); len(c.in.b) == before {
			return
		}
	}
}

func (c *coder) numbers(values ...*uint64) {
	for _, v := range values {
		if c.decoding {
			*v = c.in.uvarint()
		} else {
			c.out = binary.AppendUvarint(c.out, *v)
		}
	}
}

func (c *coder) texts(values ...*string) {
	for _, v := range values {
		if c.decoding {
			*v = c.in.string()
		} else {
			c.out = appendBytes(c.out, *v)
		}
	}
}

func (c *coder) flag(v *bool) {
	if c.decoding {
		*v = c.in.flag()
	} else {
		c.out = appendFlag(c.out, *v)
	}
}

func (c *coder) byte(v *byte) {
	if c.decoding {
		*v = c.in.byte()
	} else {
		c.out = append(c.out, *v)
	}
}

func (c *coder) id(v *[16]byte) {
	if c.decoding {
		*v = c.in.id()
	} else {
		c.out = append(c.out, v[:]...)
	}
}

// elements codes the length of a list, and returns the list for its elements to be
// coded. A decoder refuses more than limit elements, and more than the remaining
// bytes suffice for, at size bytes for an element at least.
func elements[T any](c *coder, list *[]T, limit, size int) []T {
	if !c.decoding {
		c.out = binary.AppendUvarint(c.out, uint64(len(*list)))
		return *list
	}
	if n := c.in.count(limit); n > len(c.in.b)/size {
		c.in.fail(errShort)
	} else if n > 0 {
		*list = make([]T, n)
	}
	return *list
}

// fields codes the fields of a value that are often empty: a varint of bits says
// which fields are set, and the set fields follow. Each call of a method, or of one
// of the functions below, is for the next field and the next bit, in an order that
// never changes: a new field comes last.
type fields struct {
	*coder
	at   int    // index of the bits in out
	set  uint64 // bits of the set fields
	next uint64 // bit of the next field
}

func (c *coder) fields() fields {
	f := fields{coder: c, at: len(c.out), next: 1}
	if c.decoding {
		f.set = c.in.uvarint()
	} else {
		c.out = append(c.out, 0)
	}
	return f
}

// has reports whether the next field is set; present says so for an encoder.
func (f *fields) has(present bool) bool {
	bit := f.next
	f.next <<= 1
	if present && !f.decoding {
		f.set |= bit
	}
	return f.set&bit != 0
}

func (f *fields) flag(v *bool) {
	if set := f.has(*v); f.decoding {
		*v = set
	}
}

// text is a field of a string, set unless empty.
func (f *fields) text(v *string) {
	switch {
	case !f.has(*v != ""):
	case f.decoding:
		*v = f.in.text()
	default:
		f.out = appendBytes(f.out, *v)
	}
}

// integer is a field of an integer, set unless zero.
func integer[T ~uint16 | ~uint32 | ~uint64](f *fields, v *T) {
	switch {
	case !f.has(*v != 0):
	case f.decoding:
		n := f.in.nonzero()
		if *v = T(n); uint64(*v) != n {
			f.in.fail(errLimit)
		}
	default:
		f.out = binary.AppendUvarint(f.out, uint64(*v))
	}
}

// octet is a field of a byte, set unless zero.
func octet[T ~uint8 | ~int8](f *fields, v *T) {
	switch {
	case !f.has(*v != 0):
	case f.decoding:
		*v = T(f.in.nonzeroByte())
	default:
		f.out = append(f.out, byte(*v))
	}
}

// list is a field of a list, set unless empty: see elements.
func list[T any](f *fields, v *[]T, limit, size int) []T {
	if !f.has(len(*v) > 0) {
		return nil
	}
	e := elements(f.coder, v, limit, size)
	f.refuseZero(len(e) == 0)
	return e
}

// refuseZero refuses a zero value of a set field: the only form of zero is no field.
func (f *fields) refuseZero(zero bool) {
	if zero {
		f.in.fail(errForm)
	}
}

// later completes the fields. A decoder returns the bits of the fields that a later
// version has added.
func (f *fields) later() uint64 {
	if f.decoding {
		return f.set &^ (f.next - 1)
	}
	if f.set < 0x80 {
		f.out[f.at] = byte(f.set)
		return 0
	}
	// Rare: the bits take another byte.
	var bits [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(bits[:], f.set)
	f.out = append(f.out, bits[1:n]...)
	copy(f.out[f.at+n:], f.out[f.at+1:])
	copy(f.out[f.at:], bits[:n])
	return 0
}

// done completes the fields. A decoder refuses fields of a later version.
func (f *fields) done() {
	if f.later() != 0 {
		f.in.fail(errBits)
	}
}
