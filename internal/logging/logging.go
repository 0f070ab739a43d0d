// Package logging turns the log lines of hashicorp's libraries into slog
// records. It knows nothing of the libraries but their logger interface.
package logging

import (
	"context"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// HashiCorp returns a logger for raft and memberlist that writes to l. Their
// Info lines become Debug, and their Error lines Warn: most errors concern a
// single peer or a single attempt, and the library goes on. Trace lines are
// dropped.
func HashiCorp(l *slog.Logger) hclog.Logger {
	i := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Off})
	i.RegisterSink(sink{l})
	return i
}

type sink struct{ l *slog.Logger }

// Accept implements hclog.SinkAdapter.
func (s sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch level {
	case hclog.Trace:
		return
	case hclog.Warn, hclog.Error:
		to = slog.LevelWarn
	}
	s.l.Log(context.Background(), to, msg, append([]any{"source", name}, args...)...)
}
