package locks

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/logging"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/meter"
	"github.com/wardmote/wardmote/internal/replica"
)

// Client acquires locks through a node. A client has one session in the
// cluster: all locks and waits live as long as the session's beats reach the
// cluster, and end together. The first call in need of a session opens a
// session. After a session has ended the next call opens another; the locks of
// the old session stay lost.
//
// A Client may be used by any number of goroutines, which contend like clients
// on different nodes.
type Client struct {
	rep  replica.Replica
	opts Options
	meta string               // Options.Meta, encoded
	bad  *cluster.ConfigError // not nil: every call fails with this error

	node    *cluster.Node           // nil in tests without a node
	members func() []cluster.Member // the members seen now; nil in tests without a node

	clock  *host.Clock                       // nil: package time
	slept  func(now time.Time) time.Duration // how long the host has been suspended; now is of package time
	trace  *tracer
	meter  meter.Client  // counts always, for whoever reads later
	closed chan struct{} // closed when Close has finished

	// closing ends, with the cause ErrClosed, when Close is called.
	closing    context.Context
	endClosing context.CancelCauseFunc

	calls runningCalls   // running methods; Close waits for them first
	tasks sync.WaitGroup // goroutines of sessions; Close waits for them next

	session atomic.Pointer[session] // nil before the first; written with mu held

	blocked blockedCalls
	failed  *logging.Limiter // the log's lines about works that failed, by key

	spreads sync.Map // its keys are the names for which Spread is running, its values *spreadCall

	mu          sync.Mutex
	closeCalled bool // no new calls
	tasksJoined bool // no new tasks
	opening     *opening
	closeErr    error // the result of Close; read after closed is closed
}

// New returns a client of node's cluster. New does nothing else and cannot
// fail: if options cannot be used, every call of the client fails with a
// *cluster.ConfigError. A client must be closed after use.
func New(node *cluster.Node, opts Options) *Client {
	c := newClient(replica.Of(node), opts)
	c.node, c.members = node, node.Members
	return c
}

// Node returns the node of the client: for its Ready, its Health, and for clients with
// other Options.
func (c *Client) Node() *cluster.Node { return c.node }

// Done returns a channel that is closed when Close is called. The end of the node does
// not close the channel: see Node.Done of package cluster.
func (c *Client) Done() <-chan struct{} { return c.closing.Done() }

func newClient(rep replica.Replica, opts Options) *Client {
	c := &Client{
		rep:    rep,
		clock:  rep.Clock(),
		opts:   opts,
		slept:  newSleepCounter(),
		trace:  newTracer(opts.Trace),
		closed: make(chan struct{}),
		failed: logging.NewLimiter(failureBurst, leastFailureLine, mostFailureLine),
	}
	if c.clock != nil {
		// The host of a simulated clock does not sleep, whatever the machine under the simulation does.
		c.slept = func(time.Time) time.Duration { return 0 }
	}
	c.calls.clock, c.trace.clock = c.clock, c.clock
	c.meta, c.bad = opts.validate()
	c.closing, c.endClosing = context.WithCancelCause(context.Background())
	return c
}

// Close ends the client and frees all keys. New calls and pending waits fail
// with ErrClosed, and the contexts of all locks end with a *LostError of reason
// ClientClosed as their cause. Then Close waits until the work of Do, Elect and
// Spread has returned. Only then does Close free the keys, a thousand in one step, and
// remove the client's requests from all queues.
//
// If ctx ends before, Close returns an error and continues in the background:
// once the work has returned, the client tries for a few more seconds to free
// the keys. If the cluster cannot be told, Close returns an error, and the keys
// are free when the session's TTL has passed; unless every other member has said
// that it ends, so that nobody is left to be told. After Close returned nil,
// nothing of the client runs. The node may have stopped before: then its Stop has
// done the rest.
//
// Further calls of Close wait for the same end. Work must not call Close, since
// Close would wait for the work.
func (c *Client) Close(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	defer c.clock.Enter()()
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

// closeAll does the work of Close, without the bound of a ctx. closeAll returns
// once all calls, and so all work, have returned, and the cluster has answered
// or closeGrace has passed.
func (c *Client) closeAll() {
	defer close(c.closed)
	if s := c.currentSession(); s != nil {
		s.drain()
	}
	c.calls.Wait()
	if s := c.currentSession(); s != nil {
		s.lose(ClientClosed)
		<-s.closed
		c.closeErr = s.closeErr
	}
	c.mu.Lock()
	c.tasksJoined = true
	c.mu.Unlock()
	c.tasks.Wait()
	c.trace.close()
}

// closeGrace bounds a message to the cluster when no caller waits for the
// answer, or when the caller's context has ended already.
const closeGrace = 5 * time.Second

// sliceGrace is the time for each further slice of a session with thousands of keys.
const sliceGrace = 100 * time.Millisecond

// grace returns the bound of such a message for a session with the given TTL:
// after the TTL the message would change nothing.
func grace(ttl time.Duration) time.Duration { return min(ttl, closeGrace) }

// beginCall registers a call, so that Close waits for the call. If beginCall
// returns nil, the call must end with c.calls.Done.
func (c *Client) beginCall() error {
	if c.bad != nil {
		return c.bad
	}
	c.clock.Await()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closeCalled {
		return ErrClosed
	}
	c.calls.Add(1)
	return nil
}

// runningCalls counts the calls of a client. A call of a process that stands still does
// not end: see host.Clock.
type runningCalls struct {
	sync.WaitGroup
	clock *host.Clock
}

// Done ends a call.
func (r *runningCalls) Done() {
	r.clock.Await()
	r.WaitGroup.Done()
}

// goTask runs f in a goroutine, and Close waits for that goroutine. Once Close
// has finished waiting, goTask does nothing: there is no session left.
func (c *Client) goTask(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.tasksJoined {
		c.tasks.Go(f)
	}
}

// now reads the clocks.
func (c *Client) now() instant {
	now, _ := c.readClocks()
	return now
}

// readClocks is now, with the reading of package time.
func (c *Client) readClocks() (instant, time.Time) {
	t := time.Now()
	at := t
	if c.clock != nil {
		at = c.clock.Now()
	}
	return instant{at: at, slept: c.slept(t)}, t
}

func (c *Client) currentSession() *session { return c.session.Load() }

// name returns the holder's name as seen by other clients.
func (c *Client) name() string {
	return cmp.Or(c.opts.Name, c.rep.Member())
}

// Options configures a Client. The zero value is sound. If a value cannot be
// used, every call of the client fails with a *cluster.ConfigError.
type Options struct {
	// Name identifies the client as a holder to others, in Status and
	// HeldError: up to 128 bytes of valid UTF-8. Names need not be unique.
	// Default: the member's name.
	Name string

	// TTL is how long the cluster keeps the locks of a client whose beats do
	// not arrive, in whole milliseconds. A crashed holder's keys are free after
	// the TTL, and a holder cut off from the cluster loses its locks a little
	// before. At least 300 ms, at most the cluster's TTL. Default: the
	// cluster's TTL.
	TTL time.Duration

	// Meta is kept with the client's session: up to 4 KiB when encoded. The
	// encoding adds a few bytes to each key and value. Meta is copied.
	Meta map[string]string

	// Trace has functions to be called for the client's events. Default: none.
	Trace *Trace

	_ struct{}
}

// minTTL is the least TTL of a session.
const minTTL = machine.MinTTL * time.Millisecond

// validate returns the encoded Meta, or the error of the first unusable option.
func (o *Options) validate() (string, *cluster.ConfigError) {
	switch {
	case len(o.Name) > machine.MaxName:
		return "", configError("Options.Name", "%d bytes exceed %d", len(o.Name), machine.MaxName)
	case !utf8.ValidString(o.Name):
		return "", configError("Options.Name", "not valid UTF-8")
	case o.TTL != 0 && o.TTL < minTTL:
		return "", configError("Options.TTL", "%v is below the least, %v", o.TTL, minTTL)
	}
	meta := encodeMeta(o.Meta)
	if len(meta) > machine.MaxMeta {
		return "", configError("Options.Meta", "%d bytes when encoded exceed %d", len(meta), machine.MaxMeta)
	}
	return meta, nil
}
