package link

import (
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// upstream is the way to a leader: this node's own term if this node leads, or a
// stream to the leader. s is the Link's subscriber in the own term; a stream has
// its subscriber at the other end. Requests for a session follow the key of the session:
// Show is called first. No method blocks, except Quit. Every done is
// called at most once, on any goroutine: with CodeOK; with a verdict; with
// CodeNotLeader or CodeBusy if surely nothing happened; or with CodeUnknown. Done
// may not be called at all when the upstream is gone or the request was cancelled.
type upstream interface {
	Propose(s *term.Subscriber, cmd machine.Command, done func(machine.Outcome, wire.Code)) (place uint64)
	TakeBack(s *term.Subscriber, place uint64) // the caller of a Propose has gone
	Beat(s *term.Subscriber, id machine.SessionID, done func(wire.Code))
	Summarize(done func(wire.Summary, wire.Code)) // also told by the answers to beats
	Read(q replica.Query, done func(replica.Answer, wire.Code)) (cancel func())
	Scan(q replica.Scan, done func(replica.Scanned, wire.Code)) (cancel func())
	Values(q replica.ValuesQuery, done func(replica.ValuesPage, wire.Code)) (cancel func())
	Sessions(q replica.SessionsQuery, done func(replica.SessionsPage, wire.Code)) (cancel func())
	Granting(done func(wire.Code)) (cancel func())
	Depart(name string, boot uint64, done func(wire.Code))
	Show(s *term.Subscriber, fresh ...machine.SessionKey)
	Detach(s *term.Subscriber, id machine.SessionID)
	Done() <-chan struct{}   // closed when the leader's term or the stream has ended
	Quit(s *term.Subscriber) // leaves the upstream, and joins a stream's goroutines
}

// Leader is this node's own term, as long as this node leads. The implementation
// is *term.Term.
type Leader interface {
	upstream
	Number() uint64
	Bound() uint64 // of session TTLs, in milliseconds
	Join(s *term.Subscriber) bool
	Attach(s *term.Subscriber, keys, fresh []machine.SessionKey) bool
}

var _ Leader = (*term.Term)(nil)
