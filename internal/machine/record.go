package machine

import (
	"encoding/binary"
	"slices"
	"sort"
)

// record is the state of a key: holders, queue, value and last token. A record with
// an epoch older than the table's belongs to an image, and is cloned before a
// change: see keyTable.edit.
type record struct {
	key     string
	epoch   uint64
	version uint64  // command count at the last change
	last    Token   // granted last; 0 if never
	idle    uint64  // number among the keys that became idle; 0 while in use
	holders []grant // in the order of their tokens
	*extra          // never nil; &noExtra for a key that merely has holders
}

// extra is the part of a record that most records do not have. So a plain held key takes 64
// bytes less. An extra belongs to one record, except noExtra, which is shared and never
// changes: see keyTable.editRecord.
type extra struct {
	queue   []waiter // in the order in which they are granted
	value   string
	fade    bool // the value is a fading one
	unclean bool // the last exclusive holder did not release
	fixed   bool // the capacity is that of a SetCapacity

	capacity uint16 // of the permits; 0 if the key has none: see capacity.go

	// Derived from holders and queue: see countGrant and countWaiter. The limits of both
	// keep the counts below 1<<15.
	ghosts, trees, conditions int16
	permits                   uint16 // held, of ghosts too
	permitWaiters             int16
}

var noExtra extra

// isEmpty reports whether noExtra can stand for x. The memory of a queue is used again.
func (x *extra) isEmpty() bool {
	return cap(x.queue) == 0 && x.value == "" && !x.fade && !x.unclean && !x.fixed && x.capacity == 0 &&
		x.ghosts == 0 && x.trees == 0 && x.conditions == 0 && x.permits == 0 && x.permitWaiters == 0
}

// kept returns an extra for a record with the content of x: noExtra, or a copy.
func (x *extra) kept() *extra {
	if x.isEmpty() {
		return &noExtra
	}
	return new(*x)
}

// grant is a holder's part of a record: 48 bytes, a size of Go's allocator, and one more byte
// takes 16 of each held key.
type grant struct {
	requestID // of the Acquire; zero if the grant is a ghost
	token     Token
	*terms           // never nil
	at        moment // the leader's clock when it was granted
	marks
}

// marks are facts about a grant.
type marks uint8

const (
	markSet       marks = 1 << iota // one of several keys: see State.sets
	markFull                        // the last SetValue was refused
	markUnseen                      // the client has not said that it knows the outcome; of several keys, at the first alone
	markWaited                      // answered Queued first, so only an event told the client of the grant
	markAsked                       // the holder was asked to release
	markContended                   // the holder was told of a waiter
	markBroken                      // the grant is taken away
)

// is reports whether any of these marks is set.
func (m marks) is(any marks) bool { return m&any != 0 }

func (m *marks) mark(one marks, set bool) {
	if *m &^= one; set {
		*m |= one
	}
}

// markIf is a mark, or none.
func markIf(set bool, one marks) (m marks) {
	m.mark(one, set)
	return m
}

// moment is a time of the leaders' clock in 48 bits: milliseconds, for 8,900 years.
type moment [6]byte

const maxMoment = 1<<48 - 1

// momentOf returns the moment at ms, or the last one if ms is later.
func momentOf(ms uint64) (m moment) {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8), min(ms, maxMoment))
	copy(m[:], b[2:])
	return m
}

func (m moment) ms() uint64 {
	return uint64(binary.BigEndian.Uint16(m[:]))<<32 | uint64(binary.BigEndian.Uint32(m[2:]))
}

// terms is the part of a grant that most grants have in common. Terms never change, since
// grants share them: see amend.
type terms struct {
	Spec
	former Token  // before the last upgrade; 0 if there was none
	first  Token  // before the first upgrade; 0 if there was none: see lineageToken
	rev    uint64 // of the last SetValue
	ghost  *ghost // nil while the session is open
}

var plainTerms, sharedTerms = terms{}, terms{Spec: Spec{Mode: Shared}}

// kept returns terms equal to t, to be shared.
func (t *terms) kept() *terms {
	switch *t {
	case plainTerms:
		return &plainTerms
	case sharedTerms:
		return &sharedTerms
	}
	return new(*t)
}

// amend changes the terms of this grant alone.
func (g *grant) amend(f func(*terms)) {
	t := *g.terms
	f(&t)
	g.terms = t.kept()
}

// ghost names the former holder of a grant after the session has expired, while the
// grant's delay runs.
type ghost struct{ client, node string }

// waiter is a request in a queue. An upgrade waits in the queue while its grant
// stays among the holders.
type waiter struct {
	requestID
	since   uint64 // command count when it came
	order   uint64 // its since, or the order of the waiter it was put before
	at      uint64 // the leader's clock when it came
	upgrade Token  // the grant to be upgraded; 0 if this is an Acquire
	set     bool   // one of several keys: see State.sets
	passed  uint8
	Spec
	under []Token // lineage tokens of grants; never changed
}

// lineageToken returns the grant's token in lineages, which never changes.
func (g *grant) lineageToken() Token {
	if g.first != 0 {
		return g.first
	}
	return g.token
}

// pends reports whether a returning client must be told about g again: see
// State.Pending.
func (g *grant) pends() bool {
	return g.is(markUnseen) && g.is(markWaited) || g.is(markAsked|markContended|markBroken)
}

// Holders and queue change in length only in the next five methods, and a grant
// changes into a ghost only in State.delayGrant.

func (r *record) addHolder(g grant) {
	r.holders = append(r.holders, g)
	r.countGrant(&g, 1)
}

func (r *record) removeHolder(i int) {
	r.countGrant(&r.holders[i], -1)
	r.holders = remove(r.holders, i)
}

func (r *record) insertWaiter(i int, w waiter) {
	r.queue = slices.Insert(r.queue, i, w)
	r.countWaiter(&w, 1)
}

func (r *record) removeWaiter(i int) {
	r.countWaiter(&r.queue[i], -1)
	r.queue = remove(r.queue, i)
}

// firstWaiter returns the index of the first waiter for which is is true, -1 if there is none.
func (r *record) firstWaiter(is func(*waiter) bool) int {
	look(len(r.queue) / 4)
	for i := range r.queue {
		if is(&r.queue[i]) {
			return i
		}
	}
	return -1
}

// removeWaitersIf removes and returns all waiters for which leaves is true, in a
// single pass, since thousands may stand in one queue.
func (r *record) removeWaitersIf(leaves func(*waiter) bool) (removed []waiter) {
	look(len(r.queue))
	r.queue = slices.DeleteFunc(r.queue, func(w waiter) bool {
		if !leaves(&w) {
			return false
		}
		r.countWaiter(&w, -1)
		removed = append(removed, w)
		return true
	})
	return removed
}

// remove is slices.Delete of one element, but does not move thousands to delete the
// first: queues are granted from their heads, and the end of a session frees the
// oldest grant first.
func remove[E any](list []E, i int) []E {
	return removeAll(list, []int{i})
}

// removeAll removes the elements at these indices, in ascending order, in one pass. It moves
// the elements before the last of them, or those behind the first, whichever are fewer.
func removeAll[E any](list []E, at []int) []E {
	n, first, last := len(at), at[0], at[len(at)-1]
	if n == len(list) || last+1 > len(list)-first { // of a list removed whole, the memory is used again
		look(len(list) - first - n)
		to := first
		for i := first; i < len(list); i++ {
			if len(at) > 0 && at[0] == i {
				at = at[1:]
				continue
			}
			list[to] = list[i]
			to++
		}
		clear(list[to:])
		return list[:to]
	}
	look(last + 1 - n)
	to := last
	for i := last; i >= 0; i-- {
		if len(at) > 0 && at[len(at)-1] == i {
			at = at[:len(at)-1]
			continue
		}
		list[to] = list[i]
		to--
	}
	clear(list[:n])
	return list[n:]
}

// recount counts holders and queue anew.
func (r *record) recount() {
	r.ghosts, r.trees, r.conditions, r.permits, r.permitWaiters = 0, 0, 0, 0, 0
	for i := range r.holders {
		r.countGrant(&r.holders[i], 1)
	}
	for i := range r.queue {
		r.countWaiter(&r.queue[i], 1)
	}
}

func (r *record) countGrant(g *grant, n int16) {
	r.permits += uint16(n) * g.N
	if g.ghost != nil {
		r.ghosts += n
	}
	if g.Tree {
		r.trees += n
	}
}

func (r *record) countWaiter(w *waiter, n int16) {
	if w.Tree {
		r.trees += n
	}
	if w.Conditional {
		r.conditions += n
	}
	if w.Mode == Permit {
		r.permitWaiters += n
	}
}

// holder returns the index of the grant of token among the holders, -1 if there is
// none.
func (r *record) holder(token Token) int {
	i := sort.Search(len(r.holders), func(i int) bool { return r.holders[i].token >= token })
	if i == len(r.holders) || r.holders[i].token != token {
		return -1
	}
	return i
}

// named returns the index of the holder that a client names by token, -1 if there is none:
// the token of the grant, or one of its blocks. A client's lock has a token of a block, and
// whoever reads that token somewhere may ask for it.
func (r *record) named(token Token) int {
	i := r.holder(token)
	if i < 0 && len(r.holders) == 1 && r.holders[0].Block > 0 && r.holders[0].token < token && token <= r.last {
		return 0
	}
	return i
}

// grant returns the grant of token, which is among the holders.
func (r *record) grant(token Token) *grant { return &r.holders[r.holder(token)] }

// position returns the index of a request in the queue, -1 if it is not there.
func (r *record) position(q requestID) int {
	return r.firstWaiter(func(w *waiter) bool { return w.requestID == q })
}

// find is position of a waiter whose order is at hand, in logarithmic time: the queue
// is in the order of orders, of which a few dozen waiters at most share one.
func (r *record) find(w *waiter) int {
	i := sort.Search(len(r.queue), func(i int) bool { return r.queue[i].order >= w.order })
	for ; i < len(r.queue) && r.queue[i].order == w.order; i++ {
		if r.queue[i].requestID == w.requestID {
			return i
		}
	}
	return -1
}

// behind returns for how many holders and waiters the waiter at index i waits.
func (r *record) behind(i int) uint32 {
	n := len(r.holders) + i
	if r.queue[i].upgrade != 0 {
		n-- // its own grant
	}
	return uint32(n)
}

// ghostOf reports whether the holders include a ghost of the named client.
func (r *record) ghostOf(client string) bool {
	for g := range r.ghostHolders() {
		if g.ghost.client == client {
			return true
		}
	}
	return false
}
