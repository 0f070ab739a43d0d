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

// branch is who waits under one grant.
type branch struct {
	holder  SessionID // of the grant, if it was found: see holderOf
	gone    bool      // it was looked for, and nobody has it: nobody ever will again
	waiters map[request]struct{}
}

// nest notes that q waits while its caller holds on to the grants of under.
func (s *State) nest(under []Token, q request) {
	for _, t := range under {
		b := s.under[t]
		if b == nil {
			b = &branch{holder: q.session, waiters: make(map[request]struct{})}
			s.under[t] = b
		}
		b.waiters[q] = struct{}{}
	}
}

func (s *State) unnest(under []Token, q request) {
	for _, t := range under {
		if b := s.under[t]; b != nil {
			delete(b.waiters, q)
			if len(b.waiters) == 0 {
				delete(s.under, t)
			}
		}
	}
}

// node is a step of the search: a waiter, by its request; a grant, by its token
// and one of its keys; or all holders of a key, or one of them.
type node struct {
	request
	token Token
	key   string
	kind  uint8
}

const (
	aWaiter    = iota
	aGrant     // token and key
	allHolders // of key
	oneHolder  // of key
)

// search explores who waits for whom, from one node on.
type search struct {
	s     *State
	nodes map[node]*needs
	order []node            // as found
	place map[request]place // of waiters that were met in a queue, so as not to look for them there
	alone map[string][]int  // of a key that was met: which of its waiters do not share
	below []node            // grants under which somebody waits, and that are below a key
	known bool              // below is filled
	steps int               // taken: tests bound it, since every voter stands still meanwhile
}

type place struct {
	key string
	i   int
}

// needs is what must end before a node does: all of them, or one.
type needs struct {
	nodes  []node
	left   int      // how many of them have not been found to end, of those that must
	needed []*needs // by whom this node is, once for each time
	ends   bool
}

// deadlock returns the cycle through start, or one that start waits for; nil if
// start can end. It takes time in proportion to the waiters that it meets, and to
// the keys of those that wait for several.
func (s *State) deadlock(start node) []Link {
	d := s.search(start)
	if d.nodes[start].ends {
		return nil
	}
	return d.cycle(start)
}

func (s *State) search(start node) *search {
	d := &search{s: s, nodes: make(map[node]*needs), place: make(map[request]place), alone: make(map[string][]int)}
	d.explore(start)
	d.end()
	return d
}

// end finds all that can end. Each node that does is told once to each that needs
// it: to look through all of them until nothing changes is quadratic where readers
// and writers take turns in a queue.
func (d *search) end() {
	var work []*needs
	for _, at := range d.order {
		n := d.nodes[at]
		for _, o := range n.nodes {
			d.steps++
			d.nodes[o].needed = append(d.nodes[o].needed, n)
		}
		if n.left == 0 {
			n.ends = true
			work = append(work, n)
		}
	}
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		for _, o := range n.needed {
			d.steps++
			if o.left--; o.left == 0 {
				o.ends = true
				work = append(work, o)
			}
		}
	}
}

// explore finds all that start needs, directly or not.
func (d *search) explore(start node) {
	work := []node{start}
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		d.steps++
		if d.nodes[n] != nil {
			continue
		}
		needs := &needs{}
		d.nodes[n] = needs
		d.order = append(d.order, n)
		switch n.kind {
		case aWaiter:
			needs.nodes = d.ofWaiter(n.request)
		case aGrant:
			needs.nodes = d.ofGrant(n)
		default:
			r, _ := d.s.keys.get(n.key)
			needs.nodes = r.nodes(n.key)
		}
		needs.left = len(needs.nodes)
		if n.kind == oneHolder {
			needs.left = 1
		}
		work = append(work, needs.nodes...)
	}
}

// nodes returns the grants of key.
func (r *record) nodes(key string) []node {
	nodes := make([]node, len(r.holders))
	for i := range r.holders {
		nodes[i] = node{token: r.holders[i].token, key: key, kind: aGrant}
	}
	return nodes
}

// ofGrant: a grant needs all who wait under it.
func (d *search) ofGrant(n node) []node {
	g := d.grant(n)
	b := d.s.under[g.name()]
	if g.broken || g.ghost != nil || b == nil {
		return nil
	}
	waiters := make([]request, 0, len(b.waiters))
	for q := range b.waiters {
		waiters = append(waiters, q)
	}
	slices.SortFunc(waiters, compareRequests)
	nodes := make([]node, len(waiters))
	for i, q := range waiters {
		nodes[i] = node{request: q}
	}
	return nodes
}

func (d *search) grant(n node) *grant {
	r, _ := d.s.keys.get(n.key)
	return &r.holders[r.holder(n.token)]
}

// ofWaiter: a waiter needs all in its way at all of its keys. Of the waiters before
// it in a queue, those behind the last that does not share are enough, and it:
// the rest is in that one's way too.
func (d *search) ofWaiter(q request) (needs []node) {
	s := d.s
	owner, _ := s.sessions.get(q.session)
	for _, key := range s.keysOf(owner, q.seq, owner.index.refs[q.seq]) {
		r, _ := s.keys.get(key)
		at := 0
		if p, ok := d.place[q]; ok && p.key == key {
			at = p.i
		} else {
			at = r.position(q.session, q.seq)
			d.steps += at
		}
		w := &r.queue[at]
		if s.barredHere(r, w, owner.client) {
			switch {
			case w.mode == r.holders[0].mode && w.mode != Exclusive:
				needs = append(needs, node{key: key, kind: oneHolder}) // no room among them
			case w.upgrade != 0 || r.waives(owner.client):
				for i := range r.holders {
					d.steps++
					if g := &r.holders[i]; g.token != w.upgrade && !s.waived(g, w, owner.client) {
						needs = append(needs, node{token: g.token, key: key, kind: aGrant})
					}
				}
			default:
				needs = append(needs, node{key: key, kind: allHolders})
			}
		}
		if s.trees > 0 {
			needs = d.treeHolders(key, w, needs)
		}
		if w.upgrade != 0 {
			continue
		}
		for i := at - 1; i >= 0; i-- {
			d.steps++
			if w.mode == Shared {
				// Not one by one: all who share would pass all before them.
				if i = d.lastAlone(key, r, i); i < 0 {
					break
				}
			}
			v := &r.queue[i]
			d.place[request{v.session, v.seq}] = place{key, i}
			needs = append(needs, v.node(key))
			if v.mode != Shared {
				break
			}
		}
		if s.trees > 0 {
			for v, k := range s.related(key, w) {
				d.steps++
				if precedes(v, w) {
					needs = append(needs, v.node(k))
				}
			}
		}
	}
	return needs
}

// lastAlone returns the index of the last in key's queue, up to index i, that does
// not share; -1 if all do.
func (d *search) lastAlone(key string, r *record, i int) int {
	alone, ok := d.alone[key]
	if !ok {
		for j := range r.queue {
			d.steps++
			if r.queue[j].mode != Shared {
				alone = append(alone, j)
			}
		}
		d.alone[key] = alone
	}
	n, _ := slices.BinarySearch(alone, i+1)
	if n == 0 {
		return -1
	}
	return alone[n-1]
}

// node is what those wait for that v goes before, at key.
func (v *waiter) node(key string) node {
	if v.upgrade != 0 {
		return node{token: v.upgrade, key: key, kind: aGrant}
	}
	return node{request: request{v.session, v.seq}}
}

// treeHolders adds the holders above and below key that are in w's way.
func (d *search) treeHolders(key string, w *waiter, needs []node) []node {
	add := func(o node) {
		d.steps++
		if g := d.grant(o); clash(g.tree, g.mode, w.tree, w.mode) {
			needs = append(needs, o)
		}
	}
	for p := range above(key) {
		if r, ok := d.s.keys.get(p); ok {
			for _, o := range r.nodes(p) {
				add(o)
			}
		}
	}
	// Below may be a million. Only those under which somebody waits can be in a
	// cycle, and those are known.
	if !d.known {
		d.known, d.below = true, d.waitedUnder()
	}
	for _, o := range d.below {
		if isBelow(o.key, key) {
			add(o)
		}
	}
	return needs
}

// waitedUnder returns the grants under which somebody waits.
func (d *search) waitedUnder() (grants []node) {
	s := d.s
	names := make([]Token, 0, len(s.under))
	for t := range s.under {
		names = append(names, t)
	}
	slices.Sort(names)
	for _, t := range names {
		o := d.holderOf(t)
		if o == nil {
			continue
		}
		seq, at, _ := s.holding(o, t)
		for _, key := range s.keysOf(o, seq, at) {
			grants = append(grants, node{token: at.token, key: key, kind: aGrant})
		}
	}
	return grants
}

// holderOf finds whose grant has that name; nil if nobody has it. It is mostly the
// session that waits under it, and is looked for only once where it is not, also
// in vain: a grant that has ended does not come back.
func (d *search) holderOf(name Token) *session {
	s := d.s
	b := s.under[name]
	has := func(o *session) bool {
		_, _, g := s.holding(o, name)
		return g != nil && g.name() == name
	}
	if b.gone {
		return nil
	}
	if o, ok := s.sessions.get(b.holder); ok && has(o) {
		return o
	}
	var found *session
	s.sessions.all(func(id SessionID, o *session) bool {
		d.steps++
		if has(o) {
			b.holder, found = id, o
		}
		return found == nil
	})
	b.gone = found == nil
	return found
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
		for _, o := range n.nodes {
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
	// Who waits for a key waits for some holder of it: the steps between are none.
	way = slices.DeleteFunc(way, func(n node) bool { return n.kind == allHolders || n.kind == oneHolder })
	var links []Link
	for i, n := range way {
		if n.kind != aWaiter || len(links) == MaxCycle {
			continue // who waits under a grant has a link of its own
		}
		next := way[(i+1)%len(way)]
		owner, key := d.waiter(n)
		if next.kind == aGrant {
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
