package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/documents"
)

// A page is a network on which the streams of a test answer, one after the other.
type page struct {
	t       *testing.T
	answers []func(w *io.PipeWriter) // the writer's end ends the stream
	status  []int                    // of the answers; 0: 200
	asked   []string                 // address, and the ID asked for
	at      []time.Duration          // when, since the beginning
	began   time.Time
}

func (p *page) RoundTrip(r *http.Request) (*http.Response, error) {
	i := len(p.asked)
	p.asked = append(p.asked, strings.TrimSpace(r.URL.String()+" "+r.Header.Get("Last-Event-ID")))
	p.at = append(p.at, time.Since(p.began))
	if i >= len(p.answers) || p.answers[i] == nil {
		return nil, errors.New("connection refused")
	}
	if p.status[i] < 0 { // says nothing at all
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	body, to := io.Pipe()
	go p.answers[i](to)
	context.AfterFunc(r.Context(), func() { to.CloseWithError(r.Context().Err()) })
	status := p.status[i]
	if status == 0 {
		status = http.StatusOK
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: body, Header: http.Header{"Content-Type": {"text/event-stream"}}, Request: r}, nil
}

// event is an event of a stream, as the handler writes it.
func event(run string, seq int) string {
	return fmt.Sprintf("id: %s-%d\nevent: event\ndata: {\"seq\":\"%d\",\"at\":\"2026-01-02T03:04:05Z\",\"kind\":\"Kind%d\"}\n\n", run, seq, seq, seq)
}

// says returns a stream that says text and ends, or goes on in silence.
func says(silent bool, text ...string) func(w *io.PipeWriter) {
	return func(w *io.PipeWriter) {
		for _, t := range text {
			_, _ = io.WriteString(w, t)
		}
		if !silent {
			w.Close()
		}
	}
}

// followed runs a follower until it ends or for a time, and returns its outputs. The
// answers are of pages one after the other.
func followed(t *testing.T, d time.Duration, pages int, status []int, answers ...func(w *io.PipeWriter)) (p *page, out, stderr string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p = &page{t: t, answers: answers, status: append(status, make([]int, len(answers))...), began: time.Now()}
		s := &source{client: &http.Client{Transport: p}, limit: 10 * time.Second}
		for i := range pages {
			s.pages = append(s.pages, fmt.Sprintf("http://m%d/", i))
		}
		var o, e bytes.Buffer
		f := &follower{p: &program{out: &o, err: &e}, w: &way{json: true}, s: s}
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		err = f.run(ctx)
		cancel()
		synctest.Wait()
		out, stderr = o.String(), e.String()
	})
	return p, out, stderr, err
}

// kinds are the kinds of the printed events.
func kinds(out string) (all []string) {
	for line := range strings.Lines(out) {
		_, rest, _ := strings.Cut(line, `"kind":"`)
		kind, _, _ := strings.Cut(rest, `"`)
		all = append(all, kind)
	}
	return all
}

const sign = "event: beat\ndata: {}\n\n"

// A stream that breaks off is opened again behind the last event. Nothing comes twice,
// although this page repeats an event, and a half event is none.
func TestFollowGoesOnWhereItWas(t *testing.T) {
	p, out, stderr, err := followed(t, time.Minute, 1, nil,
		says(false, sign, event("a", 1), event("a", 2), strings.TrimSuffix(event("a", 3), "\n")),
		nil, nil,
		says(false, event("a", 2), event("a", 3)),
		says(true, "event: dropped\ndata: {\"reason\":\"another process\"}\n\n", event("b", 1)),
	)
	if err != nil || strings.Join(kinds(out), " ") != "Kind1 Kind2 Kind3 Kind1" {
		t.Errorf("%v, printed %s", err, out)
	}
	if got := fmt.Sprint(p.asked[:5]); got != "[http://m0/events http://m0/events a-2 http://m0/events a-2 http://m0/events a-2 http://m0/events a-3]" {
		t.Errorf("asked %s", got)
	}
	for _, want := range []string{"http://m0/: the stream has broken off; asks again\n", "follows http://m0/ again, after ", "events may be missing: another process\n"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr has no %q: %s", want, stderr)
		}
	}
	// One line for an outage, whatever the number of attempts.
	if n := strings.Count(stderr, "asks again"); n > 3 {
		t.Errorf("%d lines of outages: %s", n, stderr)
	}
}

// A connection without a sign of life is given up, and one with signs is not.
func TestFollowNoticesASilentStream(t *testing.T) {
	alive := func(w *io.PipeWriter) {
		for range 10 {
			_, _ = io.WriteString(w, sign)
			time.Sleep(documents.EventSilence - time.Second)
		}
	}
	lived := 10 * (documents.EventSilence - time.Second)
	p, _, stderr, err := followed(t, 5*time.Minute, 1, nil, alive, says(true, event("a", 1)))
	if err != nil || len(p.at) < 3 || p.at[1] < lived || p.at[1] > lived+time.Minute || p.at[2] < p.at[1]+documents.EventSilence || p.at[2] > p.at[1]+documents.EventSilence+mostPause {
		t.Errorf("%v, asked at %v", err, p.at)
	}
	if !strings.Contains(stderr, "no sign of life for 15s") {
		t.Errorf("stderr %s", stderr)
	}
}

// A page that accepts connections and says nothing is no page.
func TestFollowBoundsTheWaitForAnAnswer(t *testing.T) {
	_, _, _, err := followed(t, time.Hour, 1, []int{-1}, says(true))
	if f := asFailure(err); err == nil || f.code != exitUnavailable || !strings.Contains(f.text, "no answer in time") {
		t.Errorf("%v", err)
	}
	p, _, stderr, err := followed(t, time.Minute, 1, []int{0, -1}, says(false, sign), says(true), says(true, sign))
	if err != nil || len(p.at) < 3 || p.at[2]-p.at[1] < 10*time.Second || !strings.Contains(stderr, "follows") {
		t.Errorf("%v, asked at %v, stderr %s", err, p.at, stderr)
	}
}

// The pauses grow to five seconds and stay there.
func TestFollowPauses(t *testing.T) {
	p, _, _, err := followed(t, time.Minute, 1, nil, says(false, sign))
	if err != nil || len(p.at) < 12 || len(p.at) > 20 {
		t.Errorf("%v, %d attempts in a minute", err, len(p.at))
	}
	for i := 6; i < len(p.at); i++ {
		if d := p.at[i] - p.at[i-1]; d != mostPause {
			t.Errorf("pause %v before attempt %d", d, i)
		}
	}
}

// Of several pages the next one is asked, at once in the beginning.
func TestFollowAsksTheNextPage(t *testing.T) {
	p, out, _, err := followed(t, time.Minute, 3, nil, nil, says(false, event("a", 1)), says(true, event("c", 1)))
	if err != nil || p.at[1] != 0 || fmt.Sprint(p.asked[:3]) != "[http://m0/events http://m1/events http://m2/events a-1]" || strings.Join(kinds(out), " ") != "Kind1 Kind1" {
		t.Errorf("%v, asked %v, printed %s", err, p.asked, out)
	}
}

// Without any connection, and after a refusal, follow ends with an error.
func TestFollowEndsWhereNothingHelps(t *testing.T) {
	if _, _, _, err := followed(t, time.Hour, 2, nil); asFailure(err).code != exitUnavailable || strings.Count(fmt.Sprint(err), "refused") != 2 {
		t.Errorf("%v", err)
	}
	if p, _, _, err := followed(t, time.Hour, 1, []int{0, 403}, says(false, sign), says(false, "no")); asFailure(err).code != exitDenied || len(p.asked) != 2 {
		t.Errorf("%v after %v", err, p.asked)
	}
	full := &program{out: brokenPipe{}, err: io.Discard}
	f := &follower{p: full, w: &way{}, s: &source{}}
	if err := f.read(strings.NewReader(event("a", 1)), func() {}); !errors.As(err, new(lasting)) {
		t.Errorf("%v", err)
	}
}

// A page's end is an outage, and the end of this program's own member is the end.
func TestFollowEndsWithItsMember(t *testing.T) {
	const end = "event: end\ndata: {\"reason\":\"stopped\"}\n\n"
	f := &follower{p: &program{err: io.Discard}, w: &way{}, s: &source{}}
	if err := f.read(strings.NewReader(end), func() {}); errors.As(err, new(lasting)) || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("of a page: %v", err)
	}
	f.s.joined = &joined{}
	if err := f.read(strings.NewReader(end), func() {}); !errors.As(err, new(lasting)) || asFailure(err).code != exitUnavailable {
		t.Errorf("of this member: %v", err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
