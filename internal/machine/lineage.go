package machine

import (
	"cmp"
	"math/bits"
	"slices"
)

// lineage finds the waiters under each grant, which their callers keep during the
// wait. The waiters determine the lineage. To remove a waiter twice changes nothing.
type lineage map[Token]*branch // by the grant's lineage token

// branch is the waiters under one grant, with their orders in the queues: the same in all
// queues of a request.
type branch struct{ waiters map[requestID]uint64 }

// add notes the waiter w, or its new order, under the grants of its lineage.
func (l lineage) add(w *waiter) {
	look(len(w.under))
	for _, t := range w.under {
		b := l[t]
		if b == nil {
			b = &branch{waiters: make(map[requestID]uint64)}
			l[t] = b
		}
		b.waiters[w.requestID] = w.order
	}
}

func (l lineage) remove(w *waiter) {
	look(len(w.under))
	for _, t := range w.under {
		if b := l[t]; b != nil {
			delete(b.waiters, w.requestID)
			if len(b.waiters) == 0 {
				delete(l, t)
			}
		}
	}
}

// orderedWaiter is a waiter and its order.
type orderedWaiter struct {
	requestID
	order uint64
}

// waiters returns the waiters under the grant of a lineage token, in one order on
// every voter.
func (l lineage) waiters(t Token) []orderedWaiter {
	b := l[t]
	if b == nil {
		return nil
	}
	look(len(b.waiters) * bits.Len(uint(len(b.waiters))) / 8)
	list := make([]orderedWaiter, 0, len(b.waiters))
	for q, order := range b.waiters {
		list = append(list, orderedWaiter{q, order})
	}
	slices.SortFunc(list, func(a, b orderedWaiter) int {
		if a.order != b.order {
			return cmp.Compare(a.order, b.order)
		}
		return compareRequests(a.requestID, b.requestID)
	})
	return list
}

// count returns the number of the waiters under the grant of a lineage token.
func (l lineage) count(t Token) int {
	if b := l[t]; b != nil {
		return len(b.waiters)
	}
	return 0
}
