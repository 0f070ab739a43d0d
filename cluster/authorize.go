package cluster

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/wire"
)

// denies asks Security.Authorize about a request of peer.
func (n *Node) denies(peer member.Process, v Verb, key string) (reason string, denied bool) {
	authorize := n.cfg.Security.Authorize
	if authorize == nil {
		return "", false
	}
	defer func() {
		// The request may come over a stream of the leader, and the user's mistake must
		// cost neither the stream nor the process.
		if p := recover(); p != nil {
			n.self.Log.Error("authorize panicked", "verb", v.String(), "peer", peer.Name,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()), "next", "correct Security.Authorize; until then it refuses")
			reason, denied = "authorize panicked", true
		}
	}()
	asking := memberOf(n.addressed(peer))
	asking.Self = n.self.Is(peer)
	if err := authorize(asking, v, key); err != nil {
		if reason = wire.DeniedReason(err.Error()); reason == "" {
			reason = "no reason given"
		}
		return reason, true
	}
	return "", false
}

// addressed returns p with its address, as far as gossip knows the very process.
func (n *Node) addressed(p member.Process) member.Process {
	if n.self.Is(p) {
		return n.self.Process()
	}
	for _, s := range n.gossip.Of(p.Name) {
		if s.Boot == p.Boot {
			return s.Process
		}
	}
	return p
}

// denyCommand returns the term's question about a command that touches the locks of
// others; nil without Security.Authorize.
func (n *Node) denyCommand() func(node string, boot uint64, cmd machine.Command) (reason string, denied bool) {
	if n.cfg.Security.Authorize == nil {
		return nil
	}
	return func(node string, boot uint64, cmd machine.Command) (reason string, denied bool) {
		peer := member.Process{Name: node, Boot: boot}
		switch c := cmd.(type) {
		case machine.Ask:
			return n.denies(peer, VerbAsk, c.Key)
		case machine.Break:
			return n.denies(peer, VerbBreak, c.Key)
		case machine.EndSession:
			return n.denies(peer, VerbEndSession, c.Ref.String())
		case machine.Resize:
			return n.denies(peer, VerbResize, c.Group)
		case machine.SetCapacity:
			return n.denies(peer, VerbSetCapacity, c.Key)
		}
		return "", false
	}
}

// deniesStep answers a message of a founding on an operator's word with CodeDenied if
// Security.Authorize refuses the word, and reports whether it did. This member has
// promised nothing then.
func (n *Node) deniesStep(from port.Peer, q *stream.Request) bool {
	var word wire.Word
	switch q.Type {
	case wire.Prepare:
		var req wire.PrepareRequest
		_ = wire.Unmarshal(q.Body, &req) // an unreadable message is answered elsewhere
		word = req.Word
	case wire.Accept:
		var req wire.AcceptRequest
		_ = wire.Unmarshal(q.Body, &req)
		word = req.Word
	case wire.Retire:
		var req wire.RetireRequest
		_ = wire.Unmarshal(q.Body, &req)
		word = req.Word
	}
	if word != wire.WordOperator {
		return false
	}
	reason, denied := n.denies(member.Process{Name: from.Name, Boot: from.Boot}, VerbRecover, "")
	if denied {
		q.Answer(wire.CodeDenied, []byte(reason))
	}
	return denied
}

// recoverError returns the error of Recover.
func recoverError(err error) error {
	if denied, ok := errors.AsType[*founding.DeniedError](err); ok {
		return &DeniedError{Verb: VerbRecover, Reason: wire.DeniedReason(denied.Member + ": " + denied.Reason)}
	}
	return err
}
