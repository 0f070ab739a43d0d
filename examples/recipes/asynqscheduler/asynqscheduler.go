// Package asynqscheduler runs the scheduler of asynq on one of several processes. Two
// schedulers of asynq at a time would put each task into the queue twice.
package asynqscheduler

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/wardmote/wardmote/locks"
)

// Run keeps a scheduler on the leading process until ctx ends. In each term of this
// process register is called with a new scheduler, which is started then.
//
// asynq's scheduler is not told of a context, but Shutdown ends it before the next leader
// begins, unless the lock was lost in a pause of the process: then a tick may be put into
// the queue twice. asynq.TaskID or asynq.Unique on the task excludes that. Run returns an
// error like locks.Client.Elect; an error of register ends the term and is tried again.
// While Redis cannot be reached, the term goes on, and asynq reports to its PostEnqueueFunc.
func Run(ctx context.Context, client *locks.Client, key string, redis asynq.RedisConnOpt, opts *asynq.SchedulerOpts, register func(*asynq.Scheduler) error) error {
	return client.Elect(ctx, key, func(ctx context.Context, _ *locks.Lock) error {
		s := asynq.NewScheduler(redis, opts)
		if err := register(s); err != nil {
			return err
		}
		if err := s.Start(); err != nil {
			return err
		}
		<-ctx.Done()
		s.Shutdown()
		return nil
	})
}
