package machine

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"
)

// Check verifies the invariants on State, and returns an error with the number of a
// broken invariant. Check reads the whole table: use it in tests, and as an operator
// in doubt.
func (s *State) Check() error {
	c := checker{s}
	for key, r := range s.keys.all {
		if err := c.checkRecord(key, r); err != nil {
			return err
		}
	}
	if err := c.checkTables(); err != nil {
		return err
	}
	if err := c.checkDerived(); err != nil {
		return err
	}
	return c.checkWaits()
}

// checker verifies invariants of a State, and changes nothing.
type checker struct{ *State }

func broken(invariant int, format string, args ...any) error {
	return fmt.Errorf("machine: I%d broken: %s", invariant, fmt.Sprintf(format, args...))
}

// checkTables verifies the header and the tables of an image, but not each record by itself:
// see checkRecord.
func (s checker) checkTables() error {
	if err := s.checkHeader(); err != nil {
		return err
	}
	if err := s.checkEnded(); err != nil {
		return err
	}
	if err := s.checkLater(); err != nil {
		return err
	}
	for id, o := range s.sessions.all {
		if err := s.checkSession(id, o); err != nil {
			return err
		}
	}
	if s.keys.trees > 0 {
		for key, r := range s.keys.all {
			if err := s.checkAbove(key, r); err != nil {
				return err
			}
		}
	}
	for q, keys := range s.sets.all {
		if len(keys) == 0 || len(keys) > MaxKeys || !slices.IsSorted(keys) {
			return broken(10, "session %x seq %d is for %d keys, or not in order", q.session, q.seq, len(keys))
		}
	}
	if err := s.checkGroups(); err != nil {
		return err
	}
	for q, a := range s.answers.all {
		switch a.out.Code {
		case Held, TooManyWaiters, Founding, Granted, Deadlock, WrongCapacity, Changed, TooOld, NeverGranted, WrongMode, OK, TooManyCapacities:
		default:
			return broken(8, "session %x seq %d is remembered as answered with code %d", q.session, q.seq, a.out.Code)
		}
	}
	return nil
}

func (s checker) checkHeader() error {
	switch {
	case !noExtra.isEmpty(), plainTerms != terms{}, sharedTerms != terms{Spec: Spec{Mode: Shared}}:
		return broken(11, "what records and grants share has changed")
	case s.format < 1 || s.format > uint64(s.formats.max):
		return broken(9, "format %d", s.format)
	case s.forgotten > s.last:
		return broken(2, "token %d is forgotten, but the last token is %d", s.forgotten, s.last)
	case s.last > MaxToken:
		return broken(2, "token %d exceeds %d", s.last, MaxToken)
	case s.reserved > MaxReserved || s.second > s.at/1000:
		return broken(10, "%d tokens reserved in second %d", s.reserved, s.second)
	case !s.founded && (s.lifted || s.last != 0 || s.bound != 0 || s.cluster != ClusterID{} || s.sessions.n+s.groups.n > 0):
		return broken(9, "there is state before founding")
	case s.founded && s.cluster == ClusterID{}:
		return broken(9, "founded, but for no cluster")
	case s.founded && (s.bound < MinTTL || s.bound > MaxTTL):
		return broken(10, "bound of %d ms", s.bound)
	}
	return nil
}

// checkEnded verifies the list of ended processes.
func (s checker) checkEnded() error {
	if len(s.ended) > MaxEnded || len(s.ended) > 0 && !s.founded {
		return broken(10, "%d nodes have ended processes", len(s.ended))
	}
	for i, e := range s.ended {
		switch {
		case e.node == "" || !validName(e.node) || e.dir == (DirID{}) || e.boot == 0:
			return broken(10, "process %d of node %q with directory %x has ended", e.boot, e.node, e.dir)
		case i > 0 && s.ended[i-1].compare(e.node, e.dir) >= 0:
			return broken(11, "ended process of %q out of order", e.node)
		}
	}
	return nil
}

func (s checker) checkSession(id SessionID, o *session) error {
	switch {
	case o.id != id || id == SessionID{}:
		return broken(11, "session %x is stored as %x", o.id, id)
	case o.client == "" || !validName(o.client) || !validName(o.node) || len(o.meta) > MaxMeta:
		return broken(10, "session %x has a name or meta over its limit", id)
	case o.index.weight.keys > MaxHeld || o.index.weight.bytes > MaxHeldBytes:
		return broken(10, "session %x weighs %+v", id, o.index.weight)
	case o.ttl < MinTTL || o.ttl > MaxTTL:
		return broken(10, "session %x has a TTL of %d ms", id, o.ttl)
	case o.ending == 0 && slices.Contains(s.ended, endedBoot{o.node, o.dir, o.boot, false}):
		return broken(12, "session %x is open for an ended process", id)
	case o.second > s.second || o.second == s.second && o.reserved > s.reserved || o.reserved > MaxReserved/2:
		return broken(10, "session %x has reserved %d tokens in second %d", id, o.reserved, o.second)
	case !o.spent.valid():
		return broken(10, "session %x has spent seqs %v", id, o.spent)
	}
	return s.checkRevoked(o)
}

func (s checker) checkRecord(key string, r *record) error {
	if key == "" || len(key) > MaxKey || !utf8.ValidString(key) {
		return broken(10, "key %q", key)
	}
	if r.version == 0 || r.version > s.commands {
		return broken(5, "%q changed at command %d of %d", key, r.version, s.commands)
	}
	inUse := len(r.holders)+len(r.queue) > 0
	switch {
	case len(r.value) > MaxValue || r.fade && r.value == "":
		return broken(10, "value of %d bytes at %q", len(r.value), key)
	case r.last > s.last:
		return broken(2, "token %d of %q is above the last, %d", r.last, key, s.last)
	case inUse == (r.idle != 0) || r.idle > s.idles:
		return broken(4, "%q has %d holders and %d waiters, and is idle as number %d", key, len(r.holders), len(r.queue), r.idle)
	case !inUse && r.last == 0 && !r.fixed:
		return broken(4, "%q has a record, but nothing is known about it", key)
	case len(r.holders) > int(r.ghosts) && !s.lifted:
		return broken(9, "%q has a holder before the founding wait is over", key)
	case len(r.holders) > MaxHolders:
		return broken(10, "%q has %d holders", key, len(r.holders))
	case len(r.queue) > MaxWaiters+1: // an upgrade comes on top
		return broken(5, "%q has %d waiters", key, len(r.queue))
	}
	if r.extra != &noExtra && r.extra.isEmpty() {
		return broken(11, "%q has an empty extra", key)
	}
	if err := r.checkPermits(key); err != nil {
		return err
	}
	for i := range r.holders {
		if err := s.checkGrant(key, r, i); err != nil {
			return err
		}
	}
	for i := range r.queue {
		if err := s.checkWaiter(key, r, i); err != nil {
			return err
		}
	}
	counted := record{holders: r.holders, extra: &extra{queue: r.queue}}
	counted.recount()
	if r.ghosts != counted.ghosts || r.trees != counted.trees || r.conditions != counted.conditions ||
		r.permits != counted.permits || r.permitWaiters != counted.permitWaiters {
		return broken(11, "%q counts ghosts, trees, conditions, permits and their waiters as %d, %d, %d, %d, %d; derived %d, %d, %d, %d, %d", key,
			r.ghosts, r.trees, r.conditions, r.permits, r.permitWaiters,
			counted.ghosts, counted.trees, counted.conditions, counted.permits, counted.permitWaiters)
	}
	return nil
}

func (s checker) checkWaiter(key string, r *record, i int) error {
	w := &r.queue[i]
	var order uint64
	if i > 0 {
		order = r.queue[i-1].order
	}
	out := w.Spec.check(w.set)
	switch {
	case w.order < order || w.order > w.since || w.since == 0 || w.since > r.version:
		return broken(5, "waiter of command %d and order %d stands behind order %d at %q", w.since, w.order, order, key)
	case r.find(w) != i:
		return broken(5, "waiter of command %d is at %q twice, or not found", w.since, key)
	case w.passed > MaxPassed:
		return broken(6, "waiter of command %d was passed %d times at %q", w.since, w.passed, key)
	case len(w.under) > MaxUnder+1:
		return broken(10, "waiter under %d grants at %q", len(w.under), key)
	case out.Code != 0:
		return broken(10, "waiter with a bad %s at %q: %+v", out.Field, key, w.Spec)
	case w.upgrade != 0 && (r.holder(w.upgrade) < 0 || i > 0 && r.queue[i-1].upgrade == 0):
		return broken(5, "upgrade of token %d is not first at %q, or has no grant", w.upgrade, key)
	}
	return nil
}

func (s checker) checkGrant(key string, r *record, i int) error {
	g := &r.holders[i]
	out := g.Spec.check(g.is(markSet))
	switch {
	case g.token == 0 || g.token+Token(g.Block) > r.last || g.former >= g.token || g.first > g.former || (g.first == 0) != (g.former == 0):
		return broken(2, "token %d, %d before, of %q is above the last, %d", g.token, g.former, key, r.last)
	case i > 0 && r.holders[i-1].token >= g.token:
		return broken(2, "token %d granted after token %d at %q", g.token, r.holders[i-1].token, key)
	case (g.ghost != nil) != (g.session == SessionID{}) || g.ghost != nil && (g.Delay == 0 || g.is(markSet)):
		return broken(3, "token %d of %q has no session and no delay", g.token, key)
	case out.Code != 0:
		return broken(10, "grant with a bad %s at %q: %+v", out.Field, key, g.Spec)
	case i > 0 && (g.Mode == Exclusive || g.Mode != r.holders[0].Mode):
		return broken(1, "%q has holders of modes %d and %d", key, r.holders[0].Mode, g.Mode)
	}
	return nil
}

// checkAbove verifies that no holder of a key above key conflicts with a holder of key.
func (s checker) checkAbove(key string, r *record) error {
	for p := range above(key) {
		over := s.keys.get(p)
		for i := range r.holders {
			g := &r.holders[i]
			for j := range over.holders {
				h := &over.holders[j]
				same := h.requestID == g.requestID && h.is(markSet) && g.is(markSet)
				if treesConflict(h.Tree, h.Mode, &g.Spec) && !same {
					return broken(1, "%q and %q above it are held under tokens %d and %d", key, p, g.token, h.token)
				}
			}
		}
	}
	return nil
}

// checkWaits verifies that every waiter has to wait, and that every wait can end.
// All derived data must be right.
func (s checker) checkWaits() error {
	if !s.lifted || s.last >= MaxToken {
		return nil
	}
	for key, r := range s.keys.all {
		for i := range r.queue {
			if err := s.checkWait(key, r, &r.queue[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s checker) checkWait(key string, r *record, w *waiter) error {
	owner := s.sessions.get(w.session)
	keys := s.keysOf(owner, w.seq, owner.index.requests.at(w.seq))
	if s.isAwaited(keys...) {
		return s.checkEnds(key, w)
	}
	if w.Conditional && r.last > w.IfToken {
		return broken(4, "session %x seq %d waits for %q, which was granted since", w.session, w.seq, key)
	}
	blocked := false
	for _, k := range keys {
		kr := s.keys.get(k)
		blocked = blocked || s.keys.heldAgainst(k, kr, w, owner.client) || w.upgrade == 0 &&
			(kr.waitsBehind(w, kr.find(w)) || s.keys.waitsBehindTree(k, w))
	}
	if !blocked && !owner.dead() {
		return broken(4, "session %x seq %d waits for %q, which it could be granted", w.session, w.seq, key)
	}
	return s.checkEnds(key, w)
}

// checkEnds verifies that a wait can end.
func (s checker) checkEnds(key string, w *waiter) error {
	if len(w.under) > 0 && s.deadlock(math.MaxInt, vertex{requestID: w.requestID, order: w.order}).Code != 0 {
		return broken(7, "session %x seq %d waits for %q for ever", w.session, w.seq, key)
	}
	return nil
}

// checkDerived derives anew everything that is derived, and compares.
func (s checker) checkDerived() error {
	fresh := New()
	fresh.header = s.header
	for id, o := range s.sessions.all {
		c := *o
		c.index = newIndex(id)
		fresh.sessions.set(id, &c)
	}
	fresh.keys.recordTable, fresh.sets, fresh.answers, fresh.groups = s.keys.recordTable, s.sets, s.answers, s.groups
	if err := fresh.derive(); err != nil {
		return err
	}
	if err := s.keys.checkDerived(&fresh.keys); err != nil {
		return err
	}
	if s.ending != fresh.ending {
		return broken(11, "%d sessions are ending, derived %d", s.ending, fresh.ending)
	}
	if is, want := s.refs.all(), fresh.refs.all(); !slices.Equal(is, want) {
		return broken(11, "%d refs of sessions, derived %d, or others", len(is), len(want))
	}
	if is, want := s.processes.all(), fresh.processes.all(); !slices.Equal(is, want) {
		return broken(11, "%d sessions of processes, derived %d, or others", len(is), len(want))
	}
	if !maps.EqualFunc(s.lineage, fresh.lineage, func(a, b *branch) bool { return maps.Equal(a.waiters, b.waiters) }) {
		return broken(11, "lineage of %d grants, derived %d, or others", len(s.lineage), len(fresh.lineage))
	}
	if err := s.checkNodes(fresh.nodes); err != nil {
		return err
	}
	sameGrant := func(a, b owned) bool { return a.token == b.token && a.by.id == b.by.id }
	if is, want := s.owners.all(), fresh.owners.all(); !slices.EqualFunc(is, want, sameGrant) {
		return broken(11, "owners of %d grants, derived %d, or others", len(is), len(want))
	}
	if !maps.EqualFunc(s.awaited, fresh.awaited, slices.Equal) {
		return broken(11, "queues to be looked at %v, derived %v", s.awaited, fresh.awaited)
	}
	if !maps.Equal(s.delays, fresh.delays) {
		return broken(11, "delays %v, derived %v", s.delays, fresh.delays)
	}
	for _, t := range []struct {
		name        string
		counted, is int
	}{
		{"keys", s.keys.n, s.keys.count()},
		{"sessions", s.sessions.n, s.sessions.count()},
		{"sets", s.sets.n, s.sets.count()},
		{"answers", s.answers.n, s.answers.count()},
		{"groups", s.groups.n, s.groups.count()},
	} {
		if t.counted != t.is {
			return broken(11, "counts %d %s of %d", t.counted, t.name, t.is)
		}
	}
	for id, o := range s.sessions.all {
		if diff := o.index.diff(fresh.sessions.get(id).index); diff != "" {
			return broken(11, "session %x: %s", id, diff)
		}
	}
	return nil
}

// checkDerived compares with what was derived anew, and verifies the bounds of
// memory.
func (t *keyTable) checkDerived(fresh *keyTable) error {
	if counted := t.countSums(); t.sums != fresh.sums || t.sums != counted {
		return broken(11, "sums %+v, derived %+v, counted %+v", t.sums, fresh.sums, counted)
	}
	if is, want := t.inUse.all(), fresh.inUse.all(); !slices.Equal(is, want) {
		return broken(11, "%q are in use, derived %q", is, want)
	}
	if is, want := t.valued.all(), fresh.valued.all(); !slices.Equal(is, want) {
		return broken(11, "%q have values, derived %q", is, want)
	}
	if !maps.Equal(t.working, fresh.working) {
		return broken(11, "keys of shards held %v, derived %v", t.working, fresh.working)
	}
	for i := range t.below {
		if is, want := t.below[i].all(), fresh.below[i].all(); !slices.Equal(is, want) {
			return broken(11, "%q are in set %d, derived %q", is, i, want)
		}
	}
	for _, l := range []struct{ is, want *idleList }{{&t.past, &fresh.past}, {&t.fadingIdle, &fresh.fadingIdle}} {
		live := slices.DeleteFunc(slices.Clone(l.is.queue), func(e idleKey) bool { return !t.isIdle(e) })
		if !slices.Equal(live, l.want.queue) || l.is.n != l.want.n {
			return broken(11, "%d idle keys, derived %d", l.is.n, l.want.n)
		}
	}
	if t.past.n > MaxPast || t.fadingIdle.n > MaxFading || t.fadingIdleBytes > MaxFadingSize ||
		t.lasting > MaxValues || t.lastingBytes > MaxValuesSize || t.capacities > MaxCapacities ||
		t.fadingIdle.n+t.fadingInUse > 2*MaxFading || t.fadingIdleBytes+t.fadingInUseBytes > 2*MaxFadingSize {
		return broken(10, "sums over their limits: %+v, %d idle keys and %d with fading values", t.sums, t.past.n, t.fadingIdle.n)
	}
	return nil
}

// countSums counts the sums from the tables, without the parts of records.
func (t *keyTable) countSums() (n sums) {
	for _, r := range t.all {
		if r.fixed {
			n.capacities++
		}
		n.grants += len(r.holders)
		n.waiters += len(r.queue)
		for i := range r.holders {
			if r.holders[i].Tree {
				n.trees++
			}
		}
		for i := range r.queue {
			if r.queue[i].Tree {
				n.trees++
			}
			if r.queue[i].Conditional {
				n.conditions++
			}
		}
		inUse := len(r.holders)+len(r.queue) > 0
		if inUse {
			n.used++
		}
		switch {
		case r.value == "":
		case !r.fade:
			n.lasting++
			n.lastingBytes += len(r.value)
		case inUse:
			n.fadingInUse++
			n.fadingInUseBytes += len(r.value)
		default:
			n.fadingIdleBytes += len(r.value)
		}
	}
	return n
}
