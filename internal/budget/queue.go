package budget

// Queue is what waits for the peer of one connection to read it. A nil Queue has no bounds.
//
// A bound that is full ends the connection with the most, of the member with the most, of the
// address with the most, and not the connection that asks for more: a member that reads pays
// for no other that does not.
type Queue struct {
	share *Share
	end   func()
	n     int  // bytes counted
	over  bool // end was called: nothing is counted any more
}

// Queue returns the queue of the connection. End is called, once and with the budget locked,
// if the connection must end. End must not block nor call the budget.
func (s *Share) Queue(end func()) *Queue {
	if s == nil {
		return nil
	}
	return &Queue{share: s, end: end}
}

// QueueBytes returns how many of n bytes count: QueuedLeast are the connection's own, and the
// others count in blocks, so that a connection whose peer reads hardly ever calls Set.
func QueueBytes(n int) int {
	const block = QueuedLeast
	return (max(0, n-QueuedLeast) + block - 1) / block * block
}

// Set counts n bytes from now on. It reports false, and changes nothing, if they do not fit
// and no other connection has more.
func (q *Queue) Set(n int) bool {
	if q == nil {
		return true
	}
	b := q.share.budget
	b.queuedMu.Lock()
	defer b.queuedMu.Unlock()
	if q.over {
		return true
	}
	for b.isFull(q, n) {
		most := b.most(q, n)
		if most == q {
			return false
		}
		b.count(most, 0)
		most.over = true
		most.end()
	}
	b.count(q, n)
	return true
}

// count counts n bytes of q. The caller holds queuedMu.
func (b *Budget) count(q *Queue, n int) {
	b.queued.add(q.share.payer, n-q.n)
	if q.n = n; n > 0 {
		b.queues[q] = struct{}{}
	} else {
		delete(b.queues, q)
	}
}

// isFull reports whether n bytes of q, which may have some, exceed a bound.
func (b *Budget) isFull(q *Queue, n int) bool {
	more, of := n-q.n, q.share.payer
	return more > 0 && (b.queued.all+more > Queued || b.queued.addresses[of.ip]+more > QueuedPerAddress || b.queued.members[of]+more > QueuedPerMember)
}

// most returns the connection that ends for the bytes of q: q, if no other has more.
func (b *Budget) most(q *Queue, n int) *Queue {
	more, of := n-q.n, q.share.payer
	among := func(payer) bool { return true }
	if b.queued.members[of]+more > QueuedPerMember {
		among = func(p payer) bool { return p == of }
	} else if b.queued.addresses[of.ip]+more > QueuedPerAddress {
		among = func(p payer) bool { return p.ip == of.ip }
	}
	bytes := func(o *Queue) (address, member, own int) {
		p := o.share.payer
		address, member, own = b.queued.addresses[p.ip], b.queued.members[p], o.n
		if p.ip == of.ip {
			address += more
		}
		if p == of {
			member += more
		}
		if o == q {
			own += more
		}
		return address, member, own
	}
	most := q
	address, member, own := bytes(q)
	for o := range b.queues {
		if !among(o.share.payer) {
			continue
		}
		if a, m, n := bytes(o); a > address || a == address && (m > member || m == member && n > own) {
			most, address, member, own = o, a, m, n
		}
	}
	return most
}

// Crowded reports whether half of a bound is taken: an answer that its peer can ask for again
// is better refused, and one that can wait had better wait.
func (q *Queue) Crowded() bool {
	if q == nil {
		return false
	}
	b, of := q.share.budget, q.share.payer
	b.queuedMu.Lock()
	defer b.queuedMu.Unlock()
	return b.queued.all > Queued/2 || b.queued.addresses[of.ip] > QueuedPerAddress/2 || b.queued.members[of] > QueuedPerMember/2
}
