package locks

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// spread is a call's part in one session. The goroutine of run compares the part that
// the leader tells with the shards that run, and starts and ends shards. Each shard
// has a goroutine of its own: see shardRun.
type spread struct {
	*spreadCall
	s       *session
	en      *enlistment
	wake    chan struct{} // size 1: a part or a report has come
	running sync.WaitGroup

	// resizing ends once the leader has told that the number of shards changes: every
	// shard is then given up, whether another caller waits for it or not.
	resizing    context.Context
	endResizing context.CancelFunc

	// Fields of the goroutine of run.
	part   machine.Part
	shards map[int]*shardRun
	pauses map[int]time.Time // in part, and not to be started before
	fails  map[int]backoffOf // works that ended with an error, one after the other
	ended  error             // why run returned, unless the call has a verdict
	late   error             // of the first work with an error of its own after that

	mu      sync.Mutex
	reports []report
	locks   map[int]*Lock // by shard; held or just ended
	left    bool          // no work begins any more
}

func newSpread(call *spreadCall, s *session) *spread {
	resizing, endResizing := context.WithCancel(context.Background())
	return &spread{
		resizing: resizing, endResizing: endResizing,
		spreadCall: call,
		s:          s,
		wake:       make(chan struct{}, 1),
		shards:     make(map[int]*shardRun),
		pauses:     make(map[int]time.Time),
		fails:      make(map[int]backoffOf),
		locks:      make(map[int]*Lock),
	}
}

// verdict is the end of a call of Spread by a Final.
type verdict struct{ err error }

// run takes part in the group until ctx, the session or the client ends, or until the
// call has a verdict. When run returns, all of its goroutines have ended, and so all
// work has returned.
func (sp *spread) run(ctx context.Context) (final *verdict) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer sp.endResizing()
	defer context.AfterFunc(sp.c.closing, func() { cancel(ErrClosed) })()
	defer context.AfterFunc(sp.s.ctx, func() { cancel(&SessionError{Key: sp.name, Reason: sp.s.endReason()}) })()

	if sp.en, sp.ended = sp.s.newEnlistment(sp.name, sp.wake); sp.ended != nil {
		return nil
	}
	enlisted := make(chan error, 1)
	sp.running.Go(func() { enlisted <- sp.en.enlist(ctx, sp.spreadCall.shards, sp.options) })
	final = sp.reconcile(ctx, enlisted)
	sp.mu.Lock()
	sp.left = true // before the cluster hears so
	sp.mu.Unlock()
	if sp.part.Resized && sp.ended == nil && final == nil {
		// The works have returned. The resize continues when the cluster knows of no
		// request of this caller.
		sp.awaitWithdrawals(ctx)
		sp.ended = sp.leaveResized(ctx)
	} else {
		sp.en.leave(ctx) // the others get the shards while the works here come to their ends
	}
	cancel(ErrHandedOver) // of a verdict; otherwise ctx has ended, or nothing runs
	sp.running.Wait()
	for _, r := range sp.takeReports() {
		if final == nil {
			final = r.final
		}
		sp.late = cmp.Or(sp.late, r.workErr)
	}
	return final
}

// reconcile starts and ends shards until run is to end.
func (sp *spread) reconcile(ctx context.Context, enlisted <-chan error) *verdict {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case sp.ended = <-enlisted:
			if sp.ended != nil {
				return nil
			}
			enlisted = nil
		case <-sp.wake:
			if p := sp.en.latest(); p.Version > sp.part.Version {
				sp.adopt(ctx, p)
			}
			for _, r := range sp.takeReports() {
				if r.final != nil {
					return r.final
				}
				sp.handleReport(ctx, r)
			}
		case <-timer.C:
			sp.startPaused(ctx)
		case <-ctx.Done():
			sp.ended = whyEnded(ctx, nil)
			return nil
		}
		if sp.part.Resized && len(sp.shards) == 0 && enlisted == nil {
			return nil
		}
		if next, ok := sp.nextStart(); ok {
			timer.Reset(time.Until(next))
		}
	}
}

// adopt makes p this caller's part.
func (sp *spread) adopt(ctx context.Context, p machine.Part) {
	sp.part = p
	sp.c.trace.part(ctx, PartEvent{
		Name: sp.name, Version: p.Version, Shards: int(p.Shards), Mine: len(p.Mine),
		Drain: time.Duration(p.Drain) * time.Millisecond, Resized: p.Resized,
	})
	if p.Resized {
		sp.endResizing()
	}
	for shard, sr := range sp.shards {
		if !sp.mine(shard) {
			sr.drop(time.Duration(p.Drain) * time.Millisecond)
		}
	}
	for shard := range sp.pauses {
		if !sp.mine(shard) {
			delete(sp.pauses, shard)
		}
	}
	for _, shard := range p.Mine {
		sp.want(ctx, int(shard))
	}
}

// mine reports whether the shard is in this caller's part.
func (sp *spread) mine(shard int) bool { return hasShard(sp.part, shard) }

// want starts a shard of this caller's part, unless the shard runs or pauses.
func (sp *spread) want(ctx context.Context, shard int) {
	if sr := sp.shards[shard]; sr != nil {
		sr.keep()
		return
	}
	if _, pauses := sp.pauses[shard]; pauses {
		return
	}
	sr := newShardRun(ctx, sp, shard)
	sp.shards[shard] = sr
	sp.running.Go(sr.run)
}

// handleReport notes that the goroutine of a shard has ended.
func (sp *spread) handleReport(ctx context.Context, r report) {
	delete(sp.shards, r.shard)
	if r.workErr == nil {
		delete(sp.fails, r.shard)
	}
	switch {
	case r.workErr != nil:
		fails := sp.fails[r.shard]
		if r.ran > sp.s.ttl {
			fails = 0
		}
		sp.fails[r.shard] = fails + 1
		r.pause = fails.pause(sp.s.ttl)
	case r.err != nil:
		sp.c.trace.retrying(ctx, LockEvent{Key: shardKey(sp.name, r.shard), Call: CallSpread, Err: r.err})
	}
	if !sp.mine(r.shard) {
		return
	}
	if r.pause > 0 {
		sp.pauses[r.shard] = time.Now().Add(r.pause)
		return
	}
	sp.want(ctx, r.shard)
}

// startPaused starts the shards with a pause that is over.
func (sp *spread) startPaused(ctx context.Context) {
	now := time.Now()
	for shard, until := range sp.pauses {
		if !until.After(now) {
			delete(sp.pauses, shard)
			sp.want(ctx, shard)
		}
	}
}

// nextStart returns when the next pause is over; false if no shard pauses.
func (sp *spread) nextStart() (next time.Time, ok bool) {
	for _, until := range sp.pauses {
		if !ok || until.Before(next) {
			next, ok = until, true
		}
	}
	return next, ok
}

// backoffOf is the number of works of a shard that ended with an error, one after the
// other.
type backoffOf int

// leastWorkPause is the pause after the first work that ended with an error.
const leastWorkPause = 100 * time.Millisecond

// pause returns the pause after one more error: twice as long each time, up to ttl.
func (n backoffOf) pause(ttl time.Duration) time.Duration {
	return min(leastWorkPause<<min(n, 20), ttl)
}

// report says how the goroutine of a shard ended.
type report struct {
	shard   int
	final   *verdict      // the work returned a Final
	workErr error         // another error of the work
	err     error         // another error
	ran     time.Duration // how long the work ran
	pause   time.Duration // before the shard may start again
}

func (sp *spread) report(r report) {
	sp.mu.Lock()
	sp.reports = append(sp.reports, r)
	delete(sp.locks, r.shard)
	sp.mu.Unlock()
	select {
	case sp.wake <- struct{}{}:
	default:
	}
}

func (sp *spread) takeReports() []report {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	reports := sp.reports
	sp.reports = nil
	return reports
}

// lock returns the lock of a shard, if its work runs.
func (sp *spread) lock(shard int) *Lock {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.locks[shard]
}

// awaitWithdrawals waits until the cluster has answered all withdrawals and releases
// of this caller.
func (sp *spread) awaitWithdrawals(ctx context.Context) {
	keys := make([]string, sp.spreadCall.shards)
	for shard := range keys {
		keys[shard] = shardKey(sp.name, shard)
	}
	_ = sp.s.awaitCleanups(ctx, keys) // an end of ctx ends the caller too
}

// leaveResized takes the caller out of a group that is being resized, and returns the
// *ShardsError, or why ctx ended before the group's next number was known.
func (sp *spread) leaveResized(ctx context.Context) error {
	select {
	case <-sp.en.leave(ctx):
	case <-ctx.Done():
		return whyEnded(ctx, nil)
	}
	a, err := retryRead(ctx, sp.c, sp.c.isFinal, func() (replica.Answer, error) {
		return sp.c.read(ctx, replica.Query{Group: sp.name})
	})
	if err != nil {
		return fmt.Errorf("after a resize: %w", err)
	}
	resized := &ShardsError{Name: sp.name, Shards: sp.spreadCall.shards}
	if a.Group != nil {
		resized.Have = int(cmp.Or(a.Group.Next, a.Group.Shards))
	}
	return resized
}
