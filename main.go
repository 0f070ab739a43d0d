package wardmote

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"reflect"
	"sync"
	"syscall"

	"github.com/wardmote/wardmote/cluster"
)

// Main is Run for the main function of a program: Main completes cfg from the
// environment (see Env), and SIGINT or SIGTERM end app's context. A second signal ends
// the process at once, as if Main were not there.
//
// Main returns nil if only the signal ended app: if app returned nil, or an error that
// is context.Canceled, as calls of the client do when their context ends. Otherwise
// Main returns as Run does, and for a bad variable a *cluster.ConfigError that names
// it.
func Main(cfg cluster.Config, app App) error {
	ctx, stop := untilSignal(context.Background())
	defer stop()
	cfg, err := Env(cfg)
	if err == nil {
		err = Run(ctx, cfg, app)
	}
	if ctx.Err() != nil && mere(err) {
		return nil
	}
	return err
}

// signalled is the cause of the end of app's context after a signal.
type signalled struct{ os.Signal }

func (s signalled) Error() string { return "wardmote: signal: " + s.String() }

// Is makes calls of the client, which return the cause, match context.Canceled.
func (s signalled) Is(target error) bool { return target == context.Canceled }

// untilSignal returns a context that ends at the first SIGINT or SIGTERM. The signals
// are the process's own again before the context ends, so that the second one cannot be
// missed. On Windows a SIGTERM stands for the end of the console or of the user's
// login.
func untilSignal(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stopped := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			cancel(signalled{s})
		case <-stopped:
			signal.Stop(signals)
		}
	})
	return ctx, func() {
		close(stopped)
		watch.Wait()
		cancel(nil)
	}
}

// joined is the type of the errors of errors.Join.
var joined = reflect.TypeOf(errors.Join(errors.ErrUnsupported))

// mere reports whether err is nil or says no more than that a context was cancelled. Of
// joined errors each must: app may join the failure of a flush to its context's end.
func mere(err error) bool {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if reflect.TypeOf(e) != joined {
			continue
		}
		for _, part := range e.(interface{ Unwrap() []error }).Unwrap() {
			if !mere(part) {
				return false
			}
		}
		return true
	}
	return err == nil || errors.Is(err, context.Canceled)
}
