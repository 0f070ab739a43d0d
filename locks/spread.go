package locks

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// ShardWork is the function that Spread runs for each shard of its caller. Its
// context ends when the shard's lock ends, when the shard is to be handed over,
// or when the caller's context ends; ShardWork should then return soon.
type ShardWork func(ctx context.Context, shard int, l *Lock) error

// MaxShards is the largest number of shards of a name. If the name is longer
// than some 230 bytes, the largest number is smaller.
const MaxShards = replica.MaxAlso

// ErrHandedOver is the cause of the end of a ShardWork's context if the shard
// belongs to another caller from now on. The lock is held until the work has
// returned.
var ErrHandedOver = errors.New("locks: shard handed over")

// Spread divides shards 0 to shards-1 of name among all callers of Spread with
// that name, at most one per Client, and runs work for each shard of this
// caller, until ctx ends. All callers must pass the same number of shards. When
// Spread returns, all work has returned and all locks were released. Spread
// returns:
//
//   - the error of a work that returned an error of its own, which ends the
//     others;
//   - the cause of ctx, once ctx has ended;
//   - ErrTooManyWaiters, *DeadlockError if ctx descends from the context of a
//     lock that an earlier caller waits for, ErrClosed, cluster.ErrStopped, or
//     a *cluster.ConfigError, also if this client runs Spread for name already.
//
// Shard i is the key name/i, and callers enlist at the key name. No other calls
// should acquire these keys. Each shard has one owner at a time, the holder of
// its lock. Callers' numbers of shards differ by at most one while no caller
// comes or goes. When a caller comes or goes, as few shards as possible move:
// the context of the shard's work ends with the cause ErrHandedOver, and once
// the work has returned, the lock is released and granted to the next owner in
// the same step. Callers beyond the first 1,025 stand by.
//
// If work returns nil before its context has ended, it gives its shard up. The
// plan ignores that, so the shard returns to this caller after a pause of half
// to a whole TTL, unless callers came or went meanwhile.
//
// If the session is lost, the contexts of all work end, and once all work has
// returned, Spread enlists again. Like Elect, Spread continues while no leader
// can be reached.
func (c *Client) Spread(ctx context.Context, name string, shards int, work ShardWork, opts ...Option) error {
	if err := c.beginCall(); err != nil {
		return err
	}
	defer c.calls.Done()
	switch {
	case shards < 1 || shards > MaxShards:
		return configError("shards", "%d is not within 1 and %d", shards, MaxShards)
	case work == nil:
		return configError("work", "nil")
	}
	group := newAcquireRequest(name, opts)
	if group.refuseOptions(^optionSet(0), "Spread"); group.err != nil {
		return group.err
	}
	keys := make([]string, shards)
	size := 0
	for i := range keys {
		keys[i] = name + "/" + strconv.Itoa(i)
		size += len(keys[i])
	}
	if err := checkKey(keys[shards-1]); err != nil {
		return err
	}
	if size > replica.MaxAlsoBytes {
		// Each read of the group asks for all shards at once.
		return configError("shards", "all names together have %d bytes, which exceeds %d", size, replica.MaxAlsoBytes)
	}
	if _, running := c.spreads.LoadOrStore(name, true); running {
		return configError("name", "this client runs Spread for %q already", name)
	}
	defer c.spreads.Delete(name)

	var retry backoff
	for {
		s, err := c.liveSession(ctx)
		if err == nil {
			began := time.Now()
			sp := &spread{c: c, s: s, group: group, keys: keys, work: work}
			if workErr := sp.run(ctx); workErr != nil {
				return workErr
			}
			if time.Since(began) > s.ttl {
				retry.reset()
			}
			err = sp.ended
		}
		if err := c.waitToRetry(ctx, &retry, name, err); err != nil {
			return callError("spread", name, err)
		}
	}
}

// spread is a call's part in one session. The goroutine of run owns the fields.
// Each shard of this caller has a goroutine, which waits for the lock, runs the
// work, and sends a report at its end.
type spread struct {
	c     *Client
	s     *session
	group acquireRequest
	keys  []string
	work  ShardWork

	view    *replica.Answer
	shards  map[int]context.CancelCauseFunc // cancels the shard's goroutine
	pauses  map[int]time.Time               // when the shard may be taken again
	reports chan report
	ended   error // why run returned, unless work failed
}

// report says how a goroutine of a spread ended.
type report struct {
	shard   int
	workErr error         // of the work: ends the spread
	err     error         // any other error
	pause   time.Duration // before the shard may be taken again
}

// run takes part until ctx, the session or the client ends, or until work
// fails. It returns the work's error. When run returns, all of its goroutines
// have ended.
func (sp *spread) run(ctx context.Context) (workErr error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(sp.c.closing, func() { cancel(ErrClosed) })()
	defer context.AfterFunc(sp.s.ctx, func() { cancel(&SessionError{Key: sp.group.key, Reason: sp.s.endReason()}) })()

	sp.shards = make(map[int]context.CancelCauseFunc)
	sp.pauses = make(map[int]time.Time)
	// Room for all reports, so that no goroutine waits to send its report, not
	// even after run has stopped receiving.
	sp.reports = make(chan report, len(sp.keys))
	views := make(chan replica.Answer)
	var running sync.WaitGroup
	enlisted := make(chan error, 1)
	running.Go(func() { enlisted <- sp.enlist(ctx) })
	running.Go(func() { sp.watchGroup(ctx, views) })

	timer := time.NewTimer(0)
	defer timer.Stop()
	for sp.ended == nil && workErr == nil {
		select {
		case v := <-views:
			sp.view = &v
		case sp.ended = <-enlisted:
		case r := <-sp.reports:
			workErr = sp.handleReport(r)
		case <-timer.C:
		case <-ctx.Done():
			sp.ended = whyEnded(ctx, nil)
		}
		if sp.view != nil && sp.ended == nil && workErr == nil {
			sp.applyPlan(ctx, &running)
			if ends := slices.Collect(maps.Values(sp.pauses)); len(ends) > 0 {
				timer.Reset(time.Until(slices.MinFunc(ends, time.Time.Compare)))
			}
		}
	}
	if workErr != nil {
		cancel(workErr)
	}
	cancel(sp.ended)
	running.Wait()
	for len(sp.reports) > 0 {
		if r := <-sp.reports; workErr == nil {
			workErr = r.workErr
		}
	}
	return workErr
}

// handleReport handles a report, and returns the work's error.
func (sp *spread) handleReport(r report) error {
	delete(sp.shards, r.shard)
	if r.pause > 0 {
		sp.pauses[r.shard] = time.Now().Add(r.pause)
	}
	if r.err != nil {
		sp.c.trace.retrying(LockEvent{Key: sp.keys[r.shard], Err: r.err})
	}
	return r.workErr
}

// applyPlan carries out this caller's part of the plan for the present view.
func (sp *spread) applyPlan(ctx context.Context, running *sync.WaitGroup) {
	callers := make([]machine.SessionID, 0, 1+len(sp.view.Status.Waiters))
	for _, h := range sp.view.Status.Holders {
		callers = append(callers, h.Session)
	}
	for _, w := range sp.view.Status.Waiters {
		callers = append(callers, w.Session)
	}
	owners := make([]machine.SessionID, len(sp.keys))
	for i := range min(len(owners), len(sp.view.Also)) {
		owners[i] = sp.view.Also[i].Session
	}
	for shard, target := range assign(callers, owners) {
		if time.Until(sp.pauses[shard]) <= 0 {
			delete(sp.pauses, shard)
		}
		mine := target >= 0 && callers[target] == sp.s.id
		cancel, runs := sp.shards[shard]
		_, pauses := sp.pauses[shard]
		switch {
		case runs && !mine:
			cancel(ErrHandedOver)
		case mine && !runs && !pauses:
			// If the view says that this caller owns the shard already, the
			// release is under way, and the shard is acquired again.
			sp.startShard(ctx, running, shard)
		}
	}
}

// startShard starts the goroutine of a shard.
func (sp *spread) startShard(ctx context.Context, running *sync.WaitGroup, shard int) {
	ctx, cancel := context.WithCancelCause(ctx)
	sp.shards[shard] = cancel
	running.Go(func() {
		// Deferred, so that a runtime.Goexit of the work gives up the shard.
		r := report{shard: shard, pause: jitter(sp.s.ttl)}
		defer func() {
			cancel(nil)
			sp.reports <- r
		}()
		r = sp.runShard(ctx, shard)
	})
}

// runShard waits for a shard's lock, runs the work, and releases the lock.
func (sp *spread) runShard(ctx context.Context, shard int) report {
	r := report{shard: shard}
	req := acquireRequest{key: sp.keys[shard], cmd: machine.Acquire{Spec: machine.Spec{Meta: sp.group.cmd.Meta}}}
	l, err := sp.s.acquire(ctx, ctx, req)
	if err != nil {
		if ctx.Err() == nil {
			r.err = err
			r.pause = jitter(maxBackoff)
		}
		return r
	}
	lost, err := sp.c.runWork(l, func(ctx context.Context, l *Lock) error { return sp.work(ctx, shard, l) }, nil)
	r.workErr = workError(l, err)
	switch {
	case r.workErr != nil:
		r.workErr = joinLoss(r.workErr, lost)
	case lost != nil:
		r.err = lost
		r.pause = jitter(maxBackoff)
	case ctx.Err() == nil:
		r.pause = jitter(sp.s.ttl)
	}
	return r
}

// enlist keeps this caller in the group, as the holder or a waiter of the
// group's key, until ctx ends. The result is the reason for the end.
func (sp *spread) enlist(ctx context.Context) error {
	l, err := sp.s.acquire(ctx, ctx, sp.group)
	if err != nil {
		return err
	}
	<-l.Context().Done()
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace(sp.s.ttl))
	defer cancel()
	_ = l.Release(rctx) // if the cluster could not be told, a cleanup continues
	return context.Cause(l.Context())
}

// watchGroup sends each view of the group and its shards to views, until ctx
// ends. If views change faster than they are received, it sends the latest.
func (sp *spread) watchGroup(ctx context.Context, views chan<- replica.Answer) {
	q := replica.Query{Key: sp.group.key, Also: sp.keys, Waiters: replica.MaxListed}
	for a, err := range sp.c.follow(ctx, q, neverFinal) {
		if err != nil {
			return
		}
		select {
		case views <- a:
		case <-ctx.Done():
			return
		}
	}
}
