package machine

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"
)

// The edges of the graph of waits that trees cause. Thousands of waiters may meet
// thousands of holders and waiters above and below their keys. So a waiter needs these
// through vertices that it shares with other waiters, and the search stays linear.

// needTreeHolders adds the holders above and below key that conflict with w: one vertex
// for each key above, and one for all keys below.
func (d *search) needTreeHolders(key string, w *waiter) {
	d.take(levelSteps * levelsOf(key))
	for p, r := range d.s.keys.recordsAbove(key) {
		if len(r.holders) > 0 {
			d.need(vertex{key: p, kind: treeHolders, tree: w.Tree, mode: w.Mode})
		}
	}
	if d.heldBelow(key) {
		d.need(vertex{key: key, kind: holdersBelow, tree: w.Tree, mode: w.Mode})
	}
}

// heldBelow reports whether a key below key is held.
func (d *search) heldBelow(key string) bool {
	d.take(edgeSteps)
	for _, set := range []keySets{heldAlone, heldShared} {
		for range d.s.keys.keysBelow(key, set) {
			return true
		}
	}
	return false
}

// treeHoldersOf adds the holders of v's key that conflict with v's request.
func (d *search) treeHoldersOf(v vertex) {
	r := d.s.keys.get(v.key)
	d.take(len(r.holders))
	for i := range r.holders {
		if g := &r.holders[i]; treesConflict(v.tree, v.mode, &g.Spec) && !d.endsByItself(g) {
			d.need(vertex{token: g.token, key: v.key, kind: aGrant})
		}
	}
}

// holdersBelow adds the holders below v's key that conflict with v's request.
func (d *search) holdersBelow(v vertex) {
	// There may be a million holders below. Only grants with waiters under them can be
	// in a cycle, and the lineage knows these.
	if !d.known {
		d.known, d.below = true, d.waitedUnder()
	}
	i, _ := slices.BinarySearchFunc(d.below, v.key+"/", func(g vertex, first string) int { return strings.Compare(g.key, first) })
	for ; i < len(d.below) && isBelow(d.below[i].key, v.key) && d.take(1); i++ {
		if g := d.below[i]; treesConflict(v.tree, v.mode, &d.grant(g).Spec) {
			d.need(g)
		}
	}
}

// ranked is the waiter at index i of key's queue, with its order.
type ranked struct {
	order uint64
	at    int // in the order of the keys and queues
	queued
}

// needTreeWaiters adds the waiters above and below key that stand before w and conflict
// with it, in the same way.
func (d *search) needTreeWaiters(key string, w *waiter) {
	d.take(levelSteps * levelsOf(key))
	for p, r := range d.s.keys.recordsAbove(key) {
		if n := sort.Search(len(r.queue), func(i int) bool { return r.queue[i].order >= w.order }); n > 0 {
			d.need(vertex{key: p, kind: firstWaiters, tree: w.Tree, mode: w.Mode, n: n})
		}
	}
	below := vertex{key: key, kind: firstBelow, tree: w.Tree, mode: w.Mode}
	list := d.waitersBelow(below)
	below.n, _ = slices.BinarySearchFunc(list, w.order, func(o ranked, order uint64) int { return cmp.Compare(o.order, order) })
	if below.n > 0 {
		d.need(below)
	}
}

// firstWaiters adds the last of the first n waiters of v's key, if it conflicts with v's
// request, and the vertex of the others.
func (d *search) firstWaiters(v vertex) {
	v.n--
	r := d.s.keys.get(v.key)
	if treesConflict(v.tree, v.mode, &r.queue[v.n].Spec) {
		d.needAt(v.key, r, v.n)
	}
	if v.n > 0 {
		d.need(v)
	}
}

// firstBelow is firstWaiters of all queues below v's key.
func (d *search) firstBelow(v vertex) {
	n := v.n - 1
	v.n = 0
	at := d.waitersBelow(v)[n]
	d.needAt(at.key, d.s.keys.get(at.key), at.i)
	if v.n = n; v.n > 0 {
		d.need(v)
	}
}

// waitersBelow returns the waiters below v's key that conflict with v's request, in
// their order.
func (d *search) waitersBelow(v vertex) []ranked {
	list, ok := d.lists[v]
	if ok {
		return list
	}
	for key := range d.s.keys.keysBelow(v.key, waitersBelow(v.tree)) {
		r := d.s.keys.get(key)
		if !d.take(edgeSteps + vertexSteps*len(r.queue)) {
			break
		}
		for i := range r.queue {
			if treesConflict(v.tree, v.mode, &r.queue[i].Spec) {
				list = append(list, ranked{r.queue[i].order, len(list), queued{key, i}})
			}
		}
	}
	// Of equal orders, the first keys come first, as they were met.
	slices.SortFunc(list, func(a, b ranked) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.at, b.at)) })
	d.lists[v] = list
	return list
}

// waitedUnder returns the grants with waiters under them, in the order of their keys.
func (d *search) waitedUnder() (grants []vertex) {
	s := d.s
	if !d.take(vertexSteps * len(s.lineage)) {
		return nil
	}
	for _, t := range slices.Sorted(maps.Keys(s.lineage)) {
		x := s.owners.get(t)
		if x == nil {
			continue
		}
		o := s.sessions.get(x.id)
		seq, at, _ := s.grantOf(o, t)
		keys := s.keysOf(o, seq, at)
		if !d.take(edgeSteps * len(keys)) {
			return nil
		}
		for _, key := range keys {
			grants = append(grants, vertex{token: at.token, key: key, kind: aGrant})
		}
	}
	slices.SortStableFunc(grants, func(a, b vertex) int { return strings.Compare(a.key, b.key) })
	return grants
}
