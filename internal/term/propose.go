package term

import (
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// A proposer turns the commands arriving at the leader into log entries. While an
// entry is in flight the next entry gathers, so an idle leader commits
// a lone command at once and a busy leader commits many commands together. No
// timer decides.
//
// Each member has a lane of its own, and an entry takes from the lanes in turn: a
// member with thousands of waiting commands costs the others no more than its share of
// the entries. The leader's own commands go first, since the end of a session must not
// wait for a crowd; but not in two entries on end that they fill, since the ends of
// thousands of sessions must not stop everybody else.
//
// An entry is bounded by the number of its commands, by their bytes, and by their cost:
// while the voters apply an entry, they apply nothing else. The cost is estimated from the
// table just before the entry is committed, and corrected by the time that the last
// entries took here: see noteApplied.
//
// A command travels into the entry as bytes. A command of a stream was decoded
// once, on arrival, and the received bytes are copied once, into the entry. A
// command of this process is encoded once and decoded from the encoding: the
// leader's own table must apply exactly the command read by the other voters.
type proposer struct {
	commit func(entry []byte) ([]machine.Outcome, wire.Code) // blocks until the verdict
	table  *Table

	mu      sync.Mutex
	own     lane             // the leader's
	lanes   map[string]*lane // by member; without commands: absent
	turns   []*lane          // the lanes of lanes, in turn
	idle    []*lane          // to be used again
	waiting int              // commands in all lanes
	size    int              // bytes of their frames
	arena   []byte           // the frames encoded here
	spare   []byte           // an arena to be used again
	stopped bool
	wake    wakeup.One

	most   int        // of run: the bound of an entry's cost
	passed bool       // of run: the leader's own commands filled the last entry
	cost   int        // of run: the cost of the entry in flight
	entry  []proposal // of run: the entry in flight
	flown  []byte     // of run: the arena, if all of its frames are in the entry
}

// A lane is a member's commands in the order of their arrival.
type lane struct {
	member string
	queue  []proposal
	head   int // of the queue: the commands before were taken
}

type proposal struct {
	frame []byte          // encoded
	cmd   machine.Command // decoded from frame; nil: not decoded yet: give decodes it
	done  func(machine.Outcome, wire.Code)
}

// Limits of the leader's queue and of an entry.
const (
	maxProposals  = 64 << 10         // waiting commands
	maxLane       = maxProposals / 4 // of a member
	maxQueueBytes = 64 << 20         // of the waiting commands, encoded
	maxEntryBytes = 512 << 10        // of an entry; machine.MaxCommands and MaxCost bound the commands
	minEntryCost  = machine.MaxCost / 128

	// Queues and arenas with more memory than this are not used again.
	maxSpareQueue = 4 << 10
	maxSpareArena = 1 << 20
	maxIdleLanes  = 64
)

func newProposer(table *Table, commit func([]byte) ([]machine.Outcome, wire.Code)) *proposer {
	return &proposer{table: table, commit: commit, most: machine.MaxCost, lanes: make(map[string]*lane), wake: wakeup.NewOne()}
}

// decide is propose for a command of the leader itself.
func (p *proposer) decide(cmd machine.Command, done func(machine.Outcome, wire.Code)) {
	p.add("", true, cmd, nil, done)
}

// propose queues cmd of a member. frame is the received encoding of cmd, or nil for a
// command made by this process. The proposer keeps frame: the caller must not change the
// bytes.
//
// done is called once, by another goroutine or by the caller's, and must not
// block. With CodeOK the table has applied the command, with this outcome. With
// CodeUnknown the command may have been applied, or may be applied later. With
// any other code the command is in no log.
func (p *proposer) propose(member string, cmd machine.Command, frame []byte, done func(machine.Outcome, wire.Code)) {
	p.add(member, false, cmd, frame, done)
}

func (p *proposer) add(member string, own bool, cmd machine.Command, frame []byte, done func(machine.Outcome, wire.Code)) {
	if code := p.enqueue(member, own, cmd, frame, done); code != wire.CodeOK {
		done(machine.Outcome{}, code)
		return
	}
	p.wake.Wake()
}

func (p *proposer) enqueue(member string, own bool, cmd machine.Command, frame []byte, done func(machine.Outcome, wire.Code)) wire.Code {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopped:
		return wire.CodeNotLeader
	case p.waiting >= maxProposals || p.size >= maxQueueBytes:
		return wire.CodeBusy
	}
	l := &p.own
	if !own {
		if l = p.lanes[member]; l == nil {
			l = p.open(member)
		} else if len(l.queue)-l.head >= maxLane {
			return wire.CodeBusy
		}
	}
	if frame == nil {
		// Earlier frames stay valid when the arena moves: the frames keep the old
		// memory.
		if len(p.arena) > maxSpareArena {
			p.arena = nil
		}
		if p.arena == nil {
			p.arena, p.spare = p.spare, nil
		}
		start := len(p.arena)
		p.arena = machine.AppendCommand(p.arena, cmd)
		frame, cmd = p.arena[start:len(p.arena):len(p.arena)], nil
	}
	l.push(proposal{frame, cmd, done})
	p.waiting++
	p.size += len(frame)
	return wire.CodeOK
}

// push appends q, and uses the room of the taken commands before more memory.
func (l *lane) push(q proposal) {
	if len(l.queue) == cap(l.queue) && l.head > len(l.queue)/2 {
		n := copy(l.queue, l.queue[l.head:])
		clear(l.queue[n:])
		l.queue, l.head = l.queue[:n], 0
	}
	l.queue = append(l.queue, q)
}

// open adds a lane. The caller holds p.mu.
func (p *proposer) open(member string) *lane {
	var l *lane
	if n := len(p.idle); n > 0 {
		l, p.idle = p.idle[n-1], p.idle[:n-1]
	} else {
		l = new(lane)
	}
	l.member = member
	p.lanes[member] = l
	p.turns = append(p.turns, l)
	return l
}

// run commits until stop is called and the entry in flight is decided.
func (p *proposer) run() {
	for range p.wake {
		for p.take() {
			p.commitEntry(p.entry)
			p.decided()
		}
		p.mu.Lock()
		stopped := p.stopped
		p.mu.Unlock()
		if stopped {
			return
		}
	}
}

// take fills p.entry from the lanes, and returns false if there are no commands. The
// lanes of members give equal parts of what the entry has room for, by number, by
// bytes and by cost, until the entry is full or no lane has commands. The next entry begins
// with the lane after the last, or with the lane that found no room.
func (p *proposer) take() (some bool) {
	p.table.View(func(m *machine.State) {
		p.mu.Lock()
		defer p.mu.Unlock()
		some = p.takeLocked(m)
	})
	return some
}

// A load is what an entry has of its three bounds, or what a lane may give.
type load struct{ commands, bytes, cost int }

func (l load) part(n int) load {
	return load{max(1, l.commands/n), max(1, l.bytes/n), max(1, l.cost/n)}
}

func (l load) empty() bool { return l.commands <= 0 || l.bytes <= 0 || l.cost <= 0 }

func (l *load) less(frame []byte, cost int) {
	l.commands--
	l.bytes -= len(frame)
	l.cost -= cost
}

func (p *proposer) takeLocked(m *machine.State) bool {
	p.entry = p.entry[:0]
	if p.waiting == 0 {
		return false
	}
	room := load{machine.MaxCommands, maxEntryBytes, p.most}
	full, last := false, p.passed && len(p.turns) > 0
	if !last {
		full = p.give(m, &p.own, room, &room)
	}
	p.passed = !last && (full || room.empty()) // the members come first in the next entry
	for !full && len(p.turns) > 0 && !room.empty() {
		lanes := len(p.turns)
		part := room.part(lanes)
		for i := 0; i < lanes && !full && !room.empty(); i++ {
			l := p.turns[0]
			p.turns = append(p.turns[:0], p.turns[1:]...)
			before := len(p.entry)
			full = p.give(m, l, part, &room)
			switch {
			case l.head == len(l.queue):
				p.shut(l)
			case full && len(p.entry) == before:
				// Behind the others, a large command would find no room in any entry.
				p.turns = slices.Insert(p.turns, 0, l)
			default:
				p.turns = append(p.turns, l)
			}
		}
	}
	if last && !full && !room.empty() {
		p.give(m, &p.own, room, &room)
	}
	p.cost = p.most - room.cost
	if p.waiting == 0 {
		p.flown, p.arena = p.arena, nil
	}
	return true
}

// decided keeps the memory of a decided entry.
func (p *proposer) decided() {
	clear(p.entry)
	flown := p.flown
	p.flown = nil
	if cap(flown) == 0 || cap(flown) > maxSpareArena {
		return
	}
	p.mu.Lock()
	p.spare = flown[:0]
	p.mu.Unlock()
}

// give moves commands from the head of a lane into the entry, which has so much room: as
// many as part allows, and at least one. full means: the entry had no room for another
// command.
func (p *proposer) give(m *machine.State, l *lane, part load, room *load) (full bool) {
	for l.head < len(l.queue) && !part.empty() {
		q := &l.queue[l.head]
		if q.cmd == nil {
			q.cmd = decodeFrame(q.frame)
		}
		cost := m.Cost(q.cmd)
		if len(p.entry) > 0 && (room.commands == 0 || len(q.frame) > room.bytes || cost > room.cost) {
			return true
		}
		part.less(q.frame, cost)
		room.less(q.frame, cost)
		p.waiting--
		p.size -= len(q.frame)
		p.entry = append(p.entry, *q)
		*q = proposal{}
		l.head++
	}
	if l.head == len(l.queue) {
		l.queue, l.head = l.queue[:0], 0
		if cap(l.queue) > maxSpareQueue {
			l.queue = nil
		}
	}
	return false
}

// shut removes a lane without commands. The caller holds p.mu.
func (p *proposer) shut(l *lane) {
	delete(p.lanes, l.member)
	if len(p.idle) < maxIdleLanes {
		p.idle = append(p.idle, l)
	}
}

// commitEntry commits proposals as one entry and tells the verdicts.
func (p *proposer) commitEntry(queue []proposal) {
	commands := make([]machine.Command, len(queue))
	frames := make([][]byte, len(queue))
	for i, q := range queue {
		frames[i], commands[i] = q.frame, q.cmd
	}
	entry := machine.EncodeEntry(frames)
	p.table.expect(entry, commands)
	outcomes, code := p.commit(entry)
	p.table.expect(nil, nil)
	p.noteApplied(p.table.lastApply())
	if code == wire.CodeOK && len(outcomes) != len(queue) {
		code = wire.CodeUnknown
	}
	for i, q := range queue {
		var o machine.Outcome
		if code == wire.CodeOK {
			o = outcomes[i]
		}
		q.done(o, code)
	}
}

// longApply is how long the voters may be busy with one entry.
const longApply = 5 * time.Millisecond

// noteApplied corrects the bound of the next entries' cost by the time that this process
// took to apply the last entry: the costs are estimates, and hosts differ. An entry of one
// command shows nothing.
func (p *proposer) noteApplied(took time.Duration) {
	switch {
	case took <= longApply:
		p.most = min(2*p.most, machine.MaxCost)
	case len(p.entry) > 1:
		p.most = max(minEntryCost, min(p.most, p.cost)/2)
	}
}

// decodeFrame decodes a frame of an entry as machine.DecodeEntry does.
func decodeFrame(frame []byte) machine.Command {
	c, err := machine.DecodeCommand(frame)
	if err != nil {
		return machine.Unknown{Raw: string(frame)}
	}
	return c
}

// stop answers every queued and every later command with CodeNotLeader. run returns
// once the entry in flight is decided. stop does not wait for run, because run may
// wait for a hanging disk.
func (p *proposer) stop() {
	p.mu.Lock()
	p.stopped = true
	queue := p.own.queue[p.own.head:]
	for _, l := range p.turns {
		queue = append(queue, l.queue[l.head:]...)
	}
	p.own, p.lanes, p.turns, p.waiting = lane{}, nil, nil, 0
	p.mu.Unlock()
	for _, q := range queue {
		q.done(machine.Outcome{}, wire.CodeNotLeader)
	}
	p.wake.Wake()
}
