package cronjobs_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/wardmote/wardmote/examples/recipes/cronjobs"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

type run struct {
	member int
	tick   time.Time
	token  fence.Token
}

// Two processes have a job for every ten seconds. Each tick runs once, through a kill.
func TestEachTickRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 4, lockstest.TTL(3*time.Second))
		ctx, stop := context.WithCancel(t.Context())
		runs, ended := make(chan run, 100), make(chan error, 2)
		for i := range 2 {
			go func() {
				ended <- cronjobs.Run(ctx, c.Client(i), "cron", func(ctx context.Context, l *locks.Lock, c *cron.Cron) error {
					_, err := c.AddFunc("*/10 * * * * *", func() {
						if ctx.Err() == nil {
							runs <- run{i, time.Now().Truncate(10 * time.Second), l.Token()}
						}
					})
					return err
				}, cron.WithSeconds())
			}()
			c.WaitHeld("cron")
		}
		time.Sleep(50 * time.Second)
		killed := c.KillHolder("cron")
		time.Sleep(50 * time.Second)
		if n := len(runs); n < 9 || n > 10 {
			t.Errorf("%d runs in 100 seconds, with a takeover of a TTL", n)
		}
		var last run
		for n := range len(runs) {
			r := <-runs
			if !r.tick.After(last.tick) || r.token < last.token || (r.member == killed) != (n < 5) {
				t.Errorf("run %d, %+v, after %+v", n, r, last)
			}
			last = r
		}
		stop()
		for range 2 {
			if err := <-ended; err == nil {
				t.Error("Run ended without an error")
			}
		}
	})
}

// A locked job is skipped elsewhere while the job runs, and the errors of jobs are reported.
func TestALockedJobIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		wrong := errors.New("wrong")
		n, told := 0, make(chan error, 9)
		other := cronjobs.Locked(t.Context(), c.Client(1), "job", func(context.Context, *locks.Lock) error {
			n++
			return wrong
		}, func(err error) { told <- err })
		cronjobs.Locked(t.Context(), c.Client(0), "job", func(context.Context, *locks.Lock) error {
			other.Run()
			return nil
		}, func(err error) { t.Error(err) }).Run()
		if n != 0 {
			t.Error("the job ran twice at a time")
		}
		other.Run()
		if err := <-told; n != 1 || !errors.Is(err, wrong) {
			t.Errorf("then it ran %d times, and told %v", n, err)
		}
	})
}
