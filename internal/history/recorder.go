package history

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// Recorder collects the records of a run, or of one process of it. The methods may be
// called from any goroutine. Each record is a copy: a caller goes on with its own value and
// records the value again under the same ID.
type Recorder struct {
	now func() int64

	mu    sync.Mutex
	next  int
	w     io.Writer // nil: h collects
	err   error     // of w
	h     History
	ids   map[string]int
	ended map[string]bool // processes
}

// NewRecorder returns a Recorder that keeps the records in memory. now is the clock of the
// history, see the package comment.
func NewRecorder(now func() int64) *Recorder {
	return &Recorder{now: now, ids: make(map[string]int), ended: make(map[string]bool)}
}

// NewWriter returns a Recorder that writes each record to w at once, as one line in one
// Write: of a killed process every record but the last is whole.
func NewWriter(now func() int64, w io.Writer) *Recorder {
	r := NewRecorder(now)
	r.w = w
	return r
}

// Now returns a stamp.
func (r *Recorder) Now() int64 { return r.now() }

// NewID returns an ID that begins with prefix and is unique in this Recorder.
func (r *Recorder) NewID(prefix string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	return fmt.Sprint(prefix, "#", r.next)
}

// End notes the end of a process. A record of the process that comes later is dropped: in
// a test that kills a member of its own process, the member's code runs on, and what it
// sees was seen by nobody.
func (r *Recorder) End(process string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended[process] = true
}

// Op records a call: once before it, with an open Return, and again after it.
func (r *Recorder) Op(o Op) { r.put(line{Op: &o}, o.Process) }

// Hold records a grant, and again whenever the holder knows more.
func (r *Recorder) Hold(h Hold) { r.put(line{Hold: &h}, h.Process) }

// Run records a run: at its beginning and at its end.
func (r *Recorder) Run(x Run) { r.put(line{Run: &x}, x.Process) }

// Show records a state that a watch has yielded.
func (r *Recorder) Show(x Show) { r.put(line{Show: &x}, x.Process) }

// Write records a write at the resource.
func (r *Recorder) Write(w Write) { r.put(line{Write: &w}, "") }

// Fact records a consequence of the committed log.
func (r *Recorder) Fact(f Fact) { r.put(line{Fact: &f}, "") }

// Mark records a fault at this moment.
func (r *Recorder) Mark(kind, who, text string) { r.MarkAt(r.now(), kind, who, text) }

// MarkAt is Mark for a moment that has passed.
func (r *Recorder) MarkAt(at int64, kind, who, text string) {
	r.put(line{Mark: &Mark{At: at, Kind: kind, Who: who, Text: text}}, "")
}

// Left records a remainder.
func (r *Recorder) Left(x Remains) { r.put(line{Left: &x}, "") }

// Limits sets the limits.
func (r *Recorder) Limits(l Limits) { r.put(line{Limits: &l}, "") }

func (r *Recorder) put(l line, process string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if process != "" && r.ended[process] {
		return
	}
	if r.w == nil {
		r.h.add(l, r.ids)
		return
	}
	text, err := json.Marshal(l)
	if err == nil {
		_, err = r.w.Write(append(text, '\n'))
	}
	if err != nil && r.err == nil {
		r.err = err
	}
}

// Err returns the first error of the writer.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// History returns the records kept in memory.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.h
	h.Ops, h.Holds, h.Runs = clone(h.Ops), clone(h.Holds), clone(h.Runs)
	h.Writes, h.Facts, h.Marks, h.Left, h.Shows = clone(h.Writes), clone(h.Facts), clone(h.Marks), clone(h.Left), clone(h.Shows)
	h.sort()
	return h
}

func clone[T any](s []T) []T { return append([]T(nil), s...) }
