package temporalworker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/examples/recipes/temporalworker"
	"github.com/wardmote/wardmote/locks"
)

// fake is a worker without a server.
type fake struct {
	worker.Worker
	process int
	events  chan<- event
}

type event struct {
	process int
	what    string
}

func (f *fake) Start() error { f.events <- event{f.process, "start"}; return nil }
func (f *fake) Stop()        { f.events <- event{f.process, "stop"} }

func local(t *testing.T) *locks.Client {
	t.Helper()
	c, err := wardmote.Local(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Node().Stop() })
	return c
}

// Two processes have a fake worker. The second starts after the first has
// stopped.
func TestOneWorkerAtATime(t *testing.T) {
	first := local(t)
	events := make(chan event, 9)
	run := func(ctx context.Context, i int, c *locks.Client) <-chan error {
		ended := make(chan error, 1)
		go func() {
			ended <- temporalworker.Run(ctx, c, "activities", func(_ context.Context, l *locks.Lock) (worker.Worker, error) {
				return &fake{process: i, events: events}, l.Err()
			})
		}()
		return ended
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := run(ctx, 0, first)
	if e := <-events; e != (event{0, "start"}) {
		t.Error(e)
	}
	rest, end := context.WithCancel(t.Context())
	defer end()
	other := run(rest, 1, locks.New(first.Node(), locks.Options{}))
	for status, err := range first.Watch(t.Context(), "activities") {
		if err != nil {
			t.Fatal(err)
		}
		if len(status.Waiters) == 1 {
			break
		}
	}
	stop()
	for _, want := range []event{{0, "stop"}, {1, "start"}} {
		if e := <-events; e != want {
			t.Errorf("%v, want %v", e, want)
		}
	}
	end()
	for _, c := range []<-chan error{ended, other} {
		if err := <-c; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// A worker of the SDK itself cannot start without a server: the term ends, and is tried
// again.
func TestNoServer(t *testing.T) {
	server, err := client.NewLazyClient(client.Options{HostPort: "127.0.0.1:1", Logger: silent{}, ConnectionOptions: client.ConnectionOptions{GetSystemInfoTimeout: 100 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	n := 0
	err = temporalworker.Run(t.Context(), local(t), "activities", func(context.Context, *locks.Lock) (worker.Worker, error) {
		if n++; n == 2 {
			return nil, locks.Final(nil)
		}
		return worker.New(server, "serial", worker.Options{WorkerStopTimeout: time.Minute}), nil
	})
	if err != nil || n != 2 {
		t.Errorf("%d terms, %v", n, err)
	}
}

// silent is a logger of the SDK.
type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}
