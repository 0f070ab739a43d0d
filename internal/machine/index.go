package machine

import (
	"fmt"
	"maps"
)

// index finds a session's requests. It is derived from the tables.
type index struct {
	refs    map[uint64]ref
	tokens  map[Token]uint64    // of its grants, to their seqs
	pending map[uint64]struct{} // grants that only an event told of, unseen
	waits   int
	unseen  int // outcomes remembered: waiters, unseen grants, refusals
}

// ref says where a request is.
type ref struct {
	key   string // unless refused
	state state
}

type state uint8

const (
	waiting state = iota
	granted       // the outcome is not seen yet
	seen          // granted, and the outcome seen
	refused
)

func newIndex() *index {
	return &index{refs: make(map[uint64]ref), tokens: make(map[Token]uint64)}
}

// await notes a grant that the client learns of by an event alone.
func (x *index) await(seq uint64) {
	if x.pending == nil {
		x.pending = make(map[uint64]struct{})
	}
	x.pending[seq] = struct{}{}
}

// reindex fills the empty indexes of all sessions from the tables. It fails if
// a request has no session, no seq of its own, or more than one place.
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
	s.keys.all(func(key string, r *record) bool {
		if g := &r.holder; r.held() {
			to := ref{key: key, state: seen}
			if g.unseen {
				to.state = granted
			}
			x := enter(request{g.session, g.seq}, to)
			if x == nil {
				return false
			}
			if g.unseen && g.waited {
				x.await(g.seq)
			}
			x.tokens[g.token] = g.seq
			s.grants++
		}
		for i := range r.queue {
			w := &r.queue[i]
			x := enter(request{w.session, w.seq}, ref{key: key, state: waiting})
			if x == nil {
				return false
			}
			x.waits++
			s.waiters++
		}
		return true
	})
	if err != nil {
		return err
	}
	s.refusals.all(func(q request, _ *Outcome) bool {
		return enter(q, ref{state: refused}) != nil
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
	case !maps.Equal(x.pending, want.pending):
		return fmt.Sprintf("pending %v of %v", x.pending, want.pending)
	case x.waits != want.waits:
		return fmt.Sprintf("counts %d waiters of %d", x.waits, want.waits)
	case x.unseen != want.unseen:
		return fmt.Sprintf("counts %d unseen outcomes of %d", x.unseen, want.unseen)
	}
	return ""
}
