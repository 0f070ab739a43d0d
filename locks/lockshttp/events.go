package lockshttp

import (
	"bytes"
	"cmp"
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
	beatEvery    = documents.EventBeat
	writeWithin  = 10 * time.Second // a reader that takes nothing for so long is given up
	streamsAgain = "10"             // seconds until a refused reader comes again
)

// serveEvents serves a stream of events, as text/event-stream:
//
//	event: event    data: a documents.Event
//	event: beat     data: a documents.Head, at the beginning and every five seconds
//	event: dropped  data: a documents.Dropped: events are gone
//	event: end      data: {"reason": "..."}: the client or its node has ended
//
// A reader that comes back with the ID of the last event that it has, as Last-Event-ID or
// as the parameter last, gets the events since, or a part of them and "dropped". A reader
// that hears nothing for documents.EventSilence has lost its connection.
func (h *handler) serveEvents(w http.ResponseWriter, r *http.Request) error {
	values, err := queryOf(r, "last")
	if err != nil {
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
	s.resume(cmp.Or(r.Header.Get("Last-Event-ID"), values.Get("last")))
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
	foreign bool // the reader comes from the events of another process
	text    bytes.Buffer
}

// resume takes the place that a reader remembers from an earlier stream.
func (s *stream) resume(id string) {
	run, seq, ok := strings.Cut(id, "-")
	if n, err := strconv.ParseUint(seq, 10, 64); ok && err == nil && run == s.run && digits(seq) {
		s.seq, s.known = n, true
	}
	s.foreign = id != "" && !s.known
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
	switch {
	case dropped > 0:
		s.add("dropped", "", documents.Dropped{Dropped: dropped, Reason: fmt.Sprintf("the latest %d are kept", kept)})
	case s.foreign:
		s.add("dropped", "", documents.Dropped{Reason: "this is another process than before, and these are its latest events"})
	}
	s.foreign = false
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
