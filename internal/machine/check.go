package machine

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// Check verifies the invariants on State, and names the one it finds broken. It
// reads the whole table: it is for tests, and for operators in doubt.
func (s *State) Check() error {
	if err := s.checkTables(); err != nil {
		return err
	}
	return s.checkIndexes()
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
	tokens := make([]Token, 0, s.keys.n)
	s.keys.all(func(key string, r *record) bool {
		if r.held() {
			tokens = append(tokens, r.holder.token)
		}
		err = s.checkRecord(key, r)
		return err == nil
	})
	if err != nil {
		return err
	}
	slices.Sort(tokens)
	for i := 1; i < len(tokens); i++ {
		if tokens[i-1] == tokens[i] {
			return broken(2, "token %d granted after token %d", tokens[i], tokens[i-1])
		}
	}
	s.refusals.all(func(q request, out *Outcome) bool {
		switch out.Code {
		case Held, TooManyWaiters, Founding:
		default:
			err = broken(8, "session %x seq %d is remembered as refused with code %d", q.session, q.seq, out.Code)
		}
		return err == nil
	})
	return err
}

func (s *State) checkHeader() error {
	switch {
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
	if g := &r.holder; r.held() {
		if !s.lifted {
			return broken(9, "%q has a holder before the founding wait is over", key)
		}
		if g.token > s.last {
			return broken(2, "token %d of %q is above the last, %d", g.token, key, s.last)
		}
		if len(g.meta) > MaxMeta {
			return broken(10, "meta of %d bytes at %q", len(g.meta), key)
		}
	} else {
		if len(r.queue) == 0 {
			return broken(4, "%q has a record, but neither holder nor waiter", key)
		}
		if s.lifted && s.last < MaxToken {
			return broken(4, "%d wait for %q, which nobody holds", len(r.queue), key)
		}
	}
	if len(r.queue) > MaxWaiters {
		return broken(5, "%d wait for %q", len(r.queue), key)
	}
	var since uint64
	for _, w := range r.queue {
		if w.since <= since || w.since > r.version {
			return broken(5, "waiter of command %d stands behind that of %d at %q", w.since, since, key)
		}
		since = w.since
		if len(w.meta) > MaxMeta {
			return broken(10, "meta of %d bytes at %q", len(w.meta), key)
		}
	}
	return nil
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
	fresh.keys, fresh.refusals = s.keys, s.refusals
	if err := fresh.reindex(); err != nil {
		return err
	}
	if fresh.grants != s.grants || fresh.waiters != s.waiters {
		return broken(11, "counts %d grants and %d waiters of %d and %d", s.grants, s.waiters, fresh.grants, fresh.waiters)
	}
	if n := sizes(&s.keys); n != s.keys.n {
		return broken(11, "counts %d keys of %d", s.keys.n, n)
	}
	if n := sizes(&s.sessions); n != s.sessions.n {
		return broken(11, "counts %d sessions of %d", s.sessions.n, n)
	}
	if n := sizes(&s.refusals); n != s.refusals.n {
		return broken(11, "counts %d refusals of %d", s.refusals.n, n)
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

// sizes counts a table's elements, shard by shard.
func sizes[K comparable, V any](t *table[K, V]) (n int) {
	for i := range t.shards {
		n += len(t.shards[i].m)
	}
	return n
}
