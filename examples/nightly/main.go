// Command nightly is the first program of the README: a job that one process at a
// time runs. Start three processes and see them take turns:
//
//	export WARDMOTE_JOIN=127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003
//	WARDMOTE_BIND=127.0.0.1:7001 go run ./examples/nightly
//
// Start the other two with 7002 and 7003 in WARDMOTE_BIND, within a minute or so. The
// processes wait for each other, and then found the cluster. On several hosts put one
// secret into a file, the same on all, and the file's path into WARDMOTE_SECRET_FILE:
//
//	(umask 077; head -c 32 /dev/urandom | base64 > secret)
package main

import (
	"context"
	"log/slog"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

func main() {
	err := wardmote.Main(cluster.Config{InitialSize: 3, Logger: slog.Default()}, func(ctx context.Context, c *locks.Client) error {
		return c.Do(ctx, "nightly-report", func(ctx context.Context, l *locks.Lock) error {
			slog.Info("mine", "token", l.Token())
			return nil // ctx ends as soon as the lock can no longer be trusted
		})
	})
	slog.Info("done", "error", err)
}
