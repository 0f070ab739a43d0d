package cluster

import (
	"sync"
	"sync/atomic"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file decides which control requests a peer may make, and how many of them at
// a time.
//
// A member without the voter role may look for the leader, ask about lineage and say
// goodbye. Each request that founds a cluster, that touches a vote or that tells
// the state of raft needs the voter role: a member that never votes has no use for
// such a request.

// needsVoter reports whether a control request needs the voter role.
func needsVoter(t wire.Type) bool {
	switch t {
	case wire.Confirm, wire.Prepare, wire.Accept, wire.Chosen, wire.Retire, wire.Invite, wire.Removed, wire.InConfig, wire.Stand, wire.Progress, wire.Attest, wire.Follows:
		return true
	}
	return false
}

// admitsControl reports whether the peer of c may make a request of type t, and
// notes a refusal.
func (n *Node) admitsControl(c *port.Conn, t wire.Type) bool {
	if !needsVoter(t) || c.Proved.Voter {
		return true
	}
	n.self.Refused.Note(refused.Role, c.From(), "a voter's request of a member without the voter role")
	return false
}

// mere notes an answer that only a voter may give.
func (n *Node) mere(from member.Process) {
	n.self.Refused.Note(refused.Role, from.Name, "a voter's answer of a member without the voter role")
}

// Limits of the slow requests under way. An honest member has one founding message
// and one invitation or question under way at a time. The limit for a member leaves
// places to the others.
const (
	maxSlowOfStream = 8
	maxSlowOfMember = 16
	maxSlow         = 64
)

// slowRequests counts the slow requests under way of all peers. A slow request waits
// for a disk or for raft, and has a goroutine of its own.
type slowRequests struct {
	mu  sync.Mutex
	all int
	of  map[string]int // by member name; no entry is 0
}

// begin takes a place for a request of the member, and reports false if none is
// free.
func (s *slowRequests) begin(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxSlow || s.of[name] >= maxSlowOfMember {
		return false
	}
	if s.of == nil {
		s.of = make(map[string]int)
	}
	s.all++
	s.of[name]++
	return true
}

// end gives a place back.
func (s *slowRequests) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[name]--; s.of[name] == 0 {
		delete(s.of, name)
	}
}

// maxConfirmed bounds the requests of one control stream that wait for a round of the
// leader. A newcomer follows the words of as many members to the leader.
const maxConfirmed = 64

// roundQuestions counts the requests of one control stream that wait for a round.
type roundQuestions struct {
	node *Node
	from string // the peer, in a refusal
	n    atomic.Int32
}

// begin takes a place for a request. Without a free place begin answers CodeBusy and
// reports false.
func (c *roundQuestions) begin(q *stream.Request) bool {
	if c.n.Add(1) <= maxConfirmed {
		return true
	}
	c.n.Add(-1)
	q.Answer(wire.CodeBusy, nil)
	c.node.self.Refused.Note(refused.Flood, c.from, "too many control requests that wait for a round")
	return false
}

// end gives a place back.
func (c *roundQuestions) end() { c.n.Add(-1) }

// slowly runs the slow requests of one control stream, each on a goroutine.
type slowly struct {
	node  *Node
	name  string        // of the peer
	from  string        // the peer, in a refusal
	under chan struct{} // a value for each request under way
	wg    sync.WaitGroup
}

func (n *Node) newSlowly(c *port.Conn) *slowly {
	return &slowly{node: n, name: c.Remote.Name, from: c.From(), under: make(chan struct{}, maxSlowOfStream)}
}

// run calls answer on a new goroutine, or answers CodeBusy if too many requests are
// under way. run does not block.
func (s *slowly) run(q *stream.Request, answer func()) {
	select {
	case s.under <- struct{}{}:
		if s.node.slow.begin(s.name) {
			s.wg.Go(func() {
				defer func() {
					s.node.slow.end(s.name)
					<-s.under
				}()
				answer()
			})
			return
		}
		<-s.under
	default:
	}
	q.Answer(wire.CodeBusy, nil)
	s.node.self.Refused.Note(refused.Flood, s.from, "too many control requests under way")
}

// wait returns when all requests have been answered.
func (s *slowly) wait() { s.wg.Wait() }

// answerAttest tells whether this voter follows a leader, or is the leader, in a term
// of this node's cluster.
func (n *Node) answerAttest(q *stream.Request) {
	var req wire.AttestRequest
	if wire.Unmarshal(q.Body, &req) != nil {
		q.Answer(wire.CodeBad, nil)
		return
	}
	r, v, code := n.seat.Current(), n.founding.Value(), wire.CodeNo
	if r != nil && v != nil && v.Cluster == req.Cluster && r.ID() == req.Voter && n.follows(req.Leader, req.Term) {
		code = wire.CodeOK
	}
	q.Answer(code, nil)
}

// follows reports whether this node leads in a term under the given name, or whether
// its raft follows a leader of that name and term.
func (n *Node) follows(leader string, term uint64) bool {
	if t := n.currentTerm(); t != nil {
		return leader == n.self.Name && t.Number() == term
	}
	p, number, ok := n.guessLeader()
	return ok && p.Name == leader && number == term
}
