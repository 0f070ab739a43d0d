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
			list := []uint64{seq}
			for range rapid.IntRange(0, 4).Draw(t, "more") {
				list = append(list, edge+rapid.Uint64Range(0, 20).Draw(t, "seq"))
			}
			for _, seq := range list {
				in[seq] = true
			}
			if !p.addAll([]uint64{seq}) || !p.addAll(list) {
				t.Fatal("full")
			}
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

// TestAFullSetTakesNothing: seqs that would leave too many gaps change nothing, and seqs
// that fill gaps are taken.
func TestAFullSetTakesNothing(t *testing.T) {
	var p spans
	var odd, even []uint64
	for seq := uint64(2 * MaxGaps); seq > 0; seq -= 2 {
		odd, even = append(odd, seq+1), append(even, seq)
	}
	if !p.addAll(append(odd, 1)) || len(p) != MaxGaps+1 {
		t.Fatalf("%d ranges", len(p))
	}
	if p.addAll([]uint64{2*MaxGaps + 3, 2*MaxGaps + 5}) || p.has(2*MaxGaps+3) {
		t.Error("over the limit")
	}
	if !p.addAll(even) || len(p) != 1 || !p.valid() {
		t.Errorf("%d ranges", len(p))
	}
}
