package wire

import "sync"

// maxBuffer is the capacity of the largest buffer that is used again.
const maxBuffer = 4 << 10

var buffers = sync.Pool{New: func() any { return new(make([]byte, 0, 256)) }}

// Buffer returns an empty buffer, for the encoding of a body that is copied into a stream.
func Buffer() *[]byte { return buffers.Get().(*[]byte) }

// Free takes a buffer back. Nobody may use the buffer any more, nor a part of it.
func Free(b *[]byte) {
	if cap(*b) > maxBuffer {
		return
	}
	*b = (*b)[:0]
	buffers.Put(b)
}
