package locks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// P3: whatever is cut, paused or killed, a holder's context has ended before
// anybody's next grant of the key returns, by the bubble's clock; and tokens
// rise. The contenders run on three voters and two thin members.
func TestHolderIsToldBeforeTheNextGrantReturns(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 40
	}
	// A short TTL makes expiries frequent; a long one outlives elections, so
	// that new leaders meet holders that still trust their locks.
	for _, ttl := range []time.Duration{time.Second, 5 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) { contendUnderFaults(t, ttl, rounds/2) })
	}
}

func contendUnderFaults(t *testing.T, ttl time.Duration, rounds int) {
	synctest.Test(t, func(t *testing.T) {
		const members = 5
		c := lockstest.New(t, members, lockstest.TTL(ttl))
		seed := rand.Uint64()
		t.Logf("seed %d (the order of goroutines is not repeated)", seed)
		r := rand.New(rand.NewPCG(seed, 3))

		var mu sync.Mutex
		var last *locks.Lock
		var lastBy string
		var token fence.Token
		grants, dead := 0, map[*locks.Lock]bool{}
		granted := func(by string, l *locks.Lock) {
			mu.Lock()
			defer mu.Unlock()
			grants++
			// A killed process's contexts count for nothing: it is not there.
			if last != nil && !dead[last] && last.Context().Err() == nil {
				t.Errorf("%v: %s was granted token %d while %s's context with token %d lives on", time.Now(), by, l.Token(), lastBy, last.Token())
			}
			if l.Token() <= token {
				t.Errorf("token %d after %d", l.Token(), token)
			}
			last, lastBy, token = l, by, l.Token()
		}

		ctx, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		t.Cleanup(func() { stop(); wg.Wait() })
		var killing sync.Mutex // of which process a lock is
		contend := func(i int, client *locks.Client) (kill func()) {
			ctx, cancel := context.WithCancel(ctx)
			name := fmt.Sprint("member ", i)
			var mine []*locks.Lock
			for range 2 {
				r := rand.New(rand.NewPCG(r.Uint64(), 4))
				wg.Go(func() {
					for ctx.Err() == nil {
						wait, cancel := context.WithTimeout(ctx, time.Duration(r.Int64N(int64(6*ttl))))
						l, err := client.Acquire(wait, "k")
						cancel()
						if err != nil {
							continue
						}
						killing.Lock()
						mine = append(mine, l)
						killing.Unlock()
						if ctx.Err() == nil {
							granted(name, l)
						}
						select {
						case <-time.After(time.Duration(r.Int64N(int64(2 * ttl)))):
						case <-l.Context().Done():
						case <-ctx.Done():
						}
						release, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(500))*time.Millisecond)
						_ = l.Release(release)
						cancel()
					}
				})
			}
			return func() {
				mu.Lock()
				killing.Lock()
				cancel()
				for _, l := range mine {
					dead[l] = true
				}
				killing.Unlock()
				mu.Unlock()
			}
		}
		kill := make([]func(), members)
		for i := range members {
			kill[i] = contend(i, c.Client(i))
		}

		killed := -1
		for round := range rounds {
			switch r.IntN(8) {
			case 0:
				cut := r.Perm(members)
				at := 1 + r.IntN(members-1)
				c.Partition(cut[:at], cut[at:])
			case 1:
				c.Isolate(r.IntN(members))
			case 2, 3:
				c.Cut(r.IntN(members), r.IntN(members))
			case 4:
				c.Pause(r.IntN(members))
			case 5, 6:
				if killed < 0 {
					c.Heal()
					c.Settle()
					killed = c.Leader()
					kill[killed]()
					c.Kill(killed)
				}
			case 7:
				c.Heal()
			}
			time.Sleep(time.Duration(r.Int64N(int64(3 * ttl))))
			if r.IntN(3) == 0 {
				c.Heal()
				time.Sleep(time.Duration(r.IntN(6000)) * time.Millisecond)
				if killed >= 0 {
					c.Restart(killed)
					kill[killed] = contend(killed, c.Client(killed))
					killed = -1
				}
			}
			if t.Failed() {
				t.Fatalf("round %d", round)
			}
		}
		c.Heal()
		mu.Lock()
		before := grants
		mu.Unlock()
		time.Sleep(30 * ttl)
		mu.Lock()
		if grants < before+5 {
			t.Errorf("%d grants in 30 TTLs after the last fault: the cluster is stuck", grants-before)
		}
		t.Logf("%d rounds, %d grants", rounds, grants)
		mu.Unlock()
		stop()
		wg.Wait()
	})
}

func TestDoAgainstARealCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 4)
		var mu sync.Mutex
		inside, ran := 0, 0
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				err := c.Client(i%4).Do(context.Background(), "job", func(ctx context.Context, l *locks.Lock) error {
					mu.Lock()
					inside++
					ran++
					if inside > 1 {
						t.Error("two at once")
					}
					mu.Unlock()
					if tok, ok := fence.FromContext(ctx); !ok || tok != l.Token() {
						t.Errorf("context carries token %d, lock %d", tok, l.Token())
					}
					time.Sleep(50 * time.Millisecond)
					mu.Lock()
					inside--
					mu.Unlock()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if ran != 40 {
			t.Errorf("ran %d times", ran)
		}
	})
}

func TestAKilledHolderAndItsSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		holder := (c.Leader() + 1) % 3
		l, err := c.Client(holder).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		killed := time.Now()
		c.Kill(holder)
		next, err := c.Client((holder+1)%3).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(killed); took > 3500*time.Millisecond {
			t.Errorf("takeover took %v, want at most TTL + 1.5 s", took)
		}
		if next.Token() <= l.Token() || l.Err() == nil {
			t.Errorf("tokens %d, %d; killed lock: %v", l.Token(), next.Token(), l.Err())
		}
	})
}

func TestPausedHolderFindsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		l, err := c.Client(0).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		c.Pause(0)
		time.Sleep(10 * time.Second)
		var lost *locks.LostError
		if err := l.Err(); !errors.As(err, &lost) || lost.Reason != locks.QuorumUnreachable {
			t.Errorf("after 5 TTLs: %v", err)
		}
		next, err := c.Client(1).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		c.Resume(0)
		if err := l.Release(t.Context()); !errors.Is(err, locks.ErrLost) {
			t.Errorf("releasing a lost lock: %v", err)
		}
		time.Sleep(5 * time.Second)
		if err := next.Err(); err != nil {
			t.Errorf("the late release freed the successor: %v", err)
		}
	})
}

func TestAFencedOffLeaderStandsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		ctx, cancel := context.WithCancel(t.Context())
		var tokens []fence.Token
		ended := make(chan error, 1)
		go func() {
			ended <- c.Client(0).Elect(ctx, "k", func(ctx context.Context, l *locks.Lock) error {
				tokens = append(tokens, l.Token())
				<-ctx.Done()
				// What a guard tells a writer that woke up too late.
				return fmt.Errorf("ledger: %w", &fence.StaleError{Token: l.Token(), Seen: l.Token() + 1})
			})
		}()
		time.Sleep(time.Second)
		c.Pause(0)
		time.Sleep(10 * time.Second)
		c.Resume(0)
		time.Sleep(10 * time.Second)
		select {
		case err := <-ended:
			t.Fatalf("Elect gave up: %v", err)
		default:
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, fence.ErrStale) {
			t.Error(err)
		}
		if len(tokens) != 2 || tokens[1] <= tokens[0] {
			t.Errorf("led under %v", tokens)
		}
	})
}
