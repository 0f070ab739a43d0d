package machine

import (
	"cmp"
	"slices"
)

// rest is what a dead session still has, from the first slice on. An entry is stale if
// the request has left since; a request that is left has exactly one entry.
type rest struct {
	callers  minHeap // by the seqs of their Enlists
	waiting  minHeap // by seq, in shards
	granted  minHeap // by token, in shards
	answered minHeap // by seq
}

// item is an element of a rest.
type item struct {
	shard  uint8
	number uint64 // a seq or a token
}

func (i item) less(j item) bool {
	return i.shard < j.shard || i.shard == j.shard && i.number < j.number
}

func compareItems(i, j item) int {
	return cmp.Or(cmp.Compare(i.shard, j.shard), cmp.Compare(i.number, j.number))
}

// collect returns what the session has: everything, or only its waiters and callers.
func (x *index) collect(everything bool) (r rest) {
	r.waiting = make(minHeap, 0, x.waits)
	r.callers = make(minHeap, 0, len(x.enlisted))
	for seq := range x.enlisted {
		r.callers = append(r.callers, item{0, seq})
	}
	if everything {
		r.granted = make(minHeap, 0, x.requests.grants())
		r.answered = make(minHeap, 0, x.requests.len()-x.requests.grants()-x.waits)
	}
	for seq, at := range x.requests.all() {
		switch {
		case at.phase == waiting:
			r.waiting = append(r.waiting, item{hashKey(at.key), seq})
		case !everything:
		case at.phase == answered:
			r.answered = append(r.answered, item{0, seq})
		default:
			r.granted = append(r.granted, item{hashKey(at.key), uint64(at.token)})
		}
	}
	r.callers.build()
	r.waiting.build()
	r.granted.build()
	r.answered.build()
	return r
}

// isEmpty reports whether the session has nothing at all.
func (x *index) isEmpty() bool { return x.requests.len()+len(x.enlisted) == 0 }

// minHeap is a binary heap: to build it takes time in proportion to its length, and not
// more as a sort does, and to take the least element is cheap.
type minHeap []item

func (h minHeap) build() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

// pop removes and returns the least element, and false if there is none.
func (h *minHeap) pop() (least item, ok bool) {
	last := len(*h) - 1
	if last < 0 {
		return least, false
	}
	least = (*h)[0]
	(*h)[0] = (*h)[last]
	*h = (*h)[:last]
	h.sink(0)
	return least, true
}

func (h minHeap) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].less(h[child]) {
			child++
		}
		if !h[child].less(h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// checkEnding verifies a dead session: nothing of it was forgotten, and nothing is taken
// twice.
func (s checker) checkEnding(o *session) error {
	if o.ending > Revoked || o.begun && !o.dead() {
		return broken(15, "session %x ends for reason %d, begun %t", o.id, o.ending, o.begun)
	}
	if !o.begun {
		return nil
	}
	is, want := o.index.live(), o.index.collect(o.ending != 0).sorted()
	for i := range want {
		if !slices.Equal(is[i], want[i]) {
			return broken(15, "session %x has %d left to take, and knows of %d, or of others", o.id, len(want[i]), len(is[i]))
		}
	}
	return nil
}

// live is rest.sorted without the stale entries.
func (x *index) live() [4]minHeap {
	list := x.rest.sorted()
	list[0] = slices.DeleteFunc(list[0], func(e item) bool { _, ok := x.enlisted[e.number]; return !ok })
	for i, in := range map[int]phase{1: waiting, 3: answered} {
		list[i] = slices.DeleteFunc(list[i], func(e item) bool { at, ok := x.requests.get(e.number); return !ok || at.phase != in })
	}
	return list
}

// sorted returns copies of all heaps, in order.
func (r rest) sorted() [4]minHeap {
	list := [4]minHeap{r.callers, r.waiting, r.granted, r.answered}
	for i := range list {
		list[i] = slices.Clone(list[i])
		slices.SortFunc(list[i], compareItems)
	}
	return list
}
