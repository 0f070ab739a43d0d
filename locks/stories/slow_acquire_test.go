package stories

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// A lock's validity counts from the request, not from the answer: the duration of
// Acquire is spent. The lease is 10 s.
const (
	slowLease = 10 * time.Second
	slowTrust = slowLease - 200*time.Millisecond // less the margin
)

// distance sets the delay of messages between thin member 3 and the voters.
func (s *stage) distance(there, back time.Duration) {
	for i := range 3 {
		s.slow(3, i, there)
		s.slow(i, 3, back)
	}
}

// A trip to the cluster and back takes a second.
//
//	 0 s  A asks: a trip for its session, another for the lock
//	 2 s  A is granted the lock, and eight seconds are left
//	60 s  beats are as slow and have carried the lock all the same
//
// No contrast: no lock fails in this story. See the next story.
func TestSlowAcquireIsSubtractedFromTheLease(t *testing.T) {
	play(t, 4, slowLease, func(s *stage) {
		s.distance(500*time.Millisecond, 500*time.Millisecond)
		l := s.acquire(s.named(3, "A"), "k")
		s.near("A is granted the key", s.now(), 2*time.Second)
		left, want := l.Remaining(), slowTrust-s.now()
		s.check("the time spent is subtracted", left <= want && left >= want-soon, "%v are left of %v, want %v", left, slowTrust, want)
		var budget *locks.BudgetError
		err := l.Require(9 * time.Second)
		s.check("nine seconds are not left", errors.As(err, &budget), "%v", err)
		for s.now() < time.Minute {
			time.Sleep(100 * time.Millisecond)
			if left := l.Remaining(); left > slowTrust-time.Second || left < slowTrust-time.Second-slowLease/3-soon {
				s.t.Fatalf("at %v %v are left", s.now(), left)
			}
		}
		s.live("A holds the lock", l)
	})
}

// A's answers become so slow that the lease is over when the grant arrives.
//
//	 4.0 s  answers to A take 20 s from now on
//	 5.0 s  A asks
//	 6.0 s  the cluster has granted A the lock; B asks
//	13.1 s  A's session is lost: its last confirmed beat was sent at 3.3 s; A asks again
//	16.7 s  at the latest B is granted the lock
//	25.0 s  A's grant arrives, and changes nothing
//	30.0 s  A's patience is over, and A has an error
//	40.0 s  B still holds the lock
//
// Contrast: a lock with a lease from the answer on. At 25 s A believes in its lock for
// ten seconds more.
func TestGrantThatArrivesTooLateIsAnError(t *testing.T) {
	const late = "A's late grant is an error"
	story := func(s *stage) {
		a, b := s.named(3, "A"), s.named(0, "B")
		// A has a session before its answers become slow.
		s.ok("a key is released", s.acquire(a, "other").Release(s.ctx))
		s.at(4 * time.Second)
		s.distance(time.Millisecond, 20*time.Second)
		s.at(5 * time.Second)
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(s.ctx, 25*time.Second)
			defer cancel()
			_, err := a.Acquire(ctx, "k")
			s.check(late, err != nil, "granted at %v", s.now())
			s.check("the error is the end of A's patience", errors.Is(err, context.DeadlineExceeded), "%v", err)
			s.near("A gives up", s.now(), 30*time.Second)
		})
		s.at(6 * time.Second)
		if b, ok := b.(member); ok {
			status, err := b.Inspect(s.ctx, "k")
			s.check("the cluster has granted A the key", err == nil && status.Held() && status.Holders[0].Client == "A", "%+v, %v", status, err)
		}
		next := s.acquire(b, "k")
		// When A gave up or, if the cluster does not hear of that, a lease after the
		// last beat of A's that the cluster heard.
		s.between("B is granted the key", s.now(), slowLease/3+slowTrust, 2*slowLease/3+slowLease+soon)
		wg.Wait()
		s.at(40 * time.Second)
		s.live("B holds the lock", next)
		s.heldBy("B holds the lock", s.named(1, "C"), "k", "B", next)
	}
	play(t, 4, slowLease, story)
	contrast(t, "counted from the answer", late, newTable(slowLease, time.Second), story)
}

// A trip takes as long as the lease: nothing is ever left.
//
//	 0 s  A asks, again and again, for a minute
//	60 s  A has no lock, and no grant was made
//
// No contrast: no lock fails in this story. See the story before.
func TestTripAsLongAsTheLeaseGrantsNothing(t *testing.T) {
	play(t, 4, slowLease, func(s *stage) {
		b := s.member(0, "B")
		before, err := b.Inspect(s.ctx, "k")
		s.ok("B looks", err)
		s.distance(5*time.Second, 5*time.Second)
		ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
		defer cancel()
		_, err = s.named(3, "A").Acquire(ctx, "k")
		s.check("A is not granted the key", errors.Is(err, context.DeadlineExceeded), "%v", err)
		status, err := b.Inspect(s.ctx, "k")
		s.check("no grant was made", err == nil && !status.Held() && status.Queue == 0 && status.Token == before.Token, "%+v, %v", status, err)
	})
}
