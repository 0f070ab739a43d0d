package stream

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// Peers keeps a control stream to each process asked by this node. A stream
// is dialled at the first question, and dialled anew by the first question after
// the dial has failed or the stream has stopped. All methods may be called from any
// goroutine.
type Peers struct {
	dial   func(ctx context.Context, to member.Process) (net.Conn, error)
	ctx    context.Context // ends with Stop
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	peers   map[member.Process]*peer
	stopped bool
	wg      sync.WaitGroup
}

// peer is the stream to a process, or the dial before the stream.
type peer struct {
	dialled chan struct{} // closed when stream or err is set
	stream  *Stream
	err     error
}

// NewPeers returns a Peers without streams. Dial opens a control connection to
// the process, and fails if another process answers at the address; dial must
// return when its context ends.
func NewPeers(dial func(ctx context.Context, to member.Process) (net.Conn, error)) *Peers {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Peers{dial: dial, ctx: ctx, cancel: cancel, peers: make(map[member.Process]*peer)}
}

// Ask sends a request to a process and waits for the answer. After an error the
// process may have received the request all the same. Ask fails with the cause of
// ctx if ctx ends first, and with replica.ErrStopped after Stop.
func (p *Peers) Ask(ctx context.Context, to member.Process, t wire.Type, body []byte) (wire.Frame, error) {
	at := p.peer(to)
	if at == nil {
		return wire.Frame{}, replica.ErrStopped
	}
	select {
	case <-at.dialled:
	case <-ctx.Done():
		return wire.Frame{}, context.Cause(ctx)
	}
	if at.err != nil {
		return wire.Frame{}, at.err
	}
	return at.stream.Call(ctx, t, body)
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

// peer returns the stream to a process and begins to dial if there is none. It
// returns nil after Stop.
func (p *Peers) peer(to member.Process) *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.peers[to]; at != nil {
		return at
	}
	if p.stopped {
		return nil
	}
	at := &peer{dialled: make(chan struct{})}
	p.peers[to] = at
	p.wg.Go(func() { p.run(to, at) })
	return at
}

// run dials to and returns when the stream has stopped.
func (p *Peers) run(to member.Process, at *peer) {
	ctx, cancel := context.WithTimeout(p.ctx, timing.Dial)
	defer cancel()
	conn, err := p.dial(ctx, to)
	if err != nil {
		at.err = err
		p.remove(to, at)
		close(at.dialled)
		return
	}
	at.stream = New(conn, func(q *Request) { q.Answer(wire.CodeBad, nil) })
	at.stream.Start()
	at.stream.AtStop(func() { p.remove(to, at) })
	close(at.dialled)
	at.stream.Wait()
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
