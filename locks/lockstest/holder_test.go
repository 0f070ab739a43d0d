package lockstest_test

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// stand has member i stand for election until the test ends.
func stand(c *lockstest.Cluster, i int) {
	client := c.NewClient(i, locks.Options{Name: fmt.Sprint("worker-", i)})
	go func() {
		_ = client.Elect(context.Background(), "job", func(ctx context.Context, l *locks.Lock) error {
			<-ctx.Done()
			return nil
		})
	}()
}

// WaitHeld waits for the holder after each fault that takes a holder out.
func TestWaitHeldReturnsTheNextHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 5)
		if i, _, ok := c.Holder("job"); ok || i != -1 {
			t.Errorf("member %d holds a free key", i)
		}
		for i := range 5 {
			stand(c, i)
		}
		i, h := c.WaitHeld("job")
		if held, again, ok := c.Holder("job"); !ok || held != i || again.Token != h.Token || h.Client != fmt.Sprint("worker-", i) || h.Node != c.Node(i).Name() {
			t.Errorf("WaitHeld returned %d, %+v, Holder %d, %+v", i, h, held, again)
		}
		for _, fault := range []struct {
			name       string
			begin, end func(i int)
		}{
			{"kill", func(int) { c.KillHolder("job") }, func(i int) { c.Restart(i); stand(c, i) }},
			{"freeze", c.Freeze, c.Thaw},
			{"pause", c.Pause, c.Resume},
			{"isolate", func(i int) { c.Isolate(i) }, func(int) { c.Heal() }},
		} {
			c.Settle()
			before, began := h, time.Now()
			fault.begin(i)
			if still, _, ok := c.Holder("job"); !ok || still != i {
				t.Errorf("%s: the session has ended at once", fault.name)
			}
			next, after := c.WaitHeld("job")
			if next == i || after.Token <= before.Token {
				t.Errorf("%s: held by member %d, token %d, after member %d, token %d", fault.name, next, after.Token, i, before.Token)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s: held after %v", fault.name, took)
			}
			fault.end(i)
			i, h = next, after
		}
	})
}

// The end of a fault is an event: a holder that comes back in time counts at once, and so
// does no grant of an earlier process.
func TestAHolderThatComesBackCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 4, lockstest.TTL(30*time.Second))
		if _, err := c.Client(3).Acquire(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		c.Freeze(3)
		go func() {
			time.Sleep(5 * time.Second)
			c.Thaw(3)
		}()
		began := time.Now()
		if i, _ := c.WaitHeld("k"); i != 3 || time.Since(began) < 5*time.Second || time.Since(began) > 6*time.Second {
			t.Errorf("held by %d after %v", i, time.Since(began))
		}
		c.KillHolder("k")
		c.Restart(3)
		go func() { _, _ = c.Client(2).Acquire(context.Background(), "k") }()
		if i, _ := c.WaitHeld("k"); i != 2 {
			t.Errorf("held by %d, which was started again", i)
		}
	})
}

// failures is a test. It notes the message of its failure.
type failures struct {
	testing.TB
	told chan string
}

func (f failures) Helper() {}

func (f failures) Fatalf(format string, args ...any) {
	f.told <- fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Methods that cannot do their work fail the test, and the message says why.
func TestFailuresSayWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := failures{t, make(chan string, 1)}
		c := lockstest.New(f, 3)
		c.Settle()
		fails := func(call func(), words ...string) {
			t.Helper()
			began := time.Now()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				call()
			}()
			<-ended
			select {
			case told := <-f.told:
				for _, w := range words {
					if !strings.Contains(told, w) {
						t.Errorf("%q is not in %q", w, told)
					}
				}
			default:
				t.Errorf("no failure; want %q", words)
			}
			if took := time.Since(began); took > 2*time.Minute {
				t.Errorf("%q took %v", words, took)
			}
		}
		fails(func() { c.WaitHeld("k") }, `nobody holds "k"`, "nobody waits", "member 1: reaches the leader member-")
		fails(func() { c.KillHolder("k") }, `nobody holds "k"`)
		victim := (c.Leader() + 1) % 3
		if _, err := c.NewClient(victim, locks.Options{Name: "ann"}).Acquire(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		waiting, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			_, _ = c.NewClient((victim+1)%3, locks.Options{Name: "ben"}).Acquire(waiting, "k", locks.Shared())
		}()
		c.Kill(victim)
		fails(func() { c.KillHolder("k") }, `"k" is held by ann on member-`, "which was killed")
		fails(func() { c.Freeze(victim) }, "does not run")
		fails(func() { c.HangStore(victim) }, "does not run")
		fails(func() { c.Thaw(3) }, "member 3 is not within 0 and 2")
		fails(func() { c.Freeze(3) }, "member 3 is not within 0 and 2")
		fails(func() { c.Cut(0, 3) }, "member 3 is not within 0 and 2")
		fails(func() { c.Partition([]int{0, -1}) }, "member -1 is not within 0 and 2")
		fails(func() { c.Restart((victim + 1) % 3) }, "runs", "after Kill")
		fails(func() { c.SetClock(0, lockstest.Clock{Rate: -1}) }, "rate -1")
		time.Sleep(5 * time.Second)
		c.Isolate(0, 1, 2)
		fails(func() { c.WaitHeld("k") }, "no member reaches a leader", "does not run", "isolated, ")
		fails(func() { c.Holder("k") }, "nobody can tell")
		fails(func() { c.Leader() }, "no member leads", "does not run", "isolated, ")
		fails(c.Settle, "members vote", "does not run", "isolated, ")
	})
}

// failed is a test that has failed. It keeps its log.
type failed struct {
	testing.TB
	log *[]string
}

func (f failed) Failed() bool    { return true }
func (f failed) Log(args ...any) { *f.log = append(*f.log, fmt.Sprint(args...)) }

// The log of a failed test has the faults among the events, and where the test ended.
func TestTheLogHasTheFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		t.Cleanup(func() { // after the cluster's
			all := strings.Join(log, "\n")
			want := `(?s)cluster founded.*00:00:03\.000 the test kills member 0\n.*the test restarts member 0\n.*` +
				`member-0: granting.*the test freezes member 1\n.*the test has ended`
			if !regexp.MustCompile(want).MatchString(all) {
				t.Errorf("the log: %s", all)
			}
		})
		c := lockstest.New(failed{t, &log}, 3)
		time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, 3, 0, time.UTC)))
		c.Kill(0)
		c.Restart(0)
		c.Freeze(1)
	})
}
