package machine

import (
	"slices"
	"unicode/utf8"
)

// Apply takes one step. The outcome answers the proposer; the events are the
// step's effects on others, in an order that is part of the contract: losses,
// then the grants that follow from them, then the session's end, then one
// EventChanged for each key, sorted. Apply never panics on a command that was
// decoded; a nil or unknown one is refused as BadCommand.
//
// The caller owns the events.
func (s *State) Apply(c Command) (Outcome, []Event) {
	s.commands++
	s.events, s.touched = nil, s.touched[:0]
	out := s.apply(c)

	if len(s.touched) > 1 {
		slices.Sort(s.touched)
		s.touched = slices.Compact(s.touched)
	}
	events := slices.Grow(s.events, len(s.touched))
	for _, key := range s.touched {
		events = append(events, Event{Kind: EventChanged, Key: key})
		s.changes.add(s.commands, key)
	}
	if cap(s.touched) > maxScratch {
		s.touched = nil
	}
	clear(s.touched)
	s.events = nil
	return out, events
}

// maxScratch bounds what is kept from one command to the next.
const maxScratch = 1024

func (s *State) apply(c Command) Outcome {
	if !s.founded {
		switch c.(type) {
		case Lift, Bound, Raise, Open, Acquire, Upgrade, Downgrade, SetValue, Withdraw, Release, Ask, Break, EndDelay,
			Silence, Hear, Expire, Close:
			return Outcome{Code: NotFounded}
		}
	}
	if Format(c) > int(s.format) {
		switch c.(type) {
		case Acquire, Upgrade, Downgrade, SetValue, Release, Ask, Break, EndDelay:
			return Outcome{Code: WrongFormat, Limit: s.format}
		}
	}
	switch c := c.(type) {
	case Found:
		return s.found(c)
	case Raise:
		return s.raise(c)
	case LeaderStart:
		if c.Term <= s.term {
			return s.wrongTerm()
		}
		s.term = c.Term
		return Outcome{Code: OK}
	case Lift:
		return s.lift(c)
	case Bound:
		if out, ok := checkTTL(c.TTL, MaxTTL); !ok {
			return out
		}
		if c.Term != s.term {
			return s.wrongTerm()
		}
		// The founding wait is the bound's: nothing shortens it.
		if s.lifted || c.TTL > s.bound {
			s.bound = c.TTL
		}
		return Outcome{Code: OK}
	case Open:
		return s.open(c)
	case Acquire:
		return s.acquire(c)
	case Withdraw:
		return s.withdraw(c)
	case Release:
		return s.release(c)
	case Silence:
		return s.mark(c.Session, c.Term, true)
	case Hear:
		return s.mark(c.Session, c.Term, false)
	case Expire:
		if c.Term != s.term {
			return s.wrongTerm()
		}
		return s.finish(c.Session, Expired)
	case Close:
		return s.finish(c.Session, Closed)
	case Upgrade:
		return s.upgrade(c)
	case Downgrade:
		return s.downgrade(c)
	case SetValue:
		return s.setValue(c)
	case Ask:
		return s.ask(c)
	case Break:
		return s.breakGrant(c)
	case EndDelay:
		if c.Term != s.term {
			return s.wrongTerm()
		}
		return s.endDelay(c.Token)
	}
	return bad("Command", 0)
}

func (s *State) found(c Found) Outcome {
	if s.founded {
		return Outcome{Code: Founded}
	}
	if c.Cluster == (ClusterID{}) {
		return bad("Cluster", 0)
	}
	if c.Floor == 0 || c.Floor > MaxToken {
		return bad("Floor", uint64(MaxToken))
	}
	if out, ok := checkTTL(c.TTL, MaxTTL); !ok {
		return out
	}
	s.cluster = c.Cluster
	s.founded = true
	s.last = c.Floor - 1
	s.bound = c.TTL
	return Outcome{Code: OK}
}

func (s *State) raise(c Raise) Outcome {
	if c.Term != s.term {
		return s.wrongTerm()
	}
	if c.Format > MaxFormat {
		return bad("Format", MaxFormat)
	}
	if c.Format > s.format {
		s.format = c.Format
		// Nothing is known of keys that were held before, or in an earlier
		// cluster of that name.
		s.forgotten = s.last
	}
	return Outcome{Code: OK}
}

func (s *State) lift(c Lift) Outcome {
	if c.Term != s.term {
		return s.wrongTerm()
	}
	if s.lifted {
		return Outcome{Code: OK}
	}
	s.lifted = true
	// Every record is a queue, since nobody holds before this. In key order, so
	// that tokens do not hang on a map's.
	for key := range s.busy.from("", "") {
		s.dirty = append(s.dirty, key)
	}
	s.settle()
	return Outcome{Code: OK}
}

func (s *State) acquire(c Acquire) Outcome {
	owner, out := s.heed(c.Session, c.Seen)
	if owner == nil {
		return out
	}
	if out, known := s.recall(owner, c.Seq); known {
		return out
	}
	keys, out := c.check()
	if out.Code != 0 {
		return out
	}
	if out := s.spend(owner, c.Seq); out.Code != 0 {
		return out
	}
	w := waiter{
		session:     c.Session,
		seq:         c.Seq,
		since:       s.commands,
		order:       s.commands,
		at:          s.at,
		delay:       c.Delay,
		ifToken:     c.IfToken,
		of:          c.Of,
		mode:        c.Mode,
		tree:        c.Tree,
		set:         c.Key == "",
		conditional: c.Conditional,
		priority:    c.Priority,
		meta:        string(c.Meta),
		under:       s.heldBy(owner, c.Under),
	}
	refuse := func(out Outcome) Outcome { return s.reply(owner, c.Seq, &answer{out: out}) }
	if c.Conditional {
		if out := s.since(c.Key, c.IfToken); out.Code != Granted {
			return refuse(out)
		}
	}
	if c.Mode == Permit {
		if of := s.capacity(c.Key); of != 0 && of != c.Of {
			return refuse(Outcome{Code: WrongCapacity, Limit: uint64(of)})
		}
	}
	place, taken := 0, !s.lifted
	limit := MaxWaiters
	if c.MaxWaiters > 0 {
		limit = min(limit, int(c.MaxWaiters))
	}
	full := false
	trees := s.trees > 0 || w.tree
	for _, key := range keys {
		if !trees {
			if r, ok := s.keys.get(key); !ok || r.rest != 0 {
				continue // free, and nothing to look at
			}
		}
		r, ok := s.keys.get(key)
		if !ok {
			r = &record{}
		}
		place, w.order = s.place(key, &w, s.waives(r, owner.client))
		full = full || len(r.queue) >= limit
		taken = taken || s.barred(key, r, &w, owner.client) || r.queues(&w, place) || trees && s.follows(key, &w)
	}
	if !taken {
		if r, ok := s.keys.get(keys[0]); ok && !w.set && place < len(r.queue) {
			pass(s.edit(keys[0]).queue[place:]) // readers before a writer
		}
		out := s.give(owner, &w, keys, false)
		owner.index.unseen++
		if s.conditions > 0 {
			s.dirty = append(s.dirty, keys...)
		}
		s.settle()
		return out
	}
	switch {
	case c.Try && !s.lifted:
		return refuse(Outcome{Code: Founding})
	case c.Try:
		for _, key := range keys {
			if h := s.inTheWay(key, &w, owner.client); h != (Holder{}) {
				if w.set && h.Key == "" {
					h.Key = key
				}
				return refuse(Outcome{Code: Held, Holder: h})
			}
		}
		return refuse(Outcome{Code: Held}) // by whom is not found
	case full:
		return refuse(Outcome{Code: TooManyWaiters, Limit: uint64(limit)})
	}
	if cycle := s.try(owner, w, keys, place); cycle != nil {
		return refuse(Outcome{Code: Deadlock, Cycle: cycle})
	}
	return s.enqueue(owner, w, keys, place)
}

// try puts w in its queues on trial, if it is made under other grants, and returns
// the cycle of waits that it would close.
func (s *State) try(owner *session, w waiter, keys []string, place int) (cycle []Link) {
	if len(w.under) == 0 {
		return nil
	}
	x, q := owner.index, request{w.session, w.seq}
	x.refs[w.seq] = ref{key: keys[0], set: w.set, state: waiting}
	if w.set {
		s.sets.set(q, keys)
	}
	made := keys[:0:0]
	for _, key := range keys {
		if _, ok := s.keys.get(key); !ok {
			made = append(made, key)
			s.record(key)
		}
		r := s.edit(key)
		if at := len(r.queue); w.set {
			s.insert(key, r, at, w)
		} else {
			s.insert(key, r, place, w)
		}
	}
	if cycle = s.deadlock(node{request: q}); cycle == nil && w.upgrade != 0 {
		cycle = s.deadlock(node{token: w.upgrade, key: keys[0], kind: aGrant})
	}
	for _, key := range keys {
		r := s.edit(key)
		s.take(key, r, r.position(w.session, w.seq))
	}
	for _, key := range made {
		s.drop(key)
	}
	s.sets.del(q)
	delete(x.refs, w.seq)
	return cycle
}

// heldBy returns those of the tokens that were granted, each as the first of its
// grant. Of other sessions' grants the first must be named.
func (s *State) heldBy(owner *session, under []Token) []Token {
	var tokens []Token
	for _, t := range under {
		if t == 0 || t > s.last {
			continue
		}
		if _, _, g := s.holding(owner, t); g != nil {
			t = g.name()
		}
		if !slices.Contains(tokens, t) {
			tokens = append(tokens, t)
		}
	}
	return tokens
}

// check returns the keys of a request that can be asked for, or what is wrong.
func (c *Acquire) check() (keys []string, out Outcome) {
	set := c.Key == "" && len(c.Keys) > 0
	switch {
	case !set && (len(c.Keys) > 0 || !validKey(c.Key)):
		return nil, bad("Key", MaxKey)
	case c.Mode > Permit:
		return nil, bad("Mode", uint64(Permit))
	case c.Mode == Permit && (c.Of == 0 || c.Of > MaxHolders), c.Mode != Permit && c.Of != 0:
		return nil, bad("Of", MaxHolders)
	case c.Tree && c.Mode == Permit:
		return nil, bad("Tree", 0)
	case c.Priority != 0 && (set || c.Tree):
		return nil, bad("Priority", 0)
	case c.Delay > MaxDelay, c.Delay > 0 && set:
		return nil, bad("Delay", MaxDelay)
	case c.Conditional && set, !c.Conditional && c.IfToken != 0:
		return nil, bad("IfToken", 0)
	case set && c.Mode == Permit:
		return nil, bad("Keys", 0)
	case len(c.Meta) > MaxMeta:
		return nil, bad("Meta", MaxMeta)
	case len(c.Under) > MaxUnder:
		return nil, bad("Under", MaxUnder)
	}
	if !set {
		return []string{c.Key}, Outcome{}
	}
	if len(c.Keys) > MaxKeys {
		return nil, bad("Keys", MaxKeys)
	}
	size := 0
	for i, key := range c.Keys {
		if !validKey(key) {
			return nil, bad("Key", MaxKey)
		}
		if i > 0 && c.Keys[i-1] >= key {
			return nil, bad("Keys", 0)
		}
		size += len(key)
	}
	if size > MaxKeyBytes {
		return nil, bad("Keys", MaxKeyBytes)
	}
	return slices.Clone(c.Keys), Outcome{}
}

func validKey(key string) bool { return key != "" && len(key) <= MaxKey && utf8.ValidString(key) }

// capacity returns what the permits of key are out of; 0 if there is none.
func (s *State) capacity(key string) uint32 {
	r, ok := s.keys.get(key)
	if !ok {
		return 0
	}
	if len(r.holders) > 0 && r.holders[0].mode == Permit {
		return r.holders[0].of
	}
	for i := range r.queue {
		if r.queue[i].mode == Permit {
			return r.queue[i].of
		}
	}
	return 0
}

// waives reports whether a delay of key was left by the client of that name.
func (s *State) waives(r *record, client string) bool {
	return len(s.delays) > 0 && slices.ContainsFunc(r.holders, func(g grant) bool {
		return g.ghost != nil && g.ghost.client == client
	})
}

// recall answers a second copy of a request with what is now true of the first.
func (s *State) recall(owner *session, seq uint64) (out Outcome, known bool) {
	if seq == 0 {
		return bad("Seq", 0), true
	}
	at, ok := owner.index.refs[seq]
	switch {
	case !ok && owner.spent.has(seq):
		return Outcome{Code: Withdrawn}, true
	case !ok:
		return Outcome{}, false
	case at.state == waiting:
		out := Outcome{Code: Queued}
		for _, key := range s.keysOf(owner, seq, at) {
			r, _ := s.keys.get(key)
			out.Behind = max(out.Behind, r.behind(r.position(owner.id, seq)))
		}
		return out, true
	case at.state == granted:
		return s.told(owner, seq, at), true
	case at.state == answered:
		if a, _ := s.answers.get(request{owner.id, seq}); s.stands(owner, a) {
			return a.out, true
		}
	}
	return Outcome{Code: Withdrawn}, true // seen and forgotten, or an upgrade of what is gone
}

// stands reports whether an answer is still true: one that grants an upgrade is
// not when the grant has ended.
func (s *State) stands(owner *session, a *answer) bool {
	if a.out.Code != Granted {
		return true
	}
	_, _, g := s.holding(owner, a.out.Token)
	return g != nil
}

// spend notes that seq was used. It refuses what there is no room to remember.
func (s *State) spend(owner *session, seq uint64) Outcome {
	if s.last >= MaxToken {
		// For good: the counter never falls, so the seq need not be spent.
		return Outcome{Code: TokensSpent}
	}
	if !owner.spent.add(seq) {
		return bad("Seq", MaxGaps)
	}
	if owner.index.unseen >= MaxUnseen {
		// There is no room to remember this refusal. The seq is spent, so that
		// a late copy is refused too, if in other words.
		return Outcome{Code: TooManyUnseen, Limit: MaxUnseen}
	}
	return Outcome{}
}

func (s *State) upgrade(c Upgrade) Outcome {
	owner, out := s.heed(c.Session, c.Seen)
	if owner == nil {
		return out
	}
	if out, known := s.recall(owner, c.Seq); known {
		return out
	}
	if len(c.Under) > MaxUnder {
		return bad("Under", MaxUnder)
	}
	_, at, g := s.holding(owner, c.Token)
	switch {
	case g == nil || g.broken:
		return Outcome{Code: NotHeld} // for good, so the seq need not be spent
	case g.mode != Shared || g.set:
		return Outcome{Code: WrongMode}
	}
	r, _ := s.keys.get(at.key)
	if slices.ContainsFunc(r.queue, func(w waiter) bool { return w.upgrade == g.token }) {
		return Outcome{Code: WrongMode}
	}
	if out := s.spend(owner, c.Seq); out.Code != 0 {
		return out
	}
	w := waiter{
		session: c.Session,
		seq:     c.Seq,
		since:   s.commands,
		order:   0, // before everyone, at this key and above and below it
		at:      s.at,
		upgrade: g.token,
		mode:    Exclusive,
		tree:    g.tree,
		under:   s.heldBy(owner, append([]Token{g.token}, c.Under...)),
	}
	if cycle := s.try(owner, w, []string{at.key}, 0); cycle != nil {
		return s.reply(owner, c.Seq, &answer{out: Outcome{Code: Deadlock, Cycle: cycle}})
	}
	if !s.barred(at.key, r, &w, owner.client) {
		owner.index.unseen++
		out := s.promote(owner, at.key, &w, false)
		s.dirty = append(s.dirty, at.key) // conditions of waiters may not hold any more
		s.settle()
		return out
	}
	r = s.edit(at.key)
	s.touch(at.key, r)
	s.insert(at.key, r, 0, w)
	s.contend(at.key, g.token)
	owner.index.refs[w.seq] = ref{key: at.key, state: waiting}
	owner.index.waits++
	owner.index.unseen++
	return Outcome{Code: Queued, Behind: r.behind(0)}
}

// promote makes a shared grant exclusive, under the next token: whoever shared the
// key meanwhile may have shown a larger one than it had.
func (s *State) promote(owner *session, key string, w *waiter, waited bool) Outcome {
	r := s.edit(key)
	s.touch(key, r)
	i := r.holder(w.upgrade)
	g := &r.holders[i]
	x := owner.index
	s.last++
	delete(x.tokens, g.token)
	if g.first == 0 {
		g.first = g.token
	}
	if g.former != g.first {
		delete(x.former, g.former)
	}
	g.former, g.token, g.mode = g.token, s.last, Exclusive
	s.spot(key, r)
	r.last = g.token
	x.tokens[g.token] = g.seq
	x.was(g.former, g.seq)
	at := x.refs[g.seq]
	at.token = g.token
	x.refs[g.seq] = at
	x.unseen-- // reply counts it again
	out := Outcome{Code: Granted, Token: g.token, Waiters: uint32(len(r.queue))}
	return s.reply(owner, w.seq, &answer{out: out, key: key, late: waited})
}

func (s *State) downgrade(c Downgrade) Outcome {
	owner, out := s.heed(c.Session, c.Seen)
	if owner == nil {
		return out
	}
	_, at, g := s.holding(owner, c.Token)
	switch {
	case g == nil || g.broken || g.token != c.Token:
		return Outcome{Code: NotHeld}
	case g.mode == Permit || g.set:
		return Outcome{Code: WrongMode}
	case g.mode == Exclusive:
		s.edit(at.key).unclean = false // its holder is here, and lets go of it
		s.demote(at)
		s.settle()
	}
	return Outcome{Code: OK}
}

// demote makes an exclusive grant a shared one.
func (s *State) demote(at ref) {
	r := s.edit(at.key)
	s.touch(at.key, r)
	g := &r.holders[r.holder(at.token)]
	g.mode = Shared
	s.spot(at.key, r)
	s.left(at.key, g.tree)
}

func (s *State) withdraw(c Withdraw) Outcome {
	owner, out := s.heed(c.Session, c.Seen)
	if owner == nil {
		return out
	}
	if c.Seq == 0 {
		return bad("Seq", 0)
	}
	out = Outcome{Code: OK}
	at, ok := owner.index.refs[c.Seq]
	switch {
	case !ok:
		if !owner.spent.add(c.Seq) {
			return bad("Seq", MaxGaps)
		}
	case at.state == waiting:
		s.leave(owner, c.Seq, at)
	case at.state == answered:
		a, _ := s.answers.get(request{owner.id, c.Seq})
		s.forget(owner, c.Seq)
		if a.out.Code != Granted {
			break
		}
		// An upgrade. Its grant may be gone, or be another's by now.
		if _, at, g := s.holding(owner, a.out.Token); g != nil && g.token == a.out.Token {
			out.Token = g.token
			if g.mode == Exclusive && !g.broken {
				s.demote(at)
			}
		}
	case at.state == granted:
		s.end(owner, c.Seq, at, unknown)
	default:
		s.end(owner, c.Seq, at, clean)
	}
	s.settle()
	return out
}

func (s *State) release(c Release) Outcome {
	owner, out := s.heed(c.Session, c.Seen)
	if owner == nil {
		return out
	}
	seq, at, g := s.holding(owner, c.Token)
	if g == nil {
		return Outcome{Code: NotHeld}
	}
	if c.To != "" {
		if g.set {
			return Outcome{Code: WrongMode}
		}
		if !s.favour(owner, at, c.To) {
			return Outcome{Code: NoSuccessor}
		}
	}
	// Who releases a token has seen it: freeing also forgets the outcome.
	s.end(owner, seq, at, clean)
	s.settle()
	return Outcome{Code: OK}
}

// favour puts the first waiter of the client of that name before all others at
// the key of a grant that is to be released, if they may all be passed. An upgrade
// of that grant is not in its way: it goes with it.
func (s *State) favour(owner *session, at ref, client string) bool {
	r, _ := s.keys.get(at.key)
	i := slices.IndexFunc(r.queue, func(w waiter) bool {
		o, _ := s.sessions.get(w.session)
		return w.upgrade == 0 && o.client == client
	})
	if i < 0 {
		return false
	}
	var floor uint64
	if s.trees > 0 {
		floor = s.treesBefore(at.key)
	}
	first := slices.IndexFunc(r.queue, func(w waiter) bool { return w.upgrade != at.token })
	if w := &r.queue[i]; i > first && (w.set || w.tree) ||
		slices.ContainsFunc(r.queue[first:i], func(v waiter) bool { return !v.passable() || v.order <= floor }) {
		return false
	}
	r = s.edit(at.key)
	s.dropUpgrade(owner, at.key, r, at.token)
	i -= first
	if i == 0 {
		return true
	}
	w := r.queue[i]
	pass(r.queue[:i])
	copy(r.queue[1:i+1], r.queue[:i])
	w.order = r.queue[1].order
	r.queue[0] = w
	return true
}

func (s *State) ask(c Ask) Outcome {
	asker, ok := s.sessions.get(c.Session)
	if !ok {
		return Outcome{Code: NoSession}
	}
	if !validKey(c.Key) {
		return bad("Key", MaxKey)
	}
	r, ok := s.keys.get(c.Key)
	if !ok || len(r.holders) == 0 {
		return Outcome{Code: NotHeld}
	}
	for _, g := range slices.Clone(r.holders) {
		if g.ghost != nil {
			continue
		}
		owner, _ := s.sessions.get(g.session)
		if !g.asked {
			s.note(owner, g.seq, func(g *grant) { g.asked = true })
			s.touchAll(owner, g.seq)
		}
		s.events = append(s.events, Event{
			Kind:    EventAsked,
			Session: g.session,
			Seq:     g.seq,
			Key:     owner.index.refs[g.seq].key,
			Token:   g.token,
			By:      asker.client,
		})
	}
	return Outcome{Code: OK}
}

func (s *State) breakGrant(c Break) Outcome {
	if _, ok := s.sessions.get(c.Session); !ok {
		return Outcome{Code: NoSession}
	}
	if !validKey(c.Key) {
		return bad("Key", MaxKey)
	}
	r, ok := s.keys.get(c.Key)
	if !ok {
		return Outcome{Code: NotHeld}
	}
	i := r.holder(c.Token)
	if i < 0 {
		out := Outcome{Code: NotHeld}
		if len(r.holders) > 0 {
			out.Holder = s.describe(&r.holders[0])
		}
		return out
	}
	g := r.holders[i]
	switch {
	case g.ghost != nil:
		return s.endDelay(g.token)
	case g.broken:
		return Outcome{Code: OK}
	}
	owner, _ := s.sessions.get(g.session)
	at := owner.index.refs[g.seq]
	s.note(owner, g.seq, func(g *grant) { g.broken = true })
	s.touchAll(owner, g.seq)
	s.dropUpgrade(owner, c.Key, s.edit(c.Key), g.token)
	s.events = append(s.events, Event{
		Kind:    EventLost,
		Session: g.session,
		Seq:     g.seq,
		Key:     at.key,
		Token:   g.token,
		Reason:  Broken,
	})
	s.left(c.Key, g.tree)
	s.settle()
	return Outcome{Code: OK}
}

func (s *State) wrongTerm() Outcome { return Outcome{Code: WrongTerm, Limit: s.term} }

func bad(field string, limit uint64) Outcome {
	return Outcome{Code: BadCommand, Field: field, Limit: limit}
}

// checkTTL names the limit that ttl, in milliseconds, breaks.
func checkTTL(ttl, most uint64) (Outcome, bool) {
	if ttl < MinTTL {
		return bad("TTL", MinTTL), false
	}
	if ttl > most {
		return bad("TTL", most), false
	}
	return Outcome{}, true
}
