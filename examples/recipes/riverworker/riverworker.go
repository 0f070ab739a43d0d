// Package riverworker runs the workers of River on a single process of several, for queues
// whose jobs must never run at the same time anywhere.
//
// River itself needs no lock for anything else: its jobs are rows, and its own leader runs the
// periodic ones.
package riverworker

import (
	"context"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// stopTime is the time for running jobs at the end of a term.
const stopTime = 10 * time.Second

// Client is a *river.Client.
type Client interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	StopAndCancel(ctx context.Context) error
}

// Run works a queue on the leading process until ctx ends. In each term of this process
// open is called for a new *river.Client, with MaxWorkers 1 for jobs without overlap.
//
// The context of the jobs ends with the lock, and has the token for fence.FromContext.
// When ctx ends, running jobs may finish within 10 s, and the next leader begins after the last of the jobs. If
// the lock is lost, the next leader may begin beside these jobs. Run returns an error like
// locks.Client.Elect; an error of open or of the start ends the term and is tried again.
func Run(ctx context.Context, client *locks.Client, key string, open func(l *locks.Lock) (Client, error)) error {
	return client.Elect(ctx, key, func(ctx context.Context, l *locks.Lock) error {
		c, err := open(l)
		if err != nil {
			return err
		}
		if err := c.Start(l.Context()); err != nil { // not ctx: its end would end the jobs at once
			return err
		}
		<-ctx.Done()
		soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		if l.Err() == nil && c.Stop(soon) == nil {
			return nil
		}
		return c.StopAndCancel(context.WithoutCancel(ctx))
	})
}
