package term

import "testing"

// A map that was large takes little once it is small.
func TestAMapFollowsItsSize(t *testing.T) {
	var f fitMap[int, int]
	if f.has(1) || f.len() != 0 {
		t.Error("an empty map has something")
	}
	f.delete(1)
	for _, left := range []int{3, 0, 900} {
		for i := range 1000 {
			f.set(i, 2*i)
		}
		for i := left; i < 1000; i++ {
			f.delete(i)
		}
		for i := range 1000 {
			if f.has(i) != (i < left) || i < left && f.m[i] != 2*i {
				t.Fatalf("%d of %d: %v, %d", i, left, f.has(i), f.m[i])
			}
		}
		if f.len() != left || f.peak > max(leastPeak, 4*left+4) {
			t.Errorf("%d of 1,000 are left, with memory for %d", f.len(), f.peak)
		}
	}
}
