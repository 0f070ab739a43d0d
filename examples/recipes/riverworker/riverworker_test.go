//go:build !race

// SQLite under the race detector takes minutes to compile.

package riverworker_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	_ "modernc.org/sqlite"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/examples/recipes/riverworker"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
)

type job struct{}

func (job) Kind() string { return "job" }

// done is a finished job, with its process and its token.
type done struct {
	process int
	token   fence.Token
}

type worker struct {
	river.WorkerDefaults[job]
	process int
	done    chan<- done
}

func (w *worker) Work(ctx context.Context, _ *river.Job[job]) error {
	token, _ := fence.FromContext(ctx)
	w.done <- done{w.process, token}
	return nil
}

// Two processes work a queue of River on SQLite. The first process works all jobs, and after its end the second process.
func TestOneProcessWorks(t *testing.T) {
	first, err := wardmote.Local(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Node().Stop() })
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	driver := riversqlite.New(db)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	insert, err := river.NewClient(driver, &river.Config{})
	if err != nil {
		t.Fatal(err)
	}

	began, worked := make(chan int, 9), make(chan done, 9)
	run := func(ctx context.Context, i int, client *locks.Client) <-chan error {
		ended := make(chan error, 1)
		go func() {
			ended <- riverworker.Run(ctx, client, "serial", func(*locks.Lock) (riverworker.Client, error) {
				began <- i
				workers := river.NewWorkers()
				river.AddWorker(workers, &worker{process: i, done: worked})
				return river.NewClient(driver, &river.Config{
					Logger:            slog.New(slog.DiscardHandler),
					Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
					FetchCooldown:     10 * time.Millisecond,
					FetchPollInterval: 50 * time.Millisecond,
					Workers:           workers,
				})
			})
		}()
		return ended
	}
	work := func(process int) (last done) {
		t.Helper()
		for range 3 {
			if _, err := insert.Insert(t.Context(), job{}, nil); err != nil {
				t.Fatal(err)
			}
			if last = <-worked; last.process != process || last.token == 0 {
				t.Errorf("worked by %+v, want process %d", last, process)
			}
		}
		return last
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := run(ctx, 0, first)
	<-began
	rest, end := context.WithCancel(t.Context())
	defer end()
	other := run(rest, 1, locks.New(first.Node(), locks.Options{}))
	before := work(0)
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if i := <-began; i != 1 {
		t.Errorf("process %d follows", i)
	}
	if after := work(1); after.token <= before.token {
		t.Errorf("token %d after token %d", after.token, before.token)
	}
	end()
	if err := <-other; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
