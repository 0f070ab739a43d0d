package locks

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

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
	closing    context.Context
	endClosing context.CancelCauseFunc

	calls sync.WaitGroup // methods running, which Close joins first
	tasks sync.WaitGroup // goroutines of sessions, which Close joins next

	mu          sync.Mutex
	closeCalled bool // Close was called: no new calls
	tasksJoined bool // no new tasks
	session     *session
	opening     *opening
	spreads     map[string]bool // names that Spread is running for
	closeErr    error           // what Close came to; read once closed is closed
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
	c.closing, c.endClosing = context.WithCancelCause(context.Background())
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
	first := !c.closeCalled
	c.closeCalled = true
	c.mu.Unlock()
	if first {
		c.endClosing(ErrClosed)
		go c.closeAll()
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
func (c *Client) closeAll() {
	defer close(c.closed)
	if s := c.currentSession(); s != nil {
		s.drain()
	}
	c.calls.Wait()
	if s := c.currentSession(); s != nil {
		c.closeErr = s.close()
	}
	c.mu.Lock()
	c.tasksJoined = true
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
func (c *Client) beginCall() error {
	if c.bad != nil {
		return c.bad
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closeCalled {
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
	if !c.tasksJoined {
		c.tasks.Go(f)
	}
}

func (c *Client) now() instant { return instant{at: time.Now(), slept: c.slept()} }

func (c *Client) currentSession() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// name is what others see as the holder.
func (c *Client) name() string {
	if c.opts.Name != "" {
		return c.opts.Name
	}
	return c.rep.Member()
}

// begin reserves name for one Spread at a time.
func (c *Client) beginSpread(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spreads[name] {
		return false
	}
	c.spreads[name] = true
	return true
}

func (c *Client) endSpread(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.spreads, name)
}

// Options configures a Client. The zero value is sound. A value that cannot be
// used makes every call of the client fail with a *cluster.ConfigError.
type Options struct {
	// Name is what others see as the holder, in Status and HeldError: up to 128
	// bytes of valid UTF-8. It need not be unique. Default: the member's name.
	Name string

	// TTL is how long the cluster keeps the locks of a client that it does not
	// hear, in whole milliseconds: a crashed holder's keys are free after it, and a holder cut
	// off loses them a little before. At least 300 ms, at most the cluster's
	// TTL. Default: the cluster's TTL.
	TTL time.Duration

	// Meta is kept with the client's session: up to 4 KiB when encoded, which
	// adds a few bytes to each key and value. It is copied.
	Meta map[string]string

	// Trace is told what happens. Default: nobody is.
	Trace *Trace

	_ struct{}
}

// The least TTL of a session.
const minTTL = machine.MinTTL * time.Millisecond

// validate returns the encoded Meta, or what is wrong with the options.
func (o *Options) validate() ([]byte, *cluster.ConfigError) {
	switch {
	case len(o.Name) > machine.MaxName:
		return nil, configError("Options.Name", "%d bytes exceed %d", len(o.Name), machine.MaxName)
	case !utf8.ValidString(o.Name):
		return nil, configError("Options.Name", "not valid UTF-8")
	case o.TTL < 0:
		return nil, configError("Options.TTL", "%v is negative", o.TTL)
	case o.TTL > 0 && o.TTL < minTTL:
		return nil, configError("Options.TTL", "%v is below the least, %v", o.TTL, minTTL)
	}
	meta := encodeMeta(o.Meta)
	if len(meta) > machine.MaxMeta {
		return nil, configError("Options.Meta", "%d bytes when encoded exceed %d", len(meta), machine.MaxMeta)
	}
	return meta, nil
}
