package wire

import (
	"sync"

	"github.com/vmihailenco/msgpack/v5"
)

// MaxBody bounds the body of a frame: the rest of MaxFrame is the array's head,
// three integers and the body's length, each at its longest.
const MaxBody = MaxFrame - 1 - 3*9 - 5

// Append appends the encoding of v, which is a message of messages.go or a part
// of one, to dst.
func Append(dst []byte, v any) []byte {
	w := writers.Get().(*writer)
	w.bytes, w.size, w.keeps = dst, 0, true
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
	bytes   []byte
	size    int
	keeps   bool
}

var writers = sync.Pool{New: func() any {
	w := &writer{}
	w.encoder = msgpack.NewEncoder(w)
	return w
}}

func (w *writer) encode(v any) {
	if err := w.encoder.Encode(v); err != nil {
		panic(err) // see Marshal
	}
}

func (w *writer) Write(p []byte) (int, error) {
	if w.keeps {
		w.bytes = append(w.bytes, p...)
	}
	w.size += len(p)
	return len(p), nil
}

func (w *writer) WriteByte(c byte) error {
	if w.keeps {
		w.bytes = append(w.bytes, c)
	}
	w.size++
	return nil
}

// EncodedStatus is a machine.Status that Append has encoded.
type EncodedStatus = msgpack.RawMessage

// EncodedScanned is Scanned, with keys that are encoded already. Both have the
// same encoding.
type EncodedScanned struct {
	Keys    []EncodedStatus
	More    bool
	Version uint64
	Lost    bool
}
