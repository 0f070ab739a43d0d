package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
)

// logbook is a slog.Handler that keeps the lines above Debug, and checks the form
// of every line.
type logbook struct {
	with []slog.Attr
	book *struct {
		sync.Mutex
		lines  []string // LEVEL phrase key=value ...
		faults []string
	}
}

func newLogbook() logbook {
	return logbook{book: &struct {
		sync.Mutex
		lines  []string
		faults []string
	}{}}
}

func (l logbook) Enabled(context.Context, slog.Level) bool { return true }
func (l logbook) WithGroup(string) slog.Handler            { panic("a group") }

func (l logbook) WithAttrs(attrs []slog.Attr) slog.Handler {
	l.with = append(slices.Clone(l.with), attrs...)
	return l
}

func (l logbook) Handle(_ context.Context, r slog.Record) error {
	text := r.Level.String() + " " + r.Message
	last := ""
	l.book.Lock()
	defer l.book.Unlock()
	check := func(a slog.Attr) bool {
		value := a.Value.Resolve().String()
		if value == "" || a.Key == "" || strings.HasPrefix(a.Key, "!") {
			l.book.faults = append(l.book.faults, fmt.Sprintf("%s: an empty attribute %q", r.Message, a.Key))
		}
		text += fmt.Sprintf(" %s=%s", a.Key, value)
		last = a.Key
		return true
	}
	for _, a := range l.with {
		check(a)
	}
	r.Attrs(check)
	if r.Level > slog.LevelDebug {
		l.book.lines = append(l.book.lines, text)
		if last != "next" {
			l.book.faults = append(l.book.faults, text+": without a next action")
		}
	}
	return nil
}

func (l logbook) config(c *Config) { c.Logger = slog.New(l) }

// above returns the lines of a level and higher.
func (l logbook) above(level slog.Level) (lines []string) {
	l.book.Lock()
	defer l.book.Unlock()
	for _, line := range l.book.lines {
		var at slog.Level
		if err := at.UnmarshalText([]byte(strings.Fields(line)[0])); err != nil || at >= level {
			lines = append(lines, line)
		}
	}
	return lines
}

// sound fails the test for lines of a wrong form.
func (l logbook) sound(t *testing.T) {
	t.Helper()
	l.book.Lock()
	defer l.book.Unlock()
	for _, f := range l.book.faults {
		t.Error(f)
	}
}

// Founding, work, elections, a deployment that replaces every member, and the end
// are no reason to warn anybody.
func TestAHealthyLifeWritesNoWarning(t *testing.T) {
	t.Parallel() // waits for the disk
	for _, dirs := range []bool{false, true} {
		t.Run(fmt.Sprintf("dirs=%v", dirs), func(t *testing.T) {
			dir := t.TempDir()
			inBubble(t, func(b *bubble) {
				l := newLogbook()
				change := []func(*Config){l.config}
				if dirs {
					change = append(change, inDir(dir))
				}
				nodes := b.form(change...)
				nodes = append(nodes, b.join("n4", append(change, thin)...))
				for i, n := range nodes {
					b.open(n, byte(i+1))
					b.acquire(n, byte(i+1), 1, "k")
					b.propose(n, machine.Close{Session: sid(byte(i + 1))})
				}
				time.Sleep(20 * time.Second)
				for _, name := range []string{"n1", "n2", "n3", "n4"} {
					if dirs {
						n := b.nodes[name]
						delete(b.nodes, name)
						if err := n.Stop(); err != nil {
							t.Error(err)
						}
					} else {
						b.leave(name)
					}
					if name == "n4" {
						break
					}
					time.Sleep(2 * time.Second)
					b.join(name, change...)
					time.Sleep(12 * time.Second) // until it votes
				}
				for _, name := range []string{"n1", "n2", "n3"} {
					b.leave(name)
				}
				for _, line := range l.above(slog.LevelWarn) {
					t.Error(line)
				}
				l.sound(t)
				if len(l.above(slog.LevelInfo)) < 20 {
					t.Errorf("only %d lines", len(l.above(slog.LevelInfo)))
				}
			})
		})
	}
}

// The cost of a short TTL is said at the start, once.
func TestAShortTTLIsToldAtTheStart(t *testing.T) {
	inBubble(t, func(b *bubble) {
		for i, tt := range []struct {
			ttl  time.Duration
			want string
		}{
			{10 * time.Second, ""},
			{3 * time.Second, ""},
			{2999 * time.Millisecond, "INFO short ttl member=n2 ttl=2.999s cost=a leader that falls silent may"},
			{time.Second, "cost=a leader that falls silent may"},
			{999 * time.Millisecond, "cost=a leader that crashes or falls silent may"},
		} {
			l := newLogbook()
			b.start(fmt.Sprint("n", i), alone, ttl(tt.ttl), l.config)
			var told []string
			for _, line := range l.above(slog.LevelInfo) {
				if strings.Contains(line, "short ttl") {
					told = append(told, line)
				}
			}
			if len(told) > 1 || (len(told) == 0) != (tt.want == "") || len(told) == 1 && !strings.Contains(told[0], tt.want) {
				t.Errorf("%v: %q", tt.ttl, told)
			}
			l.sound(t)
		}
	})
}

// A conflict stands in Health, with both sides, until it is over.
func TestHealthListsConflicts(t *testing.T) {
	inBubble(t, func(b *bubble) {
		l := newLogbook()
		n := b.join("n1", alone, l.config)
		time.Sleep(time.Millisecond) // the event of granting
		if h := n.Health(b.within(time.Second)); len(h.Conflicts) > 0 || h.Reason != "" {
			t.Errorf("%+v", h)
		}
		n.conflict(member.Process{Name: "n7", Boot: 3, Addr: "10.0.0.7:7000"}, "two clusters of one name: 01020304 here, 05060708 at 10.0.0.7:7000")
		h := n.Health(b.within(time.Second))
		if len(h.Conflicts) != 1 || !strings.HasPrefix(h.Conflicts[0], "n7") || !strings.Contains(h.Conflicts[0], "05060708 at 10.0.0.7:7000") ||
			h.Reason != "conflict: "+h.Conflicts[0] || !strings.Contains(h.Next, "see Conflicts") || !h.Granting {
			t.Errorf("%+v", h)
		}
		if lines := l.above(slog.LevelError); len(lines) != 1 || !strings.HasPrefix(lines[0], "ERROR conflict member=n1 about=n7 address=10.0.0.7:7000 detail=two clusters") {
			t.Errorf("%q", lines)
		}
		l.sound(t)
	})
}
