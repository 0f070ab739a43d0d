// Package logging keeps the log readable: HashiCorp turns the lines of hashicorp's
// libraries into debug records, and a Limiter limits repeated lines. The package
// knows nothing of the libraries but their logger interface.
package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unicode"

	"github.com/hashicorp/go-hclog"

	"github.com/wardmote/wardmote/internal/timing"
)

// burst is the number of equal lines of a library that are written before they are
// limited.
const burst = 5

// HashiCorp returns a logger for raft and memberlist that writes to l. All lines
// become Debug: the libraries warn of every lost heartbeat and every refused dial,
// and of elections, which are routine here. The rooms tell by lines of their own
// when an operator has to act. Trace lines and empty attributes are dropped, and
// repeated lines are limited.
func HashiCorp(l *slog.Logger) hclog.Logger {
	i := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Off})
	i.RegisterSink(sink{l, NewLimiter(burst, timing.ChatterLeast, timing.ChatterMost)})
	return i
}

type sink struct {
	l     *slog.Logger
	limit *Limiter
}

// Accept implements hclog.SinkAdapter.
func (s sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	if level == hclog.Trace || !s.l.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	left, ok := s.limit.Pass(kind(msg))
	if !ok {
		return
	}
	var attrs []any
	for i, all := 0, append([]any{"source", name, "severity", level.String()}, args...); i+1 < len(all); i += 2 {
		if fmt.Sprint(all[i+1]) != "" {
			attrs = append(attrs, all[i], all[i+1])
		}
	}
	if left > 0 {
		attrs = append(attrs, "more", left)
	}
	s.l.Debug(msg, attrs...)
}

// kind returns the fixed beginning of a line: the words before the first number,
// quote or address. raft's messages are fixed as a whole; memberlist's are not.
func kind(msg string) string {
	i := strings.IndexFunc(msg, func(c rune) bool { return unicode.IsDigit(c) || strings.ContainsRune("'\"[/", c) })
	if i < 0 {
		return msg
	}
	return msg[:i]
}
