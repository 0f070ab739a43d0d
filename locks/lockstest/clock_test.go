package lockstest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// cutOff has a holder lose the cluster, and returns for how long the holder still trusts
// its lock when the next client is granted the key: 0 is right.
func cutOff(t *testing.T, ttl time.Duration, clock func(i, leader, holder int) lockstest.Clock) (overlap time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3, lockstest.TTL(ttl))
		leader := c.Leader()
		holder, other := (leader+1)%3, (leader+2)%3
		for i := range 3 {
			c.SetClock(i, clock(i, leader, holder))
		}
		l, err := c.Client(holder).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl/2 + 17*time.Millisecond)
		c.Isolate(holder)
		ended := make(chan time.Time, 1)
		context.AfterFunc(l.Context(), func() { ended <- time.Now() })
		if _, err := c.Client(other).Acquire(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		granted := time.Now()
		if l.Err() == nil {
			overlap = (<-ended).Sub(granted)
		}
	})
	return overlap
}

// The promise of one holder stands on the rates of clocks within a bound. Beyond the bound
// the promise breaks: so the clocks reach every reading on which the promise rests.
func TestOneHolderDependsOnTheRatesOfClocks(t *testing.T) {
	for _, test := range []struct {
		ttl            time.Duration
		holder, leader float64
		kept           bool
	}{
		{time.Second, 0.995, 1.005, true},      // 1 % apart
		{30 * time.Second, 0.995, 1.005, true}, // where the margin has little more than 1 %
		{10 * time.Second, 2, 1, true},         // a holder that gives up early harms nobody
		{10 * time.Second, 0.5, 0.5, true},     // both clocks wrong, at one rate
		{10 * time.Second, 0.8, 1, false},
		{10 * time.Second, 1, 1.25, false},
	} {
		overlap := cutOff(t, test.ttl, func(i, leader, holder int) lockstest.Clock {
			return lockstest.Clock{Rate: map[int]float64{leader: test.leader, holder: test.holder}[i]}
		})
		if test.kept != (overlap == 0) {
			t.Errorf("%+v: two holders for %v", test, overlap)
		}
	}
}

// Timers run by the clock of their member: a session with a fast clock beats as often as it
// must, and a leader with a fast clock expires sessions, by its clock.
func TestTimersRunByTheMembersClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 50 // a TTL takes a tenth of a second
		c := lockstest.New(t, 3, lockstest.TTL(5*time.Second))
		holder := (c.Leader() + 1) % 3
		for i := range 3 {
			c.SetClock(i, lockstest.Clock{Rate: rate})
		}
		l, err := c.Client(holder).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if err := l.Err(); err != nil {
			t.Fatalf("a lock of a living holder was lost: %v", err)
		}
		c.KillHolder("k")
		killed := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := c.Client((holder+1)%3).Acquire(ctx, "k"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(killed); took > 500*time.Millisecond {
			t.Errorf("the key was free after %v", took)
		}
	})
}

// Wall clocks need not agree: members found, grant, restart and take over with clocks that
// are hours wrong, and tokens rise.
func TestWallClocksNeedNotAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		offsets := []time.Duration{-5 * time.Hour, 0, 7 * time.Hour}
		c := lockstest.New(t, 3, lockstest.Clocks(func(i int) lockstest.Clock { return lockstest.Clock{Offset: offsets[i]} }))
		began := time.Now()
		for i := range 3 {
			for _, m := range c.Node(i).Members() {
				if off := began.Add(offsets[i]).Sub(time.Unix(0, int64(m.Boot))); m.Self && (off < 0 || off > time.Minute) {
					t.Errorf("the number of member %d's process is %v off its clock", i, off)
				}
			}
		}
		l, err := c.Client(0).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			c.SetClock(i, lockstest.Clock{Offset: -offsets[i]}) // a step of up to 14 hours
		}
		time.Sleep(10 * time.Second)
		if err := l.Err(); err != nil {
			t.Errorf("a step of the wall clock cost a lock: %v", err)
		}
		c.Settle()
		c.KillHolder("k")
		next, err := c.Client(2).Acquire(t.Context(), "k")
		if err != nil || next.Token() <= l.Token() {
			t.Fatalf("token %d after %d, %v", next.Token(), l.Token(), err)
		}
		c.Restart(0)
		c.Settle()
		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
		last, err := c.Client(0).Acquire(t.Context(), "k")
		if err != nil || last.Token() <= next.Token() {
			t.Errorf("token %d after %d, %v", last.Token(), next.Token(), err)
		}
	})
}

// A cluster is founded with the founder's wall clock in its first token.
func TestTheFirstTokenIsTheFoundersWallClock(t *testing.T) {
	first := func(offset time.Duration) (token uint64) {
		synctest.Test(t, func(t *testing.T) {
			c := lockstest.New(t, 1, lockstest.Clocks(func(int) lockstest.Clock { return lockstest.Clock{Offset: offset} }))
			err := c.Client(0).Do(t.Context(), "k", func(_ context.Context, l *locks.Lock) error {
				token = uint64(l.Token())
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		return token
	}
	if ahead := (first(time.Hour) - first(0)) >> 21; ahead != 3600 {
		t.Errorf("with a clock an hour ahead the first token is %d s ahead", ahead)
	}
}

// A new cluster grants nothing for a TTL, by its leader's clock.
func TestTheFoundingWaitIsByTheLeadersClock(t *testing.T) {
	formed := func(rate float64) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			lockstest.New(t, 1, lockstest.TTL(10*time.Second), lockstest.Clocks(func(int) lockstest.Clock { return lockstest.Clock{Rate: rate} }))
			took = time.Since(began)
		})
		return took
	}
	if slow, right := formed(0.5), formed(1); slow < right+9*time.Second || slow > right+11*time.Second {
		t.Errorf("founded after %v, at half the rate after %v", right, slow)
	}
}

// The time that a session has left is by its leader's clock, of whatever origin.
func TestTheTimeLeftIsByTheLeadersClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 1, lockstest.TTL(10*time.Second))
		if _, err := c.Client(0).Acquire(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		for s, err := range c.Client(0).Sessions(t.Context()) {
			if err != nil || s.Left < 5*time.Second || s.Left > s.TTL {
				t.Errorf("%v left of %v, %v", s.Left, s.TTL, err)
			}
		}
	})
}
