package locks

import (
	"context"
	"errors"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// opening is an attempt to open a session, shared by all calls in need of a
// session.
type opening struct {
	callers int // the calls that wait; the attempt ends when none is left
	cancel  context.CancelFunc
	done    chan struct{} // closed when err is set
	err     error
}

// liveSession returns the client's session, and opens a session if there is
// none.
func (c *Client) liveSession(ctx context.Context) (*session, error) {
	for {
		if s := c.currentSession(); s != nil && s.alive() {
			return s, nil
		}
		o, err := c.joinOpening()
		if err != nil {
			return nil, err
		}
		if o == nil {
			continue // another call was faster
		}
		select {
		case <-o.done:
		case <-ctx.Done():
		case <-c.closing.Done():
		}
		last := c.quitOpening(o)
		switch {
		case c.closing.Err() != nil:
			return nil, ErrClosed
		case ctx.Err() != nil:
			if last {
				<-o.done // at once, since it was cancelled; o.err says whether there is a quorum
				return nil, whyEnded(ctx, o.err)
			}
			return nil, c.whyEnded(ctx)
		case o.err != nil && !errors.Is(o.err, context.Canceled):
			return nil, o.err
		}
	}
}

// whyEnded returns the cause of ctx, which has ended, for a call that waited
// for another call's request. Such a call has no error of its own about the
// lack of a leader.
func (c *Client) whyEnded(ctx context.Context) error { return whyEnded(ctx, c.rep.Reached()) }

// joinOpening adds the caller to the present opening, or to a new opening. If
// there is a session by now, both results are nil.
func (c *Client) joinOpening() (*opening, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closeCalled {
		return nil, ErrClosed
	}
	if c.opening == nil {
		if s := c.session.Load(); s != nil && !s.hasEnded() {
			return nil, nil
		}
		ctx, cancel := context.WithCancel(context.Background())
		o := &opening{cancel: cancel, done: make(chan struct{})}
		c.opening = o
		c.tasks.Go(func() {
			s, err := c.openSession(ctx)
			cancel()
			c.mu.Lock()
			c.opening = nil
			closed := c.closeCalled
			if err == nil && !closed {
				c.session.Store(s)
				c.tasks.Go(s.run)
			}
			c.mu.Unlock()
			o.err = err
			close(o.done)
			if err == nil && closed {
				s.guest.Ended()
				_ = s.proposeClose() // it is unused, and expires if this fails
				c.rep.Detach(s.id)
				s.guest.Left()
			}
		})
	}
	c.opening.callers++
	return c.opening, nil
}

// quitOpening removes a caller from o. For the last caller, quitOpening cancels
// the attempt and returns true.
func (c *Client) quitOpening(o *opening) (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.callers--
	if o.callers == 0 {
		o.cancel()
	}
	return o.callers == 0
}

// openSession opens a session in the cluster, and tries until ctx ends.
func (c *Client) openSession(ctx context.Context) (*session, error) {
	ttl := c.opts.TTL.Truncate(time.Millisecond)
	if ttl == 0 {
		ttl = max(c.rep.TTL(), minTTL)
	}
	var heard error // of the previous attempts
	for {
		select {
		case <-c.rep.Done():
			return nil, &replica.Error{Err: cluster.ErrStopped}
		default:
		}
		// An attempt ends when its trust is spent, since an answer would be
		// worthless then. The next attempt uses a new key, since a session of
		// the old key may be open by now, with its TTL running; the cluster
		// expires that session.
		key := c.rep.NewKey()
		id := key.ID()
		c.rep.Claim(key) // before the cluster can hear of the session
		trust := trust{sent: c.now(), ttl: ttl}
		actx, cancel := context.WithTimeout(ctx, trust.remaining(trust.sent))
		out, err := c.rep.Propose(actx, machine.Open{
			Session: id,
			Client:  c.name(),
			Node:    c.rep.Member(),
			Boot:    c.rep.Boot(),
			Dir:     c.rep.Dir(),
			TTL:     uint64(ttl / time.Millisecond),
			Meta:    c.meta,
		})
		late := actx.Err() != nil
		cancel()
		if err != nil || out.Code != machine.OK {
			c.rep.Detach(id)
		}
		switch {
		case err == nil && out.Code == machine.OK:
			guest := c.rep.Enter()
			if guest == nil {
				// The node stops. The session is unused, and expires.
				c.rep.Detach(id)
				return nil, &replica.Error{Err: cluster.ErrStopped}
			}
			s := newSession(c, id, trust, guest)
			c.rep.Attach(id, s.handleEvent) // before a request can cause events
			c.meter.Opened.Inc()
			c.trace.sessionOpened(ttl)
			return s, nil
		case err == nil && out.Code == machine.BadCommand && out.Field == "TTL":
			bound := time.Duration(out.Limit) * time.Millisecond
			if c.opts.TTL != 0 || bound < minTTL || bound >= ttl {
				return nil, configError("Options.TTL", "%v is not within %v and the cluster's %v", ttl, minTTL, bound)
			}
			ttl = bound // the bound that this member assumed is not, or not yet, in force
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
