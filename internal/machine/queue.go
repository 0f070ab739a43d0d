package machine

import "slices"

// Who gets the key next? The waiter that committed first. This file holds all
// that puts somebody in a queue, takes anybody out, gives a key or frees it.
// Who is in whose way says conflict.go.

// edit returns key's record for writing. The key must have one.
func (s *State) edit(key string) *record {
	r, _ := s.keys.get(key)
	if r.epoch != s.keys.epoch {
		c := *r
		c.epoch = s.keys.epoch
		c.holders = slices.Clone(r.holders)
		c.queue = slices.Clone(r.queue)
		r = &c
		s.keys.set(key, r)
	}
	return r
}

// record returns key's record for writing, made if there was none, and awake.
func (s *State) record(key string) *record {
	if _, ok := s.keys.get(key); !ok {
		r := &record{epoch: s.keys.epoch}
		s.keys.set(key, r)
		s.busy.add(key)
		return r
	}
	r := s.edit(key)
	s.wake(key, r)
	return r
}

// touch notes that key's holders, queue or value change.
func (s *State) touch(key string, r *record) {
	r.version = s.commands
	s.touched = append(s.touched, key)
}

// place returns where in key's queue w would stand, and its order there: at the
// tail, or before those whom it may pass. A waiver is of a delay that the same
// client's expired session left; it passes whatever the priorities.
//
// Passed are only plain waiters: not one that waits for several keys or a tree,
// since all queues must agree on one order; nor one whose caller holds on to
// other grants, since to pass it could close a cycle of waits through somebody
// who is not to blame and waits already.
func (s *State) place(key string, w *waiter, waiver bool) (i int, order uint64) {
	r, ok := s.keys.get(key)
	if !ok {
		return 0, w.order
	}
	i = len(r.queue)
	if w.set || w.tree || !waiver && w.priority == 0 && !s.lowers(r) {
		return i, w.order
	}
	var floor uint64
	if s.trees > 0 {
		floor = s.treesBefore(key)
	}
	for i > 0 {
		v := &r.queue[i-1]
		if !waiver && v.priority >= w.priority || !v.passable() || v.order <= floor {
			break
		}
		i--
	}
	if i < len(r.queue) {
		return i, r.queue[i].order
	}
	return i, w.order
}

// lowers reports whether the queue's tail has a negative priority.
func (s *State) lowers(r *record) bool {
	return len(r.queue) > 0 && r.queue[len(r.queue)-1].priority < 0
}

func (v *waiter) passable() bool {
	return v.upgrade == 0 && !v.set && !v.tree && len(v.under) == 0 && v.passed < MaxPassed
}

// pass counts a pass for all in the queue from first on.
func pass(queue []waiter) {
	for i := range queue {
		queue[i].passed++
	}
}

// enqueue puts w in the queues of its keys. The places were found by place, which
// is the tail for all but one key.
func (s *State) enqueue(owner *session, w waiter, keys []string, i int) Outcome {
	out := Outcome{Code: Queued}
	for _, key := range keys {
		r := s.record(key)
		s.touch(key, r)
		at := len(r.queue)
		if !w.set {
			at = i
			pass(r.queue[at:])
		}
		s.insert(key, r, at, w)
		out.Behind = max(out.Behind, r.behind(at))
		s.contend(key, 0)
	}
	owner.index.refs[w.seq] = ref{key: keys[0], set: w.set, state: waiting}
	owner.index.waits++
	owner.index.unseen++
	if w.set {
		s.sets.set(request{w.session, w.seq}, keys)
	}
	return out
}

func (s *State) insert(key string, r *record, i int, w waiter) {
	r.queue = slices.Insert(r.queue, i, w)
	s.waiters++
	s.countTrees(w.tree, 1)
	s.spot(key, r)
	if w.conditional {
		s.conditions++
	}
	s.nest(w.under, request{w.session, w.seq})
}

// take removes the waiter at index i of key's queue.
func (s *State) take(key string, r *record, i int) waiter {
	w := r.queue[i]
	r.queue = remove(r.queue, i)
	s.taken(key, r, &w)
	return w
}

// remove is slices.Delete of one, which does not move thousands if that is the first:
// a queue is served from its head, and a session's end frees its oldest grant first.
func remove[E any](list []E, i int) []E {
	if i > 0 || len(list) == 1 { // whose room is used again
		return slices.Delete(list, i, i+1)
	}
	var none E
	list[0] = none
	return list[1:]
}

// taken settles the counts for a waiter that left key's queue.
func (s *State) taken(key string, r *record, w *waiter) {
	s.waiters--
	s.countTrees(w.tree, -1)
	s.spot(key, r)
	if w.conditional {
		s.conditions--
	}
	s.unnest(w.under, request{w.session, w.seq})
}

// behind counts whom the waiter at index i of the queue waits for.
func (r *record) behind(i int) uint32 {
	n := len(r.holders) + i
	if r.queue[i].upgrade != 0 {
		n-- // its own grant
	}
	return uint32(n)
}

// position finds a waiter in the queue, or returns -1.
func (r *record) position(id SessionID, seq uint64) int {
	return slices.IndexFunc(r.queue, func(w waiter) bool { return w.seq == seq && w.session == id })
}

// keysOf returns the keys of a request that waits or holds.
func (s *State) keysOf(owner *session, seq uint64, at ref) []string {
	if at.set {
		keys, _ := s.sets.get(request{owner.id, seq})
		return keys
	}
	return []string{at.key}
}

// give makes w a holder of free keys, under the next token. The caller has seen
// to it that they are free and that there is a token. waited tells that only an
// event will tell the client.
func (s *State) give(owner *session, w *waiter, keys []string, waited bool) Outcome {
	s.last++
	g := grant{
		session: w.session,
		seq:     w.seq,
		token:   s.last,
		at:      s.at,
		delay:   w.delay,
		of:      w.of,
		mode:    w.mode,
		tree:    w.tree,
		set:     w.set,
		unseen:  true,
		waited:  waited,
		meta:    w.meta,
	}
	contended := false
	for _, key := range keys {
		r := s.record(key)
		s.touch(key, r)
		if r.ghosts > 0 && !w.set { // one for several keys waives no delay
			s.lay(key, r, owner.client)
		}
		r.last = g.token
		r.holders = append(r.holders, g)
		s.grants++
		s.countTrees(g.tree, 1)
		s.spot(key, r)
		contended = contended || len(r.queue) > 0
		if g.tree && !contended {
			for range s.keysBelow(key, waitedFor) {
				contended = true
				break
			}
		}
	}
	x := owner.index
	x.refs[w.seq] = ref{key: keys[0], token: g.token, set: w.set, state: granted}
	x.tokens[g.token] = w.seq
	if w.set {
		s.sets.set(request{w.session, w.seq}, keys)
	}
	if waited {
		x.await(w.seq)
	}
	out := s.told(owner, w.seq, x.refs[w.seq])
	if contended && s.format > 1 {
		s.note(owner, w.seq, func(g *grant) { g.contended = true })
	}
	return out
}

// told is the outcome of a request that was granted, as things are now.
func (s *State) told(owner *session, seq uint64, at ref) Outcome {
	out := Outcome{Code: Granted, Token: at.token}
	for _, key := range s.keysOf(owner, seq, at) {
		r, _ := s.keys.get(key)
		out.Waiters += uint32(len(r.queue))
		if !at.set {
			out.Value, out.Unclean = r.value, r.unclean
		}
	}
	return out
}

// lay ends the delays that expired sessions of the client left with key: it
// reclaims what was its own.
func (s *State) lay(key string, r *record, client string) {
	r.holders = slices.DeleteFunc(r.holders, func(g grant) bool {
		if g.ghost == nil || g.ghost.client != client {
			return false
		}
		delete(s.delays, g.token)
		r.ghosts--
		s.grants--
		s.countTrees(g.tree, -1)
		s.left(key, g.tree) // for who waited above or below
		return true
	})
}

// settle looks at the queues of all keys where something changed, until nobody
// waits there who could be granted.
func (s *State) settle() {
	for i := 0; i < len(s.dirty); i++ {
		s.serve(s.dirty[i])
	}
	if cap(s.dirty) > maxScratch {
		s.dirty = nil
	}
	clear(s.dirty)
	s.dirty = s.dirty[:0]
	if len(s.stuck) > maxScratch {
		s.stuck = make(map[request]string)
	}
	clear(s.stuck)
}

// serve grants what it can of key's queue, from its head on, and puts a record
// to rest that nobody holds or waits for.
//
// One pass is enough: who is granted was in the way of those behind before, as a
// waiter, and is in their way now, as a holder. Only permits are another matter,
// and those wait in one queue.
func (s *State) serve(key string) {
	r, ok := s.keys.get(key)
	if !ok || r.rest != 0 {
		return
	}
	s.turnAway(key)
	r, _ = s.keys.get(key)
	for i := 0; i < len(r.queue) && s.lifted && s.last < MaxToken; {
		w := &r.queue[i]
		owner, _ := s.sessions.get(w.session)
		here := s.barredHere(r, w, owner.client)
		if here || i > 0 && w.mode != Shared || s.barredByTree(key, w) || !s.clear(owner, key, w) {
			// Everyone behind one that does not share waits for it; one that
			// shares may have a tree or another key to wait for, or somebody's
			// delay, and those behind it not.
			if w.mode != Shared || here && r.ghosts == 0 {
				break
			}
			i++
			continue
		}
		s.grantWaiter(owner, key, i)
		r, _ = s.keys.get(key)
		if s.conditions > 0 {
			break // those may not hold any more: look again
		}
	}
	if len(r.holders) == 0 && len(r.queue) == 0 {
		s.rest(key, s.edit(key))
	}
}

// clear reports whether nothing but key's own queue is in w's way: no waiter
// before it above or below, and nothing at its other keys.
func (s *State) clear(owner *session, key string, w *waiter) bool {
	if w.upgrade != 0 {
		return true
	}
	if s.trees > 0 && s.follows(key, w) {
		return false
	}
	if !w.set {
		return true
	}
	// The key that was in its way last is asked first: what frees a thousand keys
	// comes here for each of them.
	q := request{w.session, w.seq}
	if other, ok := s.stuck[q]; ok && other != key && !s.free(other, w, owner.client) {
		return false
	}
	keys, _ := s.sets.get(q)
	for _, other := range keys {
		if other != key && !s.free(other, w, owner.client) {
			s.stuck[q] = other
			return false
		}
	}
	return true
}

// free reports whether w, which stands in key's queue, could be granted key.
func (s *State) free(key string, w *waiter, client string) bool {
	r, _ := s.keys.get(key)
	return !s.barred(key, r, w, client) && !r.queues(w, r.position(w.session, w.seq)) && !(s.trees > 0 && s.follows(key, w))
}

// grantWaiter makes the waiter at index i of key's queue a holder.
func (s *State) grantWaiter(owner *session, key string, i int) {
	r := s.edit(key)
	w := s.take(key, r, i)
	owner.index.waits--
	var out Outcome
	if w.upgrade != 0 {
		out = s.promote(owner, key, &w, true)
		s.dirty = append(s.dirty, key)
	} else {
		keys := s.keysOf(owner, w.seq, owner.index.refs[w.seq])
		for _, other := range keys {
			if other != key {
				r := s.edit(other)
				s.take(other, r, r.position(w.session, w.seq))
			}
		}
		out = s.give(owner, &w, keys, true)
		if s.conditions > 0 {
			s.dirty = append(s.dirty, keys...)
		}
		key = keys[0]
	}
	s.events = append(s.events, grantedEvent(owner.id, w.seq, key, out))
}

func grantedEvent(id SessionID, seq uint64, key string, out Outcome) Event {
	return Event{
		Kind:    EventGranted,
		Session: id,
		Seq:     seq,
		Key:     key,
		Token:   out.Token,
		Waiters: out.Waiters,
		Value:   out.Value,
		Unclean: out.Unclean,
	}
}

// turnAway refuses, late, all waiters of key whose condition no longer holds.
func (s *State) turnAway(key string) {
	if s.conditions == 0 {
		return
	}
	r, _ := s.keys.get(key)
	for i := 0; i < len(r.queue); {
		w := &r.queue[i]
		if !w.conditional || r.last <= w.ifToken {
			i++
			continue
		}
		r = s.edit(key)
		s.touch(key, r)
		w2 := s.take(key, r, i)
		owner, _ := s.sessions.get(w2.session)
		owner.index.waits--
		owner.index.unseen-- // reply counts it again
		out := s.reply(owner, w2.seq, &answer{out: Outcome{Code: Changed, Token: r.last}, key: key, late: true})
		s.left(key, w2.tree)
		s.events = append(s.events, Event{
			Kind:    EventRefused,
			Session: owner.id,
			Seq:     w2.seq,
			Key:     key,
			Code:    out.Code,
			Token:   out.Token,
		})
	}
}

// leave takes a request out of its keys' queues.
func (s *State) leave(owner *session, seq uint64, at ref) {
	for _, key := range s.keysOf(owner, seq, at) {
		r := s.edit(key)
		s.touch(key, r)
		w := s.take(key, r, r.position(owner.id, seq))
		s.left(key, w.tree)
	}
	s.sets.del(request{owner.id, seq})
	owner.index.waits--
	owner.index.unseen--
	delete(owner.index.refs, seq)
}

// ending says how a grant comes to its end: what the next holder is to think of the
// state that it finds.
type ending uint8

const (
	clean   ending = iota // its holder let go of it by itself
	unclean               // it did not
	unknown               // it never knew that it held
)

// end frees the grant that owner has under seq.
func (s *State) end(owner *session, seq uint64, at ref, how ending) {
	x := owner.index
	if at.state == granted {
		x.unseen--
	}
	for _, key := range s.keysOf(owner, seq, at) {
		r := s.edit(key)
		g := r.holders[r.holder(at.token)]
		s.dropUpgrade(owner, key, r, at.token)
		s.vacate(key, r, at.token)
		if g.mode == Exclusive && how != unknown {
			r.unclean = s.format > 1 && (how == unclean || g.broken)
		}
		delete(x.former, g.former)
		delete(x.former, g.first)
	}
	s.sets.del(request{owner.id, seq})
	delete(x.refs, seq)
	delete(x.tokens, at.token)
	delete(x.pending, seq)
}

// vacate takes the grant of token from key's holders.
func (s *State) vacate(key string, r *record, token Token) {
	s.touch(key, r)
	i := r.holder(token)
	g := r.holders[i]
	r.holders = remove(r.holders, i)
	if g.ghost != nil {
		r.ghosts--
	}
	s.grants--
	s.countTrees(g.tree, -1)
	s.spot(key, r)
	s.left(key, g.tree)
}

// dropUpgrade takes the upgrade of a grant that ends out of the queue.
func (s *State) dropUpgrade(owner *session, key string, r *record, token Token) {
	for i := range r.queue {
		w := &r.queue[i]
		if w.upgrade == 0 {
			return // upgrades stand before all others
		}
		if w.upgrade == token {
			seq := s.take(key, r, i).seq
			owner.index.waits--
			owner.index.unseen--
			delete(owner.index.refs, seq)
			return
		}
	}
}

// holder returns the index of the grant of token among the holders, -1 if there
// is none.
func (r *record) holder(token Token) int {
	i, ok := slices.BinarySearchFunc(r.holders, token, func(g grant, t Token) int {
		return compareUint(uint64(g.token), uint64(t))
	})
	if !ok {
		return -1
	}
	return i
}

// holding finds the grant that owner has under token, or had before an upgrade.
func (s *State) holding(owner *session, token Token) (seq uint64, at ref, g *grant) {
	seq, ok := owner.index.tokens[token]
	if !ok {
		if seq, ok = owner.index.former[token]; !ok {
			return 0, ref{}, nil
		}
	}
	at = owner.index.refs[seq]
	r, _ := s.keys.get(at.key)
	return seq, at, &r.holders[r.holder(at.token)]
}

// touchAll notes that a grant changes, at all of its keys.
func (s *State) touchAll(owner *session, seq uint64) {
	for _, key := range s.keysOf(owner, seq, owner.index.refs[seq]) {
		s.touch(key, s.edit(key))
	}
}

// name is the token by which requests say that they are made under the grant. It
// never changes.
func (g *grant) name() Token {
	if g.first != 0 {
		return g.first
	}
	return g.token
}

// note changes what a grant's holder is told, at all of its keys.
func (s *State) note(owner *session, seq uint64, change func(*grant)) {
	at := owner.index.refs[seq]
	for _, key := range s.keysOf(owner, seq, at) {
		r := s.edit(key)
		change(&r.holders[r.holder(at.token)])
	}
	owner.index.await(seq)
}

// contend tells key's holders, and those of trees above, that somebody waits, save
// the one of the token by. Each is told once in the life of its grant. Who holds
// below a tree that waits is not told: there may be a million.
func (s *State) contend(key string, by Token) {
	s.contendAt(key, false, by)
	if s.trees > 0 {
		for p := range above(key) {
			s.contendAt(p, true, by)
		}
	}
}

func (s *State) contendAt(key string, trees bool, by Token) {
	r, ok := s.keys.get(key)
	if !ok || s.format < 2 {
		return
	}
	for i := range r.holders {
		g := &r.holders[i]
		if g.contended || g.ghost != nil || g.token == by || trees && !g.tree {
			continue
		}
		owner, _ := s.sessions.get(g.session)
		s.events = append(s.events, Event{
			Kind:    EventContended,
			Session: g.session,
			Seq:     g.seq,
			Key:     owner.index.refs[g.seq].key,
			Token:   g.token,
		})
		s.note(owner, g.seq, func(g *grant) { g.contended = true })
		r, _ = s.keys.get(key) // which may have been cloned
	}
}
