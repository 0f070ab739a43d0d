package asynqscheduler_test

import (
	"context"
	"errors"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/examples/recipes/asynqscheduler"
	"github.com/wardmote/wardmote/locks"
)

// Two processes have asynq's scheduler, with a Redis in this process. The first puts tasks into the queue, and after its end the second.
func TestOneSchedulerAtATime(t *testing.T) {
	first, err := wardmote.Local(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Node().Stop() })
	redis := asynq.RedisClientOpt{Addr: miniredis.RunT(t).Addr()}
	began, queued := make(chan int, 9), make(chan int, 99)
	run := func(ctx context.Context, i int, client *locks.Client) <-chan error {
		opts := &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel, PostEnqueueFunc: func(_ *asynq.TaskInfo, err error) {
			if err != nil {
				t.Error(err)
			}
			queued <- i
		}}
		ended := make(chan error, 1)
		go func() {
			ended <- asynqscheduler.Run(ctx, client, "scheduler", redis, opts, func(s *asynq.Scheduler) error {
				_, err := s.Register("@every 1s", asynq.NewTask("report", nil))
				began <- i
				return err
			})
		}()
		return ended
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := run(ctx, 0, first)
	if i := <-began; i != 0 {
		t.Errorf("process %d leads", i)
	}
	rest, end := context.WithCancel(t.Context())
	defer end()
	other := run(rest, 1, locks.New(first.Node(), locks.Options{}))
	if i := <-queued; i != 0 {
		t.Errorf("process %d queued the first task", i)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if i := <-began; i != 1 {
		t.Errorf("process %d follows", i)
	}
	for len(queued) > 0 {
		if i := <-queued; i != 0 {
			t.Errorf("process %d queued a task beside the leader", i)
		}
	}
	if i := <-queued; i != 1 {
		t.Errorf("process %d queued the next task", i)
	}
	tasks, err := asynq.NewInspector(redis).ListPendingTasks("default")
	if err != nil || len(tasks) < 2 {
		t.Errorf("%d tasks in the queue: %v", len(tasks), err)
	}
	end()
	if err := <-other; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
