package link

import (
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// remote is the upstream to a leader elsewhere: a stream.
type remote struct {
	stream *stream.Stream
	term   uint64

	mu    sync.Mutex
	open  int       // requests of begin without an answer yet
	since time.Time // of the last answer to such a request, or of the first request
}

func (u *remote) Propose(_ *term.Subscriber, cmd machine.Command, done func(machine.Outcome, wire.Code)) {
	u.begin(wire.Propose, machine.AppendCommand(nil, cmd), func(f wire.Frame) {
		var o machine.Outcome
		if f.Code == wire.CodeOK {
			var err error
			if o, err = machine.DecodeOutcome(f.Body); err != nil {
				f.Code = wire.CodeUnknown
			}
		}
		done(o, f.Code)
	})
}

func (u *remote) Beat(_ *term.Subscriber, id machine.SessionID, done func(wire.Code)) {
	u.begin(wire.Beat, id[:], func(f wire.Frame) { done(f.Code) })
}

// begin sends a request. The answer should come soon: see stalled.
func (u *remote) begin(t wire.Type, body []byte, done func(wire.Frame)) {
	u.mu.Lock()
	if u.open == 0 {
		u.since = time.Now()
	}
	u.open++
	u.mu.Unlock()
	u.beginLong(t, body, func(f wire.Frame) {
		u.mu.Lock()
		u.open--
		u.since = time.Now()
		u.mu.Unlock()
		done(f)
	})
}

// beginLong sends a request. The answer may take long.
func (u *remote) beginLong(t wire.Type, body []byte, done func(wire.Frame)) (id uint64) {
	id, err := u.stream.Begin(t, body, func(f wire.Frame, err error) {
		if err != nil {
			f.Code = wire.CodeUnknown
		}
		done(f)
	})
	if err != nil {
		done(wire.Frame{Code: wire.CodeNotLeader})
	}
	return id
}

func (u *remote) Read(q replica.Query, done func(replica.Answer, wire.Code)) func() {
	return beginRead(u, wire.Read, &q, q.Version != 0, done)
}

func (u *remote) Scan(q replica.Scan, done func(replica.Scanned, wire.Code)) func() {
	return beginRead(u, wire.Scan, &q, q.Since != 0, done)
}

// beginRead sends a question. If the answer may wait for a change, cancel gives
// the question up.
func beginRead[A any](u *remote, t wire.Type, q any, waits bool, done func(A, wire.Code)) (cancel func()) {
	answered := func(f wire.Frame) {
		var a A
		if f.Code == wire.CodeOK && wire.Unmarshal(f.Body, &a) != nil {
			f.Code = wire.CodeUnknown
		}
		done(a, f.Code)
	}
	if !waits {
		u.begin(t, wire.Marshal(q), answered)
		return func() {}
	}
	id := u.beginLong(t, wire.Marshal(q), answered)
	return func() {
		u.stream.Forget(id)
		u.stream.Notify(wire.Cancel, wire.Marshal(id))
	}
}

func (u *remote) Granting(done func(wire.Code)) {
	u.beginLong(wire.Ready, nil, func(f wire.Frame) { done(f.Code) })
}

func (u *remote) Depart(name string, boot uint64, done func(wire.Code)) {
	request := wire.DepartRequest{Name: name, Boot: boot}
	u.beginLong(wire.Depart, wire.Marshal(&request), func(f wire.Frame) { done(f.Code) })
}

func (u *remote) Detach(id machine.SessionID) { u.stream.Notify(wire.Detach, id[:]) }
func (u *remote) Done() <-chan struct{}       { return u.stream.Stopped() }
func (u *remote) Quit(*term.Subscriber)       { u.stream.Close() }

// stalled reports whether the leader has answered none of the open requests for so
// long that the upstream should be left.
func (u *remote) stalled(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.open > 0 && now.Sub(u.since) > timing.AnswerLimit
}
