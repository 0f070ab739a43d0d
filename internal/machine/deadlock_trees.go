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

// surroundings is what a search knows of a key with waiters. They do not change meanwhile, and
// thousands of waiters may share a key, or a key above.
type surroundings struct {
	r          *record
	levels     int       // above the key
	above      []*record // of the keys above, the nearest first
	aboveKnown bool
	heldBelow  bool // a key below is held
	belowKnown bool
	waiters    [2][permitMode + 1]*ranking // below, in conflict with a request: see waitersBelow
	alone      []int                       // the indexes of its waiters that are not shared: see lastAlone
	aloneKnown bool
}

const permitMode = int(Permit)

func (d *search) surroundingsOf(r *record) *surroundings {
	x := d.around[r]
	if x == nil {
		x = &surroundings{r: r}
		d.around[r] = x
	}
	return x
}

// recordsAbove returns the records of the keys above x's.
func (d *search) recordsAbove(x *surroundings) []*record {
	if !x.aboveKnown {
		x.aboveKnown, x.levels = true, levelsOf(x.r.key)
		for _, r := range d.s.keys.recordsAbove(x.r.key) {
			x.above = append(x.above, r)
		}
	}
	d.take(levelSteps * x.levels)
	return x.above
}

// needTreeHolders adds the holders above and below x's key that conflict with w: one vertex
// for each key above, and one for all keys below.
func (d *search) needTreeHolders(x *surroundings, w *waiter) {
	for _, r := range d.recordsAbove(x) {
		if len(r.holders) > 0 {
			d.need(vertex{key: r.key, kind: treeHolders, tree: w.Tree, mode: w.Mode}, r)
		}
	}
	if d.heldBelow(x) {
		d.need(vertex{key: x.r.key, kind: holdersBelow, tree: w.Tree, mode: w.Mode}, x.r)
	}
}

// heldBelow reports whether a key below x's is held.
func (d *search) heldBelow(x *surroundings) bool {
	d.take(edgeSteps)
	if !x.belowKnown {
		x.belowKnown = true
		for _, set := range []keySets{heldAlone, heldShared} {
			for range d.s.keys.keysBelow(x.r.key, set) {
				x.heldBelow = true
				break
			}
		}
	}
	return x.heldBelow
}

// treeHoldersOf adds the holders of v's key, of record r, that conflict with v's request.
func (d *search) treeHoldersOf(v vertex, r *record) {
	d.take(len(r.holders))
	for i := range r.holders {
		if g := &r.holders[i]; treesConflict(v.tree, v.mode, &g.Spec) && !d.endsByItself(g) {
			d.need(vertex{token: g.token, key: v.key, kind: aGrant}, r)
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
		g := d.below[i]
		if r := d.s.keys.get(g.key); treesConflict(v.tree, v.mode, &r.grant(g.token).Spec) {
			d.need(g, r)
		}
	}
}

// needTreeWaiters adds the waiters above and below x's key that stand before w and conflict
// with it, in the same way.
func (d *search) needTreeWaiters(x *surroundings, w *waiter) {
	for _, r := range d.recordsAbove(x) {
		if n := sort.Search(len(r.queue), func(i int) bool { return r.queue[i].order >= w.order }); n > 0 {
			d.need(vertex{key: r.key, kind: firstWaiters, tree: w.Tree, mode: w.Mode, n: n}, r)
		}
	}
	if n := d.waitersBelow(x, w.Tree, w.Mode).before(w.order); n > 0 {
		d.need(vertex{key: x.r.key, kind: firstBelow, tree: w.Tree, mode: w.Mode, n: n}, x.r)
	}
}

// firstWaiters adds the last of the first n waiters of v's key, of record r, if it conflicts
// with v's request, and the vertex of the others.
func (d *search) firstWaiters(v vertex, r *record) {
	v.n--
	if treesConflict(v.tree, v.mode, &r.queue[v.n].Spec) {
		d.needAt(r, v.n)
	}
	if v.n > 0 {
		d.need(v, r)
	}
}

// firstBelow is firstWaiters of all queues below v's key.
func (d *search) firstBelow(v vertex, r *record) {
	v.n--
	at := d.waitersBelow(d.surroundingsOf(r), v.tree, v.mode).list[v.n]
	d.needAt(at.r, at.i)
	if v.n > 0 {
		d.need(v, r)
	}
}

// ranking is waiters in their order. Of equal orders, those of the first keys come first.
type ranking struct{ list []ranked }

// ranked is the waiter at index i of the queue of r, with its order.
type ranked struct {
	order uint64
	r     *record
	i     int
}

// before returns how many of the waiters stand before an order.
func (l *ranking) before(order uint64) int {
	return sort.Search(len(l.list), func(i int) bool { return l.list[i].order >= order })
}

// waitersBelow returns the waiters below x's key that conflict with a request.
func (d *search) waitersBelow(x *surroundings, tree bool, mode Mode) *ranking {
	known := &x.waiters[bit(tree, 1)][mode]
	if *known != nil {
		return *known
	}
	l := new(ranking)
	*known = l
	for key := range d.s.keys.keysBelow(x.r.key, waitersBelow(tree)) {
		r := d.s.keys.get(key)
		if !d.take(edgeSteps + vertexSteps*len(r.queue)) {
			break
		}
		for i := range r.queue {
			if treesConflict(tree, mode, &r.queue[i].Spec) {
				l.list = append(l.list, ranked{r.queue[i].order, r, i})
			}
		}
	}
	l.sort()
	return l
}

// sort sorts the waiters, as they were met, by their orders. It sorts by digits of eleven
// bits: a comparison of twenty thousand waiters, each with fifteen others, takes a millisecond.
func (l *ranking) sort() {
	const bits, digits = 11, 1 << 11
	if len(l.list) < digits/16 {
		slices.SortStableFunc(l.list, func(a, b ranked) int { return cmp.Compare(a.order, b.order) })
		return
	}
	least, most := l.list[0].order, l.list[0].order
	for i := range l.list {
		least, most = min(least, l.list[i].order), max(most, l.list[i].order)
	}
	from, to := l.list, make([]ranked, len(l.list))
	for shift := 0; shift < 64 && (most-least)>>shift > 0; shift += bits {
		var starts [digits + 1]int
		for i := range from {
			starts[(from[i].order-least)>>shift%digits+1]++
		}
		for i := range digits {
			starts[i+1] += starts[i]
		}
		for i := range from {
			at := &starts[(from[i].order-least)>>shift%digits]
			to[*at] = from[i]
			*at++
		}
		from, to = to, from
	}
	l.list = from
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
