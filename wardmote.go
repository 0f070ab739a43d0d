// Package wardmote gives the processes of an application distributed locks, leader
// elections and shards with a single writer each. There is no lock server: the
// processes find each other, and a few of them keep the lock table in a Raft group of
// their own.
//
// A program passes its work to [Main], and starts as three or more processes:
//
//	func main() {
//		err := wardmote.Main(cluster.Config{InitialSize: 3, Logger: slog.Default()}, work)
//		if err != nil {
//			log.Fatal(err)
//		}
//	}
//
//	func work(ctx context.Context, c *locks.Client) error {
//		return c.Elect(ctx, "scheduler", func(ctx context.Context, l *locks.Lock) error {
//			return schedule(ctx, l.Token()) // on one process at a time, until ctx ends
//		})
//	}
//
// The environment says where a process listens and where the others are:
//
//	WARDMOTE_BIND=:7946 WARDMOTE_JOIN=app.internal:7946 WARDMOTE_SECRET_FILE=/run/secrets/wardmote ./app
//
// # Where to read on
//
//   - docs/start.md, in the repository, leads from an empty folder to a locked job on
//     three processes, one of which dies.
//   - [Main] is for a program, [Run] for a part of a program that has signals,
//     settings and an order of stopping of its own, and [Local] for a program of a
//     single process: development, tests, a command line tool.
//   - Package locks has the client: Acquire, Do, Elect, Spread and the rest, and the
//     contexts that end when a lock is lost.
//   - Package cluster has the configuration, the guarantees, and the health of a member.
//   - Package fence has the guards of written resources. A paused process cannot notice
//     the loss of its lock; only the resource can refuse the write.
//   - Package locks/lockshttp has a page that shows the cluster, probes and metrics.
//   - Package locks/lockstest has whole clusters for tests, in fake time.
//
// # The first seconds
//
// InitialSize members found the cluster once all of them see each other. A founded
// cluster grants nothing for a TTL, by default 10 s, because survivors of an earlier
// cluster may still hold locks. The work begins before that: it serves its probes at
// once, and its calls for locks wait. With a Logger the log tells how far the founding
// has come and how long the wait lasts; Node.Health has the same in Reason, and
// Node.Ready waits for the end.
//
// # The last seconds
//
// Main ends on SIGINT and SIGTERM, Run with its ctx. The order is the same, also when
// the work returns by itself, fails or panics: the context of the work ends, the work
// returns, all locks end and their keys become free, and then the member leaves the
// cluster, or with a Dir stops for now. From the return of the work until the return
// of Run pass ten seconds at most. Give a process as long as its work takes, and ten
// seconds more: terminationGracePeriodSeconds, TimeoutStopSec.
package wardmote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/locks"
)

// App is the work of a program. An App begins at once, while the cluster may not be
// founded yet: calls of c wait, and c.Node().Ready(ctx) waits for the cluster. An App
// should return soon after ctx ends. Until then c serves, and the log warns after five
// seconds; after that, calls of c that still run fail with locks.ErrClosed. An App that
// waits for the end of a lock of Acquire waits for ctx too: the context of such a lock
// does not end with ctx.
//
// The cause of ctx's end is the error of the node if the node has failed, and
// cluster.ErrStopped if somebody has stopped the node.
type App func(ctx context.Context, c *locks.Client) error

// Run starts a member of a cluster, runs app, and stops the member when app has
// returned. Run handles no signals and reads no environment: see Main.
//
// The order of stopping: ctx ends, and with it the context of app; app returns; the
// client is closed, so that all keys are free; the member leaves the cluster, or with a
// Dir stops and comes back by another Run. Closing and leaving take ten seconds at
// most. Where that was not enough, as without a quorum, the keys are free after the
// TTL, the others replace the member, and the log has a line about it, at level Warn.
//
// Run returns
//
//   - app's error, nil included, as it is, and nothing else as a rule;
//   - the node's error, behind an error that app may have of its own, if the node has
//     failed before app returned: Run has then ended app's context. The process should
//     end, so that a supervisor starts it again;
//   - the error of Start, a *cluster.ConfigError for bad input, and app did not run. A
//     cfg without a way into a cluster is refused: a member must not found a cluster of
//     its own unless InitialSize is 1;
//   - behind all of these, an error of the member's disk or port at the end.
//
// If app panics, the member is stopped in the same order, and the panic goes on.
func Run(ctx context.Context, cfg cluster.Config, app App) error {
	switch {
	case ctx == nil:
		return &cluster.ConfigError{Field: "ctx", Reason: "nil"}
	case app == nil:
		return &cluster.ConfigError{Field: "app", Reason: "nil"}
	}
	if err := wayIn(cfg); err != nil {
		return err
	}
	node, err := cluster.Start(ctx, cfg)
	if err != nil {
		return err
	}
	return run(ctx, node, cfg, app)
}

// wayIn refuses a configuration by which the member could never be in a cluster.
func wayIn(cfg cluster.Config) error {
	if len(cfg.Join) > 0 || len(cfg.Founders) > 0 || cfg.InitialSize != 0 {
		return nil
	}
	return &cluster.ConfigError{Field: "Config.Join", Reason: "empty, and neither InitialSize nor Founders is set, so this member could never be in a cluster. " +
		"Set Join (under Main also by " + prefix + "JOIN) to the addresses of the members, and InitialSize (" + prefix +
		"INITIAL_SIZE) to the number of members that are started first; a program of a single process uses Local"}
}

// run runs app on a started node, and stops the node.
func run(ctx context.Context, node *cluster.Node, cfg cluster.Config, app App) (err error) {
	client := locks.New(node, locks.Options{})
	ctx, cancel := context.WithCancelCause(ctx)
	log := logOf(node, cfg)
	returned := make(chan struct{})
	var failure error
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-node.Done():
			if err := node.Err(); !errors.Is(err, cluster.ErrStopped) {
				failure = err
			}
			cancel(node.Err())
		case <-ctx.Done():
		}
		tellSlow(ctx, returned, log)
	})
	// Deferred, so that the member does not stay behind when app panics.
	defer func() {
		close(returned)
		cancel(nil)
		watch.Wait()
		err = behind(err, failure)
		err = behind(err, stop(node, client, cfg.Dir != "", log))
	}()
	return app(ctx, client)
}

func logOf(node *cluster.Node, cfg cluster.Config) *slog.Logger {
	logger := cfg.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return logger.With("member", node.Name())
}

// tellSlow returns when the work has returned, and warns once if the work goes on for
// some time after the end of its context: a process that does not end for that reason
// would be silent otherwise.
func tellSlow(ctx context.Context, returned <-chan struct{}, log *slog.Logger) {
	<-ctx.Done()
	late := time.NewTimer(timing.RunWarns)
	defer late.Stop()
	select {
	case <-returned:
	case <-late.C:
		log.Warn("the work goes on after the end of its context", "cause", context.Cause(ctx), "for", timing.RunWarns,
			"next", "have the work return when its context ends: the context of a lock of Acquire does not end with it")
	}
}

// behind joins a second error to the error of app, unless the first one says no more
// than the end of a context, or is the second one.
func behind(err, next error) error {
	switch {
	case next == nil, err != nil && errors.Is(err, next):
		return err
	case err == nil, mere(err):
		return next
	}
	return errors.Join(err, next)
}

// stop closes the client and takes the member out of its cluster. An end that the
// cluster was not told of in time is no error: the TTL frees the keys, and the others
// replace the member. The log has it.
func stop(node *cluster.Node, client *locks.Client, comesBack bool, log *slog.Logger) error {
	failed := node.Err() != nil // there is nobody to tell anything
	bye, cancel := context.WithTimeout(context.Background(), timing.RunStops)
	defer cancel()
	closing, cancelClosing := context.WithTimeout(bye, timing.RunCloses)
	defer cancelClosing()
	if err := client.Close(closing); err != nil && !failed {
		log.Warn("locks not released in time", "error", err, "next", "nothing: the keys are free after the TTL")
	}
	if !comesBack && !failed {
		if err := node.Leave(bye); err != nil {
			log.Warn("left without a successor", "error", err, "next", "nothing if a majority of the voters lives: it replaces this member")
		}
	}
	if err := node.Stop(); err != nil {
		return fmt.Errorf("wardmote: stopping: %w", err)
	}
	return nil
}
