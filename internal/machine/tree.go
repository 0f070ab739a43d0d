package machine

import (
	"cmp"
	"iter"
	"math"
	"math/bits"
	"strings"
)

// Trees: keys are paths of segments between slashes, and a tree is a request for a
// key and all keys below. There may be a million keys below a tree, so no function
// here visits all of them: the ordered sets of keyTable name the relevant keys.
// Without trees in the table each function returns at once.

// above yields the keys above key, the nearest first. A key without a slash has
// none.
func above(key string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := strings.LastIndexByte(key, '/'); i > 0; i = strings.LastIndexByte(key[:i], '/') {
			if !yield(key[:i]) {
				return
			}
		}
	}
}

// recordsAbove yields the keys above key that have a record, with the record, the nearest
// first. The shards of all keys above are found in one pass over key: a set of a thousand
// keys has thousands of keys above, of hundreds of bytes each.
func (t *keyTable) recordsAbove(key string) iter.Seq2[string, *record] {
	return func(yield func(string, *record) bool) {
		var ends [MaxKey]uint16
		var shards [MaxKey]uint8
		n, h := 0, uint64(fnvOffset)
		for i := range len(key) {
			if key[i] == '/' && i > 0 {
				ends[n], shards[n] = uint16(i), fold(h)
				n++
			}
			h = (h ^ uint64(key[i])) * fnvPrime
		}
		for n--; n >= 0; n-- {
			p := key[:ends[n]]
			if r := t.getIn(shards[n], tagOf(p), p); r != nil && !yield(p, r) {
				return
			}
		}
	}
}

// compareBelow compares k with the least key that may be below p: p and a slash.
func compareBelow(k, p string) int {
	n := len(p)
	if len(k) <= n {
		return cmp.Or(strings.Compare(k, p), -1)
	}
	switch c := strings.Compare(k[:n], p); {
	case c != 0:
		return c
	case k[n] != '/':
		return cmp.Compare(k[n], '/')
	}
	return cmp.Compare(len(k), n+1)
}

func isBelowAnother(key string) bool { return strings.LastIndexByte(key, '/') > 0 }

// isBelow reports whether key is below p.
func isBelow(key, p string) bool {
	return len(key) > len(p) && key[len(p)] == '/' && strings.HasPrefix(key, p)
}

// treesConflict reports whether two requests conflict, where the key of the first is
// above or below the other's.
func treesConflict(tree bool, mode Mode, other *Spec) bool {
	return (tree || other.Tree) && !(mode == Shared && other.Mode == Shared)
}

// waitedForAbove reports whether requests wait for keys above key, whatever they ask for. A
// tree among them waits for key.
func (t *keyTable) waitedForAbove(key string) bool {
	if t.trees == 0 {
		return false
	}
	for _, r := range t.recordsAbove(key) {
		if len(r.queue) > 0 {
			return true
		}
	}
	return false
}

// keysBelow yields the keys below key in one of the sets. The sets must not change
// meanwhile.
func (t *keyTable) keysBelow(key string, set keySets) iter.Seq[string] {
	return t.belowSet(set).under(key)
}

// belowSet returns the set of keys below others.
func (t *keyTable) belowSet(set keySets) *ordered {
	return &t.below[bits.TrailingZeros8(uint8(set))]
}

// waitedForBelow reports whether a key below key has a waiter.
func (t *keyTable) waitedForBelow(key string) bool {
	for range t.keysBelow(key, waitedFor) {
		return true
	}
	return false
}

// heldAgainstByTree reports whether a holder above or below key conflicts with w.
func (t *keyTable) heldAgainstByTree(key string, w *waiter) bool {
	if t.trees == 0 && !w.Tree {
		return false
	}
	_, g := t.treeHolder(key, w)
	return g != nil
}

// aboveAndBelow yields the keys above key with a record, and then the keys below key in one
// of the sets, with their records. The sets must not change meanwhile.
func (t *keyTable) aboveAndBelow(key string, sets ...keySets) iter.Seq2[string, *record] {
	return func(yield func(string, *record) bool) {
		for p, r := range t.recordsAbove(key) {
			if !yield(p, r) {
				return
			}
		}
		for _, set := range sets {
			for k := range t.keysBelow(key, set) {
				if !yield(k, t.get(k)) {
					return
				}
			}
		}
	}
}

// treeHolder returns a holder above or below key in conflict with w, and the
// holder's key; nil if there is none.
func (t *keyTable) treeHolder(key string, w *waiter) (at string, g *grant) {
	if t.trees == 0 && !w.Tree {
		return "", nil
	}
	tree, mode := w.Tree, w.Mode // copies: w does not escape to the heap
	// There may be a million keys below, so the search looks only in the sets of keys
	// that can have such a holder.
	sets := []keySets{treed}
	if tree {
		sets = []keySets{heldAlone, heldShared}
		if mode == Shared {
			sets = sets[:1]
		}
	}
	for k, r := range t.aboveAndBelow(key, sets...) {
		if mode == Shared && len(r.holders) > 0 && r.holders[0].Mode == Shared {
			continue
		}
		for i := range r.holders {
			look(1)
			if g := &r.holders[i]; treesConflict(tree, mode, &g.Spec) {
				return k, g
			}
		}
	}
	return "", nil
}

// treeWaiters yields the waiters above and below key in conflict with w, with their
// keys. Some stand before w and some after.
func (t *keyTable) treeWaiters(key string, w *waiter) iter.Seq2[*waiter, string] {
	if t.trees == 0 && !w.Tree {
		return func(func(*waiter, string) bool) {}
	}
	tree, mode := w.Tree, w.Mode // copies: w does not escape to the heap
	return func(yield func(*waiter, string) bool) {
		for k, r := range t.aboveAndBelow(key, waitersBelow(tree)) {
			for i := range r.queue {
				look(1)
				if v := &r.queue[i]; treesConflict(tree, mode, &v.Spec) && !yield(v, k) {
					return
				}
			}
		}
	}
}

// waitersBelow returns the set of the keys below that can have a waiter in conflict
// with a tree, or with a request for a single key.
func waitersBelow(tree bool) keySets {
	if tree {
		return waitedFor
	}
	return treed
}

// standsBefore reports whether v stands before a request of that order for a key
// above or below. Nothing conflicts within a request.
func (v *waiter) standsBefore(q requestID, order uint64) bool {
	return v.order < order && v.requestID != q
}

// waitsBehindTree reports whether a waiter above or below key stands before w and
// conflicts with it.
func (t *keyTable) waitsBehindTree(key string, w *waiter) bool {
	if t.trees == 0 && !w.Tree {
		return false
	}
	return t.waitsBehindTreeIn(key, w)
}

// waitsBehindTreeIn is waitsBehindTree of a table with trees. Its result escapes to
// the heap, which the common case avoids.
func (t *keyTable) waitsBehindTreeIn(key string, w *waiter) bool {
	id, order := w.requestID, w.order // copies: w does not escape to the heap
	for v := range t.treeWaiters(key, w) {
		if v.standsBefore(id, order) {
			return true
		}
	}
	return false
}

// firstTreeOrder returns the least order of the waiters above and below key that are in
// conflict with w, a shared request: w waits for them if its own order is larger. Without any
// the result is the largest number; the order of an upgrade is 0.
func (t *keyTable) firstTreeOrder(key string, w *waiter) (order uint64) {
	order = math.MaxUint64
	if t.trees == 0 && !w.Tree {
		return order
	}
	for _, r := range t.aboveAndBelow(key, waitersBelow(w.Tree)) {
		for i := range r.queue { // in the order of their orders
			look(1)
			v := &r.queue[i]
			if v.order >= order {
				break
			}
			if treesConflict(w.Tree, w.Mode, &v.Spec) {
				order = v.order
				break
			}
		}
	}
	return order
}

// lastTreeOrder returns the largest order of the trees waiting above or below key; 0
// without such trees. A waiter before such a tree must not be passed at key, or the
// queues would not agree on one order.
func (t *keyTable) lastTreeOrder(key string) uint64 {
	if t.trees == 0 {
		return 0
	}
	var order uint64
	for v := range t.treeWaiters(key, &waiter{Spec: Spec{Mode: Exclusive}}) {
		order = max(order, v.order)
	}
	return order
}

// revisit notes the queues to be looked at after a holder or waiter of key is gone:
// the queue of key and, because of trees, the queues of keys above and below.
func (s *State) revisit(key string, tree bool) {
	p := &s.step
	p.note(queues{key: key})
	if s.keys.trees == 0 && !tree {
		return
	}
	below := queues{key, treesBelow}
	if tree {
		below.reach = allBelow
	}
	if !p.isNew(below) {
		return
	}
	for k, r := range s.keys.recordsAbove(key) {
		if len(r.queue) > 0 {
			p.note(queues{key: k})
		}
	}
	if rest := (visit{queues: below}); s.keys.any(rest) {
		p.revisit = append(p.revisit, rest)
	}
}
