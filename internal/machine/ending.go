package machine

import (
	"cmp"
	"math"
	"slices"
)

// The end of a session, in slices. A session may hold tens of thousands of keys, and all
// commands wait while a step frees keys. So a step frees at most about MaxSlice keys:
//
//  1. The entry that ends the session (a Close, an Expire or a Forget) marks the session
//     as ending and takes the first slice. The mark is irrevocable: no command of the
//     session acts any more, and nothing is granted to it. Most sessions hold less than a
//     slice, and are gone after this entry.
//  2. Otherwise EventEnding tells of the mark, and the leader proposes EndSlice until the
//     session is gone. Then EventEnded follows. A new leader finds the marks in the table,
//     and goes on.
//
// A slice takes what is left of a session in this order: its callers, its waiters, its
// grants, its answers. So no key is freed while the session still waits for a key.
//
// A grant of an ending session counts as held until a slice frees it. A waiter of an
// ending session keeps its place until a slice takes it out: it is granted nothing, and
// the waiters behind it wait for that slice. Not taken: to treat such waiters as absent.
// Each look at a queue would pass over thousands of them, to save others the few entries
// until the slice.
//
// # Why a freed key has no holder that trusts it
//
// A slice frees a key only after the entry with the mark, in log order. That entry comes
// after the end of the holder's trust, by the same argument as for a session that ends in
// one entry: the client sends a Close after it has ended its locks; an Expire is committed
// after the whole TTL of the last acknowledged beat (package term); a Forget names a
// process that has ended. The mark never goes away, so trust never comes back: the leader
// acknowledges no beat of an ending session, and no command of the session is taken, not
// even a late copy of its Open. So an EndSlice needs no term: whoever proposed it, and
// however late it comes, it frees keys of a session without trust.
//
// # Every slice is the same on every voter
//
// What a slice takes depends on the table alone, and not on what a voter remembers of
// earlier slices: of each kind, the first of what is left, by shard of the key, and then by
// seq or token. A heap makes this cheap. A restored table builds the heap again. To build a
// heap looks at all of the session's requests, so the slice that does so is shorter;
// session.begun, which is in the image, tells which slice this was.
//
// By shard, because the first change of a shard after a snapshot copies the shard's map: a
// thousand keys in the order of their tokens are in all shards.

// EndSlice takes the next slice of a session that is ending, or takes waiters and callers of
// a revoked session out of their queues and groups. The outcome is Unfinished while something is left, and OK
// at the end. For any other session the EndSlice is refused as NoSession: a late copy
// changes nothing of a session that was opened again.
type EndSlice struct{ Session SessionID }

func (EndSlice) command() {}

// The work of a slice is counted, so that no slice takes long. A unit is a quarter of the
// work to free a key.
const (
	workPerKey    = 4   // to free a key, to leave a queue, and to grant a key: see visit.go
	workPerAnswer = 1   // to forget an answer
	workPerCaller = 128 // to leave a group, which may have 16,384 shards
	listPerWork   = 64  // elements of a list of holders or waiters that are moved
	mapPerWork    = 12  // requests of a session that are collected
)

// allWork is enough for everything.
const allWork = math.MaxInt

// dead reports whether the session is granted nothing more.
func (o *session) dead() bool { return o.ending != 0 || o.revoked }

// openSession returns an open session; nil if the session is ending.
func (s *State) openSession(id SessionID) *session {
	if o := s.sessions.get(id); o != nil && o.ending == 0 {
		return o
	}
	return nil
}

// endSession ends one session: see endSessions.
func (s *State) endSession(id SessionID, reason Reason) Outcome {
	o := s.sessions.get(id)
	switch {
	case o == nil:
		return Outcome{Code: NoSession}
	case o.ending != 0:
		return Outcome{Code: Unfinished}
	}
	if !s.endSessions([]*session{o}, reason, workPerKey*s.slice) {
		return Outcome{Code: Unfinished}
	}
	return Outcome{Code: OK}
}

// endSessions marks open sessions as ending, and takes the first slice of them, which is
// as much as the work allows. It reports whether all of them are gone.
func (s *State) endSessions(gone []*session, reason Reason, work int) (finished bool) {
	for i, o := range gone {
		o = s.editSession(o)
		o.ending, o.begun = o.endsFor(reason), false
		o.index.rest = rest{}
		s.ending++
		gone[i] = o
	}
	s.takeSlice(gone, work)
	finished = true
	for _, o := range gone {
		if !o.index.isEmpty() {
			finished = false
			s.step.events = append(s.step.events, Event{Kind: EventEnding, Session: o.id, Reason: o.ending})
		}
	}
	return finished
}

func (s *State) endSlice(id SessionID) Outcome {
	o := s.sessions.get(id)
	if o == nil || !o.dead() {
		return Outcome{Code: NoSession}
	}
	s.takeSlice([]*session{o}, workPerKey*s.slice)
	if s.IsUnfinished(id) {
		return Outcome{Code: Unfinished}
	}
	return Outcome{Code: OK}
}

// unfinished reports whether an EndSlice has something to do for the session.
func (o *session) unfinished() bool {
	return o.ending != 0 || o.revoked && o.index.waits+len(o.index.enlisted) > 0
}

// Unfinished returns, in ascending order, the sessions for which an EndSlice has something
// to do. It looks at every session.
func (s *State) Unfinished() (list []SessionID) {
	for id, o := range s.sessions.all {
		if o.unfinished() {
			list = append(list, id)
		}
	}
	slices.SortFunc(list, compareSessions)
	return list
}

// IsUnfinished reports whether an EndSlice has something to do for a session.
func (s *State) IsUnfinished(id SessionID) bool {
	o := s.sessions.get(id)
	return o != nil && o.unfinished()
}

// takeSlice takes a slice of dead sessions, and deletes the ending ones with nothing left:
//
//  1. their callers leave their groups, and their waiters the queues;
//  2. their grants are freed in the order of the tokens, except that a grant with a Delay
//     becomes a ghost unless the client closed the session, or the session was revoked;
//  3. the waiters for these keys are granted.
//
// The keys of one grant stay together, so a slice is longer than the work by one grant.
func (s *State) takeSlice(gone []*session, work int) {
	for i, o := range gone {
		if work <= 0 {
			break
		}
		if !o.begun {
			o = s.editSession(o)
			gone[i], o.begun = o, true
			o.index.rest = o.index.collect(o.ending != 0)
			work -= workPerAnswer + o.index.requests.len()/mapPerWork
		}
		work = s.leaveGroups(o, work)
		work = s.leaveQueues(o, work)
	}
	afterWaiters := slices.Clone(s.step.revisit)
	s.step.forgetRevisits()
	for _, o := range gone {
		if work <= 0 {
			break
		}
		if o.ending != 0 {
			work = s.freeGrants(o, work)
			work = s.forgetAnswers(o, work)
		}
	}
	for _, v := range afterWaiters {
		s.step.note(v.queues)
	}
	s.admitWaiters()
	for _, o := range gone {
		if o.ending != 0 && o.index.isEmpty() {
			s.sessions.del(o.id)
			s.leaveNode(o)
			s.refs.remove(refEntry(o.id))
			s.processes.remove(o.processEntry())
			s.ending--
			s.step.events = append(s.step.events, Event{Kind: EventEnded, Session: o.id, Reason: o.ending})
		}
	}
}

// leaveGroups takes callers of a dead session out of their groups, in the order of their
// Enlists, and returns the work that is left.
func (s *State) leaveGroups(o *session, work int) int {
	x := o.index
	for work > 0 {
		next, ok := x.rest.callers.pop()
		if !ok {
			break
		}
		seq := next.number
		if name, enlisted := x.enlisted[seq]; enlisted {
			delete(x.enlisted, seq)
			s.leaveGroup(requestID{o.id, seq}, name)
			work -= workPerCaller
		}
	}
	return work
}

// leaveQueues takes waiters of a dead session out of their queues, those of a queue in one
// pass, and returns the work that is left.
func (s *State) leaveQueues(o *session, work int) int {
	if work <= 0 {
		return work
	}
	x := o.index
	gone := make(map[uint64]struct{})
	queues := make(map[string]struct{})
	for work > 0 {
		next, ok := x.rest.waiting.pop()
		if !ok {
			break
		}
		seq := next.number
		at, asked := x.requests.get(seq)
		if !asked || at.phase != waiting {
			continue // it has left since the heap was built
		}
		gone[seq] = struct{}{}
		for _, key := range s.keysOf(o, seq, at) {
			work -= workPerKey
			if _, known := queues[key]; !known {
				queues[key] = struct{}{}
				work -= workPerKey + len(s.keys.get(key).queue)/listPerWork
			}
		}
	}
	s.leave(o, queues, func(w *waiter) bool {
		_, leaves := gone[w.seq]
		return leaves
	})
	return work
}

// freeGrants frees grants of an ending session, and returns the work that is left.
func (s *State) freeGrants(o *session, work int) int {
	x := o.index
	type request struct {
		seq uint64
		at  location
	}
	var taken []request
	for work > 0 {
		next, ok := x.rest.granted.pop()
		if !ok {
			break
		}
		seq, at, _ := s.grantOf(o, Token(next.number))
		taken = append(taken, request{seq, at})
		for _, key := range s.keysOf(o, seq, at) {
			r := s.keys.get(key)
			work -= workPerKey + (len(r.holders)+len(r.queue))/listPerWork
		}
	}
	slices.SortFunc(taken, func(a, b request) int { return cmp.Compare(a.at.token, b.at.token) })
	s.step.events = slices.Grow(s.step.events, len(taken))
	for i := range taken {
		seq, at := taken[i].seq, taken[i].at
		g := s.keys.get(at.key).grant(at.token)
		s.step.events = append(s.step.events, Event{
			Kind: EventLost, Session: o.id, Seq: seq, Key: at.key, Token: at.token, Reason: o.ending,
		})
		switch {
		case o.ending == Closed:
			s.freeGrant(o, seq, at, clean)
		case g.Delay > 0 && !g.is(markBroken) && o.ending != Revoked:
			s.delayGrant(o, seq, at)
		default:
			s.freeGrant(o, seq, at, unclean)
		}
	}
	return work
}

// forgetAnswers forgets answers of an ending session, and returns the work that is left.
func (s *State) forgetAnswers(o *session, work int) int {
	x := o.index
	for work > 0 {
		next, ok := x.rest.answered.pop()
		if !ok {
			break
		}
		seq := next.number
		if at, asked := x.requests.get(seq); asked && at.phase == answered {
			s.forgetAnswer(o, seq)
			work -= workPerAnswer
		}
	}
	return work
}
