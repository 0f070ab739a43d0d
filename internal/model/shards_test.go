package model

import (
	"fmt"
	"strings"
)

// The model of shards: callers enlist, are assigned shards, wait for their keys, work, hand
// over, leave and crash, while an operator changes the number of shards from one to two. A
// caller hears of its part late. What the model of sessions proves is taken for granted: a
// session ends in the table only after the trust of its client is over.

const (
	mostCallers = 3
	mostShards  = 2
)

// shards holds the rules and the bounds.
type shards struct {
	callers int
	from    uint8 // shards at the start; the other number is 3 less from
	steady  bool  // the number of shards does not change
	alike   bool  // states that differ by the names of the callers alone count as one

	// Rules. A false rule has been taken out.
	underLock    bool // locks/spreadshard.go turn: work begins under the lock of the shard's key
	endsFirst    bool // locks/spreadshard.go release: the key is released after the work
	exclusive    bool // machine/grant.go: a key has one holder
	trusts       bool // the model of sessions: no session ends while its client trusts it
	sameNumber   bool // machine/enlist.go checkEnlist: a caller of another number is refused
	renumberFree bool // machine/enlist.go mayRenumber: a group without callers keeps its number while a key is held
	callersGone  bool // machine/assign.go reshard: the callers of the former number have gone
	heldFree     bool // machine/assign.go reshard: no key is held
	assignWaits  bool // machine/assign.go assign: nothing is assigned while the number changes
	worksReturn  bool // locks/spreadrun.go reconcile: at a change of the number, a caller leaves after its turns
	waitsEnd     bool // locks/spreadrun.go run: a caller that leaves has ended its waits
}

func allShardRules() shards {
	return shards{
		callers: 2, from: 1, underLock: true, endsFirst: true, exclusive: true, trusts: true, sameNumber: true,
		renumberFree: true, callersGone: true, heldFree: true, assignWaits: true, worksReturn: true, waitsEnd: true,
	}
}

type shardState struct {
	number, next uint8             // shards, and the number after the change under way
	changed      uint8             // the number has been changed once
	assigned     [mostShards]uint8 // caller plus one
	holders      [mostShards]uint8 // bits of callers
	callers      [mostCallers]callerState
}

type callerState struct {
	life    uint8 // of the call of Spread
	listed  uint8 // in the table
	later   uint8 // came for the number after the change
	number  uint8 // of the call
	over    uint8 // the trust of its session is over
	closing uint8 // the session has begun to end in the table
	mine    uint8 // bits of the part, as heard
	resized uint8 // heard
	waits   [mostShards]uint8
	turns   [mostShards]uint8
}

const (
	calling uint8 = 1
	leaving uint8 = 2

	turnWaits uint8 = 1
	turnWorks uint8 = 2
	turnEnds  uint8 = 3 // the work has returned
)

func (r shards) model() model[shardState] {
	return model[shardState]{start: []shardState{{number: r.from}}, steps: r.steps, wrong: r.wrong, show: r.show}
}

func (r shards) wrong(s shardState) string {
	for a := range r.callers {
		for b := range a {
			x, y := &s.callers[a], &s.callers[b]
			for i := range mostShards {
				for j := range mostShards {
					if x.turns[i] != turnWorks || y.turns[j] != turnWorks {
						continue
					}
					if x.number != y.number {
						return fmt.Sprintf("callers %s and %s work under different numbers of shards", letter(b), letter(a))
					}
					if i == j {
						return fmt.Sprintf("callers %s and %s own shard %d", letter(b), letter(a), i)
					}
				}
			}
		}
	}
	return ""
}

func (r shards) show(s shardState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d shards", s.number)
	if s.next != 0 {
		fmt.Fprintf(&b, ", soon %d", s.next)
	}
	for c := range r.callers {
		cl := &s.callers[c]
		if cl.life == 0 && cl.listed == 0 {
			continue
		}
		fmt.Fprintf(&b, " | %s of %d", letter(c), cl.number)
		if cl.listed == 0 {
			b.WriteString(" unlisted")
		}
		if cl.over != 0 {
			b.WriteString(" dead")
		}
		for i, turn := range cl.turns {
			if turn != 0 {
				fmt.Fprintf(&b, " %s %d", [...]string{"", "waits for", "works on", "ended"}[turn], i)
			}
		}
	}
	for i := range s.holders {
		for c := range r.callers {
			if s.holders[i]>>c&1 != 0 {
				fmt.Fprintf(&b, " | key %d %s's", i, letter(c))
			}
		}
	}
	return b.String()
}

func (r shards) steps(s shardState, to func(step, shardState)) {
	if r.alike {
		each := to
		to = func(l step, t shardState) { each(l, r.rename(t)) }
	}
	r.groupSteps(s, to)
	for c := range r.callers {
		r.callSteps(s, c, to)
		for i := range mostShards {
			r.turnSteps(s, c, i, to)
		}
	}
}

// rename puts the callers in the order of their ranks.
func (r shards) rename(s shardState) shardState {
	for range r.callers - 1 {
		for c := range r.callers - 1 {
			if s.rank(c) > s.rank(c+1) {
				s.callers[c], s.callers[c+1] = s.callers[c+1], s.callers[c]
				for i := range s.assigned {
					switch int(s.assigned[i]) {
					case c + 1:
						s.assigned[i]++
					case c + 2:
						s.assigned[i]--
					}
					h := s.holders[i]
					s.holders[i] = h&^(3<<c) | h>>c&1<<(c+1) | h>>(c+1)&1<<c
				}
			}
		}
	}
	return s
}

// rank is a number with everything about a caller.
func (s *shardState) rank(c int) (n uint64) {
	cl := &s.callers[c]
	for _, f := range [...]uint8{cl.life, cl.listed, cl.later, cl.number, cl.over, cl.closing, cl.mine, cl.resized} {
		n = n<<2 | uint64(f)
	}
	for i := range mostShards {
		n = n<<1 | uint64(cl.waits[i])
		n = n<<2 | uint64(cl.turns[i])
		n = n<<1 | uint64(s.holders[i]>>c&1)
		n <<= 1
		if int(s.assigned[i]) == c+1 {
			n |= 1
		}
	}
	return n
}

// groupSteps are the operator's and the planner's.
func (r shards) groupSteps(s shardState, to func(step, shardState)) {
	oldListed, held := false, false
	for c := range r.callers {
		oldListed = oldListed || s.callers[c].listed != 0 && s.callers[c].later == 0
	}
	for i := range s.number {
		held = held || s.holders[i] != 0
	}
	if s.next == 0 && s.changed == 0 && !r.steady {
		t := s
		t.next, t.changed, t.assigned = 3-s.number, 1, [mostShards]uint8{}
		to(step{text: "the operator changes the number of shards"}, t)
	}
	if s.next != 0 && (!oldListed || !r.callersGone) && (!held || !r.heldFree) {
		t := s
		t.number, t.next, t.assigned = s.next, 0, [mostShards]uint8{}
		for c := range r.callers {
			t.callers[c].later = 0
		}
		to(step{text: "the change of the number is complete"}, t)
	}
	if s.next != 0 && r.assignWaits {
		return
	}
	for i := range max(s.number, s.next) {
		for c := range r.callers {
			cl := &s.callers[c]
			if cl.listed != 0 && i < cl.number && int(s.assigned[i]) != c+1 {
				t := s
				t.assigned[i] = uint8(c + 1)
				to(step{"shard %b is assigned to caller %A", c, int(i)}, t)
			}
		}
	}
}

func (r shards) callSteps(s shardState, c int, to func(step, shardState)) {
	cl := s.callers[c]
	is := func(text string, t shardState) { to(step{text, c, 0}, t) }
	if cl == (callerState{}) {
		for n := uint8(1); n <= mostShards; n++ {
			if n == r.from || !r.steady {
				r.enlist(s, c, n, to)
			}
		}
		return
	}
	if cl.life == calling && cl.listed != 0 && cl.over == 0 {
		t := s
		x := &t.callers[c]
		if x.mine = 0; s.next == 0 || !r.assignWaits && cl.later != 0 {
			for i := range s.assigned {
				if int(s.assigned[i]) == c+1 {
					x.mine |= 1 << i
				}
			}
		}
		if s.next != 0 && cl.later == 0 {
			x.resized = 1
		}
		is("caller %A hears of its part", t)
	}
	if cl.life == calling && cl.over == 0 {
		turns := cl.turns != [mostShards]uint8{}
		if cl.resized != 0 && (!turns || !r.worksReturn) {
			t := s
			t.leave(c)
			is("caller %A leaves, because the number changes", t)
		}
		if cl.resized == 0 {
			t := s
			t.leave(c)
			for i := range cl.turns {
				if cl.turns[i] == turnWaits && r.waitsEnd {
					t.callers[c].turns[i] = 0
				}
			}
			is("caller %A leaves, while its works come to their ends", t)
		}
	}
	if cl.life == leaving && cl.listed == 0 && cl.over == 0 && cl.turns == [mostShards]uint8{} && cl.waits == [mostShards]uint8{} && !s.holds(c) {
		t := s
		t.callers[c] = callerState{}
		is("the call of caller %A returns", t)
	}
	r.sessionSteps(s, c, to)
}

func (s *shardState) holds(c int) bool {
	for _, h := range s.holders {
		if h>>c&1 != 0 {
			return true
		}
	}
	return false
}

// leave takes a caller out of the table.
func (s *shardState) leave(c int) {
	s.callers[c].life = leaving
	s.delist(c)
}

func (s *shardState) delist(c int) {
	s.callers[c].listed, s.callers[c].later, s.callers[c].mine, s.callers[c].resized = 0, 0, 0, 0
	for i := range s.assigned {
		if int(s.assigned[i]) == c+1 {
			s.assigned[i] = 0
		}
	}
}

// enlist is machine.enlist, for a call with n shards.
func (r shards) enlist(s shardState, c int, n uint8, to func(step, shardState)) {
	idle, held := s.next == 0, false
	for o := range r.callers {
		idle = idle && s.callers[o].listed == 0
	}
	for i := range s.number {
		held = held || s.holders[i] != 0
	}
	number := s.number
	if s.next != 0 {
		number = s.next
	}
	renumbers := idle && n != number && (!held || !r.renumberFree)
	if n != number && !renumbers && r.sameNumber {
		return
	}
	t := s
	if renumbers {
		t.number, t.assigned = n, [mostShards]uint8{}
	}
	t.callers[c] = callerState{life: calling, listed: 1, number: n}
	if s.next != 0 {
		t.callers[c].later = 1
	}
	to(step{"caller %A enlists for %b shards", c, int(n)}, t)
}

// sessionSteps are the end of the trust of a caller's client, and the end of its session in
// the table, in slices.
func (r shards) sessionSteps(s shardState, c int, to func(step, shardState)) {
	cl := s.callers[c]
	if cl.over == 0 {
		t := s
		t.callers[c].over, t.callers[c].turns = 1, [mostShards]uint8{}
		to(step{"caller %A crashes, or loses its session", c, 0}, t)
	}
	if cl.closing == 0 && (cl.over != 0 || !r.trusts) {
		t := s
		t.delist(c)
		t.callers[c].closing, t.callers[c].waits = 1, [mostShards]uint8{}
		to(step{"the session of caller %A ends", c, 0}, t)
	}
	if cl.closing != 0 {
		t := s
		for i := range t.holders {
			t.holders[i] &^= 1 << c
		}
		t.callers[c].closing = 0
		if cl.over != 0 {
			t.callers[c] = callerState{}
		}
		to(step{"the last slice of the session of caller %A frees its keys", c, 0}, t)
	}
}

// turnSteps are the steps of a shardRun, and of the shard's key.
func (r shards) turnSteps(s shardState, c, i int, to func(step, shardState)) {
	cl := s.callers[c]
	is := func(text string, change func(t *shardState, x *callerState)) {
		t := s
		change(&t, &t.callers[c])
		to(step{text, c, i}, t)
	}
	if cl.waits[i] != 0 && cl.closing == 0 && (s.holders[i] == 0 || !r.exclusive) {
		is("the key of shard %b is granted to caller %A", func(t *shardState, x *callerState) { x.waits[i], t.holders[i] = 0, s.holders[i]|1<<c })
	}
	if cl.over != 0 {
		return
	}
	held := s.holders[i]>>c&1 != 0
	dropped := cl.mine>>i&1 == 0 || cl.resized != 0
	switch cl.turns[i] {
	case 0:
		if cl.life == calling && !dropped && !held && cl.waits[i] == 0 {
			is("caller %A asks for the key of shard %b", func(_ *shardState, x *callerState) { x.waits[i], x.turns[i] = 1, turnWaits })
		}
		if cl.waits[i] != 0 {
			is("the request of caller %A for shard %b is withdrawn", func(_ *shardState, x *callerState) { x.waits[i] = 0 })
		}
		if held {
			is("caller %A gives shard %b back", func(t *shardState, _ *callerState) { t.holders[i] &^= 1 << c })
		}
	case turnWaits:
		if held || !r.underLock {
			is("caller %A begins to work on shard %b", func(_ *shardState, x *callerState) { x.turns[i] = turnWorks })
		}
		if dropped {
			is("caller %A waits for shard %b no more", func(_ *shardState, x *callerState) { x.turns[i] = 0 })
		}
	case turnWorks:
		is("the work of caller %A on shard %b returns", func(_ *shardState, x *callerState) { x.turns[i] = turnEnds })
		if dropped && !r.endsFirst {
			is("caller %A releases shard %b", func(t *shardState, _ *callerState) { t.holders[i] &^= 1 << c })
		}
	case turnEnds:
		is("caller %A releases shard %b", func(t *shardState, x *callerState) { x.turns[i] = 0; t.holders[i] &^= 1 << c })
	}
}
