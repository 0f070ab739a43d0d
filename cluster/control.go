package cluster

import (
	"context"
	"sync"

	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/wire"
)

// control keeps one control stream to each member that this node asks
// something, made when first needed.
type control struct {
	n *Node

	mu    sync.Mutex
	peers map[place]*controlPeer
	wg    sync.WaitGroup
	ended bool
}

// controlPeer is the stream to one place, or the dial that will make it.
type controlPeer struct {
	dialled chan struct{} // closed when rpc or err is set
	rpc     *rpc
	err     error
}

func newControl(n *Node) *control {
	return &control{n: n, peers: make(map[place]*controlPeer)}
}

// A place is where a member is, and who it must be: an address may have passed
// to another. Boot 0 is any process of the name.
type place struct {
	addr string
	name string
	boot uint64
}

// ask sends a request to the member at a place and waits for the answer.
func (c *control) ask(ctx context.Context, at place, t wire.Type, body []byte) (wire.Frame, error) {
	p := c.peer(at)
	if p == nil {
		return wire.Frame{}, ErrStopped
	}
	select {
	case <-p.dialled:
	case <-ctx.Done():
		return wire.Frame{}, context.Cause(ctx)
	}
	if p.err != nil {
		return wire.Frame{}, p.err
	}
	f, _, err := p.rpc.call(ctx, t, body)
	return f, err
}

// askInto is ask for an answer that must be OK and is decoded into v.
func (c *control) askInto(ctx context.Context, at place, t wire.Type, body []byte, v any) error {
	f, err := c.ask(ctx, at, t, body)
	if err != nil {
		return err
	}
	if f.Code != wire.CodeOK {
		return &refusedError{f.Code}
	}
	return wire.Unmarshal(f.Body, v)
}

// begin sends a request to a raft ID without waiting; done is called once.
func (c *control) begin(ctx context.Context, id string, t wire.Type, body []byte, done func(wire.Frame, error)) {
	at, err := c.n.resolve(id)
	if err != nil {
		done(wire.Frame{}, err)
		return
	}
	p := c.peer(at)
	if p == nil {
		done(wire.Frame{}, ErrStopped)
		return
	}
	send := func() {
		if p.err != nil {
			done(wire.Frame{}, p.err)
		} else if _, err := p.rpc.begin(t, body, done); err != nil {
			done(wire.Frame{}, err)
		}
	}
	select {
	case <-p.dialled:
		send()
		return
	default:
	}
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		done(wire.Frame{}, ErrStopped)
		return
	}
	c.wg.Go(func() {
		select {
		case <-p.dialled:
			send()
		case <-ctx.Done():
			done(wire.Frame{}, context.Cause(ctx))
		}
	})
	c.mu.Unlock()
}

// peer returns the stream to a place, dialling it if there is none. It returns nil
// when the node stops.
func (c *control) peer(at place) *controlPeer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peers[at]; p != nil {
		return p
	}
	if c.ended {
		return nil
	}
	p := &controlPeer{dialled: make(chan struct{})}
	c.peers[at] = p
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(c.n.ctx, dialTimeout)
		defer cancel()
		conn, err := c.n.port.Dial(ctx, at.addr, port.KindControl, port.Peer{Name: at.name, Boot: at.boot})
		if err != nil {
			p.err = err
			c.drop(at, p)
			close(p.dialled)
			return
		}
		p.rpc = newRPC(conn, func(q *request) { q.answer(wire.CodeBad, nil) })
		p.rpc.start()
		p.rpc.atStop(func() { c.drop(at, p) })
		close(p.dialled)
		p.rpc.wg.Wait()
	})
	return p
}

func (c *control) drop(at place, p *controlPeer) {
	c.mu.Lock()
	if c.peers[at] == p {
		delete(c.peers, at)
	}
	c.mu.Unlock()
}

// stop closes all streams and joins everything. The node's ctx has ended.
func (c *control) stop() {
	c.mu.Lock()
	c.ended = true
	var peers []*controlPeer
	for _, p := range c.peers {
		peers = append(peers, p)
	}
	c.mu.Unlock()
	for _, p := range peers {
		<-p.dialled
		if p.rpc != nil {
			p.rpc.stop(ErrStopped)
		}
	}
	c.wg.Wait()
}

// refusedError is an answer other than OK.
type refusedError struct{ code wire.Code }

func (e *refusedError) Error() string { return "cluster: refused by the member asked" }
