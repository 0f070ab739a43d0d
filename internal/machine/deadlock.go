package machine

import "slices"

// A cycle of waits is found when it closes. Two can close one: a new waiter whose
// caller holds on to other grants, as its Under says, and an upgrade, which comes
// to stand in the way of those that share. (That no other waiter can is why place
// passes plain ones only.) Such a request is put in its queue on trial, and refused
// if it, or the grant to be upgraded, could never end:
//
//   - a waiter ends once all that are in its way have ended: holders, and waiters
//     before it. Of the holders of permits one is enough. Who stands behind an
//     upgrade waits for the grant that it upgrades.
//   - a grant ends once all that wait under it have ended. One that is broken, or
//     of a session that expired, ends by itself.
//
// What cannot end by these rules, however long one applies them, is a deadlock;
// since there was none before, it goes through the new waiter. No clock has a
// part in it, and no guess: a client's other goroutines that hold keys are in no
// cycle unless what they hold is among somebody's Under.

// nest notes that q waits while its caller holds on to the grants of under.
func (s *State) nest(under []Token, q request) {
	for _, t := range under {
		if !slices.Contains(s.under[t], q) {
			s.under[t] = append(s.under[t], q)
		}
	}
}

func (s *State) unnest(under []Token, q request) {
	for _, t := range under {
		rest := slices.DeleteFunc(s.under[t], func(o request) bool { return o == q })
		if len(rest) == 0 {
			delete(s.under, t)
		} else {
			s.under[t] = rest
		}
	}
}

// renameUnder has the waiter q wait under a grant's new token instead of its old.
func (s *State) renameUnder(q request, old, token Token) {
	owner, _ := s.sessions.get(q.session)
	var under []Token
	for _, key := range s.keysOf(owner, q.seq, owner.index.refs[q.seq]) {
		r := s.edit(key)
		w := &r.queue[r.position(q.session, q.seq)]
		if under == nil {
			under = slices.Clone(w.under)
			for i := range under {
				if under[i] == old {
					under[i] = token
				}
			}
			s.unnest(w.under, q)
			s.nest(under, q)
		}
		w.under = under
	}
}

// node is a waiter, by its request, or a grant, by its token and key.
type node struct {
	request
	token Token
	key   string // of the grant, or of the waiter that another waits for
}

// search explores who waits for whom, from one waiter on.
type search struct {
	s     *State
	nodes map[node]*needs
	order []node // as found
}

// needs is what must end before a node does: all of the one list, and one of
// each of the others.
type needs struct {
	all  []node
	one  [][]node
	ends bool
}

// deadlock returns the cycle through start, or one that start waits for; nil if
// start can end.
func (s *State) deadlock(start node) []Link {
	d := &search{s: s, nodes: make(map[node]*needs)}
	d.explore(start)
	// Those found last are the furthest from the start and mostly end first.
	for changed := true; changed; {
		changed = false
		for i := len(d.order) - 1; i >= 0; i-- {
			if n := d.nodes[d.order[i]]; !n.ends && d.canEnd(n) {
				n.ends, changed = true, true
			}
		}
	}
	if d.nodes[start].ends {
		return nil
	}
	return d.cycle(start)
}

func (d *search) canEnd(n *needs) bool {
	ends := func(o node) bool { return d.nodes[o].ends }
	return !slices.ContainsFunc(n.all, func(o node) bool { return !ends(o) }) &&
		!slices.ContainsFunc(n.one, func(some []node) bool { return !slices.ContainsFunc(some, ends) })
}

// explore finds all that start needs, directly or not.
func (d *search) explore(start node) {
	work := []node{start}
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		if d.nodes[n] != nil {
			continue
		}
		needs := &needs{}
		d.nodes[n] = needs
		d.order = append(d.order, n)
		if n.token != 0 {
			d.ofGrant(n, needs)
		} else {
			d.ofWaiter(n, needs)
		}
		work = append(work, needs.all...)
		work = append(work, slices.Concat(needs.one...)...)
	}
}

// ofGrant: a grant needs all who wait under it.
func (d *search) ofGrant(n node, needs *needs) {
	g := d.grant(n)
	if g.broken || g.ghost != nil {
		return
	}
	children := slices.Clone(d.s.under[g.token])
	// The index is in no order after a restore.
	slices.SortFunc(children, compareRequests)
	for _, q := range slices.Compact(children) {
		needs.all = append(needs.all, node{request: q})
	}
}

func (d *search) grant(n node) *grant {
	r, _ := d.s.keys.get(n.key)
	return &r.holders[r.holder(n.token)]
}

// ofWaiter: a waiter needs all in its way at all of its keys. Of the waiters before
// it in a queue, those behind the last that does not share are enough, and it:
// the rest is in that one's way too.
func (d *search) ofWaiter(n node, needs *needs) {
	s := d.s
	owner, _ := s.sessions.get(n.session)
	for _, key := range s.keysOf(owner, n.seq, owner.index.refs[n.seq]) {
		r, _ := s.keys.get(key)
		at := r.position(n.session, n.seq)
		w := &r.queue[at]
		if s.barredHere(r, w, owner.client) {
			var holders []node
			for i := range r.holders {
				g := &r.holders[i]
				if g.token == w.upgrade || s.waived(g, w, owner.client) {
					continue
				}
				holders = append(holders, node{token: g.token, key: key})
			}
			if w.mode == r.holders[0].mode && w.mode != Exclusive {
				needs.one = append(needs.one, holders) // no room among them
			} else {
				needs.all = append(needs.all, holders...)
			}
		}
		if w.upgrade != 0 {
			d.treeHolders(key, w, needs)
			continue
		}
		for i := at - 1; i >= 0; i-- {
			v := &r.queue[i]
			if v.mode != Shared || w.mode != Shared {
				needs.all = append(needs.all, v.node(key))
			}
			if v.mode != Shared {
				break
			}
		}
		if s.trees > 0 {
			d.treeHolders(key, w, needs)
			for v, k := range s.related(key, w) {
				if precedes(v, w) {
					needs.all = append(needs.all, v.node(k))
				}
			}
		}
	}
}

// node is what those wait for that v goes before, at key.
func (v *waiter) node(key string) node {
	if v.upgrade != 0 {
		return node{token: v.upgrade, key: key}
	}
	return node{request: request{v.session, v.seq}}
}

// treeHolders adds the holders above and below key that are in w's way.
func (d *search) treeHolders(key string, w *waiter, needs *needs) {
	s := d.s
	add := func(k string) {
		r, ok := s.keys.get(k)
		if !ok {
			return
		}
		for i := range r.holders {
			g := &r.holders[i]
			if clash(g.tree, g.mode, w.tree, w.mode) {
				needs.all = append(needs.all, node{token: g.token, key: k})
			}
		}
	}
	for p := range above(key) {
		add(p)
	}
	// Below may be a million. Only those under which somebody waits can be in a
	// cycle, and those are known.
	tokens := make([]Token, 0, len(s.under))
	for t := range s.under {
		tokens = append(tokens, t)
	}
	slices.Sort(tokens)
	for _, t := range tokens {
		for _, o := range s.heldBelow(key, t) {
			if g := d.grant(o); clash(g.tree, g.mode, w.tree, w.mode) {
				needs.all = append(needs.all, o)
			}
		}
	}
}

// heldBelow returns what is held under t, or was before an upgrade, below key.
// It asks the sessions, which are few, and not the keys.
func (s *State) heldBelow(key string, t Token) (grants []node) {
	s.sessions.all(func(_ SessionID, o *session) bool {
		seq, at, g := s.holding(o, t)
		if g == nil {
			return true
		}
		for _, k := range s.keysOf(o, seq, at) {
			if isBelow(k, key) {
				grants = append(grants, node{token: at.token, key: k})
			}
		}
		return false
	})
	return grants
}

// cycle returns the way from start through what cannot end, back to start: to a
// grant that start is under.
func (d *search) cycle(start node) []Link {
	type step struct {
		n    node
		from int // index of the step before
	}
	steps := []step{{start, -1}}
	seen := map[node]bool{start: true}
	for i := 0; i < len(steps); i++ {
		n := d.nodes[steps[i].n]
		for _, o := range slices.Concat(n.all, slices.Concat(n.one...)) {
			if o == start {
				var way []node
				for j := i; j >= 0; j = steps[j].from {
					way = append(way, steps[j].n)
				}
				slices.Reverse(way)
				return d.links(way)
			}
			if !seen[o] && !d.nodes[o].ends {
				seen[o] = true
				steps = append(steps, step{o, i})
			}
		}
	}
	// There was no cycle before, so what cannot end leads to start; but a refusal
	// does not hang on that argument.
	return []Link{}
}

// links tells a way of nodes as who waits for what.
func (d *search) links(way []node) []Link {
	var links []Link
	for i, n := range way {
		if n.token != 0 || len(links) == MaxCycle {
			continue // who waits under a grant has a link of its own
		}
		next := way[(i+1)%len(way)]
		owner, key := d.waiter(n)
		if next.token != 0 {
			key = next.key
		} else if next != n {
			_, key = d.waiter(next)
		}
		links = append(links, Link{Client: owner.client, Key: key, Token: next.token})
	}
	return links
}

// waiter returns whose a waiter is, and its first key.
func (d *search) waiter(n node) (*session, string) {
	owner, _ := d.s.sessions.get(n.session)
	return owner, owner.index.refs[n.seq].key
}
