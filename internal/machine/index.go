package machine

import (
	"fmt"
	"maps"
	"slices"
)

// index finds a session's requests. It is derived from the tables.
type index struct {
	requests map[uint64]location
	tokens   map[Token]uint64    // of its grants, to their seqs
	former   map[Token]uint64    // the same for the first tokens, and those before the last upgrade
	pending  map[uint64]struct{} // requests with something to tell the client: see State.Pending
	enlisted map[uint64]string   // callers, by the seqs of their Enlists, to their groups; nil without any
	held     int                 // keys of its grants
	waits    int
	unseen   int // remembered outcomes: waiters, unseen grants, answers
	weight   weight
	rest     rest // of a dead session, from its first slice on: see ending.go
}

// location says where a request is.
type location struct {
	key   string // the first of its keys; none if it was refused at once
	token Token  // the present token of its grant
	set   bool   // it is for several keys
	phase phase
}

type phase uint8

const (
	waiting  phase = iota
	granted        // the outcome is not seen yet
	seen           // granted, and the outcome seen
	answered       // the outcome is in no record: see answer
)

func newIndex() *index {
	return &index{requests: make(map[uint64]location), tokens: make(map[Token]uint64)}
}

// queued notes that the request of seq waits at a location.
func (x *index) queued(seq uint64, at location, w weight) {
	x.requests[seq] = at
	x.weight.add(w, 1)
	x.waits++
	x.unseen++
}

// dequeued notes that the request of seq has left all queues without an outcome.
func (x *index) dequeued(seq uint64, w weight) {
	delete(x.requests, seq)
	x.weight.add(w, -1)
	x.waits--
	x.unseen--
}

// addPending notes a request about which an event told the client something.
func (x *index) addPending(seq uint64) {
	if x.pending == nil {
		x.pending = make(map[uint64]struct{})
	}
	x.pending[seq] = struct{}{}
}

// enlist notes that the Enlist of seq made a caller of a group.
func (x *index) enlist(seq uint64, group string) {
	if x.enlisted == nil {
		x.enlisted = make(map[uint64]string)
	}
	x.enlisted[seq] = group
}

// addFormer notes a token that the grant of seq had before an upgrade.
func (x *index) addFormer(former Token, seq uint64) {
	if x.former == nil {
		x.former = make(map[Token]uint64)
	}
	x.former[former] = seq
}

// derive fills all derived data, which must be empty. The error names a broken
// invariant: a request without a session, without a spent seq of its own, or in two
// states.
func (s *State) derive() error {
	s.keys.derive()
	for key, r := range s.keys.all {
		for i := range r.holders {
			if err := s.deriveGrant(key, &r.holders[i]); err != nil {
				return err
			}
		}
		for i := range r.queue {
			w := &r.queue[i]
			x, err := s.deriveRequest(w.requestID, location{key: key, set: w.set, phase: waiting})
			if err != nil {
				return err
			}
			if x != nil {
				x.waits++
				x.weight.add(s.weigh(s.sessions.get(w.session), w), 1)
				s.lineage.add(w.under, w.requestID)
			}
		}
	}
	for q, a := range s.answers.all {
		x, err := s.deriveRequest(q, location{key: a.key, phase: answered})
		if err != nil {
			return err
		}
		if a.late {
			x.addPending(q.seq)
		}
	}
	s.deriveRefs()
	if err := s.deriveGroups(); err != nil {
		return err
	}
	for _, o := range s.sessions.all {
		if o.ending != 0 {
			s.ending++
		}
		if o.begun {
			o.index.rest = o.index.collect(o.ending != 0)
		}
	}
	return nil
}

// deriveGroups puts the callers of all groups in the indexes of their sessions.
func (s *State) deriveGroups() error {
	for name, g := range s.groups.all {
		sums := g.sums()
		s.groupSums.active += sums.active
		s.groupSums.shards += sums.shards
		for i := range g.callers {
			c := &g.callers[i]
			if c.absent != 0 {
				continue
			}
			o := s.sessions.get(c.session)
			if o == nil || !o.spent.has(c.seq) {
				return broken(13, "session %x seq %d of a caller of %q is not open, or not spent", c.session, c.seq, name)
			}
			_, requested := o.index.requests[c.seq]
			if _, enlisted := o.index.enlisted[c.seq]; requested || enlisted {
				return broken(8, "session %x seq %d is a caller of %q, and another request", c.session, c.seq, name)
			}
			o.index.enlist(c.seq, name)
		}
	}
	return nil
}

func (s *State) deriveGrant(key string, g *grant) error {
	if g.ghost != nil {
		s.delays[g.token] = key
		return nil
	}
	at := location{key: key, token: g.token, set: g.set, phase: seen}
	if g.unseen {
		at.phase = granted
	}
	x, err := s.deriveRequest(g.requestID, at)
	if x == nil {
		return err
	}
	if g.pends() {
		x.addPending(g.seq)
	}
	x.tokens[g.token] = g.seq
	keys := s.keysOf(s.sessions.get(g.session), g.seq, at)
	x.held += len(keys)
	x.weight.add(weightOf(keys, g.Meta, nil), 1)
	if g.former != 0 {
		x.addFormer(g.former, g.seq)
		x.addFormer(g.first, g.seq)
	}
	return nil
}

// deriveRequest puts a request in the index of its session, and returns the index. A
// request for several keys is in the index under the first of them: for the others
// the index is nil.
func (s *State) deriveRequest(q requestID, at location) (*index, error) {
	if at.set {
		keys := s.sets.get(q)
		if !slices.Contains(keys, at.key) {
			return nil, broken(8, "session %x seq %d is at %q, which is not among its keys", q.session, q.seq, at.key)
		}
		if keys[0] != at.key {
			return nil, nil
		}
	}
	o := s.sessions.get(q.session)
	if o == nil {
		return nil, broken(3, "session %x of %q is not open", q.session, at.key)
	}
	x := o.index
	if before, ok := x.requests[q.seq]; ok {
		return nil, broken(8, "session %x seq %d is at %q and at %q", q.session, q.seq, before.key, at.key)
	}
	if q.seq == 0 || !o.spent.has(q.seq) {
		return nil, broken(8, "session %x seq %d of %q is not spent", q.session, q.seq, at.key)
	}
	x.requests[q.seq] = at
	if at.phase != seen {
		x.unseen++
	}
	if x.unseen > MaxUnseen {
		return nil, broken(10, "session %x remembers more than %d outcomes", q.session, MaxUnseen)
	}
	return x, nil
}

// diff describes a difference from an index derived anew.
func (x *index) diff(want *index) string {
	switch {
	case !maps.Equal(x.requests, want.requests):
		return fmt.Sprintf("requests %v, derived %v", x.requests, want.requests)
	case !maps.Equal(x.tokens, want.tokens):
		return fmt.Sprintf("tokens %v, derived %v", x.tokens, want.tokens)
	case !maps.Equal(x.former, want.former):
		return fmt.Sprintf("former tokens %v, derived %v", x.former, want.former)
	case !maps.Equal(x.pending, want.pending):
		return fmt.Sprintf("pending %v, derived %v", x.pending, want.pending)
	case !maps.Equal(x.enlisted, want.enlisted):
		return fmt.Sprintf("callers %v, derived %v", x.enlisted, want.enlisted)
	case x.held != want.held:
		return fmt.Sprintf("%d keys held, derived %d", x.held, want.held)
	case x.waits != want.waits:
		return fmt.Sprintf("%d waiters, derived %d", x.waits, want.waits)
	case x.unseen != want.unseen:
		return fmt.Sprintf("%d unseen outcomes, derived %d", x.unseen, want.unseen)
	case x.weight != want.weight:
		return fmt.Sprintf("weight %+v, derived %+v", x.weight, want.weight)
	}
	return ""
}
