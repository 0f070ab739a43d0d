package machine

import (
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// Check verifies the invariants on State, and names the one it finds broken. It
// reads the whole table: it is for tests, and for operators in doubt.
func (s *State) Check() error {
	if err := s.checkTables(); err != nil {
		return err
	}
	if err := s.checkIndexes(); err != nil {
		return err
	}
	return s.checkWaits()
}

func broken(i int, format string, args ...any) error {
	return fmt.Errorf("machine: I%d broken: %s", i, fmt.Sprintf(format, args...))
}

// checkTables verifies what an image says, without the indexes.
func (s *State) checkTables() error {
	if err := s.checkHeader(); err != nil {
		return err
	}
	var err error
	s.sessions.all(func(id SessionID, o *session) bool {
		err = s.checkSession(id, o)
		return err == nil
	})
	if err != nil {
		return err
	}
	// A token is held at one key, or at those of one request.
	type held struct {
		token Token
		q     request
		set   bool
	}
	tokens := make([]held, 0, s.keys.n)
	var rests []uint64
	s.keys.all(func(key string, r *record) bool {
		for i := range r.holders {
			g := &r.holders[i]
			tokens = append(tokens, held{g.token, request{g.session, g.seq}, g.set})
		}
		if r.rest != 0 {
			rests = append(rests, r.rest)
		}
		err = s.checkRecord(key, r)
		return err == nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(tokens, func(a, b held) int { return compareUint(uint64(a.token), uint64(b.token)) })
	for i := 1; i < len(tokens); i++ {
		if a, b := tokens[i-1], tokens[i]; a.token == b.token && (a.q != b.q || !a.set) {
			return broken(2, "token %d granted after token %d", b.token, a.token)
		}
	}
	slices.Sort(rests)
	if len(slices.Compact(rests)) != len(rests) {
		return broken(10, "two keys came to rest as one")
	}
	s.sets.all(func(q request, keys []string) bool {
		err = s.checkSet(q, keys)
		return err == nil
	})
	if err != nil {
		return err
	}
	s.answers.all(func(q request, a *answer) bool {
		switch a.out.Code {
		case Held, TooManyWaiters, Founding, Granted, Deadlock, WrongCapacity, Changed, TooOld, WrongMode:
		default:
			err = broken(8, "session %x seq %d is remembered as answered with code %d", q.session, q.seq, a.out.Code)
		}
		return err == nil
	})
	return err
}

// checkSet verifies that a request for several keys is at all of them.
func (s *State) checkSet(q request, keys []string) error {
	if len(keys) == 0 || len(keys) > MaxKeys || !slices.IsSorted(keys) {
		return broken(10, "session %x seq %d is for %d keys, or not in order", q.session, q.seq, len(keys))
	}
	var token Token
	for i, key := range keys {
		r, ok := s.keys.get(key)
		if !ok {
			return broken(8, "session %x seq %d is not at %q", q.session, q.seq, key)
		}
		j := slices.IndexFunc(r.holders, func(g grant) bool { return g.session == q.session && g.seq == q.seq })
		var t Token
		if j >= 0 {
			t = r.holders[j].token
		} else if r.position(q.session, q.seq) < 0 {
			return broken(8, "session %x seq %d is not at %q", q.session, q.seq, key)
		}
		if i > 0 && t != token {
			return broken(8, "session %x seq %d has token %d at %q and %d before", q.session, q.seq, t, key, token)
		}
		token = t
	}
	return nil
}

func (s *State) checkHeader() error {
	switch {
	case s.format < 1 || s.format > MaxFormat:
		return broken(9, "format %d", s.format)
	case s.forgotten > s.last:
		return broken(2, "token %d is forgotten, %d was the last", s.forgotten, s.last)
	case s.last > MaxToken:
		return broken(2, "token %d exceeds %d", s.last, MaxToken)
	case !s.founded && (s.lifted || s.last != 0 || s.bound != 0 || s.cluster != ClusterID{} || s.sessions.n > 0):
		return broken(9, "there is state before founding")
	case s.founded && s.cluster == ClusterID{}:
		return broken(9, "founded, but for no cluster")
	case s.founded && (s.bound < MinTTL || s.bound > MaxTTL):
		return broken(10, "bound of %d ms", s.bound)
	}
	return nil
}

func (s *State) checkSession(id SessionID, o *session) error {
	switch {
	case o.id != id || id == SessionID{}:
		return broken(11, "session %x is kept as %x", o.id, id)
	case o.client == "" || !validName(o.client) || !validName(o.node) || len(o.meta) > MaxMeta:
		return broken(10, "session %x has a name or meta over its limit", id)
	case o.ttl < MinTTL || o.ttl > MaxTTL:
		return broken(10, "session %x has a TTL of %d ms", id, o.ttl)
	case !o.spent.valid():
		return broken(10, "session %x has spent seqs %v", id, o.spent)
	}
	return nil
}

func (s *State) checkRecord(key string, r *record) error {
	if key == "" || len(key) > MaxKey || !utf8.ValidString(key) {
		return broken(10, "key %q", key)
	}
	if r.version == 0 || r.version > s.commands {
		return broken(5, "%q changed at command %d of %d", key, r.version, s.commands)
	}
	busy := len(r.holders)+len(r.queue) > 0
	switch {
	case len(r.value) > MaxValue || r.fade && r.value == "":
		return broken(10, "value of %d bytes at %q", len(r.value), key)
	case r.last > s.last:
		return broken(2, "token %d of %q is above the last, %d", r.last, key, s.last)
	case busy == (r.rest != 0) || r.rest > s.idles:
		return broken(4, "%q has %d holders and %d waiters, and rests as %d", key, len(r.holders), len(r.queue), r.rest)
	case !busy && r.last == 0:
		return broken(4, "%q has a record, but there is nothing to say about it", key)
	case len(r.holders) > 0 && !s.lifted:
		return broken(9, "%q has a holder before the founding wait is over", key)
	case len(r.holders) > MaxHolders:
		return broken(10, "%d hold %q", len(r.holders), key)
	case len(r.queue) > MaxWaiters+1: // an upgrade needs no room
		return broken(5, "%d wait for %q", len(r.queue), key)
	}
	ghosts := 0
	for i := range r.holders {
		if err := s.checkGrant(key, r, i); err != nil {
			return err
		}
		if r.holders[i].ghost != nil {
			ghosts++
		}
	}
	if r.ghosts != ghosts {
		return broken(11, "%d delays run at %q, of %d", r.ghosts, key, ghosts)
	}
	var order uint64
	for i := range r.queue {
		w := &r.queue[i]
		switch {
		case w.order < order || w.order > w.since || w.since == 0 || w.since > r.version:
			return broken(5, "waiter of command %d and order %d stands behind order %d at %q", w.since, w.order, order, key)
		case w.passed > MaxPassed:
			return broken(6, "waiter of command %d was passed %d times at %q", w.since, w.passed, key)
		case len(w.meta) > MaxMeta || len(w.under) > MaxUnder+1:
			return broken(10, "meta of %d bytes, under %d grants, at %q", len(w.meta), len(w.under), key)
		case (w.mode == Permit) != (w.of > 0) || w.mode > Permit || w.tree && w.mode == Permit:
			return broken(10, "waiter of mode %d and capacity %d at %q", w.mode, w.of, key)
		case w.upgrade != 0 && (r.holder(w.upgrade) < 0 || i > 0 && r.queue[i-1].upgrade == 0):
			return broken(5, "upgrade of token %d is not first at %q, or has no grant", w.upgrade, key)
		}
		order = w.order
	}
	return nil
}

func (s *State) checkGrant(key string, r *record, i int) error {
	g := &r.holders[i]
	switch {
	case g.token == 0 || g.token > r.last || g.former >= g.token || g.first > g.former || (g.first == 0) != (g.former == 0):
		return broken(2, "token %d, %d before, of %q is above the last, %d", g.token, g.former, key, r.last)
	case i > 0 && r.holders[i-1].token >= g.token:
		return broken(2, "token %d granted after token %d at %q", g.token, r.holders[i-1].token, key)
	case (g.ghost != nil) != (g.session == SessionID{}) || g.ghost != nil && (g.delay == 0 || g.set):
		return broken(3, "token %d of %q has no session and no delay", g.token, key)
	case len(g.meta) > MaxMeta || g.delay > MaxDelay:
		return broken(10, "meta of %d bytes at %q", len(g.meta), key)
	case (g.mode == Permit) != (g.of > 0) || g.mode > Permit || g.tree && g.mode == Permit:
		return broken(10, "grant of mode %d and capacity %d at %q", g.mode, g.of, key)
	case i > 0 && (g.mode == Exclusive || g.mode != r.holders[0].mode || g.of != r.holders[0].of):
		return broken(1, "%q has holders of modes %d and %d", key, r.holders[0].mode, g.mode)
	case g.mode == Permit && len(r.holders) > int(g.of):
		return broken(1, "%d hold permits of %d at %q", len(r.holders), g.of, key)
	}
	for p := range above(key) {
		above, ok := s.keys.get(p)
		if !ok {
			continue
		}
		for j := range above.holders {
			h := &above.holders[j]
			same := h.session == g.session && h.seq == g.seq && h.set && g.set
			if (h.tree || g.tree) && !(h.mode == Shared && g.mode == Shared) && !same {
				return broken(1, "%q and %q above it are held under tokens %d and %d", key, p, g.token, h.token)
			}
		}
	}
	return nil
}

// checkWaits verifies that everyone who waits must, and that no wait is for
// ever. It needs the indexes.
func (s *State) checkWaits() error {
	if !s.lifted || s.last >= MaxToken {
		return nil
	}
	var err error
	s.keys.all(func(key string, r *record) bool {
		for i := range r.queue {
			w := &r.queue[i]
			owner, _ := s.sessions.get(w.session)
			stuck := false
			if w.conditional && r.last > w.ifToken {
				err = broken(4, "session %x seq %d waits for %q, which was granted since", w.session, w.seq, key)
				return false
			}
			for _, k := range s.keysOf(owner, w.seq, owner.index.refs[w.seq]) {
				kr, _ := s.keys.get(k)
				stuck = stuck || s.barred(k, kr, w, owner.client) || w.upgrade == 0 &&
					(kr.queues(w, kr.position(w.session, w.seq)) || s.follows(k, w))
			}
			if !stuck {
				err = broken(4, "session %x seq %d waits for %q, which it could be granted", w.session, w.seq, key)
				return false
			}
			if len(w.under) > 0 && s.deadlock(node{request: request{w.session, w.seq}}) != nil {
				err = broken(7, "session %x seq %d waits for %q for ever", w.session, w.seq, key)
				return false
			}
		}
		return true
	})
	return err
}

// checkIndexes derives all indexes anew and compares.
func (s *State) checkIndexes() error {
	fresh := New()
	fresh.last, fresh.commands = s.last, s.commands
	s.sessions.all(func(id SessionID, o *session) bool {
		c := *o
		c.index = newIndex()
		fresh.sessions.set(id, &c)
		return true
	})
	fresh.keys, fresh.sets, fresh.answers = s.keys, s.sets, s.answers
	if err := fresh.reindex(); err != nil {
		return err
	}
	if fresh.grants != s.grants || fresh.waiters != s.waiters || fresh.trees != s.trees || fresh.conditions != s.conditions {
		return broken(11, "counts %d grants, %d waiters and %d trees of %d, %d and %d",
			s.grants, s.waiters, s.trees, fresh.grants, fresh.waiters, fresh.trees)
	}
	if err := s.checkMemory(fresh); err != nil {
		return err
	}
	if !slices.Equal(s.busy.all(), fresh.busy.all()) {
		return broken(11, "%q are held or waited for, of %q", s.busy.all(), fresh.busy.all())
	}
	for i := range s.below {
		if kept, is := s.below[i].all(), fresh.below[i].all(); !slices.Equal(kept, is) {
			return broken(11, "%q are in set %d of %q", kept, i, is)
		}
	}
	if !maps.EqualFunc(s.under, fresh.under, func(a, b *branch) bool { return maps.Equal(a.waiters, b.waiters) }) {
		return broken(11, "%d grants are waited under, of %d, or others", len(s.under), len(fresh.under))
	}
	if !maps.Equal(s.delays, fresh.delays) {
		return broken(11, "delays %v of %v", s.delays, fresh.delays)
	}
	for _, t := range []struct {
		name     string
		kept, is int
	}{
		{"keys", s.keys.n, sizes(&s.keys)},
		{"sessions", s.sessions.n, sizes(&s.sessions)},
		{"sets", s.sets.n, sizes(&s.sets)},
		{"answers", s.answers.n, sizes(&s.answers)},
	} {
		if t.kept != t.is {
			return broken(11, "counts %d %s of %d", t.kept, t.name, t.is)
		}
	}
	var err error
	s.sessions.all(func(id SessionID, o *session) bool {
		f, _ := fresh.sessions.get(id)
		if diff := o.index.diff(f.index); diff != "" {
			err = broken(11, "session %x: %s", id, diff)
		}
		return err == nil
	})
	return err
}

// checkMemory verifies what is remembered of keys at rest, and that it is bounded.
func (s *State) checkMemory(fresh *State) error {
	live := func(f *fifo) []resting {
		return slices.DeleteFunc(slices.Clone(f.queue), func(e resting) bool { return !s.rests(e) })
	}
	for _, f := range []struct{ kept, is *fifo }{{&s.past, &fresh.past}, {&s.fading, &fresh.fading}} {
		if !slices.Equal(live(f.kept), f.is.queue) || f.kept.n != len(f.is.queue) || f.is.n != len(f.is.queue) {
			return broken(11, "%d keys at rest of %d", f.kept.n, len(f.is.queue))
		}
	}
	if s.kept != fresh.kept || s.keptSize != fresh.keptSize || s.fadingSize != fresh.fadingSize ||
		s.heldFading != fresh.heldFading || s.heldFadingSize != fresh.heldFadingSize {
		return broken(11, "%d values of %d bytes, and %d that may fade; of %d, %d and %d",
			s.kept, s.keptSize, s.fadingSize, fresh.kept, fresh.keptSize, fresh.fadingSize)
	}
	if s.past.n > MaxPast || s.fading.n > MaxFading || s.fadingSize > MaxFadingSize || s.kept > MaxValues || s.keptSize > MaxValuesSize ||
		s.heldFading > MaxFading || s.heldFadingSize > MaxFadingSize {
		return broken(10, "%d keys, %d values and %d that may fade are remembered", s.past.n, s.kept, s.fading.n)
	}
	return nil
}

// sizes counts a table's elements, shard by shard.
func sizes[K comparable, V any](t *table[K, V]) (n int) {
	for i := range t.shards {
		n += len(t.shards[i].m)
	}
	return n
}
