package term

import (
	"sync"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// A proposer turns the commands arriving at the leader into log entries. While an
// entry is in flight the next entry gathers, so an idle leader commits
// a lone command at once and a busy leader commits many commands together. No
// timer decides.
//
// A command travels into the entry as bytes. A command of a stream was decoded
// once, on arrival, and the received bytes are copied once, into the entry. A
// command of this process is encoded once and decoded from the encoding: the
// leader's own table must apply exactly the command read by the other voters.
type proposer struct {
	table  *Table
	commit func(entry []byte) ([]machine.Outcome, wire.Code) // blocks until the verdict

	mu      sync.Mutex
	batch   batch // waiting commands
	spare   batch // the memory of the batch before, to be used again
	stopped bool
	wake    wakeup.One
}

// A batch is commands in the order of their arrival.
type batch struct {
	queue []proposal
	size  int    // bytes of all frames
	arena []byte // the frames encoded here
}

type proposal struct {
	frame []byte          // encoded
	cmd   machine.Command // decoded from frame; nil: not decoded yet
	done  func(machine.Outcome, wire.Code)
}

// Limits of the leader's queue and of an entry.
const (
	maxProposals  = 64 << 10  // waiting commands
	maxQueueBytes = 64 << 20  // of the waiting commands, encoded
	maxEntryBytes = 512 << 10 // of an entry; machine.MaxCommands bounds the commands

	// A batch with more memory than this is not used again.
	maxSpareQueue = 4 << 10
	maxSpareArena = 1 << 20
)

func newProposer(table *Table, commit func([]byte) ([]machine.Outcome, wire.Code)) *proposer {
	return &proposer{table: table, commit: commit, wake: wakeup.NewOne()}
}

// propose queues cmd. frame is the received encoding of cmd, or nil for a command
// made by this process. The proposer keeps frame: the caller must not change the
// bytes.
//
// done is called once, by another goroutine or by the caller's, and must not
// block. With CodeOK the table has applied the command, with this outcome. With
// CodeUnknown the command may have been applied, or may be applied later. With
// any other code the command is in no log.
func (p *proposer) propose(cmd machine.Command, frame []byte, done func(machine.Outcome, wire.Code)) {
	if code := p.add(cmd, frame, done); code != wire.CodeOK {
		done(machine.Outcome{}, code)
		return
	}
	p.wake.Wake()
}

func (p *proposer) add(cmd machine.Command, frame []byte, done func(machine.Outcome, wire.Code)) wire.Code {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := &p.batch
	switch {
	case p.stopped:
		return wire.CodeNotLeader
	case len(b.queue) >= maxProposals || b.size >= maxQueueBytes:
		return wire.CodeBusy
	}
	if frame == nil {
		// Earlier frames stay valid when the arena moves: the frames keep the old
		// memory.
		start := len(b.arena)
		b.arena = machine.AppendCommand(b.arena, cmd)
		frame, cmd = b.arena[start:len(b.arena):len(b.arena)], nil
	}
	b.queue = append(b.queue, proposal{frame, cmd, done})
	b.size += len(frame)
	return wire.CodeOK
}

// run commits until stop is called and the entry in flight is decided.
func (p *proposer) run() {
	for range p.wake {
		for {
			p.mu.Lock()
			b, stopped := p.batch, p.stopped
			p.batch, p.spare = p.spare, batch{}
			p.mu.Unlock()
			if stopped {
				return
			}
			if len(b.queue) == 0 {
				p.reuse(b)
				break
			}
			p.commitAll(b.queue)
			p.reuse(b)
		}
	}
}

// reuse keeps the memory of a decided batch.
func (p *proposer) reuse(b batch) {
	if cap(b.queue) > maxSpareQueue || cap(b.arena) > maxSpareArena {
		return
	}
	clear(b.queue)
	p.mu.Lock()
	p.spare = batch{queue: b.queue[:0], arena: b.arena[:0]}
	p.mu.Unlock()
}

// commitAll commits proposals in as few entries as the limits allow.
func (p *proposer) commitAll(queue []proposal) {
	for len(queue) > 0 {
		n, size := 0, 0
		for n < len(queue) && n < machine.MaxCommands && (n == 0 || size+len(queue[n].frame) <= maxEntryBytes) {
			size += len(queue[n].frame)
			n++
		}
		p.commitEntry(queue[:n])
		queue = queue[n:]
	}
}

// commitEntry commits proposals as one entry and tells the verdicts.
func (p *proposer) commitEntry(queue []proposal) {
	commands := make([]machine.Command, len(queue))
	frames := make([][]byte, len(queue))
	for i, q := range queue {
		frames[i] = q.frame
		if commands[i] = q.cmd; q.cmd == nil {
			commands[i] = decodeFrame(q.frame)
		}
	}
	entry := machine.EncodeEntry(frames)
	p.table.expect(entry, commands)
	outcomes, code := p.commit(entry)
	p.table.expect(nil, nil)
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
	queue := p.batch.queue
	p.batch = batch{}
	p.mu.Unlock()
	for _, q := range queue {
		q.done(machine.Outcome{}, wire.CodeNotLeader)
	}
	p.wake.Wake()
}
