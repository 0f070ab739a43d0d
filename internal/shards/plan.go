package shards

import (
	"cmp"
	"slices"
)

// A Caller takes part in a group.
type Caller struct {
	Weight  int  // the share in proportion; 0 or less: owns nothing
	Standby bool // owns nothing, whatever its weight
	Absent  bool // keeps the shards assigned to it, and gets none
}

// shares reports whether the caller has a share of the shards.
func (c *Caller) shares() bool { return c.Weight > 0 && !c.Standby }

// mayOwn reports whether the caller may get shards.
func (c *Caller) mayOwn() bool { return c.shares() && !c.Absent }

// A Shard is the present state of a shard. To and Held are indexes of callers, or -1.
type Shard struct {
	To   int   // the caller that the shard is assigned to; -1: an orphan
	Held int   // the caller that holds the shard's key; -1: nobody, or nobody of the group
	Not  []int // callers that the shard must not be assigned to
}

// Options bound a plan.
type Options struct {
	// Balance allows moves that only restore the balance.
	Balance bool
	// MaxMoves is the largest number of moves under way between two callers; with 0 or
	// less, a tenth of the shards, at least 1. Orphans do not count.
	MaxMoves int
}

// A Move assigns a shard to a caller.
type Move struct{ Shard, To int }

// Plan returns the moves to make now, in the order of the shards. The callers stand in
// the order of their coming. Plan makes no move if no caller may own shards. The same
// arguments give the same moves. Plan changes none of its arguments.
//
// Plan takes a few milliseconds for 16,384 shards and 1,000 callers.
func Plan(callers []Caller, all []Shard, o Options) []Move {
	p := plan{callers: callers, all: all, next: make([]int, len(all)), balance: o.Balance}
	for i := range callers {
		p.able = p.able || callers[i].mayOwn()
	}
	if !p.able {
		return nil
	}
	p.setRoom()
	if p.balance {
		p.keepHeld()
	}
	p.keepAssigned()
	p.deal()
	return p.moves(o.MaxMoves)
}

// plan is one computation. A caller's room is its quota less the shards that next
// gives to the caller.
type plan struct {
	callers []Caller
	all     []Shard
	balance bool
	able    bool
	room    []int
	next    []int // by shard: the caller after the whole plan; -1 while undecided
}

// valid reports whether i is the index of a caller that may own shards.
func (p *plan) valid(i int) bool { return i >= 0 && i < len(p.callers) && p.callers[i].mayOwn() }

// absent reports whether i is the index of an absent caller.
func (p *plan) absent(i int) bool { return i >= 0 && i < len(p.callers) && p.callers[i].Absent }

// setRoom computes the quotas, and keeps the shards of the absent callers.
func (p *plan) setRoom() {
	has := make([]int, len(p.callers)) // the shards that a caller keeps without a move
	for i := range p.all {
		s := &p.all[i]
		p.next[i] = -1
		owner := s.To
		if p.balance && p.valid(s.Held) {
			owner = s.Held
		}
		switch {
		case p.absent(s.To):
			p.next[i] = s.To
			has[s.To]++
		case p.valid(owner):
			has[owner]++
		}
	}
	p.room = quotas(p.callers, len(p.all), has)
}

// quotas divides n shards among the callers that have a share, by weight. has tells
// the shards that each caller has already.
func quotas(callers []Caller, n int, has []int) []int {
	q := make([]int, len(callers))
	remainder := make([]uint64, len(callers)) // of a caller's share, in parts of the sum
	var uneven []int
	var sum uint64
	spare := n
	for i := range callers {
		if callers[i].shares() {
			sum += uint64(callers[i].Weight)
		}
	}
	for i := range callers {
		if !callers[i].shares() {
			continue
		}
		share := uint64(n) * uint64(callers[i].Weight)
		q[i], remainder[i] = int(share/sum), share%sum
		spare -= q[i]
		if remainder[i] > 0 {
			uneven = append(uneven, i)
		}
	}
	slices.SortStableFunc(uneven, func(a, b int) int {
		if more := has[a] > q[a]; more != (has[b] > q[b]) {
			if more {
				return -1
			}
			return 1
		}
		return cmp.Compare(remainder[b], remainder[a])
	})
	for _, i := range uneven[:spare] {
		q[i]++
	}
	return q
}

// keepHeld leaves the shards with their holders, up to the quotas: first the shards that
// are not on their way to another caller.
func (p *plan) keepHeld() {
	for _, moving := range []bool{false, true} {
		for i := range p.all {
			s := &p.all[i]
			if p.next[i] < 0 && p.valid(s.Held) && (s.To != s.Held) == moving {
				p.give(i, s.Held)
			}
		}
	}
}

// keepAssigned leaves the shards with the callers that they are assigned to: up to the
// quotas, or all of them if the plan restores no balance. A caller above its quota has
// no room for more shards then.
func (p *plan) keepAssigned() {
	for i := range p.all {
		s := &p.all[i]
		if p.next[i] >= 0 || !p.valid(s.To) {
			continue
		}
		if !p.balance {
			p.next[i] = s.To
			p.room[s.To]--
		} else {
			p.give(i, s.To)
		}
	}
}

// give decides for a caller if the caller has room.
func (p *plan) give(shard, caller int) bool {
	if p.room[caller] <= 0 {
		return false
	}
	p.next[shard] = caller
	p.room[caller]--
	return true
}

// deal gives the undecided shards to the callers with room: to the shard's holder, or
// to the next caller in turn. A shard declined by all of these stays with its holder,
// or goes to another caller above the quota. A shard declined by everybody stays
// undecided.
func (p *plan) deal() {
	var open []int // callers with room
	for i := range p.callers {
		if p.room[i] > 0 {
			open = append(open, i)
		}
	}
	turn := 0
	for i := range p.all {
		s := &p.all[i]
		if p.next[i] >= 0 || p.willing(s, s.Held) && p.give(i, s.Held) {
			continue
		}
		for tried := 0; p.next[i] < 0 && tried < len(open); tried++ {
			turn %= len(open)
			caller := open[turn]
			if p.room[caller] <= 0 {
				open = slices.Delete(open, turn, turn+1)
				tried--
				continue
			}
			turn++
			if p.willing(s, caller) {
				p.give(i, caller)
			}
		}
		if p.next[i] < 0 {
			p.exceed(i)
		}
	}
}

// willing reports whether a caller may own shards and has not declined this shard.
func (p *plan) willing(s *Shard, caller int) bool {
	return p.valid(caller) && !slices.Contains(s.Not, caller)
}

// exceed gives a shard to its holder, or else to the willing caller with the most room.
func (p *plan) exceed(shard int) {
	s := &p.all[shard]
	best := -1
	for i := range p.callers {
		if p.willing(s, i) && (best < 0 || i == s.Held || best != s.Held && p.room[i] > p.room[best]) {
			best = i
		}
	}
	if best >= 0 {
		p.next[shard] = best
		p.room[best]--
	}
}

// moves returns the moves that may begin now.
func (p *plan) moves(limit int) []Move {
	if limit <= 0 {
		limit = max(1, len(p.all)/10)
	}
	var now, drains, balance []Move
	for i, next := range p.next {
		s := &p.all[i]
		if next < 0 {
			continue
		}
		m := Move{i, next}
		between := s.Held >= 0 && s.Held != next && p.valid(next)
		switch {
		case between && s.To == s.Held && !p.valid(s.Held):
			drains = append(drains, m)
			continue
		case between && s.To == s.Held:
			balance = append(balance, m)
			continue
		case next != s.To: // an orphan, back to the holder, or to another caller from now on
			now = append(now, m)
		}
		if between {
			limit-- // under way
		}
	}
	for _, list := range [][]Move{drains, balance} {
		n := min(len(list), max(0, limit))
		now = append(now, list[:n]...)
		limit -= n
	}
	slices.SortFunc(now, func(a, b Move) int { return cmp.Compare(a.Shard, b.Shard) })
	return now
}
