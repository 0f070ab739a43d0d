package lockshttp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/locks"
)

const (
	beatEvery    = 5 * time.Second  // a stream without news says that it lives
	writeWithin  = 10 * time.Second // a reader that takes nothing for so long is given up
	streamsAgain = "10"             // seconds until a refused reader comes again
)

// serveEvents serves a stream of events, as text/event-stream:
//
//	event: event    data: a documents.Event
//	event: beat     data: a documents.Head, at the beginning and every five seconds
//	event: dropped  data: {"dropped": n}: n events are gone, since the reader was too slow
//	event: end      data: {"reason": "..."}: the client or its node has ended
//
// A reader that comes back with Last-Event-ID gets what it has missed, or a part of it
// and "dropped".
func (h *handler) serveEvents(w http.ResponseWriter, r *http.Request) error {
	if _, err := queryOf(r); err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return nil
	}
	if !h.hub.enter() {
		w.Header().Set("Retry-After", streamsAgain)
		writeFailure(w, http.StatusServiceUnavailable, documents.CodeBusy, fmt.Sprintf("%d streams are open already", maxStreams))
		return nil
	}
	defer h.hub.leave()
	s := &stream{h: h, w: w, control: http.NewResponseController(w), run: runOf(h.c)}
	s.resume(r.Header.Get("Last-Event-ID"))
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must not collect what is of now
	s.serve(r)
	return nil
}

// stream is one reader's place in the events.
type stream struct {
	h       *handler
	w       http.ResponseWriter
	control *http.ResponseController
	run     string // names this run of the node in IDs of events
	seq     uint64
	known   bool // seq is a place in the events
	text    bytes.Buffer
}

// resume takes the place that a reader remembers from an earlier stream.
func (s *stream) resume(id string) {
	run, seq, ok := strings.Cut(id, "-")
	if n, err := strconv.ParseUint(seq, 10, 64); ok && err == nil && run == s.run && digits(seq) {
		s.seq, s.known = n, true
	}
}

// serve writes until the request, the client or its node ends, or the reader is gone.
func (s *stream) serve(r *http.Request) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	defer func() { _ = s.control.SetWriteDeadline(time.Time{}) }() // for the connection's next request
	c := s.h.c
	var beaten time.Time
	s.text.WriteString("retry: 2000\n\n")
	for {
		s.collect()
		if now := time.Now(); now.Sub(beaten) >= beatEvery || s.text.Len() > 0 {
			beaten = now
			page := c.LocalKeys("", "", 1)
			s.add("beat", "", s.h.head(false, page.Source))
		}
		if !s.flush() {
			return
		}
		select {
		case <-look.C:
		case <-r.Context().Done():
			return
		case <-c.Done():
			s.end(locks.ErrClosed)
			return
		case <-c.Node().Done():
			s.end(c.Node().Err())
			return
		}
	}
}

// collect adds the news to the text.
func (s *stream) collect() {
	events, dropped, next := s.h.hub.since(s.seq, s.known)
	s.seq, s.known = next, true
	if dropped > 0 {
		s.add("dropped", "", map[string]uint64{"dropped": dropped})
	}
	for _, e := range events {
		s.add("event", s.run+"-"+strconv.FormatUint(uint64(e.Seq), 10), e)
	}
}

func (s *stream) end(err error) {
	s.add("end", "", map[string]string{"reason": err.Error()})
	s.flush()
}

// add adds an event to the text. JSON has no line breaks, so the data is one line.
func (s *stream) add(event, id string, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		return // of numbers and text: all of it has an encoding
	}
	if id != "" {
		fmt.Fprintf(&s.text, "id: %s\n", id)
	}
	fmt.Fprintf(&s.text, "event: %s\ndata: %s\n\n", event, b)
}

// flush sends the text. The result is false if the reader is gone, or has taken nothing
// for too long.
func (s *stream) flush() bool {
	if s.text.Len() == 0 {
		return true
	}
	// Not every ResponseWriter has deadlines; the server's has.
	_ = s.control.SetWriteDeadline(time.Now().Add(writeWithin))
	_, err := s.w.Write(s.text.Bytes())
	s.text.Reset()
	if err == nil {
		err = s.control.Flush()
	}
	return err == nil
}

// runOf names this run of a client's node in the IDs of events.
func runOf(c *locks.Client) string { return strconv.FormatUint(c.Node().Report().Own.Boot, 36) }
