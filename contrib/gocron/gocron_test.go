package gocronwardmote_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/wardmote/wardmote/cluster"
	gocronwardmote "github.com/wardmote/wardmote/contrib/gocron"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// diary is a test's list of runs.
type diary struct {
	mu    sync.Mutex
	began time.Time
	runs  []entry
}

// entry is a run, with its tick, its member and its token.
type entry struct {
	tick, member int
	token        fence.Token
}

// interval is the interval of the jobs.
const interval = 10 * time.Second

func (d *diary) write(member int, token fence.Token) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs = append(d.runs, entry{int(time.Since(d.began) / interval), member, token})
}

// perTick returns the number of runs in each tick.
func (d *diary) perTick() map[int]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := make(map[int]int)
	for _, r := range d.runs {
		n[r.tick]++
	}
	return n
}

// check fails the test if a tick has more runs than one, or if a token has fallen.
func (d *diary) check(t *testing.T) {
	t.Helper()
	if t.Failed() {
		return
	}
	for tick, n := range d.perTick() {
		if n != 1 {
			t.Errorf("tick %d ran %d times: %v", tick, n, d.runs)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := 1; i < len(d.runs); i++ {
		if d.runs[i].token < d.runs[i-1].token {
			t.Errorf("a token fell: %v", d.runs)
		}
	}
}

// members returns the members that ran the job in ticks from to until-1.
func (d *diary) members(from, until int) map[int]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := make(map[int]int)
	for _, r := range d.runs {
		if from <= r.tick && r.tick < until {
			n[r.member]++
		}
	}
	return n
}

// schedule starts a scheduler with one job. The job fires first at begin, and then every
// interval.
func schedule(t *testing.T, begin time.Time, task func(context.Context) error, opts ...gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(opts...)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.NewJob(gocron.DurationJob(interval), gocron.NewTask(task), gocron.WithName("report"),
		gocron.WithStartAt(gocron.WithStartDateTime(begin)))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	return s
}

// sleepTo sleeps until the middle of a tick.
func (d *diary) sleepTo(tick int) {
	time.Sleep(time.Until(d.began.Add(interval*time.Duration(tick) + interval/2)))
}

func shutDown(t *testing.T, s gocron.Scheduler) {
	t.Helper()
	if err := s.Shutdown(); err != nil {
		t.Error(err)
	}
}

// Two schedulers with a Locker fire at the same moments, one of them late. Each tick runs
// once. The member that ran last is killed between two ticks, and the other one runs all
// later ticks.
func TestTwoSchedulersRunEachTickOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 4) // members 2 and 3 keep the quorum
		d := &diary{began: time.Now().Add(time.Second)}
		var schedulers []gocron.Scheduler
		for i := range 2 {
			locker := gocronwardmote.NewLocker(c.Client(i), gocronwardmote.Options{})
			task := locker.Task("report", func(ctx context.Context, l *locks.Lock) error {
				if token, ok := fence.FromContext(ctx); !ok || token != l.Token() {
					t.Errorf("the context has token %d, the lock %d", token, l.Token())
				}
				d.write(i, l.Token())
				return nil // shorter than the difference of the clocks
			})
			late := time.Duration(i) * 900 * time.Millisecond
			schedulers = append(schedulers, schedule(t, d.began.Add(late), task, gocron.WithDistributedLocker(locker)))
		}
		d.sleepTo(9)
		if d.check(t); len(d.perTick()) != 10 {
			t.Errorf("runs per tick: %v", d.perTick())
		}

		killed := 0 // its clock is ahead, so that it got all ticks
		if got := d.members(0, 10); got[killed] != 10 {
			t.Errorf("runs by member: %v", got)
		}
		c.Kill(killed)
		d.sleepTo(19)
		if d.check(t); len(d.perTick()) != 20 {
			t.Errorf("runs per tick after a kill: %v", d.perTick())
		}
		if got := d.members(10, 20); !maps.Equal(got, map[int]int{1: 10}) {
			t.Errorf("runs by member after the kill: %v", got)
		}
		for _, s := range schedulers {
			shutDown(t, s)
		}
	})
}

// A member is killed in the middle of a run. The tick is not repeated, nobody runs before
// the TTL has passed, and later ticks run elsewhere. Task's context ends with the lock,
// and OnLost is told.
func TestARunCutShortByAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 4, lockstest.TTL(2*time.Second))
		d := &diary{began: time.Now().Add(time.Second)}
		lost := make(chan *locks.LostError, 1)
		ended := make(chan error, 1)
		var schedulers []gocron.Scheduler
		for i := range 2 {
			locker := gocronwardmote.NewLocker(c.Client(i), gocronwardmote.Options{OnLost: func(err *locks.LostError) { lost <- err }})
			task := locker.Task("report", func(ctx context.Context, l *locks.Lock) error {
				d.write(i, l.Token())
				if i == 0 {
					<-ctx.Done() // works through three intervals
					ended <- context.Cause(ctx)
				}
				return nil
			})
			late := time.Duration(i) * 100 * time.Millisecond
			schedulers = append(schedulers, schedule(t, d.began.Add(late), task, gocron.WithDistributedLocker(locker)))
		}
		d.sleepTo(2)
		if got := d.perTick(); !maps.Equal(got, map[int]int{0: 1}) {
			t.Errorf("while the first run goes on: runs per tick %v", got)
		}
		c.Kill(0)
		if err := <-lost; err.Key != "gocron/report" {
			t.Errorf("OnLost was told of %q", err.Key)
		}
		if err := <-ended; !errors.Is(err, locks.ErrLost) {
			t.Errorf("the context of the killed run ended by %v", err)
		}
		d.sleepTo(5)
		if d.check(t); !maps.Equal(d.members(3, 6), map[int]int{1: 3}) {
			t.Errorf("after the kill: %v", d.runs)
		}
		for _, s := range schedulers {
			shutDown(t, s)
		}
	})
}

// While no leader can be reached, no tick runs, and none is made up for later.
func TestNoQuorumNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		d := &diary{began: time.Now().Add(time.Second)}
		failed := make(chan error, 100)
		locker := gocronwardmote.NewLocker(c.Client(0), gocronwardmote.Options{})
		task := locker.Task("report", func(_ context.Context, l *locks.Lock) error { d.write(0, l.Token()); return nil })
		s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.NewJob(gocron.DurationJob(interval), gocron.NewTask(task), gocron.WithName("report"),
			gocron.WithStartAt(gocron.WithStartDateTime(d.began)),
			gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { failed <- err })))
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		d.sleepTo(0)
		c.Isolate(0)
		if err := <-failed; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a quorum Lock failed with %v", err)
		}
		if took := time.Since(d.began) % interval; took > gocronwardmote.DefaultKeep {
			t.Errorf("Lock took %v without a quorum", took)
		}
		d.sleepTo(3)
		c.Heal()
		d.sleepTo(5)
		if got := d.perTick(); !maps.Equal(got, map[int]int{0: 1, 4: 1, 5: 1}) {
			t.Errorf("runs per tick: %v", got)
		}
		shutDown(t, s)
	})
}

// Close waits until the key is free, and Lock fails afterwards. A job of a name that is
// not locked does not run.
func TestCloseFreesTheKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		k := gocronwardmote.NewLocker(c.Client(0), gocronwardmote.Options{Prefix: "app/", Keep: 4 * time.Second})
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		l, err := k.Lock(ctx, "job")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Lock(t.Context(), "job"); !errors.Is(err, locks.ErrHeld) {
			t.Errorf("a second run at a time: %v", err)
		}
		err = k.Task("other", func(context.Context, *locks.Lock) error { t.Error("a job ran without its lock"); return nil })(ctx)
		if !errors.Is(err, gocronwardmote.ErrNotHeld) {
			t.Errorf("a task of another name: %v", err)
		}
		cancel() // as gocron does before Unlock
		if err := l.Unlock(ctx); err != nil {
			t.Error(err)
		}
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := k.Close(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close within a second: %v", err)
		}
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 4*time.Second || took > 5*time.Second {
			t.Errorf("Close freed the key after %v, want the Keep of 4s", took)
		}
		if _, err := c.Client(1).TryAcquire(t.Context(), "app/job"); err != nil {
			t.Errorf("after Close: %v", err)
		}
		if _, err := k.Lock(t.Context(), "job"); !errors.Is(err, gocronwardmote.ErrClosed) {
			t.Errorf("Lock after Close: %v", err)
		}
	})
}

// The scheduler of the leading process runs all ticks. The leader is killed, and then its
// successor frozen for longer than a TTL: each tick runs once at most, and tokens never fall.
func TestTheElectorsSchedulerRunsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 5)
		d := &diary{began: time.Now().Add(time.Second)}
		var schedulers []gocron.Scheduler
		var electors []*gocronwardmote.Elector
		for i := range 3 {
			e := gocronwardmote.NewElector(c.Client(i), "scheduler")
			task := e.Task(func(_ context.Context, l *locks.Lock) error { d.write(i, l.Token()); return nil })
			schedulers = append(schedulers, schedule(t, d.began, task, gocron.WithDistributedElector(e)))
			electors = append(electors, e)
		}
		d.sleepTo(4)
		first, _ := c.WaitHeld("scheduler")
		if d.check(t); !maps.Equal(d.members(0, 5), map[int]int{first: 5}) {
			t.Errorf("member %d leads, runs by member: %v", first, d.members(0, 5))
		}

		c.Kill(first)
		d.sleepTo(9)
		second, _ := c.WaitHeld("scheduler")
		if d.check(t); second == first || !maps.Equal(d.members(5, 10), map[int]int{second: 5}) {
			t.Errorf("after a kill member %d leads, runs by member: %v", second, d.members(5, 10))
		}

		c.Settle()
		c.Freeze(second)
		time.Sleep(interval / 2)
		c.Thaw(second) // in the tick after
		if err := electors[second].IsLeader(t.Context()); !errors.Is(err, gocronwardmote.ErrNotLeader) {
			t.Errorf("after a pause longer than the TTL IsLeader says %v", err)
		}
		d.sleepTo(14)
		third, _ := c.WaitHeld("scheduler")
		if d.check(t); third == second || !maps.Equal(d.members(11, 15), map[int]int{third: 4}) {
			t.Errorf("after a pause member %d leads, runs by member: %v", third, d.members(11, 15))
		}
		for i := range 3 {
			shutDown(t, schedulers[i])
			if err := electors[i].Close(t.Context()); err != nil {
				t.Error(err)
			}
			want := gocronwardmote.ErrClosed
			if i == first {
				want = cluster.ErrStopped
			}
			if err := electors[i].IsLeader(t.Context()); !errors.Is(err, gocronwardmote.ErrNotLeader) || !errors.Is(err, want) {
				t.Errorf("after Close of member %d's Elector IsLeader says %v, want %v", i, err, want)
			}
		}
	})
}

// Close of the leader's Elector ends the contexts of its jobs, and nobody else leads before
// the jobs have returned.
func TestCloseOfTheElectorWaitsForItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		old := gocronwardmote.NewElector(c.Client(0), "scheduler")
		c.WaitHeld("scheduler")
		next := gocronwardmote.NewElector(c.Client(1), "scheduler")
		defer next.Close(t.Context())

		began, returned := make(chan bool), make(chan error)
		go func() {
			returned <- old.Task(func(ctx context.Context, _ *locks.Lock) error {
				close(began)
				<-ctx.Done()
				time.Sleep(time.Minute)
				if err := next.IsLeader(t.Context()); !errors.Is(err, gocronwardmote.ErrNotLeader) {
					t.Errorf("beside a job of the earlier leader, IsLeader says %v", err)
				}
				return nil
			})(t.Context())
		}()
		<-began
		closed := make(chan error)
		go func() { closed <- old.Close(t.Context()) }()
		if err := <-returned; err != nil {
			t.Error(err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if err := next.IsLeader(t.Context()); err != nil {
			t.Errorf("after the earlier leader's Close: %v", err)
		}
		err := old.Task(func(context.Context, *locks.Lock) error { t.Error("a job ran without a term"); return nil })(t.Context())
		if !errors.Is(err, gocronwardmote.ErrNotLeader) {
			t.Errorf("a job after Close: %v", err)
		}
	})
}
