package locks

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// ShardWork is what Spread runs for each shard that its caller owns. Its context
// ends when the shard's lock does, when the shard is to be handed over, or when
// the caller's context does; it should then return soon.
type ShardWork func(ctx context.Context, shard int, l *Lock) error

// MaxShards is how many shards one name may have; fewer if it is longer than some 230
// bytes.
const MaxShards = replica.MaxAlso

// ErrHandedOver is the cause of the end of a ShardWork's context if the shard is
// another caller's from now on. The lock is held until the work has returned.
var ErrHandedOver = errors.New("locks: shard is handed over")

// Spread divides shards 0 to shards-1 of name among all callers of Spread with
// that name, at most one per Client, and runs work for each shard that falls to
// this caller, for as long as ctx lasts. All callers must give the same number.
// A shard is one key, name/0, name/1 and so on; name itself is the key at which
// callers enlist. Nothing else should acquire them.
//
// Each shard has one owner at a time, who holds its lock. When nobody comes or
// goes, callers' numbers of shards differ by one at most. When somebody does, no
// more shards move than that takes: a shard's work has its context ended with the
// cause ErrHandedOver, and once it has returned the next owner is granted the
// lock in the same step as it is released. Callers beyond the first 1,025 stand
// by.
//
// A work that returns nil while its context lasts gives its shard up. The plan
// does not know of that, so the shard is this caller's again after a pause of
// half to a whole TTL, unless callers came or went meanwhile.
//
// If the session is lost, all works' contexts end, and Spread enlists anew when
// they have returned. Like Elect it goes on while no leader can be reached. It
// returns when all works have returned and all locks were released:
//
//   - the error of a work that returned one of its own, which ends the others;
//   - the cause of ctx, once ctx has ended;
//   - ErrTooManyWaiters, *DeadlockError if ctx descends from the context of a lock
//     that a caller before this one waits for, ErrClosed, cluster.ErrStopped, or a
//     *cluster.ConfigError, also if this client runs Spread for name already.
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
	group, err := newAcquireRequest(name, opts)
	if err != nil {
		return err
	}
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
		// They are all asked for at once, again and again.
		return configError("shards", "the names of all are %d bytes, which exceed %d", size, replica.MaxAlsoBytes)
	}
	if !c.beginSpread(name) {
		return configError("name", "this client runs Spread for %q already", name)
	}
	defer c.endSpread(name)

	var retry backoff
	for {
		s, err := c.liveSession(ctx)
		if err == nil {
			began := time.Now()
			sp := &spread{c: c, s: s, group: group, keys: keys, work: work}
			if own := sp.run(ctx); own != nil {
				return own
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

// spread is one call's part in one session. One goroutine, run's, owns its
// fields; each shard that is waited for or worked on has one of its own, which
// reports once, when it ends.
type spread struct {
	c     *Client
	s     *session
	group acquireRequest
	keys  []string
	work  ShardWork

	view    *replica.Answer
	shards  map[int]context.CancelCauseFunc // stops the shard's goroutine
	pauses  map[int]time.Time               // shards not to be taken before then
	reports chan report
	ended   error // why run returned, if not by a work's own error
}

// report is how a goroutine of a spread ended.
type report struct {
	shard   int           // or enlisting
	workErr error         // of the work: ends the spread
	err     error         // of anything else
	pause   time.Duration // for the shard
}

const enlisting = -1

// run takes part until ctx, the session or the client ends or a work fails; it
// returns the work's error. All of its goroutines have ended by then.
func (sp *spread) run(ctx context.Context) (own error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(sp.c.closing, func() { cancel(ErrClosed) })()
	defer context.AfterFunc(sp.s.ctx, func() { cancel(&SessionError{Key: sp.group.key, Reason: sp.s.endReason()}) })()

	sp.shards = make(map[int]context.CancelCauseFunc)
	sp.pauses = make(map[int]time.Time)
	// Room for all: who reports need not wait, not even for a run that is over.
	sp.reports = make(chan report, len(sp.keys)+1)
	views := make(chan replica.Answer)
	var running sync.WaitGroup
	running.Go(func() { sp.enlist(ctx) })
	running.Go(func() { sp.watchGroup(ctx, views) })

	timer := time.NewTimer(0)
	defer timer.Stop()
	for sp.ended == nil && own == nil {
		select {
		case v := <-views:
			sp.view = &v
		case r := <-sp.reports:
			own = sp.handleReport(r)
		case <-timer.C:
		case <-ctx.Done():
			sp.ended = whyEnded(ctx, nil)
		}
		if sp.view != nil && sp.ended == nil && own == nil {
			sp.applyPlan(ctx, &running)
			if next, ok := sp.nextPauseEnd(); ok {
				timer.Reset(next)
			}
		}
	}
	if own != nil {
		cancel(own)
	}
	cancel(sp.ended)
	running.Wait()
	for len(sp.reports) > 0 {
		if r := <-sp.reports; own == nil {
			own = r.workErr
		}
	}
	return own
}

// note takes a report. It returns the error of a work.
func (sp *spread) handleReport(r report) error {
	if r.shard == enlisting {
		sp.ended = r.err
		return nil
	}
	delete(sp.shards, r.shard)
	if r.pause > 0 {
		sp.pauses[r.shard] = time.Now().Add(r.pause)
	}
	if r.err != nil {
		sp.c.trace.retrying(LockEvent{Key: sp.keys[r.shard], Err: r.err})
	}
	return r.workErr
}

// nextRest returns how long it is until the next shard may be taken.
func (sp *spread) nextPauseEnd() (next time.Duration, ok bool) {
	for _, end := range sp.pauses {
		if d := time.Until(end); !ok || d < next {
			next, ok = d, true
		}
	}
	return next, ok
}

// act does this caller's part of the plan for the present view.
func (sp *spread) applyPlan(ctx context.Context, running *sync.WaitGroup) {
	members := make([]machine.SessionID, 0, 1+len(sp.view.Status.Waiters))
	for _, h := range sp.view.Status.Holders {
		members = append(members, h.Session)
	}
	for _, w := range sp.view.Status.Waiters {
		members = append(members, w.Session)
	}
	owners := make([]machine.SessionID, len(sp.keys))
	for i := range owners {
		if i < len(sp.view.Also) {
			owners[i] = sp.view.Also[i].Session
		}
	}
	keep, _, want := plan(members, owners, sp.s.id)
	// A shard that the view gives to self is kept by whoever works on it. If
	// nobody does, its release is on its way, and it is asked for again.
	mine := make(map[int]bool, len(keep)+len(want))
	for _, shard := range append(keep, want...) {
		mine[shard] = true
		if sp.shards[shard] != nil {
			continue
		}
		if end, ok := sp.pauses[shard]; ok {
			if time.Until(end) > 0 {
				continue
			}
			delete(sp.pauses, shard)
		}
		sctx, cancel := context.WithCancelCause(ctx)
		sp.shards[shard] = cancel
		running.Go(func() {
			// Deferred, for a work that ends its goroutine gives up its shard.
			r := report{shard: shard, pause: jitter(sp.s.ttl)}
			defer func() {
				cancel(nil)
				sp.reports <- r
			}()
			r = sp.runShard(sctx, shard)
		})
	}
	for shard, cancel := range sp.shards {
		if !mine[shard] {
			cancel(ErrHandedOver)
		}
	}
	for shard, end := range sp.pauses {
		if !mine[shard] && time.Until(end) <= 0 {
			delete(sp.pauses, shard)
		}
	}
}

// serve waits for a shard, works on it, and releases it.
func (sp *spread) runShard(ctx context.Context, shard int) report {
	r := report{shard: shard}
	req := acquireRequest{key: sp.keys[shard], cmd: machine.Acquire{Meta: sp.group.cmd.Meta}}
	l, err := sp.s.acquire(ctx, ctx, req)
	if err != nil {
		if ctx.Err() == nil {
			r.err = err
			r.pause = jitter(maxBackoff)
		}
		return r
	}
	var lost *LostError
	lost, err = sp.c.runWork(l, func(ctx context.Context, l *Lock) error { return sp.work(ctx, shard, l) }, nil)
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

// enlist makes this caller a member, as the holder of the group's key or one of
// its waiters, until ctx ends.
func (sp *spread) enlist(ctx context.Context) {
	l, err := sp.s.acquire(ctx, ctx, sp.group)
	if err == nil {
		<-l.Context().Done()
		err = context.Cause(l.Context())
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace(sp.s.ttl))
		defer cancel()
		_ = l.Release(rctx) // what the cluster did not hear, clean-up goes on with
	}
	sp.reports <- report{shard: enlisting, err: err}
}

// watch hands on each view of the group and its shards, the latest if there were
// many, until ctx ends.
func (sp *spread) watchGroup(ctx context.Context, views chan<- replica.Answer) {
	var retry backoff
	q := replica.Query{Key: sp.group.key, Also: sp.keys, Waiters: replica.MaxListed}
	for {
		a, err := sp.c.rep.Read(ctx, q)
		if err != nil {
			if ctx.Err() != nil || retry.wait(ctx, sp.c.closing) != nil {
				return
			}
			continue
		}
		retry.reset()
		q.Version = a.Version
		select {
		case views <- a:
		case <-ctx.Done():
			return
		}
	}
}
