package machine

// Capacities: the permits of a key are held by any number of holders, each with N
// permits, and the capacity bounds their sum.
//
//   - A SetCapacity sets the capacity until a SetCapacity to 0. A request then need not
//     name a capacity, and a capacity that it names does not count.
//   - Otherwise the first request for permits names the capacity with Of, for as long as
//     permits of the key are held or waited for. Another request that names a capacity
//     must name the same: of two programs that disagree, one is wrong. After a
//     SetCapacity to 0 the capacity stays in the same way.
//
// A request for more permits than the capacity is refused, on arrival and when the
// capacity is lowered during the wait. A capacity below the number of permits held takes
// nothing from the holders: nobody is granted permits until few enough are held. The
// capacity counts for permits alone: exclusive and shared requests of the key conflict
// with permits as they do without a set capacity.
//
// A capacity is not kept beside the records but in the record of the key: so a set
// capacity keeps the record, as a lasting value does, and MaxCapacities bounds them.

// checkCapacity returns the refusal of a request for permits that does not fit the
// capacity, and the zero Outcome if it fits or is for no permits.
func (r *record) checkCapacity(w *waiter) Outcome {
	of := r.capacity
	switch {
	case w.Mode != Permit:
		return Outcome{}
	case of == 0:
		of = w.Of
	case !r.fixed && w.Of != 0 && w.Of != of:
		return Outcome{Code: WrongCapacity, Limit: uint64(of)}
	}
	if w.N > of {
		return Outcome{Code: WrongCapacity, Limit: uint64(of)}
	}
	return Outcome{}
}

// nameCapacity makes the capacity that w names the capacity of a key that has none.
func (r *record) nameCapacity(w *waiter) {
	if w.Mode == Permit && r.capacity == 0 {
		r.capacity = w.Of
	}
}

// setCapacity returns the capacity that a SetCapacity has set, 0 if none has.
func (r *record) setCapacity() uint32 {
	if !r.fixed {
		return 0
	}
	return uint32(r.capacity)
}

// hasPermits reports whether permits are held or waited for.
func (r *record) hasPermits() bool { return r.permits > 0 || r.permitWaiters > 0 }

func (s *State) setCapacity(owner *session, c SetCapacity) Outcome {
	if out, isCopy := s.answerCopy(owner, c.Seq); isCopy {
		return out
	}
	switch {
	case !validKey(c.Key):
		return bad("Key", MaxKey)
	case c.Of > MaxHolders:
		return bad("Of", MaxHolders)
	case c.From > MaxHolders, c.From != 0 && !c.Compare:
		return bad("From", MaxHolders)
	}
	if out := s.spendSeq(owner, c.Seq); out.Code != 0 {
		return out
	}
	r := s.keys.get(c.Key)
	switch {
	case c.Of == r.setCapacity():
		return s.remember(owner, c.Seq, &answer{out: Outcome{Code: OK}})
	case c.Compare && c.From != r.setCapacity():
		return s.refuse(owner, c.Seq, Outcome{Code: WrongCapacity, Limit: uint64(r.setCapacity())})
	case !r.fixed && s.keys.capacities >= MaxCapacities:
		return s.refuse(owner, c.Seq, Outcome{Code: TooManyCapacities, Limit: MaxCapacities})
	}
	lower := c.Of > 0 && c.Of < uint32(r.capacity)
	s.keys.use(c.Key) // admitWaiters makes it idle again
	s.change(c.Key, func(r *record) {
		r.fixed = c.Of > 0
		if r.fixed {
			r.capacity = uint16(c.Of)
		}
	})
	if lower {
		s.refuseWaiters(c.Key, Outcome{Code: WrongCapacity, Limit: uint64(c.Of)}, func(w *waiter) bool { return w.N > uint16(c.Of) })
		s.refuseStuck(c.Key)
	}
	s.revisit(c.Key, false)
	s.admitWaiters()
	return s.remember(owner, c.Seq, &answer{out: Outcome{Code: OK}})
}

// refuseStuck refuses as Deadlock the waiters that wait for ever because the capacity of
// key was lowered: with fewer permits, a waiter may need the permits that its own caller
// keeps.
//
// Such a cycle goes through a grant of permits of key that could be spared before, and
// back to key through a waiter for permits that has a lineage: a waiter of another mode,
// or for a tree, waited for that grant before. So these waiters alone are refused, and
// the waiters that merely wait behind them are free then. If the search would be too long,
// all of them are refused, as TooManyWaiters.
func (s *State) refuseStuck(key string) {
	var waiters []vertex
	for i := range s.keys.get(key).queue {
		if w := &s.keys.get(key).queue[i]; w.Mode == Permit && len(w.under) > 0 {
			waiters = append(waiters, w.vertex(key))
		}
	}
	if len(waiters) == 0 {
		return
	}
	d := s.search(MaxSearch, waiters...) // one for all: thousands may wait
	out, stuck := Outcome{Code: TooManyWaiters}, map[vertex]int(nil)
	if !d.tooLong() {
		out.Code, stuck = Deadlock, d.cyclic()
	}
	s.refuseWaiters(key, out, func(w *waiter) bool {
		return w.Mode == Permit && len(w.under) > 0 && (d.tooLong() || stuck[w.vertex(key)] > 0)
	})
}

// forgetValue forgets the fading value of an idle key with a set capacity. The key
// becomes idle anew, because the list of such keys knows it by the number.
func (s *State) forgetValue(key string) {
	s.idles++
	r := s.keys.edit(key, func(r *record) { r.value, r.fade, r.idle = "", false, s.idles })
	r.version = s.commands
}

// forgetTokensOfFixed forgets the last tokens of the idle keys that the table keeps for
// their set capacities alone. It looks at every key: only a succession does.
func (s *State) forgetTokensOfFixed() {
	var keys []string
	for key, r := range s.keys.all {
		if r.fixed && r.idle != 0 && r.value == "" && r.last > 0 {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		s.forgotten = max(s.forgotten, s.keys.get(key).last)
		s.keys.edit(key, func(r *record) { r.last = 0 })
	}
}

// checkPermits verifies the capacity of a key, and that it bounds the requests.
func (r *record) checkPermits(key string) error {
	held := 0
	for i := range r.holders {
		held += int(r.holders[i].N)
	}
	for i := range r.queue {
		if w := &r.queue[i]; w.N > r.capacity {
			return broken(1, "waiter of command %d waits for %d permits of %d at %q", w.since, w.N, r.capacity, key)
		}
	}
	switch {
	case r.capacity > MaxHolders || held > MaxHolders:
		return broken(10, "%d permits of %d are held at %q", held, r.capacity, key)
	case (r.capacity != 0) != (r.fixed || r.hasPermits()):
		return broken(1, "%q has %d permits of %d and %d waiters for them, set %t", key, held, r.capacity, r.permitWaiters, r.fixed)
	}
	return nil
}
