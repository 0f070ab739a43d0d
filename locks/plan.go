package locks

import "github.com/wardmote/wardmote/internal/machine"

// The plan, made by assign, decides which caller of Spread owns which shard. All
// callers compute the same plan from the same view, and each caller carries out
// only its own part. Views may be stale, and the parts may be carried out in any
// order: the locks keep each shard with a single owner, and the plan for a later
// view does not undo the moves begun by an earlier plan.

// assign returns for each shard the index of its next owner in callers. No two
// callers' numbers of shards differ by more than one, and as few shards as
// possible move. Without callers, all indexes are -1.
//
// Each caller's quota is shards / callers. The remainder goes to callers with
// more shards than the quota, and then to the earliest callers. An owner keeps
// its lowest shards up to the quota. All other shards go, in ascending order,
// to the callers below their quota, the earliest first.
//
// Not rendezvous hashing or a hash ring, neither of which needs a view: both
// divide less evenly, or move more shards. The present owners are known, and
// only because the plan starts from the present owners are the moves few.
func assign(callers, owners []machine.SessionID) []int {
	targets := make([]int, len(owners))
	index := make(map[machine.SessionID]int, len(callers))
	for i, m := range callers {
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
	owned := make([]int, len(callers))
	for _, owner := range owners {
		if i, ok := index[owner]; ok {
			owned[i]++
		}
	}

	each, spare := len(owners)/len(index), len(owners)%len(index)
	quotas := make([]int, len(callers))
	for i, m := range callers {
		if index[m] != i {
			continue // listed before
		}
		quotas[i] = each
		if owned[i] > each && spare > 0 {
			quotas[i]++
			spare--
		}
	}
	for i, m := range callers {
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
