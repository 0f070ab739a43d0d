package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/wardmote/wardmote/internal/documents"
)

// Pauses before a stream is opened again.
const (
	leastPause = 250 * time.Millisecond
	mostPause  = 5 * time.Second
)

var (
	errSilent   = fmt.Errorf("no sign of life for %v", documents.EventSilence)
	errNoAnswer = errors.New("no answer in time")
)

// A lasting error ends a follower: another connection would not help.
type lasting struct{ error }

func (l lasting) Unwrap() error { return l.error }

// A follower prints the events of a stream, through any number of connections.
type follower struct {
	p *program
	w *way
	s *source

	page   int    // of s.pages, the one to ask
	last   string // ID of the last event printed; "": none yet
	opened bool   // there was a connection
}

// follow prints events until a signal.
func (p *program) follow(w *way, s *source) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	return (&follower{p: p, w: w, s: s}).run(ctx)
}

// run prints events until ctx ends, and opens the stream again when it has broken off. The
// result is nil if ctx has ended. The first connection must succeed, with one of the
// pages: a wrong address is no outage.
func (f *follower) run(ctx context.Context) error {
	var failed []error // of the first connection
	var lost time.Time // since when there is no stream; zero: there is one
	for pause := leastPause; ; {
		began := time.Now()
		err := f.stream(ctx, func() {
			if !lost.IsZero() {
				f.say("follows %s again, after %s", f.where(), since(time.Since(lost)))
			}
			f.opened, lost = true, time.Time{}
		})
		var end lasting
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &end):
			return end.error
		case f.opened && lost.IsZero():
			lost = time.Now()
			f.say("%s: %s; asks again", f.where(), trim(err))
		}
		f.page = (f.page + 1) % len(f.s.pages)
		if !f.opened {
			if failed = append(failed, err); len(failed) == len(f.s.pages) {
				return allFailed(failed)
			}
			continue
		}
		if time.Since(began) > mostPause {
			pause = leastPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, mostPause)
	}
}

// stream opens the stream of one page, calls opened, and prints the events until the
// stream ends. The result says why.
func (f *follower) stream(ctx context.Context, opened func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answer := time.AfterFunc(f.s.limit, func() { cancel(errNoAnswer) })
	body, err := f.s.stream(ctx, f.s.pages[f.page], f.last)
	answer.Stop()
	if err != nil {
		switch {
		case context.Cause(ctx) == errNoAnswer:
			return fail(exitUnavailable, "see whether the process lives, or give another -url", "%v", errNoAnswer)
		case asFailure(err).code == exitDenied:
			return lasting{err}
		}
		return err
	}
	defer body.Close()
	opened()
	silence := time.AfterFunc(documents.EventSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	err = f.read(body, func() { silence.Reset(documents.EventSilence) })
	if cause := context.Cause(ctx); cause == errSilent {
		return cause
	}
	return err
}

// message is an event of a stream, in the sense of text/event-stream.
type message struct{ kind, id, data string }

// read prints the events of a stream until the stream ends, and calls alive at each line.
func (f *follower) read(body io.Reader, alive func()) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	var m message
	for lines.Scan() {
		alive()
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if err := f.take(m); err != nil {
				return err
			}
			m = message{}
		case field == "event":
			m.kind = value
		case field == "id":
			m.id = value
		case field == "data":
			m.data = value
		}
	}
	if err := lines.Err(); err != nil {
		return fail(exitUnavailable, "", "the stream has broken off: %v", err)
	}
	return fail(exitUnavailable, "", "the stream has broken off")
}

// take prints a message. An error ends the stream.
func (f *follower) take(m message) error {
	switch m.kind {
	case "event":
		var e documents.Event
		if json.Unmarshal([]byte(m.data), &e) != nil || !f.isNew(m.id) {
			return nil // of a later version, or repeated
		}
		f.last = m.id
		if err := f.p.printEvent(f.w, e); err != nil {
			return lasting{err}
		}
	case "dropped":
		var d documents.Dropped
		_ = json.Unmarshal([]byte(m.data), &d) // at least the kind is known
		if d.Dropped > 0 {
			f.say("%d events are missing: %s", d.Dropped, d.Reason)
		} else {
			f.say("events may be missing: %s", d.Reason)
		}
	case "end":
		var why struct{ Reason string }
		_ = json.Unmarshal([]byte(m.data), &why)
		err := fail(exitUnavailable, "", "the member has ended: %s", why.Reason)
		if f.s.joined != nil {
			return lasting{err}
		}
		return err
	}
	return nil
}

// isNew reports whether the event of an ID was not printed yet: a proxy may have lost the
// ID with which the stream was asked for. IDs are a name of the process and a number.
func (f *follower) isNew(id string) bool {
	run, number, _ := strings.Cut(id, "-")
	was, last, _ := strings.Cut(f.last, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	l, errLast := strconv.ParseUint(last, 10, 64)
	return run != was || err != nil || errLast != nil || n > l
}

func (f *follower) say(format string, args ...any) {
	fmt.Fprintln(f.p.err, "wardmote: events: "+clean(oneLine(fmt.Sprintf(format, args...))))
}

// where names the page that is asked.
func (f *follower) where() string {
	if f.s.joined != nil {
		return "this member"
	}
	return redacted(f.s.pages[f.page])
}
