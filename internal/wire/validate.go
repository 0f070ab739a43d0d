package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// What a message may hold besides its bytes. The largest ones hold MaxAttach
// sessions, or a MaxFrame of keys with their holders.
const (
	maxDepth    = 16       // maps and arrays within one another
	maxElements = 64 << 10 // of all its arrays together
)

// validate walks one msgpack value that must fill b, before it is decoded. The
// decoder takes an array's word for its length and makes room for that many
// elements, so that a dozen bytes could claim all memory; and it follows nested
// values as deep as they go.
func validate(b []byte) error {
	w := walker{b: b}
	w.value(maxDepth)
	if w.err == nil && len(w.b) > 0 {
		w.fail("%d bytes behind the message", len(w.b))
	}
	return w.err
}

type walker struct {
	b        []byte // what is left
	elements int
	err      error
}

func (w *walker) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
		w.b = nil
	}
}

// skip passes n bytes and returns them.
func (w *walker) skip(n int) []byte {
	if n > len(w.b) {
		w.fail("%d bytes end before the next %d", len(w.b), n)
		return nil
	}
	s := w.b[:n]
	w.b = w.b[n:]
	return s
}

// length reads a big-endian length of n bytes. What is longer than any message
// is cut to that, so that twice as much is still an int anywhere.
func (w *walker) length(n int) int {
	var full [4]byte
	copy(full[4-n:], w.skip(n))
	return int(min(binary.BigEndian.Uint32(full[:]), 1<<29))
}

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
		w.long(c, depth)
	}
}

// long passes a value whose length or number follows its code.
func (w *walker) long(c byte, depth int) {
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
		w.fail("code %#x is not used here", c)
	}
}

func (w *walker) array(n, depth int) {
	if w.elements += n; w.elements > maxElements {
		w.fail("arrays of more than %d elements", maxElements)
	}
	w.values(n, depth)
}

// values passes the n values of a map or an array.
func (w *walker) values(n, depth int) {
	if depth == 0 {
		w.fail("values nested deeper than %d", maxDepth)
	}
	if n > len(w.b) {
		w.fail("%d values in %d bytes", n, len(w.b))
	}
	for ; n > 0 && w.err == nil; n-- {
		w.value(depth - 1)
	}
}
