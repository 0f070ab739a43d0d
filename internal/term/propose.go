package term

import (
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// A proposer turns the commands arriving at the leader into log entries. While an
// entry is in flight the next entry gathers, so an idle leader commits
// a lone command at once and a busy leader commits many commands together. No
// timer decides, but for requests that only join a queue: see patience.go.
//
// Each member has a lane of its own, and an entry takes from the lanes in turn: see
// lane.go. The clients on the leader's process are one member among the others. The leader's
// own commands go first, since the end of a session must not
// wait for a crowd; but not in two entries on end that they fill, or make long, since the ends of
// thousands of sessions, or of a session with thousands of keys, must not stop everybody else.
//
// While several members are about, entries are short: see pace.go. An entry is bounded by the number of its commands, by their bytes, and by their cost:
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
	over   func(machine.Command, machine.Outcome) // told of each command over a quota of its member
	full   func(member string)                    // told of each command of a member that finds no room; must not block for long

	mu      sync.Mutex
	own     lane             // the leader's
	lanes   map[string]*lane // by member; without commands and without a debt: absent
	turns   turns            // the lanes of lanes
	idle    []*lane          // to be used again
	waiting int              // commands in all lanes
	size    int              // bytes of their frames
	place   uint64           // of the proposal queued last
	arena   []byte           // the frames encoded here
	spare   []byte           // an arena to be used again
	stopped bool
	pace    pace
	due     time.Time // commands that only wait go alone then; zero: none is kept for company
	wake    wakeup.One

	company *host.Timer // fires when due
	most    int         // of run: the bound of an entry's cost
	passed  bool        // of run: the leader's own commands left the members no room in the last entry, or made it long
	cost    int         // of run: the cost of the entry in flight
	entry   []proposal  // of run: the entry in flight
	flown   []byte      // of run: the arena, if all of its frames are in the entry
}

type proposal struct {
	place uint64          // a number that rises from proposal to proposal
	frame []byte          // encoded
	cmd   machine.Command // decoded from frame; nil: not decoded yet: give decodes it
	done  func(machine.Outcome, wire.Code)
}

// Limits of the leader's queue and of an entry.
const (
	maxProposals  = 64 << 10          // waiting commands
	maxQueueBytes = 64 << 20          // of the waiting commands, encoded
	maxLane       = maxProposals / 4  // of a member
	maxLaneBytes  = maxQueueBytes / 4 // of a member: as much as it may have under way on its stream
	minLane       = 64                // of a member, however full the queue is
	minLaneBytes  = 64 << 10          // of a member, however full the queue is
	maxEntryBytes = 512 << 10         // of an entry; machine.MaxCommands and MaxCost bound the commands
	minEntryCost  = machine.MaxCost / 128

	// The leader's own commands that take more than this part of an entry's cost are in every
	// second entry at most, while members have commands.
	heavyPart = 8

	// Queues and arenas with more memory than this are not used again.
	maxSpareQueue = 4 << 10
	maxSpareArena = 1 << 20
	maxIdleLanes  = 64
)

func newProposer(table *Table, commit func([]byte) ([]machine.Outcome, wire.Code)) *proposer {
	p := &proposer{
		table: table, commit: commit, full: func(string) {}, over: func(machine.Command, machine.Outcome) {}, most: machine.MaxCost,
		lanes: make(map[string]*lane), wake: wakeup.NewOne(), company: table.Clock.NewTimer(time.Hour),
	}
	p.company.Stop()
	return p
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
//
// The result is the place of the command in the member's lane, for takeBack; 0: the command
// was refused.
func (p *proposer) propose(member string, cmd machine.Command, frame []byte, done func(machine.Outcome, wire.Code)) (place uint64) {
	return p.add(member, false, cmd, frame, done)
}

func (p *proposer) add(member string, own bool, cmd machine.Command, frame []byte, done func(machine.Outcome, wire.Code)) (place uint64) {
	place, code := p.enqueue(member, own, cmd, frame, done)
	if code != wire.CodeOK {
		if code == wire.CodeBusy && !own {
			p.full(member)
		}
		done(machine.Outcome{}, code)
		return 0
	}
	p.wake.Wake()
	return place
}

func (p *proposer) enqueue(member string, own bool, cmd machine.Command, frame []byte, done func(machine.Outcome, wire.Code)) (place uint64, code wire.Code) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return 0, wire.CodeNotLeader
	}
	l := &p.own
	if !own {
		l = p.lanes[member]
	}
	if !p.hasRoom(l, own) {
		return 0, wire.CodeBusy
	}
	if l == nil {
		l = p.open(member)
	}
	if !own {
		p.pace.note(member, p.table.Clock.Now())
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
	p.place++
	l.push(proposal{p.place, frame, cmd, done})
	p.waiting++
	p.size += len(frame)
	return p.place, wire.CodeOK
}

// hasRoom reports whether a lane, nil for a member without one, may take a command. A full
// queue refuses only the members with more than a few commands in it: no number of crowds
// keeps another member out. The leader's own commands are counted apart. The caller holds
// p.mu.
func (p *proposer) hasRoom(l *lane, own bool) bool {
	switch {
	case own:
		return l.waiting() < maxProposals
	case l == nil || l.waiting() < minLane && l.bytes < minLaneBytes:
		return true
	}
	return l.waiting() < maxLane && l.bytes < maxLaneBytes && p.waiting-p.own.waiting() < maxProposals && p.size-p.own.bytes < maxQueueBytes
}

// takeBack removes a command that waits in the lane of a member, and calls its done with
// CodeBusy. A command in an entry, or without a place, is left alone.
func (p *proposer) takeBack(member string, place uint64) {
	p.mu.Lock()
	l := p.lanes[member]
	if l == nil {
		p.mu.Unlock()
		return
	}
	q, ok := l.takeBack(place)
	if ok {
		p.waiting--
		p.size -= len(q.frame)
	}
	p.mu.Unlock()
	if ok {
		q.done(machine.Outcome{}, wire.CodeBusy)
	}
}

// oldest returns the place of the first command that waits in the lane of a member; without
// any, the place of the next command.
func (p *proposer) oldest(member string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.lanes[member]; l != nil && l.head < len(l.queue) {
		return l.queue[l.head].place
	}
	return p.place + 1
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
	p.turns.push(l)
	return l
}

// run commits until stop is called and the entry in flight is decided.
func (p *proposer) run() {
	defer p.company.Stop()
	for {
		select {
		case <-p.wake:
		case <-p.company.C:
		}
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

// take fills p.entry from the lanes, and returns false if there are no commands.
func (p *proposer) take() (some bool) {
	p.table.View(func(m *machine.State) {
		p.mu.Lock()
		defer p.mu.Unlock()
		some = p.takeLocked(m)
	})
	return some
}

// room is what an entry may still take of each of its three bounds.
type room struct{ commands, bytes, cost int }

func (r room) empty() bool { return r.commands <= 0 || r.bytes <= 0 || r.cost <= 0 }

func (p *proposer) takeLocked(m *machine.State) bool {
	p.entry = p.entry[:0]
	if p.waiting == 0 {
		return p.hurry()
	}
	if p.mayWait(m) {
		return false
	}
	left := room{machine.MaxCommands, maxEntryBytes, p.most}
	full, last := false, p.passed && p.waiting > p.own.waiting()
	if !last {
		p.own.credit = wholeEntry
		full = p.give(m, &p.own, &left)
	}
	own, passed := len(p.entry), full || left.empty()
	heavy := p.most-left.cost > p.most/heavyPart
	if !passed {
		full = p.takeTurns(m, &left)
		passed = full && own > 0 && len(p.entry) == own
	}
	// The members come first in the next entry if the leader's commands left them no room, or
	// none for the command whose turn it is, or made this entry a long one.
	p.passed = (passed || heavy) && !last
	if last && !full && !left.empty() {
		p.own.credit = wholeEntry
		rest := left
		rest.cost = min(rest.cost, p.most/heavyPart)
		p.give(m, &p.own, &rest)
		left.cost -= min(left.cost, p.most/heavyPart) - rest.cost
	}
	p.cost = p.most - left.cost
	if p.waiting == 0 {
		p.forgive()
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

// commitEntry commits proposals as one entry and tells the verdicts.
func (p *proposer) commitEntry(queue []proposal) {
	commands := make([]machine.Command, len(queue))
	frames := make([][]byte, len(queue))
	for i, q := range queue {
		frames[i], commands[i] = q.frame, q.cmd
	}
	entry := machine.EncodeEntry(frames)
	p.table.expect(entry, commands)
	begun := p.table.Clock.Now()
	outcomes, code := p.commit(entry)
	p.table.expect(nil, nil)
	p.mu.Lock()
	p.pace.decided(len(queue), p.cost, p.table.Clock.Now().Sub(begun))
	p.mu.Unlock()
	p.noteApplied(p.table.lastApply())
	if code == wire.CodeOK && len(outcomes) != len(queue) {
		code = wire.CodeUnknown
	}
	for i, q := range queue {
		var o machine.Outcome
		if code == wire.CodeOK {
			if o = outcomes[i]; o.Code == machine.TooMuchOfNode {
				p.over(q.cmd, o)
			}
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
	for _, l := range p.turns.lanes() {
		queue = append(queue, l.queue[l.head:]...)
	}
	p.own, p.lanes, p.turns, p.waiting, p.size = lane{}, nil, turns{}, 0, 0
	p.mu.Unlock()
	for _, q := range queue {
		if !q.gone() {
			q.done(machine.Outcome{}, wire.CodeNotLeader)
		}
	}
	p.wake.Wake()
}
