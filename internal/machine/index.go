package machine

import (
	"fmt"
	"maps"
	"slices"
)

// index finds a session's requests. It is derived from the tables.
type index struct {
	requests requests
	former   map[Token]uint64    // first tokens of grants, and those before the last upgrade, to their seqs
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
	return new(index)
}

// queued notes that the request of seq waits at a location.
func (x *index) queued(seq uint64, at location, w weight) {
	x.requests.set(seq, at)
	x.weight.add(w, 1)
	x.waits++
	x.unseen++
}

// dequeued notes that the request of seq has left all queues without an outcome.
func (x *index) dequeued(seq uint64, w weight) {
	x.requests.remove(seq)
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
	places := 0 // of requests for several keys
	for key, r := range s.keys.all {
		for i := range r.holders {
			g := &r.holders[i]
			if g.set {
				places++
				continue
			}
			if err := s.deriveGrant(key, g); err != nil {
				return err
			}
		}
		for i := range r.queue {
			w := &r.queue[i]
			if w.set {
				places++
				continue
			}
			if err := s.deriveWaiter(key, w); err != nil {
				return err
			}
		}
	}
	for q, keys := range s.sets.all {
		places -= len(keys)
		if err := s.deriveSet(q, keys); err != nil {
			return err
		}
	}
	if places > 0 { // if there are too few, checkSet finds which
		return broken(8, "requests for several keys are at %d keys too many", places)
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
			_, requested := o.index.requests.get(c.seq)
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
	if err != nil {
		return err
	}
	if g.pends() {
		x.addPending(g.seq)
	}
	keys := 1
	if g.set {
		list := s.sets.get(g.requestID)
		keys = len(list)
		x.weight.add(weightOf(list, g.Meta, nil), 1)
	} else {
		x.weight.add(weight{1, len(key) + len(g.Meta)}, 1)
	}
	x.held += keys
	if g.former != 0 {
		x.addFormer(g.former, g.seq)
		x.addFormer(g.first, g.seq)
	}
	return nil
}

func (s *State) deriveWaiter(key string, w *waiter) error {
	x, err := s.deriveRequest(w.requestID, location{key: key, set: w.set, phase: waiting})
	if err != nil {
		return err
	}
	x.waits++
	x.weight.add(s.weigh(s.sessions.get(w.session), w), 1)
	s.lineage.add(w.under, w.requestID)
	return nil
}

// deriveSet puts a request for several keys in the index of its session, under the first of
// them. checkSet verifies that the request is at all of them.
func (s *State) deriveSet(q requestID, keys []string) error {
	r := s.keys.get(keys[0])
	if i := slices.IndexFunc(r.holders, func(g grant) bool { return g.requestID == q && g.set }); i >= 0 {
		return s.deriveGrant(keys[0], &r.holders[i])
	}
	if i := r.position(q); i >= 0 && r.queue[i].set {
		return s.deriveWaiter(keys[0], &r.queue[i])
	}
	return broken(8, "session %x seq %d is not at %q", q.session, q.seq, keys[0])
}

// deriveRequest puts a request in the index of its session, and returns the index.
func (s *State) deriveRequest(q requestID, at location) (*index, error) {
	o := s.sessions.get(q.session)
	if o == nil {
		return nil, broken(3, "session %x of %q is not open", q.session, at.key)
	}
	x := o.index
	if before, ok := x.requests.get(q.seq); ok {
		return nil, broken(8, "session %x seq %d is at %q and at %q", q.session, q.seq, before.key, at.key)
	}
	if q.seq == 0 || !o.spent.has(q.seq) {
		return nil, broken(8, "session %x seq %d of %q is not spent", q.session, q.seq, at.key)
	}
	x.requests.set(q.seq, at)
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
	case !x.requests.found():
		return "requests that are not found by seq or by token"
	case !maps.Equal(maps.Collect(x.requests.all()), maps.Collect(want.requests.all())):
		return fmt.Sprintf("requests %v, derived %v", x.requests.list, want.requests.list)
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
