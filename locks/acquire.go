package locks

import (
	"context"
	"errors"
	"fmt"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
)

// errNoSession says that the session had ended before the cluster heard of the
// request. The request changed nothing, and never will.
var errNoSession = errors.New("locks: the session has ended")

// errCleanups tells that a request must wait for earlier cleanups of its keys.
var errCleanups = errors.New("locks: a release of the key is under way")

// Acquire waits until the key is granted to this client and returns the lock.
// Waiters are served in the order in which the cluster heard of them. The key
// stays taken until Release, until the client's Close, or until the lock is
// lost. ctx bounds the wait, not the hold.
//
// On failure nothing is held and nothing is granted later: if the request may
// have reached the cluster, the client withdraws the request in the background.
// The errors are:
//
//   - ctx ended: the cause of ctx, joined with cluster.ErrNoQuorum if no leader
//     is known then; the text has the reason, as Node.Health has it. If ctx ended
//     in the key's queue, the error is a *WaitError, with the holder and the
//     position. If ctx had ended before the call, nothing was done. See also
//     Trace.Blocked.
//   - *LostError of the reason Broken: the key was granted and taken away by
//     Break before Acquire returned.
//   - ErrTooManyWaiters: the queue is full. Or ctx has other locks, somebody waits for
//     one of these, and more than about 10,000 waiters with locks or trees of their own
//     would have to be searched for a deadlock.
//   - ErrTooManyKeys: the client has as many keys as a client may have.
//   - ErrQuota: the clients of this member together have as much as a member may have.
//   - *DeadlockError: if waiting would close a cycle (A waits for B, B for C, C
//     for A, through any number of clients), Acquire fails at once and the
//     error lists the cycle. A waiter counts as the holder of a lock only if
//     the waiter's ctx descends from the lock's context.
//   - *ChangedError, ErrTooOld, *FutureTokenError: see the option IfToken;
//     *CapacityError: see Permits.
//   - *cluster.ConfigError: the key or an option cannot be used.
//   - ErrClosed, or cluster.ErrStopped: the client or its node has ended.
//
// If the session is lost during the wait, or a grant with its session before
// Acquire returned, Acquire reports to Trace.Retrying and asks again in the next
// session, behind the present waiters, until ctx ends.
func (c *Client) Acquire(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	req := takeRequest(CallAcquire, key, opts)
	defer req.giveBack()
	return c.acquire(ctx, nil, req)
}

// TryAcquire is like Acquire, but does not wait for the key. If the key is held
// or has waiters, the error is a *HeldError, with the name of a holder or
// waiter. During the first TTL of a cluster's life the cluster grants nothing,
// and the error is cluster.ErrFounding.
func (c *Client) TryAcquire(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	req := takeRequest(CallTryAcquire, key, opts)
	defer req.giveBack()
	req.cmd.Try = true
	return c.acquire(ctx, nil, req)
}

// acquire acquires req in the client's session, and in a new session if the old
// one has ended. The lock's context will be a child of parent, or if parent is nil, of a
// context with the values of ctx alone. acquire completes req, and keeps no reference.
func (c *Client) acquire(ctx, parent context.Context, req *acquireRequest) (*Lock, error) {
	if err := c.beginCall(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	if req.err != nil {
		return nil, req.err
	}
	req.series = c.series(req.key)
	req.meta = req.cmd.Meta
	sticky := req.options&optSticky != 0 && ctx.Err() == nil
	if sticky && c.trace.to().Acquiring == nil {
		if l := c.reacquire(ctx, parent, req); l != nil {
			return l, nil
		}
	}
	if parent == nil {
		parent = context.WithoutCancel(ctx)
	}
	call := c.traceCall(parent, req)
	if sticky && call.begun {
		if l := c.reacquire(ctx, parent, req); l != nil {
			return l, nil
		}
	}
	defer c.mayBlock(ctx, req.key)()
	l, err := c.acquireInAnySession(ctx, parent, *req)
	if err != nil {
		call.failed(req, err)
		c.countFailed(err)
	}
	return l, err
}

func (c *Client) acquireInAnySession(ctx, parent context.Context, req acquireRequest) (*Lock, error) {
	if ctx.Err() != nil {
		return nil, callError("acquire", req.key, endOf(ctx))
	}
	var retry backoff
	var last error
	for {
		s, err := c.liveSession(ctx)
		if err != nil {
			return nil, callError("acquire", req.key, err)
		}
		if req.owner != "" && req.tracing.begun {
			req.tracing.failed(&req, last) // now the call may join a grant, which has a trace of its own
		}
		l, err := s.acquire(ctx, parent, req)
		last = err
		switch {
		case err == errNoSession: // the session had ended before the request came
		case c.lostWithSession(err):
			c.meter.Retried.Inc()
			c.trace.retrying(req.traceCtx(parent), LockEvent{Key: req.key, Call: req.call, Err: err})
		default:
			return l, err
		}
		if err := retry.wait(ctx, c.closing); err != nil {
			return nil, callError("acquire", req.key, err)
		}
	}
}

// lostWithSession reports whether a request failed because its session was lost, so
// that the same request can succeed in the next session. The end of the node or of
// the client is no such loss.
func (c *Client) lostWithSession(err error) bool {
	var reason Reason
	if session, ok := errors.AsType[*SessionError](err); ok {
		reason = session.Reason
	} else if lost, ok := errors.AsType[*LostError](err); ok {
		reason = lost.Reason
	}
	switch reason {
	case SessionExpired, QuorumUnreachable, HostSlept, ProcessPaused, ClusterReplaced, SessionEnded:
		return c.closing.Err() == nil
	}
	return false
}

// acquire acquires req in this session. The error is errNoSession if the
// session had ended before the cluster heard of the request.
func (s *session) acquire(ctx, parent context.Context, req acquireRequest) (*Lock, error) {
	if req.owner != "" {
		return s.acquireReentrant(ctx, parent, req)
	}
	return s.acquireNew(ctx, parent, req)
}

// acquireNew asks the cluster for a new grant, and waits for the verdict.
func (s *session) acquireNew(ctx, parent context.Context, req acquireRequest) (*Lock, error) {
	w := newWaiter(ctx, parent, req)
	wctx := &w.bound
	defer wctx.Close()
	keys := req.allKeys()
	s.mu.Lock()
	canTake := s.cleanups.canTake(keys)
	s.mu.Unlock()
	if !canTake {
		if err := s.awaitCleanups(wctx, keys); err != nil {
			return nil, callError("acquire", req.key, err)
		}
	}
	cmd := req.command()
	if !req.cmd.Try { // a TryAcquire waits for nobody
		held, err := s.c.lineageTokens(ctx, 0)
		if err != nil {
			return nil, err
		}
		cmd.Under = held
	}
	freed, err := s.register(w, keys)
	for err == errCleanups { // since the look above another call has taken a release along
		if err := s.awaitCleanups(wctx, keys); err != nil {
			return nil, callError("acquire", req.key, err)
		}
		freed, err = s.register(w, keys)
	}
	if err != nil {
		return nil, err
	}
	cmd.Block = w.cmd.Block
	if len(freed) > 0 {
		cmd.Freed = freedTokens(freed)
		s.awaitCancels()
	}
	cmd.Session, cmd.Seq = s.id, w.seq
	ask := func() (machine.Outcome, error) {
		return s.propose(wctx, func(seen []uint64) machine.Command {
			cmd.Seen = seen
			return cmd
		})
	}
	out, err := ask()
	if len(cmd.Under) > 0 && unknownToCluster(out, err) {
		// A cluster with a member too old to know lineages finds no deadlocks,
		// but its clients can wait.
		cmd.Under = nil
		out, err = ask()
	}
	s.noteFreed(freed, out, err)
	return s.lockOrError(wctx, w, s.awaitVerdict(wctx, w, out, err))
}

// lockOrError returns the lock of w, or the error of w's call. ctx may have
// ended.
func (s *session) lockOrError(ctx context.Context, w *waiter, o waitResult) (*Lock, error) {
	switch out, err := o.out, o.err; {
	case w.lock != nil:
		// The lock is returned even if ctx has ended: giving the grant back
		// would help nobody.
		if err := w.lock.Err(); err != nil {
			return nil, err
		}
		return w.lock, nil
	case err == nil && out.Code == machine.NoSession:
		s.lose(SessionExpired)
		return nil, errNoSession
	case ctx.Err() != nil && err == nil && o.withdrawn:
		// In the queue, where no error tells of a lost leader.
		why := s.c.whyEnded(ctx)
		if out.Code == machine.Queued && why != ErrClosed && !hasType[*SessionError](why) {
			why = s.waitError(w, why)
		}
		return nil, callError("acquire", w.key, why)
	case ctx.Err() != nil && err != nil:
		return nil, callError("acquire", w.key, whyEnded(ctx, err))
	case err != nil:
		return nil, callError("acquire", w.key, err)
	case o.withdrawn:
		return nil, s.withdrawnError(w.key)
	}
	return nil, refusalError(&w.acquireRequest, o.out)
}

// withdrawnError returns why a reported grant of key was not used. The client
// is giving the grant back.
func (s *session) withdrawnError(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.reason != 0:
		return &SessionError{Key: key, Reason: s.reason}
	case s.draining:
		return ErrClosed // this also ends the call
	}
	// The cluster had refused the request before, the answer was lost, and the
	// cluster had no room to remember the reason.
	return callError("acquire", key, errWithdrawn)
}

// heldByHolder returns the error for a key held by h.
func heldByHolder(key string, h machine.Holder) error {
	return &HeldError{
		Key:      key,
		Client:   h.Client,
		Node:     h.Node,
		Token:    fence.Token(h.Token),
		Conflict: h.Key,
		Delayed:  h.Client != "" && h.Session == machine.SessionID{},
	}
}

// refusalError returns the error of an Acquire that the cluster refused.
func refusalError(req *acquireRequest, out machine.Outcome) error {
	key := req.key
	switch out.Code {
	case machine.Held:
		return heldByHolder(key, out.Holder)
	case machine.TooManyWaiters:
		if out.Limit == 0 {
			return fmt.Errorf("%w: the search for a deadlock at %q would take too long", ErrTooManyWaiters, key)
		}
		return fmt.Errorf("%w: %d wait for %q", ErrTooManyWaiters, out.Limit, key)
	case machine.TooManyKeys:
		return callError("acquire", key, tooManyKeys(out))
	case machine.Founding:
		return callError("acquire", key, cluster.ErrFounding)
	case machine.Deadlock:
		return deadlockError("acquire", key, out.Cycle)
	case machine.Changed:
		return &ChangedError{Key: key, Since: fence.Token(req.cmd.IfToken), Token: fence.Token(out.Token)}
	case machine.TooOld:
		return fmt.Errorf("%w: %q, token %d; grants up to token %d are forgotten", ErrTooOld, key, uint64(req.cmd.IfToken), uint64(out.Token))
	case machine.NeverGranted:
		return &FutureTokenError{Key: key, Token: fence.Token(req.cmd.IfToken), Last: fence.Token(out.Token)}
	case machine.WrongCapacity:
		return &CapacityError{Key: key, N: int(req.cmd.N), Of: int(req.cmd.Of), Have: int(out.Limit)}
	}
	return callError("acquire", key, outcomeError("acquire", out))
}

// tooManyKeys returns the error of a request for which the session has no room.
func tooManyKeys(out machine.Outcome) error {
	unit := "keys"
	if out.Limit == machine.MaxHeldBytes {
		unit = "bytes of keys, metas and lineages"
	}
	return fmt.Errorf("%w: at most %d %s", ErrTooManyKeys, out.Limit, unit)
}

// deadlockError returns the error of a request that would have closed cycle.
func deadlockError(verb, key string, cycle []machine.Link) error {
	e := &DeadlockError{Key: key, verb: verb}
	for _, l := range cycle {
		e.Cycle = append(e.Cycle, Wait{Client: l.Client, Key: l.Key, Token: fence.Token(l.Token)})
	}
	return e
}
