// Package cronjobs runs jobs of robfig/cron on a single process of several.
package cronjobs

import (
	"context"
	"errors"

	"github.com/robfig/cron/v3"

	"github.com/wardmote/wardmote/locks"
)

// Run keeps a cron on the leading process until ctx ends. In each term of this process
// Run calls add with a new cron, and starts the cron. The jobs get the context and the
// lock of the term by add's arguments: ctx ends when the term ends, and l has the token.
//
// The term ends when the running jobs have returned; a job should return soon after the
// end of ctx. If the lock was lost, the next leader may run jobs beside these jobs. Run returns an error like
// locks.Client.Elect; an error of add ends the term and is tried again.
func Run(ctx context.Context, client *locks.Client, key string, add func(ctx context.Context, l *locks.Lock, c *cron.Cron) error, opts ...cron.Option) error {
	return client.Elect(ctx, key, func(ctx context.Context, l *locks.Lock) error {
		c := cron.New(opts...)
		if err := add(ctx, l, c); err != nil {
			return err
		}
		c.Start()
		<-ctx.Done()
		<-c.Stop().Done() // the running jobs
		return nil
	})
}

// Locked makes a job that runs work under the lock of key. While another process runs the
// job, the run is skipped. Errors go to failed; failed may be nil.
//
// A short job on a host whose clock is late may run again after the first has ended. Where
// each tick must run once, use Run.
func Locked(ctx context.Context, client *locks.Client, key string, work locks.Work, failed func(error)) cron.Job {
	return cron.FuncJob(func() {
		l, err := client.TryAcquire(ctx, key)
		if errors.Is(err, locks.ErrHeld) {
			return
		}
		if err == nil {
			err = work(l.Context(), l)
			err = errors.Join(err, l.Release(context.WithoutCancel(ctx)))
		}
		if err != nil && failed != nil {
			failed(err)
		}
	})
}
