package main

import (
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestTheProgram(t *testing.T) {
	for seed := range uint64(20) {
		var out strings.Builder
		if err := demo(&out, rand.New(rand.NewPCG(seed, 0))); err != nil {
			t.Errorf("seed %d: %v, after\n%s", seed, err, out.String())
		}
	}
}

// The three laws of a merge.
func TestMerge(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	merged := func(all ...Counter) Counter {
		sum := Counter{}
		for _, c := range all {
			sum.Merge(c)
		}
		return sum
	}
	some := func() Counter {
		c := Counter{}
		for range random.IntN(4) {
			c.Add(string(rune('a'+random.IntN(4))), 1+random.Uint64N(5))
		}
		return c
	}
	for range 1000 {
		a, b, c := some(), some(), some()
		if !maps.Equal(merged(a, b), merged(b, a)) {
			t.Fatalf("the order counts: %v, %v", a, b)
		}
		if !maps.Equal(merged(merged(a, b), c), merged(a, merged(b, c))) {
			t.Fatalf("the grouping counts: %v, %v, %v", a, b, c)
		}
		if !maps.Equal(merged(a, b, b, a), merged(a, b)) {
			t.Fatalf("a second time counts: %v, %v", a, b)
		}
		if sum := merged(a, b).Sum(); sum < max(a.Sum(), b.Sum()) {
			t.Fatalf("%v and %v make %d", a, b, sum)
		}
	}
}
