package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wardmote/wardmote/internal/replica"
)

// shardRun is one turn of a shard at this caller: the goroutine of run prepares for
// the shard, waits for the lock, runs the work, and releases the lock. A turn whose
// shard is assigned to another caller ends:
//
//   - at once, before the lock is granted: the wait is withdrawn;
//   - while the work runs: once another caller waits for the lock, and, with Drain,
//     after the time to drain.
type shardRun struct {
	sp    *spread
	shard int

	ctx        context.Context // of the caller's part in the session
	wait       context.Context // of Prepare and of the wait for the lock
	stopWait   context.CancelCauseFunc
	work       context.Context // parent of the lock's context
	endWork    context.CancelCauseFunc
	stopMoving context.CancelFunc // of the hand-over that waits for the next owner; nil: none

	// Guarded by sp.mu.
	dropped bool          // the shard is not in the caller's part
	drain   time.Duration // see drop
	held    *Lock         // nil before the grant
	leaving bool          // a hand-over has begun to end the work, and goes on
	over    bool          // the work has returned, and the shard is being declined
}

var (
	errUnassigned     = fmt.Errorf("%w before it was granted", ErrHandedOver)
	errPrepareTooLong = errors.New("locks: Prepare has not returned within a TTL")
	errPrepareExited  = errors.New("locks: Prepare has ended its goroutine")
)

// newShardRun returns a turn of a shard that is in the caller's part.
func newShardRun(ctx context.Context, sp *spread, shard int) *shardRun {
	sr := &shardRun{sp: sp, shard: shard, ctx: ctx}
	// The owner gives way to a request, so a wait closes no cycle that would last,
	// and is not searched for cycles.
	sr.wait, sr.stopWait = context.WithCancelCause(withoutLineage(ctx))
	sr.work, sr.endWork = context.WithCancelCause(ctx)
	return sr
}

// drop says that the shard is not in the caller's part any more.
func (sr *shardRun) drop(drain time.Duration) {
	sp := sr.sp
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sr.dropped {
		return
	}
	sr.dropped, sr.drain = true, drain
	if sr.held == nil || sr.over {
		sr.stopWait(errUnassigned)
	} else {
		sr.beginHandOver()
	}
}

// keep says that the shard is in the caller's part. A hand-over that still waits for
// the next owner is called off. A turn that has begun to end goes on, and the next
// turn follows.
func (sr *shardRun) keep() {
	sp := sr.sp
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sr.dropped && !sr.leaving && !sr.over && sr.held != nil {
		sr.dropped = false
		sr.stopMoving()
	}
}

// run is the goroutine of the turn.
func (sr *shardRun) run() {
	// Deferred, so that a runtime.Goexit of the work gives up the shard.
	r := report{pause: jitter(sr.sp.s.ttl)}
	defer func() {
		sr.stopWait(nil)
		sr.endWork(nil)
		r.shard = sr.shard
		sr.sp.report(r)
	}()
	r = sr.turn()
}

func (sr *shardRun) turn() report {
	sp := sr.sp
	if err := sr.prepare(); err != nil {
		if sr.wait.Err() != nil {
			return report{}
		}
		sr.decline()
		return report{err: err, pause: jitter(sp.s.ttl)}
	}
	req := acquireRequest{call: CallSpread, key: shardKey(sp.name, sr.shard)}
	call := sp.c.traceCall(sr.work, &req)
	l, err := sp.s.acquire(sr.wait, sr.work, req)
	if err != nil {
		call.failed(&req, err)
		if sr.wait.Err() != nil {
			return report{}
		}
		return report{err: err, pause: jitter(maxBackoff)}
	}
	if !sr.begin(l) {
		_ = sr.release(l)
		return report{}
	}
	began := time.Now()
	work := func(ctx context.Context, l *Lock) error { return sp.work(ctx, sr.shard, l) }
	lost, err := sp.c.runWork(l, work, func(context.Context, error) error { return sr.release(l) })
	r := report{ran: time.Since(began)}
	if final, ok := errors.AsType[*finalError](err); ok {
		r.final = &verdict{final.err}
		return r
	}
	if r.workErr = workError(l, err); r.workErr != nil {
		r.workErr = joinLoss(r.workErr, lost)
		sp.c.warnFailed(req.key, l, r.workErr)
		return r
	}
	switch {
	case lost != nil:
		r.err = lost
		r.pause = jitter(maxBackoff)
	case sr.work.Err() == nil && sr.finish():
		sr.decline()
		if sr.wait.Err() == nil { // else the shard has gone, and may be here again
			r.pause = jitter(sp.s.ttl)
		}
	}
	return r
}

// release releases the lock after the work. Once the caller's context has ended,
// release leaves the rest to a cleanup of the session, and returns at once.
func (sr *shardRun) release(l *Lock) error {
	ctx, cancel := context.WithTimeout(sr.ctx, grace(sr.sp.s.ttl))
	defer cancel()
	return l.Release(ctx)
}

// prepare calls the function of the option Prepare, and waits until it has returned.
func (sr *shardRun) prepare() error {
	sp := sr.sp
	if sp.options.prepare == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(sr.wait, sp.s.ttl, errPrepareTooLong)
	defer cancel()
	returned := make(chan error, 1)
	sp.running.Go(func() {
		err := errPrepareExited
		defer func() { returned <- err }()
		err = sp.options.prepare(ctx, sr.shard)
	})
	select {
	case err := <-returned:
		return err
	case <-ctx.Done():
	}
	if sr.wait.Err() == nil {
		sr.decline() // now, so that the shard does not wait for a function that hangs
	}
	<-returned
	return context.Cause(ctx)
}

// decline asks the leader to assign the shard to another caller.
func (sr *shardRun) decline() { sr.sp.en.decline(sr.wait, sr.shard) }

// begin notes the lock of the turn, whose work is about to run. The result is false once
// the caller has left its group. A work that began then would not be counted: the group may
// have no callers and no held keys meanwhile, and so another number of shards.
func (sr *shardRun) begin(l *Lock) bool {
	sp := sr.sp
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.left {
		return false
	}
	sr.held = l
	sp.locks[sr.shard] = l
	if sr.dropped {
		sr.beginHandOver() // the grant came just before the wait was withdrawn
	}
	return true
}

// finish notes that the work has returned, and reports false if a hand-over ends the turn.
func (sr *shardRun) finish() bool {
	sr.sp.mu.Lock()
	defer sr.sp.mu.Unlock()
	sr.over = true
	return !sr.leaving
}

// beginHandOver starts the goroutine of handOver. The caller holds sp.mu.
func (sr *shardRun) beginHandOver() {
	var ctx context.Context
	ctx, sr.stopMoving = context.WithCancel(sr.work)
	contended := isClosed(sr.held.Contended())
	sr.sp.running.Go(func() { sr.handOver(ctx, contended) })
}

// handOver waits until another request waits for the shard, and then ends the work.
// ctx ends with the turn, and with the hand-over if the shard comes back to this
// caller before. contended says that a request has waited before the hand-over began.
func (sr *shardRun) handOver(ctx context.Context, contended bool) {
	sp := sr.sp
	if !sr.awaitNextOwner(ctx, contended) {
		return
	}
	sp.mu.Lock()
	if !sr.dropped || ctx.Err() != nil {
		sp.mu.Unlock()
		return
	}
	sr.leaving = true
	drain := sr.drain
	sp.mu.Unlock()
	if drain > 0 {
		sr.held.askLocally()
		timer := time.NewTimer(drain)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
	sr.endWork(ErrHandedOver)
}

// awaitNextOwner waits until a request waits for the shard, or until the group is
// being resized. The result is false if ctx has ended.
func (sr *shardRun) awaitNextOwner(ctx context.Context, contended bool) bool {
	if !contended {
		select {
		case <-sr.held.Contended():
			return true
		case <-sr.sp.resizing.Done():
			return true
		case <-ctx.Done():
			return false
		}
	}
	// The holder is told of its first waiter only, which may have given up long ago:
	// the next owner may still be preparing.
	rctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(sr.sp.resizing, cancel)()
	for a, err := range sr.sp.c.follow(rctx, replica.Query{Key: sr.held.g.key, Waiters: 1}, neverFinal) {
		if err == nil && a.Status.Queue > 0 {
			return true
		}
	}
	return ctx.Err() == nil && sr.sp.resizing.Err() != nil
}

// askLocally closes the Asked channel of the lock.
func (l *Lock) askLocally() {
	l.g.s.mu.Lock()
	defer l.g.s.mu.Unlock()
	l.g.noteAsked("")
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
