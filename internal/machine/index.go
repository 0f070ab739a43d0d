package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// index finds a session's requests. It is derived from the tables.
type index struct {
	id       SessionID // of the session
	requests requests
	former   map[Token]uint64  // first tokens of grants, and those before the last upgrade, to their seqs
	enlisted map[uint64]string // callers, by the seqs of their Enlists, to their groups; nil without any
	held     int               // keys of its grants
	waits    int
	unseen   int // remembered outcomes: waiters, unseen grants, answers
	details  int // bytes by which the answers tell of other clients
	weight   weight
	load     *nodeLoad // of the session's node: see nodeload.go
	rest     rest      // of a dead session, from its first slice on: see ending.go
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

func newIndex(id SessionID) *index { return &index{id: id} }

// weigh adds n times a weight.
func (x *index) weigh(w weight, n int) {
	x.weight.add(w, n)
	x.load.weight.add(w, n)
}

// wait counts n more waiters.
func (x *index) wait(n int) {
	x.waits += n
	x.load.waits += n
}

// queued notes that the request of seq waits at a location.
func (x *index) queued(seq uint64, at location, w weight) {
	x.requests.set(seq, at)
	x.weigh(w, 1)
	x.wait(1)
	x.unseen++
}

// dequeued notes that the request of seq has left all queues without an outcome.
func (x *index) dequeued(seq uint64, w weight) {
	x.requests.remove(seq)
	x.weigh(w, -1)
	x.wait(-1)
	x.unseen--
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
// states, a request for several keys that is not at all of them, or two requests under one
// token.
func (s *State) derive() error {
	for _, o := range s.sessions.all {
		s.joinNode(o)
	}
	s.deriveAwaited()
	d := deriving{State: s, sets: make(setCursors, s.sets.n), grants: make([]owned, 0, s.keys.n)}
	if err := s.keys.derive(d.visit); err != nil {
		return err
	}
	for q, keys := range s.sets.all {
		c := d.sets[q]
		if c == nil {
			c = &setCursor{rest: keys}
		}
		if len(c.rest) > 0 {
			return broken(8, "session %x seq %d is not at %q", q.session, q.seq, c.rest[0])
		}
	}
	if _, twice := repeated(d.idles); twice {
		return broken(10, "two keys became idle under one number")
	}
	if err := s.deriveAnswers(); err != nil {
		return err
	}
	for id, o := range s.sessions.all {
		if a, b := o.index.requests.build(); a != nil {
			return broken(8, "session %x seq %d is at %q and at %q", id, a.seq, a.key, b.key)
		}
	}
	if err := s.deriveOwners(d.grants); err != nil {
		return err
	}
	s.deriveRefs()
	if err := s.deriveGroups(); err != nil {
		return err
	}
	s.deriveEnding()
	return nil
}

// deriving is what derive collects of the records.
type deriving struct {
	*State
	sets   setCursors
	grants []owned
	idles  []uint64 // numbers of the idle keys
}

// visit puts a record's grants and waiters in the indexes of their sessions.
func (d *deriving) visit(r *record) error {
	if r.idle != 0 {
		d.idles = append(d.idles, r.idle)
	}
	for i := range r.holders {
		g := &r.holders[i]
		if g.is(markSet) {
			if first, err := d.sets.visit(d.State, g.requestID, r.key, g.token, 0); err != nil {
				return err
			} else if !first && g.is(markUnseen) {
				return broken(8, "session %x seq %d is unseen at %q, which is not its first key", g.session, g.seq, r.key)
			} else if !first {
				continue
			}
		}
		x, err := d.deriveGrant(r.key, g)
		if err != nil {
			return err
		}
		d.grants = append(d.grants, owned{g.token, x})
	}
	for i := range r.queue {
		w := &r.queue[i]
		if w.set {
			if first, err := d.sets.visit(d.State, w.requestID, r.key, 0, w.order); err != nil {
				return err
			} else if !first {
				continue
			}
		}
		if err := d.deriveWaiter(r.key, w); err != nil {
			return err
		}
	}
	return nil
}

// deriveEnding notes what is left of dead sessions.
func (s *State) deriveEnding() {
	for _, o := range s.sessions.all {
		if o.ending != 0 {
			s.ending++
		}
		if o.begun {
			o.index.rest = o.index.collect(o.ending != 0)
		}
	}
}

// deriveAnswers puts the answers in the indexes of their sessions.
func (s *State) deriveAnswers() error {
	for q, a := range s.answers.all {
		x, err := s.deriveRequest(q, location{key: a.key, phase: answered})
		if err != nil {
			return err
		}
		if a.late {
			x.requests.pendLast()
		}
		if x.details += a.details(); x.details > MaxDetails {
			return broken(10, "the answers of session %x tell of more than %d bytes of others", q.session, MaxDetails)
		}
	}
	return nil
}

// deriveGroups puts the callers of all groups in the indexes of their sessions.
func (s *State) deriveGroups() error {
	for name, g := range s.groups.all {
		s.keys.working[name] = s.keys.countWork(name)
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

// deriveOwners fills owners from all grants, which are by their tokens, and ghosts, which are
// nobody's.
func (s *State) deriveOwners(grants []owned) error {
	slices.SortFunc(grants, func(a, b owned) int { return cmp.Compare(a.token, b.token) })
	for i, g := range grants {
		if i > 0 && grants[i-1].token == g.token {
			return broken(2, "token %d granted after token %d", g.token, g.token)
		}
		if g.by != nil && len(g.by.former) == 0 {
			s.owners.add(g.token, g.by)
		}
	}
	for _, g := range grants { // few sessions have upgraded a grant
		if g.by == nil || len(g.by.former) == 0 {
			continue
		}
		seq, ok := g.by.requests.granted(g.token)
		if !ok {
			return broken(8, "token %d is of no request", g.token)
		}
		at := g.by.requests.at(seq)
		t := s.keys.get(at.key).grant(at.token).lineageToken()
		if s.owners.get(t) != nil {
			return broken(2, "token %d is of two grants", t)
		}
		s.owners.add(t, g.by)
	}
	return nil
}

// deriveGrant puts a grant in the index of its session, and returns the index; nil for a ghost.
func (s *State) deriveGrant(key string, g *grant) (*index, error) {
	if g.ghost != nil {
		s.delays[g.token] = key
		s.countGhost(key, g, 1)
		return nil, nil
	}
	at := location{key: key, token: g.token, set: g.is(markSet), phase: seen}
	if g.is(markUnseen) {
		at.phase = granted
	}
	x, err := s.deriveRequest(g.requestID, at)
	if err != nil {
		return nil, err
	}
	if g.pends() {
		x.requests.pendLast()
	}
	keys := 1
	if g.is(markSet) {
		list := s.sets.get(g.requestID)
		keys = len(list)
		x.weigh(weightOf(list, g.Meta, nil), 1)
	} else {
		x.weigh(weight{1, len(key) + len(g.Meta)}, 1)
	}
	x.held += keys
	if g.former != 0 {
		x.addFormer(g.former, g.seq)
		x.addFormer(g.first, g.seq)
	}
	return x, nil
}

func (s *State) deriveWaiter(key string, w *waiter) error {
	at := location{key: key, set: w.set, phase: waiting}
	x, err := s.deriveRequest(w.requestID, at)
	if err != nil {
		return err
	}
	x.wait(1)
	x.weigh(s.weighAt(s.sessions.get(w.session), w, at), 1)
	s.lineage.add(w)
	return nil
}

// repeated sorts a list, and returns a number that it has twice.
func repeated(list []uint64) (n uint64, twice bool) {
	slices.Sort(list)
	for i := 1; i < len(list); i++ {
		if list[i-1] == list[i] {
			return list[i], true
		}
	}
	return 0, false
}

// setCursors follow the requests for several keys through all keys in ascending order.
type setCursors map[requestID]*setCursor

// setCursor is a request for several keys and those of its keys that were not met yet. The
// token and the order are the same at all keys.
type setCursor struct {
	rest  []string
	token Token
	order uint64
}

// visit notes that the request q is at key, and reports whether key is the first of its keys.
func (l setCursors) visit(s *State, q requestID, key string, token Token, order uint64) (first bool, err error) {
	c := l[q]
	if c == nil {
		c = &setCursor{s.sets.get(q), token, order}
		l[q], first = c, true
	}
	switch {
	case len(c.rest) == 0 || key < c.rest[0]:
		return false, broken(8, "session %x seq %d is at %q, which is not among its keys", q.session, q.seq, key)
	case key > c.rest[0]:
		return false, broken(8, "session %x seq %d is not at %q", q.session, q.seq, c.rest[0])
	case token != c.token:
		return false, broken(8, "session %x seq %d has token %d at %q and %d before", q.session, q.seq, token, key, c.token)
	case order != c.order:
		return false, broken(5, "session %x seq %d has order %d at %q and %d before", q.session, q.seq, order, key, c.order)
	}
	c.rest = c.rest[1:]
	return first, nil
}

// deriveRequest puts a request in the index of its session, and returns the index.
func (s *State) deriveRequest(q requestID, at location) (*index, error) {
	o := s.sessions.get(q.session)
	if o == nil {
		return nil, broken(3, "session %x of %q is not open", q.session, at.key)
	}
	x := o.index
	if q.seq == 0 || !o.spent.has(q.seq) {
		return nil, broken(8, "session %x seq %d of %q is not spent", q.session, q.seq, at.key)
	}
	x.requests.append(q.seq, at)
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
	case !slices.Equal(x.requests.pendingSeqs(), want.requests.pendingSeqs()):
		return fmt.Sprintf("pending %v, derived %v", x.requests.pendingSeqs(), want.requests.pendingSeqs())
	case !maps.Equal(x.enlisted, want.enlisted):
		return fmt.Sprintf("callers %v, derived %v", x.enlisted, want.enlisted)
	case x.held != want.held:
		return fmt.Sprintf("%d keys held, derived %d", x.held, want.held)
	case x.waits != want.waits:
		return fmt.Sprintf("%d waiters, derived %d", x.waits, want.waits)
	case x.unseen != want.unseen:
		return fmt.Sprintf("%d unseen outcomes, derived %d", x.unseen, want.unseen)
	case x.details != want.details:
		return fmt.Sprintf("%d bytes of details, derived %d", x.details, want.details)
	case x.weight != want.weight:
		return fmt.Sprintf("weight %+v, derived %+v", x.weight, want.weight)
	}
	return ""
}
