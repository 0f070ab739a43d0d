package machine

import (
	"maps"
	"slices"
)

// lineage finds the waiters under each grant, which their callers keep during the
// wait. The waiters determine the lineage. A waiter for several keys may be added
// once for each of its queues; to remove a waiter twice changes nothing.
type lineage map[Token]*branch // by the grant's lineage token

// branch is the waiters under one grant.
type branch struct {
	holder  SessionID // the grant's session if it has it: see holderOf
	gone    bool      // a search found no session with the grant, so it has ended for good
	waiters map[requestID]struct{}
}

// add notes the waiter q under the grants of under.
func (l lineage) add(under []Token, q requestID) {
	for _, t := range under {
		b := l[t]
		if b == nil {
			b = &branch{holder: q.session, waiters: make(map[requestID]struct{})}
			l[t] = b
		}
		b.waiters[q] = struct{}{}
	}
}

func (l lineage) remove(under []Token, q requestID) {
	for _, t := range under {
		if b := l[t]; b != nil {
			delete(b.waiters, q)
			if len(b.waiters) == 0 {
				delete(l, t)
			}
		}
	}
}

// count returns the number of the waiters under the grant of a lineage token.
func (l lineage) count(t Token) int {
	if b := l[t]; b != nil {
		return len(b.waiters)
	}
	return 0
}

// waiters returns the waiters under the grant of a lineage token, in one order on
// every voter.
func (l lineage) waiters(t Token) []requestID {
	if b := l[t]; b != nil {
		return slices.SortedFunc(maps.Keys(b.waiters), compareRequests)
	}
	return nil
}
