package machine

import (
	"iter"
	"math/bits"
	"slices"
	"strings"
)

// Who is in whose way? Two requests conflict at one key unless both share it, or
// both are permits and there are some left. At two keys they conflict if one key
// is above the other, one of the requests at least is a tree, and not both share.
//
// A request is granted when it conflicts with no holder and with no waiter that
// stands before it. That is all there is to fairness: a writer is not overtaken
// by readers, a tree not by what is below it, a request for many keys not by
// those for few.

// above yields the keys above key, the nearest first: what stands before each of
// its slashes. Nothing is above a key without one.
func above(key string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := strings.LastIndexByte(key, '/'); i > 0; i = strings.LastIndexByte(key[:i], '/') {
			if !yield(key[:i]) {
				return
			}
		}
	}
}

// below reports whether key is below another.
func below(key string) bool { return strings.LastIndexByte(key, '/') > 0 }

// isBelow reports whether key is below p.
func isBelow(key, p string) bool {
	return len(key) > len(p) && key[len(p)] == '/' && strings.HasPrefix(key, p)
}

// clash reports whether two requests, for a key and one above or below it, are in
// each other's way.
func clash(tree bool, mode Mode, otherTree bool, other Mode) bool {
	return (tree || otherTree) && !(mode == Shared && other == Shared)
}

// spots says in which of the sets that trees ask a key is.
type spots uint8

const (
	heldAlone  spots = 1 << iota // held, and not shared
	heldShared                   // held and shared
	waitedFor
	treed // held or waited for as a tree
)

// spot puts key in those sets where it belongs, after its holders or queue have
// changed. A key that is below no other is in none.
func (s *State) spot(key string, r *record) {
	if !below(key) {
		return
	}
	in := s.spots(r)
	if in == r.in {
		return
	}
	for i := range s.below {
		switch bit := spots(1 << i); {
		case in&bit == r.in&bit:
		case in&bit != 0:
			s.below[i].add(key)
		default:
			s.below[i].remove(key)
		}
	}
	r.in = in
}

// spots returns in which of the sets a key with that record is to be.
func (s *State) spots(r *record) (in spots) {
	switch {
	case len(r.holders) == 0:
	case r.holders[0].mode == Shared:
		in |= heldShared
	default:
		in |= heldAlone
	}
	if len(r.queue) > 0 {
		in |= waitedFor
	}
	if s.trees > 0 && r.hasTree() {
		in |= treed
	}
	return in
}

func (r *record) hasTree() bool {
	return slices.ContainsFunc(r.holders, func(g grant) bool { return g.tree }) ||
		slices.ContainsFunc(r.queue, func(w waiter) bool { return w.tree })
}

// keysBelow yields the keys below key that are in the set of that bit. The sets must
// not be changed meanwhile.
func (s *State) keysBelow(key string, bit spots) iter.Seq[string] {
	return s.below[bits.TrailingZeros8(uint8(bit))].from(key+"/", key+"/")
}

// countTrees notes that n holders or waiters came, or went with n negative.
func (s *State) countTrees(tree bool, n int) {
	if tree {
		s.trees += n
	}
}

// barred reports whether a holder is in w's way at key.
func (s *State) barred(key string, r *record, w *waiter, client string) bool {
	return s.barredHere(r, w, client) || s.barredByTree(key, w)
}

// barredHere reports whether a holder of w's own key is in its way: not the grant
// that w upgrades, nor one whose delay its own client left.
func (s *State) barredHere(r *record, w *waiter, client string) bool {
	n := len(r.holders) // all of one mode
	if w.upgrade != 0 {
		n--
	}
	if r.ghosts > 0 {
		for i := range r.holders {
			if s.waived(&r.holders[i], w, client) {
				n--
			}
		}
	}
	if n == 0 {
		return false
	}
	switch mode := r.holders[0].mode; {
	case mode == Shared && w.mode == Shared:
		return n >= MaxHolders
	case mode == Permit && w.mode == Permit:
		return n >= int(w.of)
	}
	return true
}

// barredByTree reports whether a holder above or below w's key is in its way.
func (s *State) barredByTree(key string, w *waiter) bool {
	if s.trees == 0 && !w.tree {
		return false
	}
	_, _, barred := s.treeInTheWay(key, w)
	return barred
}

// treeInTheWay finds a holder above or below w's key that is in its way. Below
// there may be a million, so it looks where there must be one.
func (s *State) treeInTheWay(key string, w *waiter) (at string, g *grant, found bool) {
	look := func(k string) bool {
		r, ok := s.keys.get(k)
		if !ok || len(r.holders) == 0 || w.mode == Shared && r.holders[0].mode == Shared {
			return false
		}
		for i := range r.holders {
			if h := &r.holders[i]; clash(w.tree, w.mode, h.tree, h.mode) {
				at, g, found = k, h, true
				return true
			}
		}
		return false
	}
	for p := range above(key) {
		if look(p) {
			return
		}
	}
	sets := []spots{treed}
	if w.tree {
		sets = []spots{heldAlone, heldShared}
		if w.mode == Shared {
			sets = sets[:1]
		}
	}
	for _, set := range sets {
		for k := range s.keysBelow(key, set) {
			if look(k) {
				return
			}
		}
	}
	return
}

// waived reports whether g is a delay that w need not wait for.
func (s *State) waived(g *grant, w *waiter, client string) bool {
	return g.ghost != nil && !w.set && w.upgrade == 0 && g.ghost.client == client
}

// queues reports whether w, at index i of the queue or to be put there, stands
// behind one that it conflicts with.
func (r *record) queues(w *waiter, i int) bool {
	if w.mode != Shared {
		return i > 0
	}
	return slices.ContainsFunc(r.queue[:i], func(v waiter) bool { return v.mode != Shared })
}

// precedes reports whether waiters at two keys, one above the other, conflict
// and v stands before w. Within one request nothing conflicts.
func precedes(v, w *waiter) bool {
	return clash(v.tree, v.mode, w.tree, w.mode) && v.order < w.order && (v.session != w.session || v.seq != w.seq)
}

// follows reports whether a waiter above or below key stands before w and is in
// its way.
func (s *State) follows(key string, w *waiter) bool {
	for v := range s.related(key, w) {
		if precedes(v, w) {
			return true
		}
	}
	return false
}

// related yields the waiters above and below key that conflict with w, whatever
// their order.
func (s *State) related(key string, w *waiter) iter.Seq2[*waiter, string] {
	return func(yield func(*waiter, string) bool) {
		visit := func(k string) bool {
			r, ok := s.keys.get(k)
			if !ok {
				return true
			}
			for i := range r.queue {
				if v := &r.queue[i]; clash(v.tree, v.mode, w.tree, w.mode) && !yield(v, k) {
					return false
				}
			}
			return true
		}
		for p := range above(key) {
			if !visit(p) {
				return
			}
		}
		set := treed
		if w.tree {
			set = waitedFor
		}
		for k := range s.keysBelow(key, set) {
			if !visit(k) {
				return
			}
		}
	}
}

// treesBefore returns the largest order of the trees that wait above or below
// key: whoever stands before them must not be passed at key, or the queues would
// not agree on one order.
func (s *State) treesBefore(key string) (order uint64) {
	for v := range s.related(key, &waiter{mode: Exclusive}) {
		order = max(order, v.order)
	}
	return order
}

// left notes which queues must be looked at since a holder or waiter of key went.
func (s *State) left(key string, tree bool) {
	s.dirty = append(s.dirty, key)
	if s.trees == 0 && !tree {
		return
	}
	for p := range above(key) {
		if r, ok := s.keys.get(p); ok && len(r.queue) > 0 {
			s.dirty = append(s.dirty, p)
		}
	}
	set := treed
	if tree {
		set = waitedFor
	}
	for k := range s.keysBelow(key, set) {
		s.dirty = append(s.dirty, k)
	}
}

// inTheWay describes one of those that w would wait for at key; the zero Holder
// if there is none.
func (s *State) inTheWay(key string, w *waiter, client string) Holder {
	r, ok := s.keys.get(key)
	if !ok {
		r = &record{}
	}
	if s.barredHere(r, w, client) {
		for i := range r.holders {
			if !s.waived(&r.holders[i], w, client) {
				return s.describe(&r.holders[i])
			}
		}
	}
	at := func(k string, h Holder) Holder { h.Key = k; return h }
	if s.trees > 0 || w.tree {
		if k, g, found := s.treeInTheWay(key, w); found {
			return at(k, s.describe(g))
		}
	}
	for i := range r.queue {
		if v := &r.queue[i]; v.mode != Shared || w.mode != Shared {
			return s.describeWaiter(v)
		}
	}
	for v, k := range s.related(key, w) {
		return at(k, s.describeWaiter(v))
	}
	return Holder{}
}

func (s *State) describe(g *grant) Holder {
	if g.ghost != nil {
		return Holder{Client: g.ghost.client, Node: g.ghost.node, Token: g.token}
	}
	owner, _ := s.sessions.get(g.session)
	return Holder{Session: owner.id, Client: owner.client, Node: owner.node, Token: g.token}
}

func (s *State) describeWaiter(w *waiter) Holder {
	owner, _ := s.sessions.get(w.session)
	return Holder{Session: owner.id, Client: owner.client, Node: owner.node}
}
