package machine

import "slices"

// LongestTTL returns the longest time, in milliseconds, for which a holder may trust
// a lock without an answer: the bound, or the TTL of an open session, since the bound
// may have fallen after the session was opened. A successor is silent for so long.
// LongestTTL looks at every session.
func (s *State) LongestTTL() uint64 {
	most := s.bound
	s.sessions.all(func(_ SessionID, o *session) bool {
		most = max(most, o.ttl)
		return true
	})
	return most
}

// endForSuccessor ends the sessions of the former cluster, in ascending order, and
// forgets the idle keys without a value, but for their set capacities. Nothing is granted: a waiter of a session
// that ends later must not be.
func (s *State) endForSuccessor() {
	s.lifted = false
	all := make([]*session, 0, s.sessions.n)
	for _, o := range s.sessions.all {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *session) int { return compareSessions(a.id, b.id) })
	for _, o := range all { // whole, and not in slices: the cluster serves nobody now
		if o.ending == 0 {
			s.endSessions([]*session{o}, Expired, allWork)
		} else {
			s.takeSlice([]*session{o}, allWork)
		}
	}
	s.later = nil // nobody waits
	clear(s.awaited)
	for s.keys.past.n > 0 {
		s.forgetKey(s.keys.past.oldest(&s.keys))
	}
	s.forgetTokensOfFixed()
}
