// Package temporalworker runs a worker of Temporal on a single process of several, for
// activities that must never run on two processes at the same time. Workflows need no lock:
// Temporal's server gives each step to one worker.
package temporalworker

import (
	"context"

	"go.temporal.io/sdk/worker"

	"github.com/wardmote/wardmote/locks"
)

// Run keeps a worker on the leading process until ctx ends. In each term of this process
// open is called for a new worker; a worker cannot be started twice. Activities get ctx
// and l by open's arguments: ctx ends when the term ends, and l has the token.
//
// The term ends when Worker.Stop has returned. Stop waits for the running activities, for
// worker.Options.WorkerStopTimeout: set the option to the longest activity, or the next
// leader begins beside unfinished activities. If the lock is lost, the next leader
// may begin in any case. Run returns an error like locks.Client.Elect; an error of open, or
// of the start because the server cannot be reached, ends the term and is tried again.
func Run(ctx context.Context, client *locks.Client, key string, open func(ctx context.Context, l *locks.Lock) (worker.Worker, error)) error {
	return client.Elect(ctx, key, func(ctx context.Context, l *locks.Lock) error {
		w, err := open(ctx, l)
		if err != nil {
			return err
		}
		if err := w.Start(); err != nil {
			return err
		}
		<-ctx.Done()
		w.Stop()
		return nil
	})
}
