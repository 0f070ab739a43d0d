package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/wardmote/wardmote/internal/consensus"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

// Stop ends the node's part in the cluster now. Its clients' locks end with a
// cause, and their keys are free once the sessions have expired; close the
// clients first to free the keys at once. With a Dir the member may come back;
// in memory, use Leave to be replaced first. Stop returns when everything that
// the node ran has ended; a second call waits for the first. The node's calls
// then fail with ErrStopped.
func (n *Node) Stop() error {
	n.stopping.Do(func() { n.stopErr = n.stop() })
	return n.stopErr
}

// stop ends the list of start, in the opposite order.
func (n *Node) stop() error {
	if l := n.leading.Load(); l != nil && len(l.raft.Voters()) > 1 {
		// Hand over, so that nobody waits for an election. If the transfer
		// fails, the others elect a leader by themselves.
		if err := l.raft.Transfer(context.Background()); err != nil {
			n.self.Log.Debug("leadership not handed over", "error", err)
		}
	}
	n.tasksMu.Lock()
	n.cancel(ErrStopped)
	n.tasksMu.Unlock()
	n.gossip.Leave(timing.GossipFarewell)
	n.peers.Stop()
	n.tasks.Wait()
	err := n.seat.Stop()
	n.gossip.Stop()
	err = errors.Join(err, n.port.Close(), n.record.Close())
	n.self.Log.Info("stopped")
	return err
}

// Leave takes the member out of the cluster for good: leadership is handed over,
// another member takes its place as a voter if there is one, and then the node
// stops as by Stop. Close the clients first. If ctx ends before the member is
// replaced, Leave stops the node all the same and returns the error; the others
// replace the member in time.
func (n *Node) Leave(ctx context.Context) error {
	n.gossip.Update(func(m *member.Metadata) { m.Leaving = true })
	err := n.giveUpVote(ctx)
	return errors.Join(err, n.Stop())
}

// giveUpVote returns when this member is no longer needed as a voter: another
// one has taken its place, or nobody is left to take over.
func (n *Node) giveUpVote(ctx context.Context) error {
	for {
		r := n.seat.Current()
		if r == nil || n.lastOne(r) {
			return nil
		}
		if l := n.leading.Load(); l != nil {
			// A leader hands over before departing. The only voter, if other
			// members live, first waits for a second voter: without one, nobody
			// can take over leadership.
			if len(l.raft.Voters()) > 1 {
				if err := l.raft.Transfer(ctx); err != nil {
					n.self.Log.Debug("leadership not handed over", "error", err)
				}
			}
			if !n.waitForChange(ctx, timing.Reconcile) {
				return context.Cause(ctx)
			}
			continue
		}
		// Not for long at a time: this member may become the leader meanwhile.
		attempt, cancel := context.WithTimeout(ctx, timing.DepartPatience)
		err := n.link.Depart(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || n.ctx.Err() != nil {
			return err
		}
	}
}

// lastOne reports whether this member is the only server of its raft, and every
// other living member leaves too.
func (n *Node) lastOne(r *consensus.Raft) bool {
	servers := r.Servers()
	if len(servers) != 1 || servers[0].ID != r.ID() || !servers[0].Voter {
		return false
	}
	for _, s := range n.gossip.Alive() {
		if s.Name != n.self.Name && !s.Meta.Leaving {
			return false
		}
	}
	return true
}

// waitForChange waits for news of the leader, for d at most. It returns false if
// ctx has ended.
func (n *Node) waitForChange(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-n.link.Changed():
	case <-n.ctx.Done():
	case <-ctx.Done():
		return false
	}
	return true
}
