package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Limits of a message besides its length. The largest messages have MaxAttach
// sessions, or a MaxFrame of keys with their holders.
const (
	maxDepth    = 16       // nested maps and arrays
	maxElements = 64 << 10 // elements of all arrays together
)

// validate checks, before decoding, that b is exactly one msgpack value with true
// lengths. The decoder alone is not safe for untrusted bytes: it allocates room
// for the announced length of an array, so that a dozen bytes could take all
// memory, and it follows nested values to any depth.
func validate(b []byte) error {
	w := walker{b: b}
	w.value(maxDepth)
	if w.err == nil && len(w.b) > 0 {
		w.fail("%d bytes after the end of the message", len(w.b))
	}
	return w.err
}

// walker walks through a msgpack value without decoding it. After the first error
// no bytes are left, and all methods return quickly.
type walker struct {
	b        []byte // the bytes not walked yet
	elements int    // elements of all arrays so far
	err      error  // the first error
}

func (w *walker) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
		w.b = nil
	}
}

// skip removes the next n bytes from w.b and returns them.
func (w *walker) skip(n int) []byte {
	if n > len(w.b) {
		w.fail("%d bytes are left, want %d", len(w.b), n)
		return nil
	}
	s := w.b[:n]
	w.b = w.b[n:]
	return s
}

// length reads a big-endian length of n bytes. A length above 1<<29 is longer than
// any message and is returned as 1<<29, so that twice the length still fits an int
// of 32 bits.
func (w *walker) length(n int) int {
	var full [4]byte
	copy(full[4-n:], w.skip(n))
	return int(min(binary.BigEndian.Uint32(full[:]), 1<<29))
}

// value walks through one value with at most depth levels of maps and arrays.
func (w *walker) value(depth int) {
	head := w.skip(1)
	if w.err != nil {
		return
	}
	switch c := head[0]; {
	case msgpcode.IsFixedNum(c), c == msgpcode.Nil, c == msgpcode.False, c == msgpcode.True:
	case msgpcode.IsFixedString(c):
		w.skip(int(c & msgpcode.FixedStrMask))
	case msgpcode.IsFixedMap(c):
		w.values(2*int(c&msgpcode.FixedMapMask), depth)
	case msgpcode.IsFixedArray(c):
		w.array(int(c&msgpcode.FixedArrayMask), depth)
	default:
		w.codedValue(c, depth)
	}
}

// codedValue walks through a value with code c, after which the length or the
// number follows.
func (w *walker) codedValue(c byte, depth int) {
	switch c {
	case msgpcode.Uint8, msgpcode.Int8:
		w.skip(1)
	case msgpcode.Uint16, msgpcode.Int16:
		w.skip(2)
	case msgpcode.Uint32, msgpcode.Int32, msgpcode.Float:
		w.skip(4)
	case msgpcode.Uint64, msgpcode.Int64, msgpcode.Double:
		w.skip(8)
	case msgpcode.Bin8, msgpcode.Str8:
		w.skip(w.length(1))
	case msgpcode.Bin16, msgpcode.Str16:
		w.skip(w.length(2))
	case msgpcode.Bin32, msgpcode.Str32:
		w.skip(w.length(4))
	case msgpcode.Array16:
		w.array(w.length(2), depth)
	case msgpcode.Array32:
		w.array(w.length(4), depth)
	case msgpcode.Map16:
		w.values(2*w.length(2), depth)
	case msgpcode.Map32:
		w.values(2*w.length(4), depth)
	default:
		w.fail("code %#x does not occur in messages", c)
	}
}

// array walks through the n elements of an array.
func (w *walker) array(n, depth int) {
	if w.elements += n; w.elements > maxElements {
		w.fail("the arrays have more than %d elements", maxElements)
	}
	w.values(n, depth)
}

// values walks through the n values of a map or an array.
func (w *walker) values(n, depth int) {
	if depth == 0 {
		w.fail("values nested deeper than %d", maxDepth)
	}
	if n > len(w.b) {
		w.fail("%d values do not fit into %d bytes", n, len(w.b))
	}
	for ; n > 0 && w.err == nil; n-- {
		w.value(depth - 1)
	}
}

// Split returns the first msgpack value of b and the bytes after the value. Split
// fails if b does not begin with a value of true lengths. Nothing is decoded or
// copied.
func Split(b []byte) (value, rest []byte, err error) {
	w := walker{b: b}
	w.value(maxDepth)
	if w.err != nil {
		return nil, nil, w.err
	}
	n := len(b) - len(w.b)
	return b[:n:n], w.b, nil
}
