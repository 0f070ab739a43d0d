package budget

import "net/netip"

// Queue is what waits for the peer of one connection to read it. A nil Queue has no bounds.
//
// A bound that is full ends the connection with the most, of the member with the most, of the
// address with the most, and not the connection that asks for more: a member that reads pays
// for no other that does not.
type Queue struct {
	share *Share
	end   func()
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
	for b.isFull(q, n, 1) {
		most := b.most(q, n, 1)
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
	b.queued.add(q.share.payer, n-b.queues[q])
	if b.queues[q] = n; n == 0 {
		delete(b.queues, q)
	}
}

// isFull reports whether n bytes of q, which may have some, exceed a bound, divided by part.
func (b *Budget) isFull(q *Queue, n, part int) bool {
	more, of := n-b.queues[q], q.share.payer
	return more >= 0 && (b.queued.all+more > Queued/part || b.queued.addresses[of.ip]+more > QueuedPerAddress/part || b.queued.members[of]+more > QueuedPerMember/part)
}

// most returns the connection that ends for the bytes of q, if the bounds are divided by part:
// q, if no other has more.
func (b *Budget) most(q *Queue, n, part int) *Queue {
	more, member := n-b.queues[q], q.share.payer
	if ip := member.ip; b.queued.members[member]+more <= QueuedPerMember/part {
		if b.queued.addresses[ip]+more <= QueuedPerAddress/part {
			ip = fullest(b.queued.addresses, ip, more, func(netip.Addr) bool { return true })
		}
		member = fullest(b.queued.members, member, more, func(p payer) bool { return p.ip == ip })
	}
	return fullest(b.queues, q, more, func(o *Queue) bool { return o.share.payer == member })
}

// fullest returns the key with the most bytes of the keys that count. First has more bytes than
// in the map, and comes before a key with as many.
func fullest[K comparable](bytes map[K]int, first K, more int, counts func(K) bool) (most K) {
	n := -1
	if counts(first) {
		most, n = first, bytes[first]+more
	}
	for k, of := range bytes {
		if of > n && counts(k) {
			most, n = k, of
		}
	}
	return most
}

// Crowded reports whether a frame with which n bytes count should be refused, if the peer can
// ask again, or should wait: it takes more than half of a bound, and no other connection has
// more. So a member with little queued gets large answers, whatever others do not read.
func (q *Queue) Crowded(n int) bool {
	if q == nil {
		return false
	}
	b := q.share.budget
	b.queuedMu.Lock()
	defer b.queuedMu.Unlock()
	return b.isFull(q, n, 2) && b.most(q, n, 2) == q
}
