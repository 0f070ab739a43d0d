package stream

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// Peers keeps a control stream to each process asked by this node. A stream
// is dialled at the first question, and dialled anew by the first question after
// the dial has failed, the stream has stopped, or its connection asks to be replaced
// (port.Conn.Renew); in the last case the open questions are still answered over the
// old stream. All methods may be called from any goroutine.
//
// Other members have a part in the choice of the processes that are asked: by gossip, by
// hints, by their preambles. One of them could stand for any number of processes, each of
// which would keep a stream. So of maxPeers streams the longest idle one gives way for
// another one, and a stream with maxOpen questions without an answer ends.
type Peers struct {
	// Mere is told of each answer dropped with ErrMere. Nil: nobody. Mere must not
	// block, and is set before the first question.
	Mere func(from member.Process)

	dial   func(ctx context.Context, to member.Process) (net.Conn, error)
	most   int             // open questions of a stream: maxOpen, less in tests
	ctx    context.Context // ends with Stop
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	peers   map[member.Process]*peer
	uses    uint64                       // questions so far
	failed  map[member.Process]time.Time // when the latest dial failed, lately
	stopped bool
	wg      sync.WaitGroup
}

// Limits of Peers.
const (
	maxPeers = 256        // streams; more only while each has an open question
	maxOpen  = MaxServing // open questions of a stream: a peer refuses more
)

// peer is the stream to a process, or the dial before the stream.
type peer struct {
	dialled chan struct{} // closed when stream or err is set
	stream  *Stream
	err     error
	mere    bool // the process has not the voter role

	// Guarded by Peers.mu.
	open     int    // questions
	used     uint64 // Peers.uses at the last question
	replaced bool   // the next question has another stream
}

// NewPeers returns a Peers without streams. Dial opens a control connection to
// the process, and fails if another process answers at the address; dial must
// return when its context ends. A connection with a method Voter() bool tells the
// role that the other side has proved; any other connection leads to a voter.
func NewPeers(dial func(ctx context.Context, to member.Process) (net.Conn, error)) *Peers {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Peers{dial: dial, most: maxOpen, ctx: ctx, cancel: cancel, peers: make(map[member.Process]*peer)}
}

// Ask sends a request to a process and waits for the answer. After an error the
// process may have received the request all the same. Ask fails with the cause of
// ctx if ctx ends first, with ErrMere for a voter's word of a process without the
// voter role, and with replica.ErrStopped after Stop.
func (p *Peers) Ask(ctx context.Context, to member.Process, t wire.Type, body []byte) (wire.Frame, error) {
	at := p.peer(to)
	if at == nil {
		return wire.Frame{}, replica.ErrStopped
	}
	defer p.answered(at)
	select {
	case <-at.dialled:
	case <-ctx.Done():
		return wire.Frame{}, context.Cause(ctx)
	}
	if at.err != nil {
		return wire.Frame{}, at.err
	}
	f, err := at.stream.Call(ctx, t, body)
	return p.judge(to, at, t, f, err)
}

// ErrMere is the error for an answer that only a voter can give, from a process that
// has proved to be none: see wire.VotersWord.
var ErrMere = errors.New("cluster: a voter's answer of a member without the voter role")

// judge marks an answer with the role of the process, or refuses the answer.
func (p *Peers) judge(to member.Process, at *peer, t wire.Type, f wire.Frame, err error) (wire.Frame, error) {
	if err != nil || !at.mere {
		return f, err
	}
	if wire.VotersWord(t, f.Code) {
		if p.Mere != nil {
			p.Mere(to)
		}
		return wire.Frame{}, ErrMere
	}
	f.Mere = true
	return f, nil
}

// AskInto is Ask with the answer's body decoded into v. A code other than OK is
// returned as a *RefusedError.
func (p *Peers) AskInto(ctx context.Context, to member.Process, t wire.Type, body []byte, v any) error {
	f, err := p.Ask(ctx, to, t, body)
	if err != nil {
		return err
	}
	if f.Code != wire.CodeOK {
		return &RefusedError{f.Code}
	}
	return wire.Unmarshal(f.Body, v)
}

// Begin sends a request and returns without waiting. Done is called exactly once,
// on this goroutine or another, with the answer or an error; done must not block.
// The end of ctx gives up a request during the dial; once sent, a request waits for
// the answer or for the end of the stream.
func (p *Peers) Begin(ctx context.Context, to member.Process, t wire.Type, body []byte, done func(wire.Frame, error)) {
	at := p.peer(to)
	if at == nil {
		done(wire.Frame{}, replica.ErrStopped)
		return
	}
	report := done
	done = func(f wire.Frame, err error) {
		report(p.judge(to, at, t, f, err))
		p.answered(at)
	}
	send := func() {
		if at.err != nil {
			done(wire.Frame{}, at.err)
		} else if _, err := at.stream.Begin(t, body, done); err != nil {
			done(wire.Frame{}, err)
		}
	}
	select {
	case <-at.dialled:
		send()
		return
	default:
	}
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		done(wire.Frame{}, replica.ErrStopped)
		return
	}
	p.wg.Go(func() {
		select {
		case <-at.dialled:
			send()
		case <-ctx.Done():
			done(wire.Frame{}, context.Cause(ctx))
		}
	})
	p.mu.Unlock()
}

// peer returns the stream to a process for a question, and begins to dial if there is
// no stream. It returns nil after Stop. Each question ends with answered.
func (p *Peers) peer(to member.Process) *peer {
	p.mu.Lock()
	at, over := p.peerLocked(to)
	p.mu.Unlock()
	if over != nil {
		over.stream.Stop(ErrSlowPeer)
	}
	return at
}

// peerLocked is peer, and returns a stream to be stopped, or nil: the longest idle one, or
// the stream to the process itself, which answers nothing.
func (p *Peers) peerLocked(to member.Process) (at, over *peer) {
	p.uses++
	if at = p.peers[to]; at != nil {
		at.used = p.uses
		if at.open++; at.open > p.most && at.connected() {
			over = at
		}
		return at, over
	}
	if p.stopped {
		return nil, nil
	}
	if len(p.peers) >= maxPeers {
		over = p.takeIdle()
	}
	at = &peer{dialled: make(chan struct{}), open: 1, used: p.uses}
	p.peers[to] = at
	p.wg.Go(func() { p.run(to, at) })
	return at, over
}

// takeIdle forgets the stream without open questions that was used longest ago, and
// returns it, or nil. The caller holds p.mu.
func (p *Peers) takeIdle() (idle *peer) {
	var to member.Process
	for other, at := range p.peers {
		if at.open == 0 && at.connected() && (idle == nil || at.used < idle.used) {
			to, idle = other, at
		}
	}
	delete(p.peers, to)
	return idle
}

// connected reports whether the dial has ended with a stream.
func (at *peer) connected() bool {
	select {
	case <-at.dialled:
		return at.stream != nil
	default:
		return false
	}
}

// run dials to and returns when the stream has stopped.
func (p *Peers) run(to member.Process, at *peer) {
	ctx, cancel := context.WithTimeout(p.ctx, timing.Dial)
	defer cancel()
	conn, err := p.dial(ctx, to)
	if err != nil {
		at.err = err
		p.noteFailed(to)
		p.remove(to, at)
		close(at.dialled)
		return
	}
	if role, ok := conn.(interface{ Voter() bool }); ok {
		at.mere = !role.Voter()
	}
	at.stream = New(conn, func(q *Request) { q.Answer(wire.CodeBad, nil) })
	at.stream.Start()
	at.stream.AtStop(func() { p.remove(to, at) })
	close(at.dialled)
	if aged, ok := conn.(interface{ Renew() <-chan struct{} }); ok {
		select {
		case <-aged.Renew():
			p.replace(to, at)
			select {
			case <-p.ctx.Done(): // Stop does not know the stream any more
				at.stream.Stop(replica.ErrStopped)
			case <-at.stream.Stopped():
			}
		case <-at.stream.Stopped():
		}
	}
	at.stream.Wait()
}

// maxFailed bounds Peers.failed.
const maxFailed = 64

// noteFailed notes a failed dial.
func (p *Peers) noteFailed(to member.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil || len(p.failed) >= maxFailed {
		p.failed = make(map[member.Process]time.Time)
	}
	p.failed[to] = time.Now()
}

// Unreached reports whether a dial of the process has failed within timing.LeastBackoff. A
// question would dial at once all the same: who asks without a pause looks first.
func (p *Peers) Unreached(to member.Process) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, failed := p.failed[to]
	return failed && time.Since(at) < timing.LeastBackoff
}

// replace lets the next question have another stream, and ends this one once the open
// questions are answered.
func (p *Peers) replace(to member.Process, at *peer) {
	p.remove(to, at)
	p.mu.Lock()
	at.replaced = true
	idle := at.open == 0
	p.mu.Unlock()
	if idle {
		at.stream.Stop(ErrClosed)
	}
}

// answered ends a question.
func (p *Peers) answered(at *peer) {
	p.mu.Lock()
	at.open--
	idle := at.open == 0 && at.replaced
	p.mu.Unlock()
	if idle {
		at.stream.Stop(ErrClosed)
	}
}

func (p *Peers) remove(to member.Process, at *peer) {
	p.mu.Lock()
	if p.peers[to] == at {
		delete(p.peers, to)
	}
	p.mu.Unlock()
}

// Stop ends all dials and streams, and waits for every goroutine of p. Open
// questions fail, and so does every later one.
func (p *Peers) Stop() {
	p.mu.Lock()
	p.stopped = true
	peers := slices.Collect(maps.Values(p.peers))
	p.mu.Unlock()
	p.cancel(replica.ErrStopped)
	for _, at := range peers {
		<-at.dialled
		if at.stream != nil {
			at.stream.Stop(replica.ErrStopped)
		}
	}
	p.wg.Wait()
}

// RefusedError is an answer with a code other than OK.
type RefusedError struct{ Code wire.Code }

func (e *RefusedError) Error() string { return "cluster: refused by the member asked" }
