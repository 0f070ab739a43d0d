package cluster

import (
	"context"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// lead follows this raft's leadership for as long as it runs: one goroutine
// makes a leader of the node in each term that raft wins, and unmakes it. stop
// joins it; not the node itself, which must be able to give up a raft whose
// disk hangs.
func (r *raftNode) lead(n *Node) {
	ctx, cancel := context.WithCancel(context.Background())
	r.ended, r.left = cancel, make(chan struct{})
	go func() {
		defer close(r.left)
		r.leadLoop(ctx, n)
	}()
}

func (r *raftNode) leadLoop(ctx context.Context, n *Node) {
	var l *leader
	revoke := func() {
		if l != nil {
			n.leader.CompareAndSwap(l, nil)
			n.gossip.update(func(m *metadata) { m.Leads = 0 })
			n.link.wake()
			l.stop()
			l = nil
		}
	}
	defer revoke()
	news, end := r.followed()
	defer end()
	for {
		var retry <-chan time.Time
		term, leads := r.leadership()
		if l != nil && (!leads || l.term != term || l.failed()) {
			revoke()
		}
		if l == nil && leads {
			if l = r.establish(n, term); l == nil {
				retry = time.After(100 * time.Millisecond)
				if r.stuck() {
					n.roles.restart(r)
				}
			} else {
				n.leader.Store(l)
				n.gossip.update(func(m *metadata) { m.Leads = term })
				n.link.wake()
			}
		}
		var failed <-chan struct{}
		if l != nil {
			failed = l.doubt
		}
		// raft's channel holds one change and drops flaps, hence the fresh
		// look at state and term each time.
		select {
		case <-r.leaderChanged():
		case <-news:
			n.link.wake()
		case <-failed:
		case <-retry:
		case <-ctx.Done():
			return
		}
	}
}

// establish makes the node leader in term: everything committed before is
// applied, and LeaderStart of the term. Only then does it serve. It returns nil
// if that could not be done now.
func (r *raftNode) establish(n *Node, term uint64) *leader {
	if r.store.StalledFor() > stallLimit {
		return nil
	}
	// Raft announces leadership before the table has caught up.
	if err := r.barrier(); err != nil || !r.leads(term) || r.table.parted() != nil {
		return nil
	}
	founding := n.founding.Load()
	if founding == nil {
		return nil
	}
	commands := []machine.Command{machine.LeaderStart{Term: term}}
	founded := false
	r.table.view(func(t *machine.State) { _, founded = t.Cluster() })
	if !founded {
		commands = append(commands, machine.Found{
			Cluster: founding.Cluster,
			Floor:   machine.Token(founding.Floor),
			TTL:     founding.TTL,
		})
	}
	if f := n.readable(r); f > r.table.format() {
		commands = append(commands, machine.Raise{Term: term, Format: uint64(f)})
	}
	outcomes, code := r.commit(machine.EncodeCommands(commands))
	if code != wire.CodeOK || len(outcomes) != len(commands) {
		return nil
	}
	// WrongTerm with our own term: we led in it before, and doubted. What the
	// earlier leader had in flight came before our barrier.
	if o := outcomes[0]; o.Code != machine.OK && (o.Code != machine.WrongTerm || o.Limit != term) {
		n.log.Warn("leadership refused by the table", "term", term, "table term", o.Limit)
		return nil
	}
	if !r.leads(term) {
		return nil
	}
	l := newLeader(n, r, term)
	l.start()
	n.log.Info("leading", "term", term)
	return l
}
