package machine

import (
	"testing"

	"pgregory.net/rapid"
)

// TestSpansAreASet compares spans with a map.
func TestSpansAreASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p spans
		in := make(map[uint64]bool)
		edge := rapid.SampledFrom([]uint64{1, 1 << 40, ^uint64(0) - 20}).Draw(t, "edge")
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			seq := edge + rapid.Uint64Range(0, 20).Draw(t, "seq")
			if !p.add(seq) {
				t.Fatal("full")
			}
			in[seq] = true
			if !p.valid() {
				t.Fatalf("%v", p)
			}
		}
		for seq := edge; ; seq++ {
			if p.has(seq) != in[seq] {
				t.Fatalf("%d in %v: %t", seq, p, p.has(seq))
			}
			if seq-edge == 20 {
				break
			}
		}
	})
}
