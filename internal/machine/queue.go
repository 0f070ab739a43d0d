package machine

import "slices"

// Who gets the key next? The waiter that committed first. This file holds all
// that puts somebody in a queue, or takes anybody out.

// edit returns key's record for writing. The key must have one.
func (s *State) edit(key string) *record {
	r, _ := s.keys.get(key)
	if r.epoch != s.keys.epoch {
		c := *r
		c.epoch = s.keys.epoch
		c.queue = slices.Clone(r.queue)
		r = &c
		s.keys.set(key, r)
	}
	return r
}

// touch notes that key's holder or queue changes.
func (s *State) touch(key string, r *record) {
	r.version = s.commands
	s.touched = append(s.touched, key)
}

// enqueue adds a waiter at the tail of its key's queue, making the record if
// the founding wait is what it waits for.
func (s *State) enqueue(owner *session, c Acquire) Outcome {
	if _, ok := s.keys.get(c.Key); !ok {
		s.keys.set(c.Key, &record{epoch: s.keys.epoch})
	}
	r := s.edit(c.Key)
	s.touch(c.Key, r)
	r.queue = append(r.queue, waiter{session: c.Session, seq: c.Seq, since: s.commands, meta: string(c.Meta)})
	s.waiters++
	owner.index.refs[c.Seq] = ref{key: c.Key, state: waiting}
	owner.index.waits++
	owner.index.unseen++
	return Outcome{Code: Queued, Behind: r.behind(len(r.queue) - 1)}
}

// behind counts whom the waiter at index i of the queue waits for.
func (r *record) behind(i int) uint32 {
	if r.held() {
		i++
	}
	return uint32(i)
}

// queued is the outcome of a request that waits.
func queued(r *record, id SessionID, seq uint64) Outcome {
	return Outcome{Code: Queued, Behind: r.behind(r.position(id, seq))}
}

// position finds a waiter in the queue, or returns -1.
func (r *record) position(id SessionID, seq uint64) int {
	return slices.IndexFunc(r.queue, func(w waiter) bool { return w.seq == seq && w.session == id })
}

// give makes g the holder of a free key, under the next token. The caller has
// seen to it that there is one.
func (s *State) give(r *record, owner *session, key string, g grant) {
	s.last++
	g.token = s.last
	r.holder = g
	s.grants++
	owner.index.refs[g.seq] = ref{key: key, state: granted}
	owner.index.tokens[g.token] = g.seq
}

// serve is called when key's holder or queue has changed: it grants a free key
// to the head of its queue, in the same command, and drops a record that says
// nothing. One call wakes one waiter.
func (s *State) serve(key string, r *record) {
	s.touch(key, r)
	switch {
	case r.held():
	case len(r.queue) == 0:
		s.keys.del(key)
	case s.lifted && s.last < MaxToken:
		w := r.queue[0]
		r.queue[0] = waiter{}
		r.queue = r.queue[1:]
		s.waiters--
		owner, _ := s.sessions.get(w.session)
		owner.index.waits--
		s.give(r, owner, key, grant{session: w.session, seq: w.seq, meta: w.meta, unseen: true, waited: true})
		owner.index.await(w.seq)
		s.events = append(s.events, Event{
			Kind:    EventGranted,
			Session: w.session,
			Seq:     w.seq,
			Key:     key,
			Token:   r.holder.token,
		})
	}
}

// leave takes a waiter out of key's queue.
func (s *State) leave(owner *session, seq uint64, key string) {
	r := s.edit(key)
	i := r.position(owner.id, seq)
	r.queue = slices.Delete(r.queue, i, i+1)
	s.waiters--
	owner.index.waits--
	owner.index.unseen--
	delete(owner.index.refs, seq)
	s.serve(key, r)
}

// free ends the grant that owner has under seq, and serves the next.
func (s *State) free(owner *session, seq uint64, key string) {
	r := s.edit(key)
	if r.holder.unseen {
		owner.index.unseen--
	}
	delete(owner.index.refs, seq)
	delete(owner.index.tokens, r.holder.token)
	delete(owner.index.pending, seq)
	s.grants--
	r.holder = grant{}
	s.serve(key, r)
}
