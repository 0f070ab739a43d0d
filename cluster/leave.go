package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/consensus"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

// A node ends in the same order for every caller:
//
//  1. All locks of this process end, and their sessions are closed, so that their
//     keys are free at once. The sessions are closed only after the contexts of
//     the locks have ended: the next holder may run as soon as the cluster hears.
//  2. Leadership passes on, and so does the vote if the member goes for good:
//     nobody then waits for an election or for a voter that does not come back.
//  3. Raft ends, and the streams of members.
//  4. The others are told that this very process has ended: see goodbye.go. Not
//     before, because the others replace the voter at once.
//  5. Gossip ends, then the port. If all others have ended or are about to, nobody
//     is left to hear a farewell by gossip.
//  6. The directory is given back. A later process of this member takes the
//     directory as the proof that no lock of this process lives.

// Stop ends the node's part in the cluster within a few seconds. First all locks
// of the node's clients end, with ErrStopped in their cause. The keys are free at
// once if the work under them returns within a second, and if a leader can be
// told; otherwise when the sessions have expired. Then leadership passes on.
//
// With a Dir the member goes for now: it stays a voter, and comes back by a Start
// with that Dir. In memory nothing comes back, so Stop leaves as Leave does, for
// two seconds at most; the others replace the voter afterwards if the time was too
// short.
//
// Stop returns when everything that the node ran has ended, and waits for a Stop
// or a Leave under way. The node's calls then fail with ErrStopped. Clients may be
// closed before or after.
func (n *Node) Stop() error {
	defer n.self.Clock.Enter()()
	n.ending.hurry()
	if n.ending.begin() {
		ctx, cancel := context.WithTimeout(context.Background(), timing.StopLeaves)
		defer cancel()
		if err := n.end(ctx, n.cfg.Dir == ""); err != nil {
			n.self.Log.Debug("stopped without a successor", "error", err)
		}
	}
	<-n.ending.done
	return n.ending.err
}

// Leave takes the member out of the cluster for good. First all locks of the
// node's clients end, as by Stop. Then leadership is handed over, another member
// takes this one's place as a voter if there is one, and the node stops. If all
// other members leave too, or have gone, Leave does not wait for them.
//
// If ctx ends before the member is replaced, Leave stops the node all the same and
// returns the error; the others replace the member in time. A Stop meanwhile
// hurries Leave.
func (n *Node) Leave(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	defer n.self.Clock.Enter()()
	var err error
	if n.ending.begin() {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		stop := n.ending.onHurry(func() { cancel(ErrStopped) })
		err = n.end(ctx, true)
		stop()
	}
	<-n.ending.done
	return errors.Join(err, n.ending.err)
}

// ending is the end of a node. A node ends once, however many calls ask for the
// end.
type ending struct {
	begun, hurried atomic.Bool
	now            chan struct{} // closed when a Stop waits
	done           chan struct{} // closed when the node has ended
	err            error         // of the parts that ended; read after done is closed
}

func newEnding() ending { return ending{now: make(chan struct{}), done: make(chan struct{})} }

// begin reports whether the caller is the one to end the node.
func (e *ending) begin() bool { return e.begun.CompareAndSwap(false, true) }

// hurry ends the wait for a successor.
func (e *ending) hurry() {
	if e.hurried.CompareAndSwap(false, true) {
		close(e.now)
	}
}

// onHurry runs f once a Stop waits, unless stop was called before. stop waits for f.
func (e *ending) onHurry(f func()) (stop func()) {
	var watch sync.WaitGroup
	stopped := make(chan struct{})
	watch.Go(func() {
		select {
		case <-e.now:
			f()
		case <-stopped:
		}
	})
	return func() {
		close(stopped)
		watch.Wait()
	}
}

// end ends the node, and closes n.ending.done. With leaves, the member is replaced
// first, until ctx ends: the error says why it was not.
func (n *Node) end(ctx context.Context, leaves bool) error {
	n.gossip.Update(func(m *member.Metadata) { m.Ending, m.Leaving = true, m.Leaving || leaves })
	n.othersInsist(n.ctx) // for endSessions, which asks nobody
	n.endSessions()
	err := n.passOn(ctx, leaves)
	n.ending.err = n.shutDown()
	close(n.ending.done)
	return err
}

// endSessions ends all locks of this process, and waits for a short time until
// their sessions are closed in the cluster.
func (n *Node) endSessions() {
	n.guests.Close()
	n.guests.AwaitEnded()
	ctx, cancel := context.WithTimeout(n.ctx, timing.CloseSessions)
	defer cancel()
	n.guests.AwaitLeft(ctx)
}

// shutDown ends the list of start, in the opposite order.
func (n *Node) shutDown() error {
	n.shutDoors()
	n.tasksMu.Lock()
	n.cancel(ErrStopped)
	n.tasksMu.Unlock()
	defer time.AfterFunc(timing.StoreStalled, n.record.GiveUp).Stop()
	n.across.Stop()
	audience := n.goodbyeAudience()
	n.tasks.Wait()
	err := n.seat.Stop()
	if !errors.Is(err, consensus.ErrDiskStalled) && !n.mute.Load() {
		n.sayGoodbye(audience)
	}
	if n.othersStay() {
		n.gossip.Leave(timing.GossipFarewell)
	}
	n.peers.Stop()
	n.gossip.Stop()
	err = errors.Join(err, n.port.Close(), n.record.Close())
	n.self.Log.Info("stopped", "next", "nothing")
	return err
}

var errNobodyStays = errors.New("cluster: no other member stays")

// passOn hands over leadership and, with leaves, returns when this member is no
// longer needed as a voter: another one has taken its place, or no other member
// stays.
func (n *Node) passOn(ctx context.Context, leaves bool) error {
	ctx, stop := n.whileOthersStay(ctx)
	defer stop()
	asked := make(map[string]bool) // voters that had leadership from this member
	going := departure{ask: n.link.Depart, wait: n.waitForChange}
	for n.ctx.Err() == nil && ctx.Err() == nil {
		r := n.seat.Current()
		l := n.leading.Load()
		switch {
		case r == nil, l == nil && !leaves:
			return nil
		case r.Stalled() > timing.StoreStalled:
			return nil // others take over by themselves, and raft would not end
		case l != nil:
			// A leader hands over before departing. If there is no voter to take
			// over, a leader that leaves waits until there is one.
			err := n.handOver(ctx, l, asked)
			if err != nil {
				n.self.Log.Debug("leadership not handed over", "error", err)
			}
			if !leaves {
				return err
			}
			n.waitForChange(ctx, timing.Reconcile)
		default:
			// Not for long at a time: this member may become the leader meanwhile.
			if over, err := going.attempt(ctx); over {
				return err
			}
		}
	}
	if err := context.Cause(ctx); err != errNobodyStays && n.ctx.Err() == nil {
		return err
	}
	return nil
}

var errNoSuccessor = errors.New("cluster: no other voter stays")

// handOver hands leadership to a staying voter, and tries each voter once. A voter
// asked before has given leadership back: the voter ends too, and gossip has not
// told so yet.
func (n *Node) handOver(ctx context.Context, l *leadership, asked map[string]bool) error {
	err := errNoSuccessor
	for _, id := range l.raft.Voters() {
		name, generation, _ := member.ParseRaftID(id)
		for _, s := range n.gossip.Alive() {
			if s.Name == name && s.Meta.Generation == generation && n.stays(s) && !asked[id] && ctx.Err() == nil {
				asked[id] = true
				if err = l.raft.TransferTo(ctx, id); err == nil {
					return nil
				}
			}
		}
	}
	return err
}

// stays reports whether a living member is another member, has not ended and is not
// about to end. A member not known in the cluster may be joining.
func (n *Node) stays(s member.Sighting) bool {
	return s.Name != n.self.Name && (!s.Meta.Leaving && !s.Meta.Ending || n.staying.insists(s.Process)) && !n.proof.Ended(s.Name, s.Boot)
}

// othersStay reports whether another member stays, as far as gossip knows.
func (n *Node) othersStay() bool {
	for _, s := range n.gossip.Alive() {
		if n.stays(s) {
			return true
		}
	}
	return false
}

// allOthersEnd reports whether there were other members and every one of them has
// said that it ends, or has ended for certain: nobody is left to be told anything. A
// member that went silent has said nothing. A member may end between two rounds of
// gossip, and then only its goodbye says so.
func (n *Node) allOthersEnd() bool {
	all := n.gossip.All() // the newest process of a name last
	others := false
	for i, s := range all {
		switch {
		case s.Name == n.self.Name, i+1 < len(all) && all[i+1].Name == s.Name:
		case n.stays(s):
			return false
		default:
			others = true
		}
	}
	return others
}

// whileOthersStay returns a context that ends with ctx, with the node, or when no
// other member stays. The caller must call stop.
func (n *Node) whileOthersStay(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			changed, proved := n.gossip.Changed(), n.proof.Changed()
			var again <-chan time.Time
			if !n.othersInsist(ctx) {
				if ctx.Err() != nil {
					return
				}
				wait := n.doors.close()
				if wait <= 0 {
					cancel(errNobodyStays)
					return
				}
				again = time.After(wait)
			} else if n.staying.any() {
				again = time.After(timing.ConfirmRound)
			}
			select {
			case <-changed:
			case <-proved:
			case <-again:
			case <-n.ctx.Done():
				cancel(context.Cause(n.ctx))
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		watch.Wait()
	}
}

// waitForChange waits for news of the leader, for d at most, or until ctx ends.
func (n *Node) waitForChange(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-n.link.Changed():
	case <-ctx.Done():
	}
}
