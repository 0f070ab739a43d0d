package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/timing"
)

// Member is a node as the others see it.
type Member struct {
	Name   string
	Addr   string // host:port
	Boot   uint64 // new at each start of the member's process
	Voter  bool
	Leader bool
	Self   bool
}

func memberOf(p member.Process) Member { return Member{Name: p.Name, Addr: p.Addr, Boot: p.Boot} }

// Ready waits until the cluster grants locks and this member can ask for them.
// It fails when ctx ends, with an error that also is ErrNoQuorum if no leader
// could be reached, or when the node cannot be in the cluster at all.
func (n *Node) Ready(ctx context.Context) error {
	err := n.link.Granting(ctx)
	var e *replica.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// Members lists the members believed alive, this member included, by name. The list is gossip's view: a hint, some seconds old. Each member
// advertises its own vote; on the leader, Voter comes from the raft configuration,
// since a member behind a partition may not know of the last change.
func (n *Node) Members() []Member {
	leader, addr, attached := n.link.Leader()
	leading := n.leading.Load()
	var voters []string
	if leading != nil {
		voters = leading.raft.Voters()
	}
	var out []Member
	alive := n.gossip.Alive()
	for i, s := range alive {
		if i+1 < len(alive) && alive[i+1].Name == s.Name {
			continue // an earlier process of that name, not yet taken for dead
		}
		m := memberOf(s.Process)
		m.Voter = s.Meta.Voter
		if leading != nil {
			m.Voter = slices.Contains(voters, member.RaftID(s.Name, s.Meta.Generation))
		}
		m.Leader = attached && s.Name == leader && s.Addr == addr
		m.Self = n.self.Is(s.Process)
		out = append(out, m)
	}
	return out
}

// Leader returns the leading member, as far as this member knows: the leader of
// the last answer.
func (n *Node) Leader() (Member, bool) {
	members := n.Members()
	if i := slices.IndexFunc(members, func(m Member) bool { return m.Leader }); i >= 0 {
		return members[i], true
	}
	name, addr, ok := n.link.Leader()
	return Member{Name: name, Addr: addr, Leader: ok}, ok
}

// Health is the state of a member at one moment.
type Health struct {
	Quorum   bool // a leader answered, confirmed by a majority of the voters
	Granting bool // the leader grants locks
	Leader   string
	Members  int // alive
	Voter    bool
	Err      error // why Quorum is false
}

// Health asks the leader for a confirmation of its leadership, and never fails:
// trouble stands in the answer. The call blocks until the leader has answered or
// ctx has ended, and for two seconds at most.
func (n *Node) Health(ctx context.Context) Health {
	ctx, cancel := context.WithTimeout(ctx, timing.HealthPatience)
	defer cancel()
	// Any key serves: a reading needs the quorum.
	_, err := n.link.Read(ctx, replica.Query{Key: "health"})
	h := Health{Quorum: err == nil, Err: err, Members: len(n.gossip.Alive())}
	h.Leader, _, _ = n.link.Leader()
	if r := n.seat.Current(); r != nil {
		h.Voter = r.Votes()
	}
	h.Granting = h.Quorum && n.granted.Load()
	return h
}

// noQuorumReason tells why there is no quorum.
func (n *Node) noQuorumReason() string {
	if n.founding.Value() == nil {
		return n.founding.Progress()
	}
	return fmt.Sprintf("no leader answers, %d members seen alive", len(n.gossip.Alive()))
}
