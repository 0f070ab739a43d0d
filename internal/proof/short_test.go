package proof

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// Processes that live at one address one after the other share nothing, however short
// they live, however late their handshakes are told, and although a process still
// answers after its goodbye.
func TestShortLivesAtOneAddressShareNothing(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		within := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
		var sights []sight
		at := time.Duration(0)
		for id := range uint64(8) {
			who, born := boot{fmt.Sprint("n", r.IntN(4), r.IntN(2)*int(id)), id + 1}, at
			at += 1 + within(3*timing.ProofAgain)
			for range r.IntN(4) {
				begun, late := born+within(at-born), within(timing.ProofAgain)
				sights = append(sights, sight{at: begun + late, late: late, addr: here, who: who})
			}
			if r.IntN(2) == 0 {
				sights = append(sights, sight{at: born + within(at-born), who: who, bye: true})
			}
			at++
		}
		slices.SortStableFunc(sights, func(a, b sight) int { return cmp.Compare(a.at, b.at) })
		k := newKernel()
		for _, s := range sights {
			if f := s.show(k); len(f.shared) > 0 {
				t.Fatalf("seed %d: %v share the address, at %v", seed, f.shared, s.at)
			}
		}
	}
}
