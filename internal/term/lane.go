package term

import (
	"slices"
	"sort"

	"github.com/wardmote/wardmote/internal/machine"
)

// The order of service among members is deficit round robin over shares of entries. The
// share of a command is the largest of three fractions: of an entry's number of commands, of
// the bytes and of the cost. So a member with thousands of small commands and a
// member with a few large or costly ones pay alike.
//
// In a turn, a lane gets credit for an equal part of the entry, and gives commands until
// the credit is spent. A command is not divided: the last command of a turn may leave a debt,
// and the lane gives nothing in the next turns until the turns have paid the debt. Without
// the debts, each turn of a member with requests for a thousand keys would take half of an
// entry, however many members wait. Turns go on until the entry is full or no lane has
// commands, so a member alone has the whole entry, and an unused part is everybody's. But
// while several members are about, entries are short: the turns end with a quota of an entry for
// each member, and there are no further turns to pay debts, except for an entry that would be
// empty. See pace.go.
//
// Credit is not saved: a lane has at most the credit of one turn. A debt outlasts the
// commands of the lane while other members wait: otherwise a
// member could begin anew after each large command. When nobody waits, nobody was kept
// waiting, and all debts are forgiven.
//
// Not taken: a weight for each member. Members are equal, as processes of one application
// are, and a setting would have to be the same everywhere.

// A lane is a member's commands in the order of their arrival. The order never changes: a
// command that is taken back leaves a gap.
type lane struct {
	member string
	queue  []proposal
	head   int // of the queue: the commands before were taken
	gaps   int // of the queue, from head on
	bytes  int // of the waiting commands, encoded
	credit int // in parts of an entry; below zero: a debt
}

// wholeEntry is the share of an entry that is full, and the largest share of a command.
const wholeEntry = 1 << 24

// leastShare is the share of a command without bytes and cost.
const leastShare = wholeEntry / machine.MaxCommands

// shareOf returns the share of a command in an entry whose bound of the cost is most.
func shareOf(bytes, cost, most int) int {
	if bytes >= maxEntryBytes || cost >= most {
		return wholeEntry
	}
	return max(leastShare, bytes*(wholeEntry/maxEntryBytes), cost*(wholeEntry/most))
}

// gone reports whether q was taken back.
func (q *proposal) gone() bool { return q.done == nil }

// waiting returns the number of commands in the lane. A nil lane has none.
func (l *lane) waiting() int {
	if l == nil {
		return 0
	}
	return len(l.queue) - l.head - l.gaps
}

// push appends q, and uses the room of the taken commands before more memory.
func (l *lane) push(q proposal) {
	if len(l.queue) == cap(l.queue) && l.head > len(l.queue)/2 {
		n := copy(l.queue, l.queue[l.head:])
		clear(l.queue[n:])
		l.queue, l.head = l.queue[:n], 0
	}
	l.queue = append(l.queue, q)
	l.bytes += len(q.frame)
}

// minGaps is how many gaps a queue may have, however short it is.
const minGaps = 64

// takeBack makes a gap of the command at a place, and returns the command. Places rise
// along the queue, so the search takes few steps. With more gaps than commands the queue is
// closed up: while an entry waits for a disk, callers come and go.
func (l *lane) takeBack(place uint64) (q proposal, ok bool) {
	list := l.queue[l.head:]
	i := sort.Search(len(list), func(i int) bool { return list[i].place >= place })
	if i == len(list) || list[i].place != place || list[i].gone() {
		return q, false
	}
	q = list[i]
	list[i] = proposal{place: place}
	l.gaps++
	l.bytes -= len(q.frame)
	if l.gaps > minGaps && l.gaps > l.waiting() {
		l.queue = slices.DeleteFunc(l.queue[:copy(l.queue, list)], func(q proposal) bool { return q.gone() })
		clear(l.queue[len(l.queue):cap(l.queue)])
		l.head, l.gaps = 0, 0
	}
	return q, true
}

// next returns the first waiting command, nil without any.
func (l *lane) next() *proposal {
	for l.head < len(l.queue) && l.queue[l.head].gone() {
		l.head++
		l.gaps--
	}
	if l.head == len(l.queue) {
		return nil
	}
	return &l.queue[l.head]
}

// emptied keeps the memory of a queue without commands, if there is not too much of it.
func (l *lane) emptied() {
	l.queue, l.head = l.queue[:0], 0
	if cap(l.queue) > maxSpareQueue {
		l.queue = nil
	}
}

// takeTurns fills the entry, which has so much room left, from the lanes of members. full
// means: the entry had no room for another command. The next entry begins with the lane
// after the last, or with the lane that found no room: behind the others, a large command
// would find no room in any entry.
func (p *proposer) takeTurns(m *machine.State, left *room) (full bool) {
	quota := p.quota()
	for taken := 0; taken < quota && !full && !left.empty() && p.waiting > p.own.waiting(); {
		lanes := p.turns.len()
		part := max(1, min(quota, wholeEntry/lanes))
		before, debt := len(p.entry), wholeEntry
		for i := 0; i < lanes && !full && !left.empty(); i++ {
			l := p.turns.pop()
			l.credit = min(l.credit+part, part)
			full = p.give(m, l, left)
			switch {
			case full:
				l.credit -= part // the turn goes on in the next entry
				p.turns.unpop(l)
			case l.waiting() > 0:
				p.turns.push(l)
				debt = min(debt, -l.credit)
			case l.credit < 0:
				p.turns.push(l)
			default:
				p.shut(l)
			}
		}
		switch {
		case len(p.entry) > before:
			taken += part
		case len(p.entry) > 0 && quota < wholeEntry:
			return full // debts are paid by entries, and this one is not empty
		case !full:
			p.payTurns(debt / part * part)
		}
	}
	return full
}

// payTurns pays so much of all debts at once, after a round of turns without a command: as
// many further rounds would give none either.
func (p *proposer) payTurns(debt int) {
	for _, l := range p.turns.lanes() {
		l.credit = min(0, l.credit+debt)
	}
}

// give moves commands from the head of a lane into the entry, which has so much room left,
// until the lane's credit is spent. full means: the entry had no room for another command.
func (p *proposer) give(m *machine.State, l *lane, left *room) (full bool) {
	for q := l.next(); q != nil && l.credit > 0; q = l.next() {
		if q.cmd == nil {
			q.cmd = decodeFrame(q.frame)
		}
		cost := m.Cost(q.cmd)
		if len(p.entry) > 0 && (left.commands == 0 || len(q.frame) > left.bytes || cost > left.cost) {
			return true
		}
		left.commands--
		left.bytes -= len(q.frame)
		left.cost -= cost
		l.credit -= shareOf(len(q.frame), cost, p.most)
		l.bytes -= len(q.frame)
		p.waiting--
		p.size -= len(q.frame)
		p.entry = append(p.entry, *q)
		*q = proposal{place: q.place}
		l.head++
	}
	if l.waiting() == 0 {
		l.emptied()
	}
	return false
}

// forgive ends all debts, and the lanes: none has commands.
func (p *proposer) forgive() {
	for p.turns.len() > 0 {
		p.shut(p.turns.pop())
	}
}

// shut removes a lane without commands, which has no turn any more. The caller holds p.mu.
func (p *proposer) shut(l *lane) {
	delete(p.lanes, l.member)
	l.member, l.credit, l.gaps = "", 0, 0
	l.emptied()
	if len(p.idle) < maxIdleLanes {
		p.idle = append(p.idle, l)
	}
}

// turns is the lanes in the order of their turns. With a thousand lanes an entry has a
// thousand turns, so a turn moves one lane and no others.
type turns struct {
	list []*lane
	head int // of the list: the lanes before have been taken out
}

func (t *turns) len() int { return len(t.list) - t.head }

// lanes returns the lanes in their order. The result is valid until the next change.
func (t *turns) lanes() []*lane { return t.list[t.head:] }

func (t *turns) push(l *lane) {
	if len(t.list) == cap(t.list) && t.head > len(t.list)/2 {
		n := copy(t.list, t.list[t.head:])
		clear(t.list[n:])
		t.list, t.head = t.list[:n], 0
	}
	t.list = append(t.list, l)
}

// pop takes out the lane whose turn it is.
func (t *turns) pop() *lane {
	l := t.list[t.head]
	t.list[t.head] = nil
	if t.head++; t.head == len(t.list) {
		t.list, t.head = t.list[:0], 0
	}
	return l
}

// unpop gives the next turn to the lane of the latest pop.
func (t *turns) unpop(l *lane) {
	if t.head == 0 {
		t.list = slices.Insert(t.list, 0, l)
		return
	}
	t.head--
	t.list[t.head] = l
}
