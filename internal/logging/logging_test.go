package logging

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

func record(level slog.Level) (*bytes.Buffer, *slog.Logger) {
	var b bytes.Buffer
	drop := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	return &b, slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: level, ReplaceAttr: drop}))
}

// The libraries' errors are routine, an operator's log has none of them.
func TestTheLibrariesLogAtDebug(t *testing.T) {
	b, l := record(slog.LevelDebug)
	raft := HashiCorp(l).Named("raft")
	raft.Trace("t")
	raft.Debug("d")
	raft.Info("i", "leader", "", "term", 3)
	raft.Warn("w")
	raft.Error("e")
	want := `level=DEBUG msg=d source=raft severity=debug
level=DEBUG msg=i source=raft severity=info term=3
level=DEBUG msg=w source=raft severity=warn
level=DEBUG msg=e source=raft severity=error
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b, want)
	}
	b, l = record(slog.LevelInfo)
	HashiCorp(l).Error("e")
	if b.Len() > 0 {
		t.Errorf("got %s", b)
	}
}

// A standard logger, as memberlist has it.
func TestLinesOfOneKindAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := record(slog.LevelDebug)
		std := HashiCorp(l).StandardLogger(&hclog.StandardLoggerOptions{InferLevels: true})
		for i := range 1000 {
			std.Printf("[WARN] memberlist: Suspect %d has failed", i)
			time.Sleep(100 * time.Millisecond)
		}
		std.Printf("[ERR] memberlist: other")
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		// Five at once, then after 10, 30 and 70 seconds.
		if len(lines) != burst+4 || !strings.Contains(lines[burst], "more=99") || strings.Contains(b.String(), `source=""`) {
			t.Errorf("%d lines:\n%s", len(lines), b)
		}
	})
}

func TestALimiterGrowsItsPausesAndForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(1, time.Second, 4*time.Second)
		var at []time.Duration
		began := time.Now()
		for time.Since(began) < 16*time.Second {
			if left, ok := l.Pass("k"); ok {
				at = append(at, time.Since(began))
				if n := len(at); n > 1 && time.Duration(left+1)*100*time.Millisecond != at[n-1]-at[n-2] {
					t.Errorf("%d left out before %v", left, at)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		if fmt.Sprint(at) != "[0s 1s 3s 7s 11s 15s]" {
			t.Errorf("passed at %v", at)
		}
		if _, ok := l.Pass("other"); !ok {
			t.Error("another key is silent")
		}
		time.Sleep(5 * time.Second)
		for range 2 {
			if _, ok := l.Pass("k"); !ok {
				t.Error("the key does not begin anew")
			}
			time.Sleep(time.Second)
		}
		for i := range 10 * maxKeys {
			if _, ok := l.Pass(fmt.Sprint("flood", i)); !ok {
				t.Fatal("a new key is silent")
			}
			time.Sleep(time.Nanosecond)
		}
		if len(l.keys) != maxKeys {
			t.Errorf("%d keys", len(l.keys))
		}
	})
}
