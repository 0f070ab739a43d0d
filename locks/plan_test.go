package locks

import (
	"fmt"
	"slices"
	"testing"

	"github.com/wardmote/wardmote/internal/machine"
	"pgregory.net/rapid"
)

func sid(i int) machine.SessionID { return machine.SessionID{byte(i), byte(i >> 8), 1} }

func sids(is ...int) (ids []machine.SessionID) {
	for _, i := range is {
		ids = append(ids, sid(i))
	}
	return ids
}

func TestPlanTables(t *testing.T) {
	const x = 99 // an owner, but no member
	for _, test := range []struct {
		claim           string
		members, owners []int
		self            int
		keep, shed      []int
		want            []int
	}{
		{"alone, it takes all", []int{1}, []int{0, 0, 0}, 1, nil, nil, []int{0, 1, 2}},
		{"the remainder goes to the earliest", []int{1, 2}, []int{0, 0, 0}, 1, nil, nil, []int{0, 1}},
		{"and the rest to the next", []int{1, 2}, []int{0, 0, 0}, 2, nil, nil, []int{2}},
		{"a newcomer gets the highest", []int{1, 2}, []int{1, 1, 1, 1}, 1, []int{0, 1}, []int{2, 3}, nil},
		{"which it wants", []int{1, 2}, []int{1, 1, 1, 1}, 2, nil, nil, []int{2, 3}},
		{"who holds more keeps the remainder", []int{1, 2}, []int{1, 2, 2}, 2, []int{1, 2}, nil, nil},
		{"also from the earliest", []int{1, 2}, []int{1, 2, 2}, 1, []int{0}, nil, nil},
		{"a leaver's shards are divided", []int{1, 2}, []int{1, 2, x, x}, 2, []int{1}, nil, []int{3}},
		{"not a member, it gives all up", []int{1}, []int{2, 2}, 2, nil, []int{0, 1}, nil},
		{"more members than shards", []int{1, 2, 3}, []int{0, 0}, 3, nil, nil, nil},
		{"but an owner among them stays", []int{1, 2, 3}, []int{3, 0}, 3, []int{0}, nil, nil},
		{"no members, nothing moves", nil, []int{1}, 2, nil, nil, nil},
		{"a member listed twice counts once", []int{1, 1, 2}, []int{0, 0}, 2, nil, nil, []int{1}},
	} {
		owners := make([]machine.SessionID, len(test.owners))
		for i, o := range test.owners {
			if o != 0 {
				owners[i] = sid(o)
			}
		}
		keep, shed, want := plan(sids(test.members...), owners, sid(test.self))
		if !slices.Equal(keep, test.keep) || !slices.Equal(shed, test.shed) || !slices.Equal(want, test.want) {
			t.Errorf("%s: keep %v shed %v want %v", test.claim, keep, shed, want)
		}
	}
}

// plan divides the shards among callers, given the shards' present owners, and
// returns self's part in ascending order: the shards to keep, the shards to
// give up, and the shards to take.
func plan(callers, owners []machine.SessionID, self machine.SessionID) (keep, giveUp, take []int) {
	targets := assign(callers, owners)
	for shard, owner := range owners {
		mine := targets[shard] >= 0 && callers[targets[shard]] == self
		switch {
		case mine && owner == self:
			keep = append(keep, shard)
		case mine:
			take = append(take, shard)
		case owner == self:
			giveUp = append(giveUp, shard)
		}
	}
	return keep, giveUp, take
}

// group is a random view.
type group struct {
	members []machine.SessionID
	owners  []machine.SessionID
}

func drawGroup(t *rapid.T) group {
	n := rapid.IntRange(1, 7).Draw(t, "members")
	g := group{owners: make([]machine.SessionID, rapid.IntRange(1, 40).Draw(t, "shards"))}
	for i := range n {
		g.members = append(g.members, sid(i+1))
	}
	for i := range g.owners {
		// 0 is a vacant shard, and the last two owners are no members.
		if o := rapid.IntRange(0, n+2).Draw(t, "owner"); o > 0 {
			g.owners[i] = sid(o)
		}
	}
	return g
}

// fewestMoves is the least number of shards that must move until the members'
// numbers differ by at most 1. The plan computes the number in another way:
// fewestMoves tries every choice of the members that get the remainder.
func (g group) fewestMoves() int {
	owned := make(map[machine.SessionID]int)
	for _, o := range g.owners {
		owned[o]++
	}
	each, spare := len(g.owners)/len(g.members), len(g.owners)%len(g.members)
	most := 0
	for set := range 1 << len(g.members) {
		kept, bits := 0, 0
		for i, m := range g.members {
			quota := each
			if set>>i&1 == 1 {
				quota++
				bits++
			}
			kept += min(owned[m], quota)
		}
		if bits == spare {
			most = max(most, kept)
		}
	}
	return len(g.owners) - most
}

func TestPlanIsBalancedMinimalAndTheSameForAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t)
		taker := make([]int, len(g.owners))
		moves := 0
		sizes := make([]int, len(g.members))
		for i, m := range g.members {
			keep, shed, want := plan(g.members, g.owners, m)
			for _, s := range append(slices.Clone(keep), want...) {
				taker[s]++
			}
			moves += len(want)
			sizes[i] = len(keep) + len(want)
			for _, s := range append(slices.Clone(keep), shed...) {
				if g.owners[s] != m {
					t.Fatalf("member %d keeps or sheds shard %d of another", i, s)
				}
			}
		}
		for s, n := range taker {
			if n != 1 {
				t.Fatalf("shard %d falls to %d members", s, n)
			}
		}
		if slices.Max(sizes)-slices.Min(sizes) > 1 {
			t.Fatalf("sizes %v", sizes)
		}
		if best := g.fewestMoves(); moves != best {
			t.Fatalf("%d moves, %d would do", moves, best)
		}
	})
}

// After any part of a plan has been carried out, the next plan has the same targets:
// no shard moves twice.
func TestPlanIsStableUnderPartialApplication(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t)
		targets := assign(g.members, g.owners)
		owners := slices.Clone(g.owners)
		for s := range owners {
			if owners[s] != g.members[targets[s]] {
				switch rapid.IntRange(0, 2).Draw(t, "step") {
				case 0:
					owners[s] = machine.SessionID{} // released, not yet taken
				case 1:
					owners[s] = g.members[targets[s]] // handed over
				}
			}
		}
		final := func(owners []machine.SessionID) int {
			moves := 0
			for s, target := range assign(g.members, owners) {
				if owners[s] != g.members[target] {
					moves++
				}
			}
			return moves
		}
		left := 0
		for s := range owners {
			if owners[s] != g.members[targets[s]] {
				left++
			}
		}
		if n := final(owners); n != left {
			t.Fatalf("%d moves were left of the plan, %d are in the new one", left, n)
		}
	})
}

// Members move single shards, in any order and on views of any age. Once all members
// see the latest state, the group comes to rest balanced.
func TestPlanConvergesFromStaleViews(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t)
		views := make([][]machine.SessionID, len(g.members))
		for i := range views {
			views[i] = slices.Clone(g.owners)
		}
		// The table: an owner and the waiters of each shard.
		queue := make([][]machine.SessionID, len(g.owners))
		owners := slices.Clone(g.owners)
		for i, o := range owners {
			if !slices.Contains(g.members, o) {
				owners[i] = machine.SessionID{} // strangers leave
			}
		}
		serve := func(s int) {
			if owners[s] == (machine.SessionID{}) && len(queue[s]) > 0 {
				owners[s], queue[s] = queue[s][0], queue[s][1:]
			}
		}
		act := func(i int) {
			m := g.members[i]
			keep, _, want := plan(g.members, views[i], m)
			mine := append(keep, want...)
			for s := range owners {
				waits := slices.Contains(queue[s], m)
				switch wanted := slices.Contains(mine, s); {
				case wanted && !waits && owners[s] != m:
					queue[s] = append(queue[s], m)
				case !wanted && waits:
					queue[s] = slices.DeleteFunc(queue[s], func(w machine.SessionID) bool { return w == m })
				case !wanted && owners[s] == m:
					owners[s] = machine.SessionID{}
				}
				serve(s)
			}
		}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, len(g.members)-1).Draw(t, "member")
			if rapid.Bool().Draw(t, "look") {
				views[i] = slices.Clone(owners)
			}
			act(i)
		}
		for round := 0; ; round++ {
			before := fmt.Sprint(owners, queue)
			for i := range g.members {
				views[i] = slices.Clone(owners)
				act(i)
			}
			if fmt.Sprint(owners, queue) == before {
				break
			}
			if round > 4*len(g.members)+4 {
				t.Fatalf("no rest after %d rounds", round)
			}
		}
		sizes := make(map[machine.SessionID]int)
		for s, o := range owners {
			if o == (machine.SessionID{}) {
				t.Fatalf("shard %d has no owner", s)
			}
			sizes[o]++
		}
		for _, m := range g.members {
			if n := sizes[m]; n < len(owners)/len(g.members) || n > len(owners)/len(g.members)+1 {
				t.Fatalf("member owns %d of %d shards", n, len(owners))
			}
		}
	})
}

func BenchmarkPlan(b *testing.B) {
	members := make([]machine.SessionID, 32)
	for i := range members {
		members[i] = sid(i + 1)
	}
	owners := make([]machine.SessionID, MaxShards)
	for i := range owners {
		owners[i] = sid(i%40 + 1)
	}
	for b.Loop() {
		plan(members, owners, members[7])
	}
}
