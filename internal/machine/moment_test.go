package machine

import (
	"errors"
	"math"
	"testing"
	"unsafe"
)

// TestAGrantIsSmall: 48 bytes are a size of Go's allocator, and the next one is 64.
func TestAGrantIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(grant{}); size > 48 {
		t.Errorf("%d bytes", size)
	}
}

// TestMomentsAreTimes: a moment is the time it was made of, up to the last one, and a later
// time in an image is damage.
func TestMomentsAreTimes(t *testing.T) {
	for _, ms := range []uint64{0, 1, 0xffff, 0x10000, 0xffffffff, 0x100000000, 1_790_000_000_000, maxMoment} {
		if got := momentOf(ms).ms(); got != ms {
			t.Errorf("%d is read as %d", ms, got)
		}
	}
	for _, ms := range []uint64{maxMoment + 1, math.MaxUint64} {
		if got := momentOf(ms).ms(); got != maxMoment {
			t.Errorf("%d is read as %d", ms, got)
		}
	}
	for _, ms := range []uint64{maxMoment, maxMoment + 1} {
		c := &coder{}
		token := uint64(7)
		c.numbers(&token, &ms)
		f := c.fields()
		f.done()
		(&requestID{}).code(c)
		(&Spec{}).code(c)
		d := &coder{decoding: true, in: reader{b: c.out}}
		var g grant
		if g.code(d); errors.Is(d.in.err, errForm) != (ms > maxMoment) {
			t.Errorf("%d: %v", ms, d.in.err)
		}
	}
}
