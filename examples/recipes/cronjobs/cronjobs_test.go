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
	minute time.Time
	token  fence.Token
}

// Two processes have a job for each minute. Each minute runs once, through a kill.
func TestEachMinuteRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 4, lockstest.TTL(10*time.Second))
		ctx, stop := context.WithCancel(t.Context())
		runs, ended := make(chan run, 100), make(chan error, 2)
		for i := range 2 {
			go func() {
				ended <- cronjobs.Run(ctx, c.Client(i), "cron", func(ctx context.Context, l *locks.Lock, c *cron.Cron) error {
					_, err := c.AddFunc("* * * * *", func() {
						if ctx.Err() == nil {
							runs <- run{i, time.Now().Truncate(time.Minute), l.Token()}
						}
					})
					return err
				})
			}()
			c.WaitHeld("cron")
		}
		time.Sleep(4 * time.Minute)
		killed := c.KillHolder("cron")
		time.Sleep(4 * time.Minute)
		if n := len(runs); n != 8 {
			t.Errorf("%d runs in 8 minutes", n)
		}
		var last run
		for n := range len(runs) {
			r := <-runs
			if !r.minute.After(last.minute) || r.token < last.token || (r.member == killed) != (n < 4) {
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

// A locked job that runs is skipped elsewhere; what it returns is told.
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
