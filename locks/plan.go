package locks

import "github.com/wardmote/wardmote/internal/machine"

// Which shard is whose? Every caller of Spread computes the same from the same
// view, and acts on its own part only. Views may be stale and parts may be acted
// on in any order: the locks keep each shard with one owner, and the plan of a
// later view does not undo what an earlier one began.

// plan divides the shards, by their present owners, and returns self's part: the
// shards it owns and keeps, those it owns and gives up, and those it does not
// own and takes; each in ascending order.
func plan(members, owners []machine.SessionID, self machine.SessionID) (keep, shed, want []int) {
	targets := assign(members, owners)
	for shard, owner := range owners {
		mine := targets[shard] >= 0 && members[targets[shard]] == self
		switch {
		case mine && owner == self:
			keep = append(keep, shard)
		case mine:
			want = append(want, shard)
		case owner == self:
			shed = append(shed, shard)
		}
	}
	return keep, shed, want
}

// assign gives each shard to a member, by index, so that no two members' numbers
// of shards differ by more than one and as few shards as possible move. Without
// members all shards are -1.
//
// Members' quotas are shards / members. What remains goes to those that hold
// more than that already, and then to the earliest. An owner keeps its lowest
// shards up to its quota; all others go, in ascending order, to the members
// below theirs, the earliest first.
//
// Not rendezvous or a ring, which need no view: they divide less evenly, or move
// more. What is owned now is known, and to remember it is what makes the moves
// few.
func assign(members, owners []machine.SessionID) []int {
	targets := make([]int, len(owners))
	index := make(map[machine.SessionID]int, len(members))
	for i, m := range members {
		if _, ok := index[m]; !ok {
			index[m] = i
		}
	}
	if len(index) == 0 {
		for shard := range targets {
			targets[shard] = -1
		}
		return targets
	}
	owned := make([]int, len(members))
	for _, owner := range owners {
		if i, ok := index[owner]; ok {
			owned[i]++
		}
	}

	each, spare := len(owners)/len(index), len(owners)%len(index)
	quotas := make([]int, len(members))
	for i, m := range members {
		if index[m] != i {
			continue // listed before
		}
		quotas[i] = each
		if owned[i] > each && spare > 0 {
			quotas[i]++
			spare--
		}
	}
	for i, m := range members {
		if index[m] == i && quotas[i] == each && spare > 0 {
			quotas[i]++
			spare--
		}
	}

	var pool []int
	for shard, owner := range owners {
		if i, ok := index[owner]; ok && quotas[i] > 0 {
			targets[shard] = i
			quotas[i]--
		} else {
			pool = append(pool, shard)
		}
	}
	i := 0
	for _, shard := range pool {
		for quotas[i] == 0 {
			i++
		}
		targets[shard] = i
		quotas[i]--
	}
	return targets
}
