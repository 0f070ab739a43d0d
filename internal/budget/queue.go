package budget

import (
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// Queue is what waits for the peer of one connection to read it. A nil Queue has no bounds.
//
// A bound that is full ends a connection of the address with the most, and not the connection
// that asks for more: one with bytes that are unread for timing.Unread, if there is any, and of
// several such the one with the most, of the member with the most. So a member that reads all but
// QueuedLeast once in that time pays for no other that does not, though the other has the same
// name or address.
type Queue struct {
	share *Share
	end   func()
	over  bool      // end was called: nothing is counted any more
	since time.Time // some bytes have been counted since
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
// and no other connection ends before this one.
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
	if b.queues[q] == 0 {
		q.since = time.Now()
	}
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
// q, if no other comes before. The caller holds queuedMu.
//
// At the address the connections with bytes that are unread for long come first, since streams
// of another process may be in the member's name, or in any number of names, each with less than
// one answer to the member. Beyond the address nothing but the size counts: what a host of many
// young connections takes ends no slow one of another host.
func (b *Budget) most(q *Queue, n, part int) *Queue {
	more, of, now := n-b.queues[q], q.share.payer, time.Now()
	ofMember, ip := b.queued.members[of]+more > QueuedPerMember/part, of.ip
	if !ofMember && b.queued.addresses[ip]+more <= QueuedPerAddress/part {
		most := b.queued.addresses[ip] + more
		for other, bytes := range b.queued.addresses {
			if bytes > most {
				ip, most = other, bytes
			}
		}
	}
	rank := func(o *Queue, bytes int) (r [3]int) {
		if bytes > 0 && now.Sub(o.since) >= timing.Unread {
			r[0] = 1
		}
		r[1], r[2] = b.queued.members[o.share.payer], bytes
		if o.share.payer == of {
			r[1] += more
		}
		return r
	}
	most, highest := q, [3]int{-1}
	if ip == of.ip {
		highest = rank(q, b.queues[q])
		highest[2] += more
	}
	for o, bytes := range b.queues {
		if p := o.share.payer; o == q || p.ip != ip || ofMember && p != of {
			continue
		}
		if r := rank(o, bytes); slices.Compare(r[:], highest[:]) > 0 {
			most, highest = o, r
		}
	}
	return most
}

// Crowded reports whether a frame with which n bytes count should be refused, if the peer can
// ask again, or should wait: it takes more than half of a bound, and no other connection would
// end before this one. So a member that reads gets large answers, whatever others do not read.
func (q *Queue) Crowded(n int) bool {
	if q == nil {
		return false
	}
	b := q.share.budget
	b.queuedMu.Lock()
	defer b.queuedMu.Unlock()
	return b.isFull(q, n, 2) && b.most(q, n, 2) == q
}
