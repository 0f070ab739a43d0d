package wire

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
)

// MaxBody bounds the body of a frame: the rest of MaxFrame is the array's head,
// three integers and the body's length, each at its longest.
const MaxBody = MaxFrame - 1 - 3*9 - 5

// Marshal encodes a message, or a part of a message, as msgpack.
func Marshal(v any) []byte { return Append(nil, v) }

// Append appends the encoding of v to dst.
func Append(dst []byte, v any) []byte {
	w := writers.Get().(*writer)
	w.bytes, w.keeps = dst, true
	w.encode(v)
	dst, w.bytes = w.bytes, nil
	writers.Put(w)
	return dst
}

// Size returns the number of bytes that Append would append.
func Size(v any) int {
	w := writers.Get().(*writer)
	w.size, w.keeps = 0, false
	w.encode(v)
	n := w.size
	writers.Put(w)
	return n
}

// A writer keeps the bytes that an encoder writes, or only counts them.
type writer struct {
	encoder *msgpack.Encoder
	keeps   bool
	bytes   []byte
	size    int
}

var writers = sync.Pool{New: func() any {
	w := &writer{}
	w.encoder = msgpack.NewEncoder(w)
	return w
}}

func (w *writer) encode(v any) {
	if err := w.encoder.Encode(v); err != nil {
		// Messages are plain structs, and a write to memory cannot fail. The only
		// possible error is a field type unknown to msgpack, and every test of
		// the message finds that error.
		panic(err)
	}
}

func (w *writer) Write(p []byte) (int, error) {
	if w.keeps {
		w.bytes = append(w.bytes, p...)
	} else {
		w.size += len(p)
	}
	return len(p), nil
}

func (w *writer) WriteByte(c byte) error {
	if w.keeps {
		w.bytes = append(w.bytes, c)
	} else {
		w.size++
	}
	return nil
}

// Unmarshal decodes a message from untrusted bytes. The memory used is proportional
// to len(b), also if lengths in b are false. On an error v may be partly filled.
func Unmarshal(b []byte, v any) error {
	err := validate(b)
	if err == nil {
		err = msgpack.NewDecoder(bytes.NewReader(b)).Decode(v)
	}
	if err != nil {
		return fmt.Errorf("wire: %T: %w", v, err)
	}
	return nil
}
