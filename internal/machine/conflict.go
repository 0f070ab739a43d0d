package machine

import "iter"

// Two requests for the same key conflict unless both are shared, or both are for
// permits and enough permits are left. Two requests for different keys conflict if one
// key is above the other, at least one request is for a tree, and not both are shared:
// see tree.go.
//
// A request is granted when it conflicts with no holder and with no waiter before
// it. All fairness follows from this rule: readers do not overtake a writer, a
// request below a tree does not overtake the tree, and a request for a single key
// does not overtake a request for many.

// heldAgainst reports whether a holder conflicts with w at key.
func (t *keyTable) heldAgainst(key string, r *record, w *waiter, client string) bool {
	return r.heldAgainst(w, client) || t.heldAgainstByTree(key, w)
}

// heldAgainst reports whether a holder of this key conflicts with w. The grant
// that w upgrades does not, nor does a ghost of w's own client.
func (r *record) heldAgainst(w *waiter, client string) bool {
	n, permits := len(r.holders), int(r.permits) // all of one mode
	if w.upgrade != 0 {
		n--
	}
	if r.ghosts > 0 {
		ghosts, theirs := r.waived(w, client)
		n, permits = n-ghosts, permits-theirs
	}
	if n == 0 {
		return false
	}
	switch mode := r.holders[0].Mode; {
	case mode == Shared && w.Mode == Shared:
		return n >= MaxHolders
	case mode == Permit && w.Mode == Permit:
		return permits+int(w.N) > int(r.capacity)
	}
	return true
}

// waived counts the ghosts among the holders that w need not wait for, and their permits.
func (r *record) waived(w *waiter, client string) (n, permits int) {
	for g := range r.ghostHolders() {
		if g.waivedBy(w, client) {
			n++
			permits += int(g.N)
		}
	}
	return n, permits
}

// ghostHolders yields the ghosts among the holders, and looks no further than the last of
// them: mostly they are the first holders.
func (r *record) ghostHolders() iter.Seq[*grant] {
	return func(yield func(*grant) bool) {
		left := r.ghosts
		for i := 0; left > 0; i++ {
			look(1)
			if g := &r.holders[i]; g.ghost != nil {
				if left--; !yield(g) {
					return
				}
			}
		}
	}
}

// waivedBy reports whether w need not wait for g, since g is a ghost of w's own
// client.
func (g *grant) waivedBy(w *waiter, client string) bool {
	return g.ghost != nil && !w.set && w.upgrade == 0 && g.ghost.client == client
}

// waitsBehind reports whether w conflicts with a waiter before index i of the queue,
// where w stands or would stand.
func (r *record) waitsBehind(w *waiter, i int) bool {
	if w.Mode != Shared {
		return i > 0
	}
	for j := range i {
		look(1)
		if r.queue[j].Mode != Shared {
			return true
		}
	}
	return false
}

// conflictAt describes a holder or waiter that conflicts with w at key; the zero
// Holder if there is none.
func (s *State) conflictAt(key string, w *waiter, client string) Holder {
	r := s.keys.get(key)
	if r.heldAgainst(w, client) {
		for i := range r.holders {
			if g := &r.holders[i]; !g.waivedBy(w, client) {
				return s.describeHolder(g, "")
			}
		}
	}
	if at, g := s.keys.treeHolder(key, w); g != nil {
		return s.describeHolder(g, at)
	}
	for i := range r.queue {
		if v := &r.queue[i]; v.Mode != Shared || w.Mode != Shared {
			return s.describe(v.session, 0, "")
		}
	}
	for v, at := range s.keys.treeWaiters(key, w) {
		return s.describe(v.session, 0, at)
	}
	return Holder{}
}

func (s *State) describeHolder(g *grant, key string) Holder {
	if g.ghost != nil {
		return Holder{Client: g.ghost.client, Node: g.ghost.node, Token: g.token, Key: key}
	}
	return s.describe(g.session, g.token, key)
}

// describe describes a holder or, with token 0, a waiter.
func (s *State) describe(id SessionID, token Token, key string) Holder {
	owner := s.sessions.get(id)
	return Holder{Session: id, Client: owner.client, Node: owner.node, Token: token, Key: key}
}
