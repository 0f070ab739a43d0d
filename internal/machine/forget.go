package machine

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// endedBoot is the latest process of a node that has ended, by the word of Forget.
type endedBoot struct {
	node string
	boot uint64
}

// forget ends the sessions of one process in one step, and remembers that the
// process and all earlier ones of the node have ended: an Open of theirs may still
// lie in a buffer of the network.
//
// Memory stays bounded, because forgetting a process too early is harmless: the
// Open of a dead process then opens a session for nobody, and the session expires
// like any unheard one. So of more than MaxEnded nodes, the one whose process
// started first is dropped.
func (s *State) forget(c Forget) Outcome {
	switch {
	case c.Node == "" || !validName(c.Node):
		return bad("Node", MaxName)
	case c.Boot == 0:
		return bad("Boot", 0)
	}
	var gone []*session
	for _, o := range s.sessions.all {
		if o.node == c.Node && o.boot == c.Boot {
			gone = append(gone, o)
		}
	}
	// In the order of the IDs, so that nothing depends on the order of a map.
	slices.SortFunc(gone, func(a, b *session) int { return compareSessions(a.id, b.id) })
	s.endSessions(gone, Ended)
	s.noteEnded(endedBoot{c.Node, c.Boot})
	return Outcome{Code: OK}
}

// noteEnded makes a new list: the present one may belong to an image.
func (s *State) noteEnded(e endedBoot) {
	i, known := slices.BinarySearchFunc(s.ended, e.node, func(o endedBoot, node string) int { return strings.Compare(o.node, node) })
	if known && s.ended[i].boot >= e.boot {
		return
	}
	list := slices.Clone(s.ended)
	if known {
		list[i] = e
	} else {
		list = slices.Insert(list, i, e)
	}
	if len(list) > MaxEnded {
		first := slices.MinFunc(list, func(a, b endedBoot) int {
			return cmp.Or(cmp.Compare(a.boot, b.boot), strings.Compare(a.node, b.node))
		})
		list = slices.DeleteFunc(list, func(o endedBoot) bool { return o == first })
	}
	s.ended = list
}

// hasEnded reports whether a node's process is known to have ended.
func (s *State) hasEnded(node string, boot uint64) bool {
	i, known := slices.BinarySearchFunc(s.ended, node, func(o endedBoot, node string) int { return strings.Compare(o.node, node) })
	return known && boot <= s.ended[i].boot
}

// endSessions ends sessions in one step, in this order:
//
//  1. their waiters leave all queues, so that none of them is granted;
//  2. their grants are freed in the order of the tokens, except that a grant with
//     a Delay becomes a ghost unless the client closed the session, or the session
//     is revoked;
//  3. the waiters for these keys are granted;
//  4. their callers leave their groups.
func (s *State) endSessions(gone []*session, reason Reason) {
	for _, o := range gone {
		s.removeWaitersAndAnswers(o)
	}
	afterWaiters := slices.Clone(s.step.revisit)
	s.step.revisit = s.step.revisit[:0]
	for _, o := range gone {
		s.endGrants(o, reason)
	}
	s.step.revisit = append(s.step.revisit, afterWaiters...)
	s.admitWaiters()
	for _, o := range gone {
		s.leaveGroups(o)
		s.sessions.del(o.id)
		s.refs.remove(refEntry(o.id))
		s.step.events = append(s.step.events, Event{Kind: EventEnded, Session: o.id, Reason: o.endsFor(reason)})
	}
}

// endGrants frees the grants of an ending session.
func (s *State) endGrants(o *session, reason Reason) {
	for _, token := range slices.Sorted(maps.Keys(o.index.tokens)) {
		seq := o.index.tokens[token]
		at := o.index.requests[seq]
		_, _, g := s.grantOf(o, token)
		e := s.grantEvent(EventLost, o, g)
		e.Reason = o.endsFor(reason)
		s.step.events = append(s.step.events, e)
		switch {
		case reason == Closed && !o.revoked:
			s.freeGrant(o, seq, at, clean)
		case g.Delay > 0 && !g.broken && !o.revoked:
			s.delayGrant(o, at)
		default:
			s.freeGrant(o, seq, at, unclean)
		}
	}
}
