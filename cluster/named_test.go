package cluster

import (
	"slices"
	"testing"
	"time"
)

// A cluster of Founders in memory rests on their names: the founders outside a
// majority of the voters must be too few to found again. So nobody else votes, and
// two of three founders that found with two voters never become one.
func TestOnlyFoundersInMemoryVote(t *testing.T) {
	inBubble(t, func(b *bubble) {
		named := founders("n1", "n2", "n3")
		n1, n2 := b.start("n1", named), b.start("n2", named)
		others := []*Node{b.start("n4", named), b.start("n5", named)}
		b.ready(n1, n2)
		b.ready(others...)
		time.Sleep(30 * time.Second)
		if v := b.voters(); !slices.Equal(slices.Sorted(slices.Values(v)), []string{"n1", "n2"}) {
			t.Fatalf("the voters are %v", v)
		}
		went := n2
		if b.leader() == n2 {
			went = n1
		}
		began := time.Now()
		go went.Stop() // leaves, and is not replaced
		delete(b.nodes, went.Name())
		time.Sleep(time.Since(began) + 20*time.Second)
		for _, n := range b.nodes {
			if r := n.seat.Current(); r != nil && len(r.Voters()) != 2 {
				t.Errorf("%s votes among %v", n.Name(), r.Voters())
			}
		}
	})
}

// The names count for nothing where every address of Join is asked, or where a Dir
// remembers.
func TestNamesLimitTheVotersInMemoryOnly(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	for _, tt := range []struct {
		claim string
		cfg   Config
		least int
		named bool
	}{
		{"no founders", Config{}, 1, false},
		{"three founders", Config{Founders: names[:3]}, 2, true},
		{"one voter wanted", Config{Founders: names[:3], Voting: Voting{Voters: 1}}, 1, true},
		{"seven founders", Config{Founders: names}, 4, true},
		{"with a Dir", Config{Founders: names, Dir: "dir"}, 1, false},
		{"a complete list", Config{Founders: names, Recovery: Recovery{JoinIsComplete: true}}, 1, false},
	} {
		n := &Node{cfg: tt.cfg}
		if least, only := n.namedVoters(); least != tt.least || (only != nil) != tt.named {
			t.Errorf("%s: at least %d of %v", tt.claim, least, only)
		}
	}
}
