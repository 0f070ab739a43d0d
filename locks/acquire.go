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
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	req, err := newRequest(key, opts)
	if err != nil {
		return nil, err
	}
	req.try = try
	return c.acquire(ctx, context.WithoutCancel(ctx), req)
}

// acquire is Acquire within a call that has entered. The lock's context will be
// a child of parent.
func (c *Client) acquire(ctx, parent context.Context, req request) (*Lock, error) {
	if ctx.Err() != nil {
		return nil, callError("acquire", req.key, endOf(ctx))
	}
	var retry backoff
	for {
		s, err := c.live(ctx)
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

// acquire asks for a key in this session. It fails with errNoSession if the
// session had ended before the request was heard.
func (s *session) acquire(ctx, parent context.Context, req request) (*Lock, error) {
	wctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := s.awaitDebts(wctx, req.key); err != nil {
		return nil, callError("acquire", req.key, err)
	}
	w := &waiter{
		request: req,
		asked:   time.Now(),
		parent:  parent,
		cancel:  cancel,
		granted: make(chan struct{}),
	}
	if err := s.register(w); err != nil {
		return nil, err
	}
	out, err := s.propose(wctx, func(seen []uint64) machine.Command {
		return machine.Acquire{
			Session:    s.id,
			Seq:        w.seq,
			Key:        w.key,
			Try:        w.try,
			MaxWaiters: w.maxWaiters,
			Meta:       w.meta,
			Seen:       seen,
		}
	})
	if err == nil {
		switch out.Code {
		case machine.Granted:
			s.grant(w.seq, fence.Token(out.Token))
		case machine.Queued:
			select {
			case <-w.granted:
			case <-wctx.Done():
			}
		}
	}
	return s.conclude(wctx, w, out, err)
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
	if len(s.waiters)+len(s.locks) == 1 {
		s.poke()
	}
	return nil
}

// grant makes a waiter's lock, if the session may still be trusted; if not the
// session ends, which frees the key. A grant that nobody waits for is a repeated
// one, or one that is being withdrawn.
func (s *session) grant(seq uint64, token fence.Token) {
	if !s.alive() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiters[seq]
	if w == nil || s.draining || s.reason != 0 {
		return
	}
	delete(s.waiters, seq)
	l := &Lock{s: s, key: w.key, token: token, parent: w.parent, since: time.Now()}
	s.locks[token] = l
	s.seen = append(s.seen, seq)
	w.lock = l
	close(w.granted)
	// Its proposal may still be looking for a leader, to be told what is known.
	defer w.cancel(nil)
	s.c.trace.acquired(LockEvent{Key: w.key, Token: token, Took: l.since.Sub(w.asked)})
}

// conclude answers the call of a waiter: out and err are what proposing it came
// to, and ctx may have ended. What the call does not return is given back.
func (s *session) conclude(ctx context.Context, w *waiter, out machine.Outcome, err error) (*Lock, error) {
	s.mu.Lock()
	if l := w.lock; l != nil {
		s.mu.Unlock()
		// Also if ctx has ended: to give the grant back would serve nobody.
		if err := l.Err(); err != nil {
			return nil, err
		}
		return l, nil
	}
	delete(s.waiters, w.seq)
	var unheard *replica.Error
	withdraw := false
	switch {
	case err != nil && errors.As(err, &unheard) && !unheard.Unknown:
		s.seen = append(s.seen, w.seq) // never used, but a gap among the seqs costs the table
	case err != nil:
		withdraw = true
	case out.Code == machine.Granted, out.Code == machine.Queued, out.Code == machine.Withdrawn:
		withdraw = true
	case out.Code != machine.NoSession:
		s.seen = append(s.seen, w.seq)
	}
	s.mu.Unlock()
	if withdraw {
		s.cleanUp(&debt{key: w.key, seq: w.seq})
	}

	switch {
	case err == nil && out.Code == machine.NoSession:
		s.lose(SessionExpired)
		return nil, errNoSession
	case ctx.Err() != nil && (err != nil || withdraw):
		return nil, callError("acquire", w.key, whyEnded(ctx, err))
	case err != nil:
		return nil, callError("acquire", w.key, err)
	case withdraw:
		// Granted, but not to be trusted: the session has just ended.
		return nil, &SessionError{Key: w.key, Reason: s.why()}
	}
	return nil, refusal(w.key, out)
}

// refusal is the error of an Acquire that the cluster refused.
func refusal(key string, out machine.Outcome) error {
	switch out.Code {
	case machine.Held:
		return &HeldError{
			Key:    key,
			Client: out.Holder.Client,
			Node:   out.Holder.Node,
			Token:  fence.Token(out.Holder.Token),
		}
	case machine.TooManyWaiters:
		return fmt.Errorf("%w: %d wait for %q", ErrTooManyWaiters, out.Limit, key)
	case machine.Founding:
		return callError("acquire", key, cluster.ErrFounding)
	}
	return callError("acquire", key, outcomeError("acquire", out))
}

// outcomeError is the error of an outcome that a sound client does not see.
func outcomeError(verb string, out machine.Outcome) error {
	switch out.Code {
	case machine.BadCommand:
		return configError(out.Field, "refused by the cluster, limit %d", out.Limit)
	case machine.TokensSpent:
		return errors.New("the cluster has no tokens left")
	case machine.TooManyUnseen:
		return fmt.Errorf("more than %d requests of one client are unanswered", out.Limit)
	case machine.NotFounded:
		return errors.New("the cluster is not founded yet")
	}
	return fmt.Errorf("cannot %s: code %d", verb, out.Code)
}
