package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// Client acquires locks through a node. It has one session in the cluster: its
// locks and waits live as long as the cluster hears the session's beats, and end
// together. The first call that needs a session opens it; one that ended is
// replaced by the next call, while the locks of the old one stay lost.
//
// A Client may be used by any number of goroutines. They contend like clients
// on different nodes.
type Client struct {
	rep    replica.Replica
	opts   Options
	meta   []byte               // Options.Meta, encoded
	bad    *cluster.ConfigError // what every call fails with
	slept  func() time.Duration // how long the host has been suspended
	trace  *tracer
	closed chan struct{} // closed when Close is done in full

	// closing ends, with the cause ErrClosed, when Close is called.
	closing context.Context
	refuse  context.CancelCauseFunc

	calls sync.WaitGroup // methods running, which Close joins first
	tasks sync.WaitGroup // goroutines of sessions, which Close joins next

	mu       sync.Mutex
	shut     bool // Close was called: no new calls
	joined   bool // no new tasks
	session  *session
	opening  *opening
	spreads  map[string]bool // names that Spread is running for
	closeErr error           // what Close came to; read once closed is closed
}

// New returns a client of node's cluster. It does nothing yet and cannot fail:
// options that cannot be used make every call fail with a *cluster.ConfigError.
// A client that has been used must be closed.
func New(node *cluster.Node, opts Options) *Client {
	return newClient(node.Replica(), opts)
}

func newClient(rep replica.Replica, opts Options) *Client {
	c := &Client{
		rep:     rep,
		opts:    opts,
		slept:   slept,
		trace:   newTracer(opts.Trace),
		closed:  make(chan struct{}),
		spreads: make(map[string]bool),
	}
	c.meta, c.bad = opts.validate()
	c.closing, c.refuse = context.WithCancelCause(context.Background())
	return c
}

// Close releases everything. New calls fail with ErrClosed, waits end with it,
// and the contexts of all locks end, their cause a *LostError of reason
// ClientClosed. Then Close waits for the work of Do, Elect and Spread to return,
// and only then frees the keys: in one step, and what waited leaves its queues.
//
// If ctx ends before, Close returns its error and goes on by itself: once the
// work has returned, it tries for a few seconds more to free the keys. Where the
// cluster does not hear, Close says so, and the keys are free when the session's
// TTL has passed. Nothing of the client runs after Close returned nil.
//
// Further calls wait for the same end. Work must not call Close: it would wait
// for itself.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	first := !c.shut
	c.shut = true
	c.mu.Unlock()
	if first {
		c.refuse(ErrClosed)
		go c.finish()
	}
	select {
	case <-c.closed:
		return c.closeErr
	default:
	}
	select {
	case <-c.closed:
		return c.closeErr
	case <-ctx.Done():
		return fmt.Errorf("locks: close: %w", endOf(ctx))
	}
}

// finish is Close, without its bound. It ends once all calls, and so the works,
// have returned, and the cluster heard or closeGrace is over.
func (c *Client) finish() {
	defer close(c.closed)
	if s := c.current(); s != nil {
		s.shut()
	}
	c.calls.Wait()
	if s := c.current(); s != nil {
		c.closeErr = s.close()
	}
	c.mu.Lock()
	c.joined = true
	c.mu.Unlock()
	c.tasks.Wait()
	c.trace.close()
}

// closeGrace bounds what is sent to the cluster when nobody waits for it any
// more, or when a caller's context has ended already.
const closeGrace = 5 * time.Second

// grace returns the bound of such a message for a session of the given TTL:
// after the TTL it would change nothing.
func grace(ttl time.Duration) time.Duration { return min(ttl, closeGrace) }

// enter begins a call. If it returns nil, the call must end with c.calls.Done.
func (c *Client) enter() error {
	if c.bad != nil {
		return c.bad
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		return ErrClosed
	}
	c.calls.Add(1)
	return nil
}

// goTask runs f in a goroutine that Close joins. Once Close is past joining it
// does nothing: there is no session left to do it for.
func (c *Client) goTask(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.joined {
		c.tasks.Go(f)
	}
}

func (c *Client) now() instant { return instant{at: time.Now(), slept: c.slept()} }

func (c *Client) current() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// opening is an attempt to open a session, shared by all calls that need one.
type opening struct {
	callers int // that wait; the attempt ends when none is left
	cancel  context.CancelFunc
	done    chan struct{} // closed when err is set
	err     error
}

// live returns the client's session, opening one if there is none.
func (c *Client) live(ctx context.Context) (*session, error) {
	for {
		if s := c.current(); s != nil && s.alive() {
			return s, nil
		}
		o, err := c.join()
		if err != nil {
			return nil, err
		}
		if o == nil {
			continue // somebody else was faster
		}
		select {
		case <-o.done:
		case <-ctx.Done():
		case <-c.closing.Done():
		}
		last := c.part(o)
		switch {
		case c.closing.Err() != nil:
			return nil, ErrClosed
		case ctx.Err() != nil:
			if last {
				<-o.done // at once, since it was cancelled; it knows of the quorum
				return nil, whyEnded(ctx, o.err)
			}
			return nil, c.whyEnded(ctx)
		case o.err != nil && !errors.Is(o.err, context.Canceled):
			return nil, o.err
		}
	}
}

// whyEnded is why ctx has ended, for a call that waited for another call's request
// and not for one of its own, and so was not told whether there is a leader.
func (c *Client) whyEnded(ctx context.Context) error { return whyEnded(ctx, c.rep.Reached()) }

// join makes the caller wait for the present opening, or for a new one. It
// returns neither opening nor error if a session has come up meanwhile.
func (c *Client) join() (*opening, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		return nil, ErrClosed
	}
	if c.opening == nil {
		if c.session != nil && !c.session.over() {
			return nil, nil
		}
		ctx, cancel := context.WithCancel(context.Background())
		o := &opening{cancel: cancel, done: make(chan struct{})}
		c.opening = o
		c.tasks.Go(func() {
			s, err := c.open(ctx)
			cancel()
			c.mu.Lock()
			c.opening = nil
			shut := c.shut
			if err == nil && !shut {
				c.session = s
				c.tasks.Go(s.run)
			}
			c.mu.Unlock()
			o.err = err
			close(o.done)
			if err == nil && shut {
				c.rep.Detach(s.id)
				_ = s.tellClosed() // nobody has used it, and it expires anyway
			}
		})
	}
	c.opening.callers++
	return c.opening, nil
}

// part ends a caller's wait, and the opening with that of the last.
func (c *Client) part(o *opening) (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.callers--
	if o.callers == 0 {
		o.cancel()
	}
	return o.callers == 0
}

// open has the cluster open a session, until ctx ends.
func (c *Client) open(ctx context.Context) (*session, error) {
	ttl := c.opts.TTL.Truncate(time.Millisecond)
	if ttl == 0 {
		ttl = max(c.rep.TTL(), minTTL)
	}
	var heard error // of the attempts before
	for {
		// An attempt is given up when its trust is spent: an answer would be
		// worthless. The next draws a new ID, since the old one may be open by
		// now, with its TTL running; the cluster expires it.
		id := newSessionID()
		trust := trust{sent: c.now(), ttl: ttl}
		actx, cancel := context.WithTimeout(ctx, trust.left(trust.sent))
		out, err := c.rep.Propose(actx, machine.Open{
			Session: id,
			Client:  c.name(),
			Node:    c.rep.Member(),
			TTL:     uint64(ttl / time.Millisecond),
			Meta:    string(c.meta),
		})
		late := actx.Err() != nil
		cancel()
		switch {
		case err == nil && out.Code == machine.OK:
			s := newSession(c, id, trust)
			c.rep.Attach(id, s.event) // before anything is asked that could be told
			c.trace.sessionOpened(ttl)
			return s, nil
		case err == nil && out.Code == machine.BadCommand && out.Field == "TTL":
			bound := time.Duration(out.Limit) * time.Millisecond
			if c.opts.TTL != 0 || bound < minTTL || bound >= ttl {
				return nil, configError("Options.TTL", "%v is not within %v and the cluster's %v", ttl, minTTL, bound)
			}
			ttl = bound // what this member believed was the bound is not, or not yet
		case err == nil:
			return nil, outcomeError("open a session", out)
		case ctx.Err() != nil:
			return nil, errors.Join(err, heard)
		case !late:
			return nil, err
		default:
			heard = err
		}
	}
}

// name is what others see as the holder.
func (c *Client) name() string {
	if c.opts.Name != "" {
		return c.opts.Name
	}
	return c.rep.Member()
}

// begin reserves name for one Spread at a time.
func (c *Client) begin(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spreads[name] {
		return false
	}
	c.spreads[name] = true
	return true
}

func (c *Client) end(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.spreads, name)
}
