package link

import (
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// upstream is the way to a leader: the leader itself if this node leads, or a
// stream to the leader. No method blocks, except close. Every done is called at
// most once, on any goroutine: with CodeOK; with a verdict; with CodeNotLeader or
// CodeBusy if surely nothing happened; or with CodeUnknown. Done may not be called
// at all when the upstream is gone or the request was cancelled.
type upstream interface {
	propose(cmd machine.Command, done func(machine.Outcome, wire.Code))
	beat(id machine.SessionID, done func(wire.Code))
	read(q replica.Query, done func(replica.Answer, wire.Code)) (cancel func())
	scan(q replica.Scan, done func(replica.Scanned, wire.Code)) (cancel func())
	granting(done func(wire.Code))
	depart(name string, boot uint64, done func(wire.Code))
	detach(id machine.SessionID)
	gone() <-chan struct{} // closed when the leader's term or the stream has ended
	stalled(now time.Time) bool
	close() // and joins
}

// Leader is this node's own term, as long as this node leads. The implementation
// is *term.Term.
type Leader interface {
	Number() uint64
	Bound() uint64 // of session TTLs, in milliseconds
	Done() <-chan struct{}

	Join(s *term.Subscriber) bool
	Quit(s *term.Subscriber)
	Attach(s *term.Subscriber, ids []machine.SessionID)
	Detach(id machine.SessionID)

	Propose(s *term.Subscriber, cmd machine.Command, done func(machine.Outcome, wire.Code))
	Beat(s *term.Subscriber, id machine.SessionID, done func(wire.Code))
	Read(q replica.Query, done func(replica.Answer, wire.Code)) (cancel func())
	Scan(q replica.Scan, done func(replica.Scanned, wire.Code)) (cancel func())
	Granting(done func(wire.Code))
	Depart(name string, boot uint64, done func(wire.Code))
}

var _ Leader = (*term.Term)(nil)

// local is this node's own leadership.
type local struct {
	leader     Leader
	subscriber *term.Subscriber
}

func (u local) propose(cmd machine.Command, done func(machine.Outcome, wire.Code)) {
	u.leader.Propose(u.subscriber, cmd, done)
}

func (u local) beat(id machine.SessionID, done func(wire.Code)) {
	u.leader.Beat(u.subscriber, id, done)
}

func (u local) read(q replica.Query, done func(replica.Answer, wire.Code)) func() {
	return u.leader.Read(q, done)
}

func (u local) scan(q replica.Scan, done func(replica.Scanned, wire.Code)) func() {
	return u.leader.Scan(q, done)
}

func (u local) granting(done func(wire.Code)) { u.leader.Granting(done) }

func (u local) depart(name string, boot uint64, done func(wire.Code)) {
	u.leader.Depart(name, boot, done)
}

func (u local) detach(id machine.SessionID) { u.leader.Detach(id) }
func (u local) gone() <-chan struct{}       { return u.leader.Done() }
func (u local) stalled(time.Time) bool      { return false }
func (u local) close()                      { u.leader.Quit(u.subscriber) }
