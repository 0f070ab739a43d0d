package machine

import (
	"encoding/binary"
	"errors"
	"slices"
)

// The bytes of commands, entries, outcomes, events and snapshots. Integers are
// unsigned varints in their shortest form, and the length of a string stands before
// the string. Bits in front of the fields say which of the often empty fields are
// set; only set fields follow. So each value has exactly one encoding, and a decoder
// refuses every other. A decoder allocates memory for bytes read, never for a
// claimed length.
//
// Not msgpack or JSON: every voter makes and reads these bytes once per command, and
// the bytes must stay the same for ever. This is easier to see in a written-out
// encoding. The files in testdata/golden keep the bytes.

var (
	errShort    = errors.New("machine: encoding ends early")
	errTrailing = errors.New("machine: bytes left over after encoding")
	errVarint   = errors.New("machine: integer not in its shortest form")
	errFlag     = errors.New("machine: flag is neither 0 nor 1")
	errBits     = errors.New("machine: unknown bit is set")
	errForm     = errors.New("machine: not the form in which this value is encoded")
	errLimit    = errors.New("machine: count over its limit")
)

// bit returns b if set is true, and 0 otherwise.
func bit(set bool, b uint64) uint64 {
	if set {
		return b
	}
	return 0
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

func appendNumbers[T ~uint64](b []byte, numbers []T) []byte {
	b = binary.AppendUvarint(b, uint64(len(numbers)))
	for _, n := range numbers {
		b = binary.AppendUvarint(b, uint64(n))
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

// reader takes values off the front of b. After the first error, which err
// keeps, the reader returns zero values.
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

// finish returns the first error, or errTrailing if bytes are left.
func (r *reader) finish() error {
	if r.err == nil && len(r.b) > 0 {
		return errTrailing
	}
	return r.err
}

// take returns the next n bytes of the input, not a copy.
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

func (r *reader) nonzeroByte() byte {
	v := r.byte()
	if v == 0 {
		r.fail(errForm)
	}
	return v
}

func (r *reader) flag() bool {
	v := r.byte()
	if v > 1 {
		r.fail(errFlag)
	}
	return v == 1
}

// bits reads the bits in front of fields, and refuses unknown ones.
func (r *reader) bits(known uint64) uint64 {
	v := r.uvarint()
	if v&^known != 0 {
		r.fail(errBits)
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

func (r *reader) nonzero() uint64 {
	v := r.uvarint()
	if v == 0 {
		r.fail(errForm)
	}
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

func (r *reader) nonzero32() uint32 {
	v := r.uint32()
	if v == 0 {
		r.fail(errForm)
	}
	return v
}

// count reads the number of the following elements, which take a byte each at least.
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

// nonzeroCount is count of a list with at least one element: an empty list has no
// bytes.
func (r *reader) nonzeroCount(limit int) int {
	n := r.count(limit)
	if n == 0 {
		r.fail(errForm)
	}
	return n
}

// bytes returns a part of the input, not a copy.
func (r *reader) bytes() []byte { return r.take(r.count(len(r.b))) }

func (r *reader) string() string { return string(r.bytes()) }

// text reads a string that is not empty.
func (r *reader) text() string {
	v := r.bytes()
	if len(v) == 0 {
		r.fail(errForm)
	}
	return string(v)
}

// copy returns a copy of the bytes, and nil for no bytes.
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

func (r *reader) seqs() []uint64 { return readNumbers[uint64](r, r.count(MaxSeen)) }

func readNumbers[T ~uint64](r *reader, n int) []T {
	if n == 0 {
		return nil
	}
	numbers := make([]T, n)
	for i := range numbers {
		numbers[i] = T(r.uvarint())
	}
	return numbers
}

func readStrings(r *reader, n int) []string {
	if n == 0 {
		return nil
	}
	texts := make([]string, n)
	for i := range texts {
		texts[i] = r.string()
	}
	return texts
}
