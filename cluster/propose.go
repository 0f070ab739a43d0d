package cluster

import (
	"sync"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// A proposer turns what arrives at the leader into log entries. While one entry
// is in flight the next gathers, so an idle leader commits a lone command at
// once and a busy one commits many together; no timer decides.
type proposer struct {
	commit func(entry []byte) ([]machine.Outcome, wire.Code) // blocks until the verdict

	mu      sync.Mutex
	queue   []proposal
	size    int // bytes of queue, encoded
	stopped bool
	wake    chan struct{} // size 1
}

type proposal struct {
	frame []byte // the command, encoded
	done  func(machine.Outcome, wire.Code)
}

// Limits of the leader's queue and of one entry.
const (
	maxProposals  = 64 << 10  // commands waiting, and
	maxQueueBytes = 64 << 20  // what they take, encoded
	maxEntryBytes = 512 << 10 // in one entry; machine.MaxCommands bounds their number
)

func newProposer(commit func([]byte) ([]machine.Outcome, wire.Code)) *proposer {
	return &proposer{commit: commit, wake: make(chan struct{}, 1)}
}

// propose queues cmd. done is called once, from another goroutine or this one,
// and must not block: with CodeOK and the outcome, or with the class of the failure.
func (p *proposer) propose(cmd machine.Command, done func(machine.Outcome, wire.Code)) {
	p.mu.Lock()
	code := wire.CodeOK
	switch {
	case p.stopped:
		code = wire.CodeNotLeader
	case len(p.queue) >= maxProposals || p.size >= maxQueueBytes:
		code = wire.CodeBusy
	default:
		q := proposal{frame: machine.EncodeCommand(cmd), done: done}
		p.queue = append(p.queue, q)
		p.size += len(q.frame)
	}
	p.mu.Unlock()
	if code != wire.CodeOK {
		done(machine.Outcome{}, code)
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run commits until stop is called and the queue is answered.
func (p *proposer) run() {
	for range p.wake {
		for {
			p.mu.Lock()
			batch, stopped := p.queue, p.stopped
			p.queue, p.size = nil, 0
			p.mu.Unlock()
			if stopped {
				return
			}
			if len(batch) == 0 {
				break
			}
			p.commitAll(batch)
		}
	}
}

// commitAll commits a batch in as few entries as the limits allow.
func (p *proposer) commitAll(batch []proposal) {
	for len(batch) > 0 {
		n, size := 0, 0
		for n < len(batch) && n < machine.MaxCommands && (n == 0 || size+len(batch[n].frame) <= maxEntryBytes) {
			size += len(batch[n].frame)
			n++
		}
		frames := make([][]byte, n)
		for i, q := range batch[:n] {
			frames[i] = q.frame
		}
		outcomes, code := p.commit(machine.EncodeEntry(frames))
		if code == wire.CodeOK && len(outcomes) != n {
			code = wire.CodeUnknown
		}
		for i, q := range batch[:n] {
			var o machine.Outcome
			if code == wire.CodeOK {
				o = outcomes[i]
			}
			q.done(o, code)
		}
		batch = batch[n:]
	}
}

// stop refuses what is queued and what comes; run then returns, once the entry
// in flight has its verdict.
func (p *proposer) stop() {
	p.mu.Lock()
	p.stopped = true
	queue := p.queue
	p.queue, p.size = nil, 0
	p.mu.Unlock()
	// Here and not in run, which may wait for a disk that hangs.
	for _, q := range queue {
		q.done(machine.Outcome{}, wire.CodeNotLeader)
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
