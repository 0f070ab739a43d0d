package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// errNoSession says that a request met a session that had ended: nothing was
// changed by it, and nothing will be.
var errNoSession = errors.New("locks: no session")

// Acquire waits until the key is granted to this client and returns the lock.
// Waiters are served in the order in which the cluster heard of them. The key
// stays taken until Release or the client's Close, or until the lock is lost.
// ctx bounds the wait, not the hold.
//
// On failure nothing is held and nothing is granted later: if the request may
// have reached the cluster, it is withdrawn in the background. The error is one
// of these:
//
//   - ctx ended: its cause, and cluster.ErrNoQuorum as well if no leader was
//     found until then. If ctx had ended before the call, nothing was done.
//   - *SessionError, matching ErrSessionLost: the session ended during the wait;
//     the place in the queue is gone.
//   - *LostError: the key was granted and lost again before Acquire returned.
//   - ErrTooManyWaiters: the queue is full.
//   - *DeadlockError: ctx descends from the context of a lock that somebody waits
//     for whom this call would have to wait for, perhaps by way of others. It is
//     the request that would close the circle that is refused, at once.
//   - *ChangedError, ErrTooOld: see the option IfToken; *CapacityError: see Permit.
//   - *cluster.ConfigError: the key or an option cannot be used.
//   - ErrClosed, or cluster.ErrStopped: the client or its node has ended.
func (c *Client) Acquire(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	return c.acquireKey(ctx, key, false, opts)
}

// TryAcquire is Acquire for those who would not wait for the key: if it is held,
// or others wait for it, the error is a *HeldError that says by whom, matching
// ErrHeld. In the first TTL of a cluster's life, in which it grants nothing, it
// is cluster.ErrFounding.
func (c *Client) TryAcquire(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	return c.acquireKey(ctx, key, true, opts)
}

func (c *Client) acquireKey(ctx context.Context, key string, try bool, opts []Option) (*Lock, error) {
	if err := c.beginCall(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	req, err := newAcquireRequest(key, opts)
	if err != nil {
		return nil, err
	}
	req.try = try
	return c.acquire(ctx, context.WithoutCancel(ctx), req)
}

// acquire is Acquire within a call that has entered. The lock's context will be
// a child of parent.
func (c *Client) acquire(ctx, parent context.Context, req acquireRequest) (*Lock, error) {
	if ctx.Err() != nil {
		return nil, callError("acquire", req.key, endOf(ctx))
	}
	var retry backoff
	for {
		s, err := c.liveSession(ctx)
		if err != nil {
			return nil, callError("acquire", req.key, err)
		}
		l, err := s.acquire(ctx, parent, req)
		if err != errNoSession {
			return l, err
		}
		// The request came too late for its session. A new one is opened at
		// once, unless this goes on.
		if err := retry.wait(ctx, c.closing); err != nil {
			return nil, callError("acquire", req.key, err)
		}
	}
}

// acquire asks for req in this session. It fails with errNoSession if the session
// had ended before the request was heard.
func (s *session) acquire(ctx, parent context.Context, req acquireRequest) (*Lock, error) {
	if req.owner != "" {
		return s.acquireReentrant(ctx, parent, req)
	}
	return s.acquireNew(ctx, parent, req)
}

// request asks the cluster.
func (s *session) acquireNew(ctx, parent context.Context, req acquireRequest) (*Lock, error) {
	wctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := s.awaitCleanups(wctx, req.allKeys()); err != nil {
		return nil, callError("acquire", req.key, err)
	}
	cmd := req.command()
	if !req.try { // which waits for nobody
		held, err := s.c.lineageTokens(ctx, 0)
		if err != nil {
			return nil, err
		}
		cmd.Under = held
	}
	w := &waiter{
		acquireRequest:  req,
		since:    time.Now(),
		parent:   parent,
		cancel:   cancel,
		answered: make(chan struct{}),
	}
	if err := s.register(w); err != nil {
		return nil, err
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
		// Members that know of no lineage find no deadlocks, but they can wait.
		cmd.Under = nil
		out, err = ask()
	}
	if err == nil {
		s.awaitVerdict(wctx, w, out)
	}
	return s.lockOrError(wctx, w, s.removeWaiter(w, out, err))
}

// tooNew reports whether a command was refused because a member of the cluster, or
// the table that all of them keep, does not know it yet.
func unknownToCluster(out machine.Outcome, err error) bool {
	return err == nil && out.Code == machine.WrongFormat || errors.Is(err, ErrVersion)
}

// register gives a waiter its seq, before the cluster hears of it: the grant may
// be told before the request is answered.
func (s *session) register(w *waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return ErrClosed
	case s.reason != 0:
		return errNoSession
	}
	s.lastSeq++
	w.seq = s.lastSeq
	s.waiters[w.seq] = w
	if len(s.waiters)+len(s.grants) == 1 {
		s.wakeRun()
	}
	return nil
}

// await takes the cluster's first answer to w. If that is to wait, it waits, until
// the second has come or ctx ends.
func (s *session) awaitVerdict(ctx context.Context, w *waiter, out machine.Outcome) {
	switch out.Code {
	case machine.Granted:
		s.handleGranted(w.seq, out)
	case machine.Queued:
		s.traceQueue(ctx, w, int(out.Behind))
		select {
		case <-w.answered:
		case <-ctx.Done():
		}
	}
}

// watchQueue tells Trace.Queued how many are before w, at first and whenever that
// changes, for as long as w waits. Without such a function it returns at once.
func (s *session) traceQueue(ctx context.Context, w *waiter, behind int) {
	if !s.c.trace.wantsQueued() {
		return
	}
	tell := func() {
		s.c.trace.queued(LockEvent{Key: w.key, Behind: behind, Took: time.Since(w.since)})
	}
	tell()
	var retry backoff
	q := replica.Query{Key: w.key, Session: s.id, Seq: w.seq}
	for ctx.Err() == nil {
		a, err := s.c.rep.Read(ctx, q)
		if err != nil {
			if retry.wait(ctx, s.c.closing) != nil {
				return
			}
			continue
		}
		if !a.Waits {
			return // what it waits for now is to be told
		}
		retry.reset()
		q.Version = a.Version
		if int(a.Behind) != behind {
			behind = int(a.Behind)
			tell()
		}
	}
}

// granted makes a waiter's lock, or upgrades one, if the session may still be
// trusted; if not the session ends, which frees the key. A grant that nobody
// waits for is a repeated one, or one that is being withdrawn.
func (s *session) handleGranted(seq uint64, out machine.Outcome) {
	if !s.alive() {
		return
	}
	s.mu.Lock()
	w := s.waiters[seq]
	if w == nil || s.draining || s.reason != 0 {
		s.mu.Unlock()
		return
	}
	var owed *cleanup
	if w.upgrades != nil {
		w.upgrades.noteUpgraded(out)
	} else {
		w.lock = s.newLock(w, out)
		if g := w.lock.g; w.early.lost != 0 {
			owed = g.releaseCleanup("")
			g.markLost(w.early.lost, nil) // nobody has its context yet
		}
	}
	s.resolve(w, out)
	s.mu.Unlock()
	// Its proposal may still be looking for a leader, to be told what is known.
	w.cancel(nil)
	if owed != nil {
		s.startCleanup(owed)
	}
}

// newLock makes the lock that w was granted. The caller holds s.mu.
func (s *session) newLock(w *waiter, out machine.Outcome) *Lock {
	g := &grant{
		s:       s,
		key:     w.key,
		seq:     w.seq,
		since:   time.Now(),
		firstToken:   fence.Token(out.Token),
		token:   fence.Token(out.Token),
		mode:    w.mode,
		unclean: out.Unclean,
	}
	g.lock = &Lock{g: g, parent: w.parent}
	if w.keys != nil {
		g.ensureRare().keys = w.keys
	}
	if out.Value != "" {
		g.ensureRare().value = out.Value
	}
	s.grants[w.seq] = g
	s.c.trace.acquired(LockEvent{Key: g.key, Token: g.token, Took: g.since.Sub(w.since)})
	if w.early.asked {
		g.noteAsked(w.early.by)
	}
	if w.early.contended || out.Waiters > 0 {
		g.noteContended()
	}
	return g.lock
}

// refused ends a wait that the cluster refused late.
func (s *session) handleRefused(seq uint64, out machine.Outcome) {
	s.mu.Lock()
	w := s.waiters[seq]
	if w == nil {
		s.mu.Unlock()
		return
	}
	s.resolve(w, out)
	s.mu.Unlock()
	w.cancel(nil)
}

// answer notes the verdict on w, which is to be told as seen. The caller holds
// s.mu.
func (s *session) resolve(w *waiter, verdict machine.Outcome) {
	delete(s.waiters, w.seq)
	s.seen = append(s.seen, w.seq)
	w.verdict = verdict
	close(w.answered)
}

// outcome is what a waiter's call came to.
type waitResult struct {
	out       machine.Outcome
	err       error // of proposing it
	withdrawn bool  // it was given up without a verdict
}

// dismiss ends w's part, for its call returns: out and err are what proposing it
// came to. What the call does not return is given back, in the background.
func (s *session) removeWaiter(w *waiter, out machine.Outcome, err error) waitResult {
	s.mu.Lock()
	if w.verdict.Code != 0 {
		s.mu.Unlock()
		return waitResult{out: w.verdict}
	}
	delete(s.waiters, w.seq)
	o := waitResult{out: out, err: err}
	switch {
	case err != nil && mayBeApplied(err):
		o.withdrawn = true
	case err != nil:
		s.seen = append(s.seen, w.seq) // never used, but a gap among the seqs costs the table
	case out.Code == machine.Granted, out.Code == machine.Queued, out.Code == machine.Withdrawn:
		o.withdrawn = true
	case out.Code != machine.NoSession:
		s.seen = append(s.seen, w.seq)
	}
	if o.withdrawn && w.upgrades != nil {
		w.upgrades.tokenUnsure = true
	}
	s.mu.Unlock()
	if o.withdrawn {
		s.startCleanup(&cleanup{keys: w.allKeys(), seq: w.seq, upgraded: w.upgrades})
	}
	return o
}

// conclude answers the call of a waiter that asked for a lock; ctx may have ended.
func (s *session) lockOrError(ctx context.Context, w *waiter, o waitResult) (*Lock, error) {
	switch out, err := o.out, o.err; {
	case w.lock != nil:
		// Also if ctx has ended: to give the grant back would serve nobody.
		if err := w.lock.Err(); err != nil {
			return nil, err
		}
		return w.lock, nil
	case err == nil && out.Code == machine.NoSession:
		s.lose(SessionExpired)
		return nil, errNoSession
	case ctx.Err() != nil && (err != nil || o.withdrawn):
		return nil, callError("acquire", w.key, whyEnded(ctx, err))
	case err != nil:
		return nil, callError("acquire", w.key, err)
	case o.withdrawn:
		return nil, s.withdrawnError(w.key)
	}
	return nil, refusalError(&w.acquireRequest, o.out)
}

// withheld is why a grant of key that the cluster told of was not taken, and is
// being given back.
func (s *session) withdrawnError(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.reason != 0:
		return &SessionError{Key: key, Reason: s.reason}
	case s.draining:
		return ErrClosed // and its call is about to be ended for that, too
	}
	// The cluster refused the request before, had no room to remember why, and
	// that answer was lost.
	return callError("acquire", key, errWithdrawn)
}

// refusal is the error of an Acquire that the cluster refused.
func refusalError(req *acquireRequest, out machine.Outcome) error {
	key := req.key
	switch out.Code {
	case machine.Held:
		return &HeldError{
			Key:      key,
			Client:   out.Holder.Client,
			Node:     out.Holder.Node,
			Token:    fence.Token(out.Holder.Token),
			Conflict: out.Holder.Key,
			Delayed:  out.Holder.Client != "" && out.Holder.Session == machine.SessionID{},
		}
	case machine.TooManyWaiters:
		return fmt.Errorf("%w: %d wait for %q", ErrTooManyWaiters, out.Limit, key)
	case machine.Founding:
		return callError("acquire", key, cluster.ErrFounding)
	case machine.Deadlock:
		return deadlockError("acquire", key, out.Cycle)
	case machine.Changed:
		return &ChangedError{Key: key, Since: fence.Token(req.ifToken), Token: fence.Token(out.Token)}
	case machine.TooOld:
		return fmt.Errorf("%w: %q since token %d, nothing is known up to %d", ErrTooOld, key, uint64(req.ifToken), uint64(out.Token))
	case machine.WrongCapacity:
		return &CapacityError{Key: key, Of: int(req.of), Have: int(out.Limit)}
	}
	return callError("acquire", key, outcomeError("acquire", out))
}

func deadlockError(verb, key string, cycle []machine.Link) error {
	e := &DeadlockError{Key: key, verb: verb}
	for _, l := range cycle {
		e.Cycle = append(e.Cycle, Wait{Client: l.Client, Key: l.Key, Token: fence.Token(l.Token)})
	}
	return e
}

// outcomeError is the error of an outcome that a sound client does not see.
func outcomeError(verb string, out machine.Outcome) error {
	switch out.Code {
	case machine.BadCommand:
		return configError(out.Field, "refused by the cluster, limit %d", out.Limit)
	case machine.WrongFormat:
		return ErrVersion
	case machine.TokensSpent:
		return errors.New("the cluster has no tokens left")
	case machine.TooManyUnseen:
		return fmt.Errorf("more than %d requests of one client are unanswered", out.Limit)
	case machine.NotFounded:
		return errors.New("the cluster is not founded yet")
	}
	return fmt.Errorf("cannot %s: code %d", verb, out.Code)
}
