package machine

import (
	"fmt"
	"maps"
	"slices"
)

// index finds a session's requests. It is derived from the tables.
type index struct {
	refs    map[uint64]ref
	tokens  map[Token]uint64    // of its grants, to their seqs
	former  map[Token]uint64    // the same for their first tokens, and those before the last upgrade
	pending map[uint64]struct{} // requests that there is something to tell about again: see Pending
	waits   int
	unseen  int // outcomes remembered: waiters, unseen grants, answers
}

// ref says where a request is.
type ref struct {
	key   string // the first of its keys; none if refused at once
	token Token  // of its grant, as it is now
	set   bool   // it is for several keys
	state state
}

type state uint8

const (
	waiting  state = iota
	granted        // the outcome is not seen yet
	seen           // granted, and the outcome seen
	answered       // the outcome is in no record
)

func newIndex() *index {
	return &index{refs: make(map[uint64]ref), tokens: make(map[Token]uint64)}
}

// await notes a request that the client must be told about by an event.
func (x *index) await(seq uint64) {
	if x.pending == nil {
		x.pending = make(map[uint64]struct{})
	}
	x.pending[seq] = struct{}{}
}

// was notes the token that the grant of seq had before an upgrade.
func (x *index) was(former Token, seq uint64) {
	if x.former == nil {
		x.former = make(map[Token]uint64)
	}
	x.former[former] = seq
}

// pends reports whether the client must be told about g again when it comes back.
func (g *grant) pends() bool { return g.unseen && g.waited || g.asked || g.contended || g.broken }

// reindex fills the empty indexes of the State and of all sessions from the
// tables. It fails if a request has no session, no seq of its own, or is in more
// than one place.
func (s *State) reindex() error {
	var err error
	enter := func(q request, to ref) *index {
		o, ok := s.sessions.get(q.session)
		if !ok {
			err = broken(3, "session %x of %q is not open", q.session, to.key)
			return nil
		}
		x := o.index
		if before, ok := x.refs[q.seq]; ok {
			err = broken(8, "session %x seq %d is at %q and at %q", q.session, q.seq, before.key, to.key)
			return nil
		}
		if q.seq == 0 || !o.spent.has(q.seq) {
			err = broken(8, "session %x seq %d of %q is not spent", q.session, q.seq, to.key)
			return nil
		}
		x.refs[q.seq] = to
		if to.state != seen {
			x.unseen++
		}
		if x.unseen > MaxUnseen {
			err = broken(10, "session %x remembers more than %d outcomes", q.session, MaxUnseen)
			return nil
		}
		return x
	}
	// first reports whether key is the first of a request's, where it is entered.
	first := func(q request, set bool, key string) bool {
		if !set {
			return true
		}
		keys, _ := s.sets.get(q)
		if !slices.Contains(keys, key) {
			err = broken(8, "session %x seq %d is at %q, which is not among its keys", q.session, q.seq, key)
			return false
		}
		return keys[0] == key
	}
	rests := make([]resting, 0)
	busy := make([]string, 0, s.keys.n)
	s.keys.all(func(key string, r *record) bool {
		if r.rest == 0 {
			busy = append(busy, key)
		}
		s.keep(r, 1)
		if r.rest != 0 {
			rests = append(rests, resting{key, r.rest})
		} else {
			s.hold(r, 1)
		}
		for i := range r.holders {
			g := &r.holders[i]
			s.grants++
			s.countTrees(g.tree, 1)
			if g.ghost != nil {
				s.delays[g.token] = key
				continue
			}
			q := request{g.session, g.seq}
			if !first(q, g.set, key) {
				if err != nil {
					return false
				}
				continue
			}
			to := ref{key: key, token: g.token, set: g.set, state: seen}
			if g.unseen {
				to.state = granted
			}
			x := enter(q, to)
			if x == nil {
				return false
			}
			if g.pends() {
				x.await(g.seq)
			}
			x.tokens[g.token] = g.seq
			if g.former != 0 {
				x.was(g.former, g.seq)
				x.was(g.first, g.seq)
			}
		}
		for i := range r.queue {
			w := &r.queue[i]
			q := request{w.session, w.seq}
			s.waiters++
			s.countTrees(w.tree, 1)
			if w.conditional {
				s.conditions++
			}
			if !first(q, w.set, key) {
				if err != nil {
					return false
				}
				continue
			}
			x := enter(q, ref{key: key, set: w.set, state: waiting})
			if x == nil {
				return false
			}
			x.waits++
			s.nest(w.under, q)
		}
		return true
	})
	if err != nil {
		return err
	}
	slices.Sort(busy)
	s.busy.fill(busy)
	var in [len(s.below)][]string
	for _, key := range busy {
		if !below(key) {
			continue
		}
		r, _ := s.keys.get(key)
		want := s.spots(r)
		for i := range in {
			if want&(1<<i) != 0 {
				in[i] = append(in[i], key)
			}
		}
		if r.in != want {
			r.in = want
		}
	}
	for i := range in {
		s.below[i].fill(in[i])
	}
	slices.SortFunc(rests, func(a, b resting) int { return compareUint(a.rest, b.rest) })
	for _, e := range rests {
		r, _ := s.keys.get(e.key)
		s.enter(e.key, r)
	}
	s.answers.all(func(q request, a *answer) bool {
		x := enter(q, ref{key: a.key, state: answered})
		if x != nil && a.late {
			x.await(q.seq)
		}
		return x != nil
	})
	return err
}

// diff names a difference between what was kept and what was derived.
func (x *index) diff(want *index) string {
	switch {
	case !maps.Equal(x.refs, want.refs):
		return fmt.Sprintf("requests %v of %v", x.refs, want.refs)
	case !maps.Equal(x.tokens, want.tokens):
		return fmt.Sprintf("tokens %v of %v", x.tokens, want.tokens)
	case !maps.Equal(x.former, want.former):
		return fmt.Sprintf("former tokens %v of %v", x.former, want.former)
	case !maps.Equal(x.pending, want.pending):
		return fmt.Sprintf("pending %v of %v", x.pending, want.pending)
	case x.waits != want.waits:
		return fmt.Sprintf("counts %d waiters of %d", x.waits, want.waits)
	case x.unseen != want.unseen:
		return fmt.Sprintf("counts %d unseen outcomes of %d", x.unseen, want.unseen)
	}
	return ""
}
