package cluster

import (
	"context"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// A voter that has left the configuration gives up its raft, and its store is moved
// aside. Nobody's notice is enough: the voter asks the leader, on a stream of its own
// to the leader's address.
//
// The leader asked is the leader that this member's raft follows, or else the leader
// that serves this member. The leader answers by the configuration after a round of
// the voters that began with the question, and answers nothing while its own change
// of the configuration is not committed (voters.InConfig). So a deposed leader says
// nothing: a majority has promised a higher term, and its round fails. A leader that
// answers no has a configuration without this member whose majority follows the
// leader, and no other configuration can come but by that majority.
//
// Any process with the voter role can say that it leads, and serves this member while
// raft follows nobody. So a leader that raft does not follow needs witnesses: a majority
// of the voters that it names follow it, on their own streams. A member that leaves needs
// none: it has asked to be removed, and when all leave together the last leader has no
// witness left. A lie then ends its part in the quorum earlier, as a crash would.
//
// A voter that leads and lies can remove a member by the log itself. The store
// moved aside is not deleted: see consensus.

// takeRemoved takes the notice that a raft ID of this member has left the
// configuration, and reports whether the notice is true of the running raft.
func (n *Node) takeRemoved(ctx context.Context, raftID string) bool {
	r := n.seat.Current()
	if r == nil || r.ID() != raftID {
		return false
	}
	for pause := timing.LeastBackoff; ; pause *= 2 {
		removed, known := n.removedSays(ctx, raftID)
		if removed {
			return n.seat.Removed(ctx, raftID) == nil
		}
		if known {
			n.self.Refused.Note(refused.Claim, raftID, "is said to be removed, and its leader says that it is not")
			return false
		}
		// The leader may not have finished the change of which it tells.
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false // a voter without a leader asks again: see consensus
		}
	}
}

// askRemoved asks a leader whether a raft ID has left the configuration. The result
// is false if no confirmed leader says so before ctx ends.
func (n *Node) askRemoved(ctx context.Context, raftID string) bool {
	removed, _ := n.removedSays(ctx, raftID)
	return removed
}

// removedSays is askRemoved. Known is false if no confirmed leader answers.
func (n *Node) removedSays(ctx context.Context, raftID string) (removed, known bool) {
	leader, _, ok := n.guessLeader()
	if !ok || leader.Name == n.self.Name {
		var name, addr string
		if name, addr, ok = n.link.Leader(); !ok {
			return false, false
		}
		leader = member.Process{Name: name, Addr: addr}
		v := n.founding.Value()
		if v == nil {
			return false, false
		}
		if !n.leaving() {
			if _, witnessed := n.founding.Witnessed(ctx, leader, v.Cluster, n.oldVoters()); !witnessed {
				return false, false
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	f, err := n.peers.Ask(ctx, leader, wire.InConfig, wire.Marshal(&wire.InConfigRequest{Raft: raftID}))
	return err == nil && f.Code == wire.CodeNo, err == nil && (f.Code == wire.CodeNo || f.Code == wire.CodeOK)
}
