package cluster

import (
	"context"
	"errors"
	"time"
)

// Stop ends the node's part in the cluster now: its clients' locks end with
// cause, and what it held is free once its sessions have expired; close the
// clients first to free it at once. With a Dir the member may come back; in
// memory, use Leave to be replaced first. Stop returns when everything
// that the node ran has ended; a second call waits for the first. The node's
// calls then fail with ErrStopped.
func (n *Node) Stop() error {
	n.stopping.Do(func() { n.stopErr = n.stop(ErrStopped) })
	return n.stopErr
}

func (n *Node) stop(cause error) error {
	if l := n.leader.Load(); l != nil && len(l.raft.voters()) > 1 {
		// Hand over, so that nobody waits for an election. If it fails the
		// others elect a leader by themselves.
		if err := l.raft.transfer(context.Background()); err != nil {
			n.log.Debug("leadership not handed over", "error", err)
		}
	}
	n.mu.Lock()
	n.cancel(cause)
	n.mu.Unlock()
	n.gossip.leave(time.Second)
	n.control.stop()
	n.wg.Wait()
	err := n.roles.stop()
	n.gossip.stop()
	err = errors.Join(err, n.port.Close(), n.id.close())
	n.log.Info("stopped")
	return err
}

// Leave takes the member out of the cluster for good: leadership is handed
// over, another member takes its place as a voter if there is one, and then the node
// stops as by Stop. Close the clients first. If ctx ends before the member
// is replaced, Leave stops the node all the same and returns the error; the
// others replace it in time.
func (n *Node) Leave(ctx context.Context) error {
	n.gossip.update(func(m *metadata) { m.Leaving = true })
	err := n.replaceMe(ctx)
	return errors.Join(err, n.Stop())
}

func (n *Node) replaceMe(ctx context.Context) error {
	for {
		r := n.roles.current()
		if r == nil {
			return nil
		}
		if voters := r.voters(); len(voters) == 1 && voters[0] == r.id && len(r.servers()) == 1 {
			alone := true
			for _, s := range n.gossip.alive() {
				alone = alone && (s.name == n.cfg.Name || s.meta.Leaving)
			}
			if alone {
				return nil // nobody is left to take over
			}
		}
		if l := n.leader.Load(); l != nil {
			if len(l.raft.voters()) == 1 {
				// The only voter, but not the only member: the successor must
				// be made a voter before there is anyone to hand over to.
				if !n.waitChange(ctx, reconcileEvery) {
					return context.Cause(ctx)
				}
				continue
			}
			if err := l.raft.transfer(ctx); err != nil {
				n.log.Debug("leadership not handed over", "error", err)
			}
			if !n.waitChange(ctx, reconcileEvery) {
				return context.Cause(ctx)
			}
			continue
		}
		// Not for long at a time: this member may come to lead meanwhile.
		try, cancel := context.WithTimeout(ctx, departPatience)
		err := n.link.depart(try)
		cancel()
		if err == nil || ctx.Err() != nil || n.ctx.Err() != nil {
			return err
		}
	}
}

const departPatience = 3 * time.Second

// waitChange waits for news, or a while; it reports false if ctx has ended.
func (n *Node) waitChange(ctx context.Context, while time.Duration) bool {
	t := time.NewTimer(while)
	defer t.Stop()
	select {
	case <-t.C:
	case <-n.link.changed.wait():
	case <-n.ctx.Done():
	case <-ctx.Done():
		return false
	}
	return true
}
