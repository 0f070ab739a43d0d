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

// appendTreeHolders appends the holders above and below key that conflict with w: one
// vertex for each key above, and one for all keys below.
func (d *search) appendTreeHolders(vertices []vertex, key string, w *waiter) []vertex {
	for p := range above(key) {
		d.steps++
		if len(d.s.keys.get(p).holders) > 0 {
			vertices = append(vertices, vertex{key: p, kind: treeHolders, tree: w.Tree, mode: w.Mode})
		}
	}
	return append(vertices, vertex{key: key, kind: holdersBelow, tree: w.Tree, mode: w.Mode})
}

// treeHoldersOf returns the holders of v's key that conflict with v's request.
func (d *search) treeHoldersOf(v vertex) []vertex {
	r := d.s.keys.get(v.key)
	all := r.grantVertices(v.key)
	d.steps += len(all)
	return slices.DeleteFunc(all, func(g vertex) bool { return !treesConflict(v.tree, v.mode, &d.grant(g).Spec) })
}

// holdersBelow returns the holders below v's key that conflict with v's request.
func (d *search) holdersBelow(v vertex) (grants []vertex) {
	// There may be a million holders below. Only grants with waiters under them can be
	// in a cycle, and the lineage knows these.
	if !d.known {
		d.known, d.below = true, d.waitedUnder()
	}
	i, _ := slices.BinarySearchFunc(d.below, v.key+"/", func(g vertex, first string) int { return strings.Compare(g.key, first) })
	for ; i < len(d.below) && isBelow(d.below[i].key, v.key); i++ {
		d.steps++
		if g := d.below[i]; treesConflict(v.tree, v.mode, &d.grant(g).Spec) {
			grants = append(grants, g)
		}
	}
	return grants
}

// ranked is a waiter as a vertex, with its order.
type ranked struct {
	order uint64
	v     vertex
}

// appendTreeWaiters appends the waiters above and below key that stand before w and
// conflict with it, in the same way.
func (d *search) appendTreeWaiters(vertices []vertex, key string, w *waiter) []vertex {
	for p := range above(key) {
		d.steps++
		r := d.s.keys.get(p)
		if n := sort.Search(len(r.queue), func(i int) bool { return r.queue[i].order >= w.order }); n > 0 {
			vertices = append(vertices, vertex{key: p, kind: firstWaiters, tree: w.Tree, mode: w.Mode, n: n})
		}
	}
	below := vertex{key: key, kind: firstBelow, tree: w.Tree, mode: w.Mode}
	list := d.waitersBelow(below)
	below.n, _ = slices.BinarySearchFunc(list, w.order, func(o ranked, order uint64) int { return cmp.Compare(o.order, order) })
	if below.n > 0 {
		vertices = append(vertices, below)
	}
	return vertices
}

// firstWaiters returns the last of the first n waiters of v's key, if it conflicts with
// v's request, and the vertex of the others.
func (d *search) firstWaiters(v vertex) (vertices []vertex) {
	i := v.n - 1
	if w := &d.s.keys.get(v.key).queue[i]; treesConflict(v.tree, v.mode, &w.Spec) {
		d.position[w.requestID] = queued{v.key, i}
		vertices = append(vertices, w.vertex(v.key))
	}
	if v.n = i; v.n > 0 {
		vertices = append(vertices, v)
	}
	return vertices
}

// firstBelow is firstWaiters of all queues below v's key.
func (d *search) firstBelow(v vertex) []vertex {
	n := v.n
	v.n = 0
	vertices := []vertex{d.waitersBelow(v)[n-1].v}
	if v.n = n - 1; v.n > 0 {
		vertices = append(vertices, v)
	}
	return vertices
}

// waitersBelow returns the waiters below v's key that conflict with v's request, in
// their order.
func (d *search) waitersBelow(v vertex) []ranked {
	list, ok := d.waiters[v]
	if ok {
		return list
	}
	for key := range d.s.keys.keysBelow(v.key, waitersBelow(v.tree)) {
		r := d.s.keys.get(key)
		for i := range r.queue {
			d.steps++
			if w := &r.queue[i]; treesConflict(v.tree, v.mode, &w.Spec) {
				d.position[w.requestID] = queued{key, i}
				list = append(list, ranked{w.order, w.vertex(key)})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b ranked) int { return cmp.Compare(a.order, b.order) })
	d.waiters[v] = list
	return list
}

// waitedUnder returns the grants with waiters under them, in the order of their keys.
func (d *search) waitedUnder() (grants []vertex) {
	s := d.s
	for _, t := range slices.Sorted(maps.Keys(s.lineage)) {
		o := d.holderOf(t)
		if o == nil {
			continue
		}
		seq, at, _ := s.grantOf(o, t)
		for _, key := range s.keysOf(o, seq, at) {
			grants = append(grants, vertex{token: at.token, key: key, kind: aGrant})
		}
	}
	slices.SortStableFunc(grants, func(a, b vertex) int { return strings.Compare(a.key, b.key) })
	return grants
}

// holderOf returns the session with the grant of a lineage token; nil if no session
// has the grant. Mostly the session under the grant is the holder. Otherwise one
// search through all sessions is enough, even a search in vain: an ended grant does
// not come back.
func (d *search) holderOf(t Token) *session {
	s := d.s
	b := s.lineage[t]
	has := func(o *session) bool {
		_, _, g := s.grantOf(o, t)
		return g != nil && g.lineageToken() == t
	}
	if b.gone {
		return nil
	}
	if o := s.sessions.get(b.holder); o != nil && has(o) {
		return o
	}
	for id, o := range s.sessions.all {
		d.steps++
		if has(o) {
			b.holder = id
			return o
		}
	}
	b.gone = true
	return nil
}
