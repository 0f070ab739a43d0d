package stories

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// A job of a minute runs under a lock with a lease of ten seconds, in steps of a
// second. Before each step the job requires two more seconds of the lock.
const (
	jobLease  = 10 * time.Second
	jobTrust  = jobLease - 200*time.Millisecond // less the margin
	jobLength = time.Minute
	jobStep   = time.Second
	jobMargin = 2 * time.Second
)

// runJob returns the time at which the job stopped, and the reason.
func (s *stage) runJob(l grant) (time.Duration, error) {
	for range jobLength / jobStep {
		if err := l.Require(jobMargin); err != nil {
			return s.now(), err
		}
		time.Sleep(jobStep)
		s.live("the lock is held after each step", l)
	}
	return s.now(), nil
}

// The job lasts longer than the lease.
//
//	 0 s  A is granted the lock and begins; beats renew the lease
//	60 s  the job ends, and A held the lock all the time
//
// No contrast: no lock fails in this story. See the next story.
func TestBeatsCarryALockThroughALongJob(t *testing.T) {
	play(t, 3, jobLease, func(s *stage) {
		l := s.acquire(s.named(s.others[0], "A"), "k")
		var budget *locks.BudgetError
		err := l.Require(jobLength)
		ok := errors.As(err, &budget) && budget.Need == jobLength && budget.Left <= jobTrust && budget.Left >= jobTrust-soon
		s.check("a minute at once is refused", ok, "%v", err)
		end, err := s.runJob(l)
		s.ok("the job ends", err)
		s.near("the job ends", end, jobLength)
	})
}

// A's member is cut off in the middle of the job.
//
//	 0.0 s  A is granted the lock and begins
//	20.5 s  A's member is cut off, and B asks
//	28.3 s  at the latest the job is stopped, with two seconds to spare
//	30.5 s  or so B is granted the lock
//
// Contrast: a lock without renewal and without Require. B is
// granted the lock while the job runs.
func TestLongJobStopsBeforeTheNextGrant(t *testing.T) {
	const stopped = "the job is stopped when B is granted the key"
	story := func(s *stage) {
		l := s.acquire(s.named(s.others[0], "A"), "k")
		const cut = 20*time.Second + 500*time.Millisecond
		var wg sync.WaitGroup
		var granted, running atomic.Int64
		running.Store(1)
		wg.Go(func() {
			s.at(cut)
			s.Isolate(s.others[0])
			next, err := s.named(s.others[1], "B").Acquire(s.ctx, "k")
			s.ok("B is granted the key", err)
			if err != nil {
				return
			}
			granted.Store(int64(s.now()))
			s.check(stopped, running.Load() == 0, "the job runs")
			s.lost("A has lost the key when B is granted it", l, locks.QuorumUnreachable)
			s.check("tokens rise", next.Token() > l.Token(), "token %d after %d", next.Token(), l.Token())
		})
		end, err := s.runJob(l)
		running.Store(0)
		var budget *locks.BudgetError
		ok := errors.As(err, &budget) && budget.Need == jobMargin && budget.Left < jobMargin && budget.Left > 0 && budget.Token == l.Token()
		s.check("Require stops the job", ok, "%v", err)
		s.live("A still holds the lock when it stops", l)
		// The last beat was sent a third of a lease before the cut, or later.
		s.between("the job is stopped", end, cut-jobLease/3+jobTrust-jobMargin, cut+jobTrust-jobMargin+jobStep)
		renew, cancel := context.WithTimeout(s.ctx, time.Minute)
		defer cancel()
		err = l.Renew(renew)
		s.check("a renewal without a quorum fails", errors.Is(err, locks.ErrLost), "%v", err)
		wg.Wait()
		at := time.Duration(granted.Load())
		s.check("the job stops in time", at >= end+jobMargin-jobStep, "B was granted the key at %v, A's job stopped at %v", at, end)
	}
	play(t, 3, jobLease, story)
	contrast(t, "no renewal and no question", stopped, newTable(jobLease, time.Second), story)
}
