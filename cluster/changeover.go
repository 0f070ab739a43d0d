package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file takes a running node out of its cluster and into another one. No
// process ends, because a cluster's death must cost no more than the cluster: its
// clients open new sessions and go on.
//
// A node leaves in one order:
//
//  1. The link ends every session of this process, so no context of a lock of the
//     old cluster is open when anybody is told that this member has left.
//  2. The seat ends the leadership, waits for raft's Shutdown, takes a new
//     generation and moves the store aside. From here on the member refuses raft,
//     Confirm and Attach of the old cluster, because nothing is left to answer.
//  3. The record names the next cluster (founding.Runner). A crash before this
//     leaves a thin member of the old cluster. In the opposite order, a crash
//     would leave a record of the next cluster beside the old cluster's store, and
//     the next start would let the store vote there.
//  4. The port closes every connection: their two sides agreed on the old cluster.
//  5. The link looks for a leader again, and the seat starts if the founding names
//     this member.

var errRetired = errors.New("cluster: this member cannot leave its cluster yet")

// retire is founding.Config.Retire. It makes this member never vote again in the
// cluster old, and tells what a successor must know: the last token seen, its age,
// and the longest TTL that the member was told or has in its table: a session may
// be older than this process, and be longer than the bound of now. The trust of this
// process in the cluster is over when retire returns. A second call answers again.
//
// The member refuses while the cluster can come back without a successor: see
// comeback. A member without a vote has nothing to stop, and keeps its sessions:
// their trust ends within the successor's silence, since no leader of old confirms
// a beat after a majority of its voters has retired or ended.
func (n *Node) retire(ctx context.Context, old machine.ClusterID) (wire.RetireAnswer, error) {
	select {
	case n.retiring <- struct{}{}:
		defer func() { <-n.retiring }()
	case <-ctx.Done():
		return wire.RetireAnswer{}, context.Cause(ctx)
	}
	if n.founding.Cluster() != old {
		return wire.RetireAnswer{Refused: "not a member of that cluster"}, nil
	}
	rec := n.record.Get()
	if !rec.RetiredHere() || !n.link.Away() {
		if why := n.comeback(ctx); why != "" {
			return wire.RetireAnswer{Refused: why}, nil
		}
	}
	seen, at := n.tokenSeen() // before the table goes
	if rec.Stored || rec.RetiredHere() || n.seat.Current() != nil {
		n.link.Leave()
		n.meetings.news.Wake() // see resume
		if err := n.seat.Depart(ctx, true); err != nil {
			return wire.RetireAnswer{}, err // the next call finishes
		}
		n.self.Log.Warn("retired from a cluster that cannot answer", "cluster", clusterText(old),
			"next", "wait for the successor; Health tells what it waits for")
		rec = n.record.Get()
	}
	_, _, told := n.link.Seen()
	// The record may remember the retirement from an earlier cluster, if this member
	// did not vote in this one. That log is no log of this cluster.
	var voted identity.Retirement
	if rec.RetiredHere() {
		voted = rec.Retired
	}
	return wire.RetireAnswer{
		Raft:     member.RaftID(n.self.Name, rec.Generation),
		Token:    max(uint64(seen), rec.Token),
		TokenAge: uint64(n.self.Clock.Now().Sub(at) / time.Millisecond),
		TTL:      max(uint64(told/time.Millisecond), uint64(n.cfg.TTL/time.Millisecond), n.retired.longest()),
		Voter:    voted.Voted,
		LogTerm:  voted.Term,
		LogIndex: voted.Index,
	}, nil
}

// tokenSeen returns the highest token that this process has seen, and the time of
// the first sight, by this host's clock. The token of a record from an earlier process counts as seen at
// the start: the time is too early rather than too late, so the floor of a
// successor is too high rather than too low.
func (n *Node) tokenSeen() (machine.Token, time.Time) {
	token, at, _ := n.link.Seen()
	var longest uint64
	if r := n.seat.Current(); r != nil {
		table := r.Table().(*term.Table)
		if t, rose := table.LastToken(); t > token {
			token, at = t, rose
		}
		table.View(func(m *machine.State) { longest = m.LongestTTL() })
	}
	n.retired.note(token, at, longest)
	if token, at = n.retired.last(); at.IsZero() {
		at = n.started
	}
	return token, at
}

// seenToken remembers the highest token and the longest TTL of the tables that this
// process gave up.
type seenToken struct {
	mu    sync.Mutex
	token machine.Token
	at    time.Time
	ttl   uint64 // in milliseconds
}

func (s *seenToken) note(token machine.Token, at time.Time, ttl uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ttl = max(s.ttl, ttl)
	if token > s.token {
		s.token, s.at = token, at
	}
}

// longest returns the longest TTL, in milliseconds.
func (s *seenToken) longest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ttl
}

func (s *seenToken) last() (machine.Token, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token, s.at
}

// comeback returns why this member's cluster may answer again without a successor,
// or "". There are two reasons: a leader confirmed by a majority answers this
// member now; or this voter reaches a majority of its own latest configuration,
// which then can elect a leader. The configuration may be appended and not
// committed, since raft elects by the latest. A voter is reached if the exact raft
// ID answers on a fresh connection: a stream kept from before may be half open, and
// another generation of the name cannot vote.
func (n *Node) comeback(ctx context.Context) (why string) {
	ctx, cancel := context.WithTimeout(ctx, timing.RetireLook)
	defer cancel()
	var voters []string
	r := n.seat.Current()
	if r != nil {
		voters = r.Voters()
	}
	var asked sync.WaitGroup
	var led atomic.Bool
	var reached atomic.Int32
	asked.Go(func() { led.Store(n.ledNow(ctx)) })
	for _, id := range voters {
		if id == r.ID() {
			reached.Add(1)
			continue
		}
		asked.Go(func() {
			if n.reaches(ctx, id) {
				reached.Add(1)
			}
		})
	}
	asked.Wait()
	switch got := int(reached.Load()); {
	case led.Load():
		return "a leader of the cluster answers, confirmed by a majority"
	case len(voters) > 0 && got > len(voters)/2:
		return fmt.Sprintf("%d of %d voters reach each other, and can elect a leader", got, len(voters))
	}
	return ""
}

// ledNow reports whether a majority of the cluster's voters confirms a leader now.
func (n *Node) ledNow(ctx context.Context) bool {
	if n.link.Away() {
		return false
	}
	_, err := n.link.Read(ctx, replica.Query{Key: "health"}) // any key serves: a reading needs the quorum
	return err == nil
}

// reaches reports whether the voter answers as this very raft ID, on a new
// connection.
func (n *Node) reaches(ctx context.Context, raftID string) bool {
	to, err := n.locate(raftID)
	if err != nil {
		return false
	}
	to.Boot = 0 // a restart with its Dir is the same voter
	c, err := n.dial(ctx, port.KindControl, to)
	if err != nil {
		return false
	}
	if role, ok := c.(*port.Conn); ok && !role.Voter() {
		_ = c.Close()
		return false // no voter answers here, whatever its name
	}
	s := stream.New(c, func(q *stream.Request) { q.Answer(wire.CodeBad, nil) })
	s.Start()
	defer s.Close()
	f, err := s.Call(ctx, wire.Progress, nil)
	var a wire.ProgressAnswer
	return err == nil && f.Code == wire.CodeOK && wire.Unmarshal(f.Body, &a) == nil && a.Raft == raftID
}

// anyhow is the key of unconditionally.
type anyhow struct{}

// unconditionally has leaveCluster ask for no retirement: the own cluster has granted
// nothing, and the other one has.
func unconditionally(ctx context.Context) context.Context {
	return context.WithValue(ctx, anyhow{}, true)
}

// leaveCluster is founding.Config.Leave: steps 1 and 2 of the order above. A member
// that votes leaves for a successor by retiring, with all of the conditions.
// Towards a predecessor or a stranger there are none: the caller has found that the
// own cluster has no right to grant. Nor has a voter that has not come home any: it
// has cast no vote in this process. After an error the member is in its cluster
// still, and may have lost its vote.
func (n *Node) leaveCluster(ctx context.Context, to wire.Founding) error {
	ctx, cancel := context.WithTimeout(ctx, timing.StopWithoutDisk)
	defer cancel()
	own := n.founding.Value()
	if own == nil {
		return nil
	}
	if founding.Kin(*own, to) == founding.Successor && n.atHome() && ctx.Value(anyhow{}) == nil {
		a, err := n.retire(ctx, own.Cluster)
		if err == nil && a.Refused != "" {
			err = fmt.Errorf("%w: %s", errRetired, a.Refused)
		}
		if err != nil {
			return err
		}
	} else {
		n.tokenSeen()
	}
	n.retiring <- struct{}{}
	n.moving.Store(true) // until adopted: resume must not come in between
	<-n.retiring
	n.link.Leave()
	if err := n.seat.Depart(ctx, false); err != nil {
		n.stayed()
		return err
	}
	return nil
}

// stayed is founding.Config.Stayed: this member has left its cluster and could not enter
// the next one. It is a member of the former cluster still, without a vote, and looks for
// its leader again, unless it has retired: then resume waits for the leader's word.
func (n *Node) stayed() {
	n.moving.Store(false)
	if rec := n.record.Get(); !rec.RetiredHere() {
		n.link.Return()
	}
}

// adopted is called when this member has entered a cluster: from none, or from
// another cluster after leaveCluster. Steps 4 and 5 of the order above.
func (n *Node) adopted(v wire.Founding, votes bool) {
	detail := clusterText(v.Cluster)
	// Without a former cluster too: while this member was in no cluster, members of
	// any cluster could connect, and could wait here for the answer of a leader. The
	// leader of this cluster must not serve them.
	n.port.NewEra()
	if n.moving.Load() {
		n.meetings.reset()
		n.leaderTerm.Store(0)
		n.voters.forget()
		detail += ", in place of the former cluster"
	}
	n.enteredAt.Store(new(n.self.Clock.Now()))
	if votes && !n.moving.Load() && !n.cfg.alone {
		wait := max(time.Duration(v.TTL)*time.Millisecond, timing.LeastFounding)
		detail += "; grants in " + wait.String() + survivors
	} else if !votes {
		detail += ", founded by others"
	}
	n.gossip.Update(func(m *member.Metadata) { m.Cluster = v.Cluster })
	n.event(Event{Kind: ClusterFounded, Detail: detail})
	if votes {
		n.seat.Found(n.ctx)
	}
	n.entered.Wake()
	n.moving.Store(false)
	n.link.Return()
}

// resume ends the retirement's wait if the cluster answers after all: a leader
// confirmed by a majority is known to another member.
//
// In memory the retirement is over then, and the leader may invite this member to
// vote again, under another raft ID: without that, members that retired for a ballot
// without success would be lost to the cluster until their processes start anew. A
// ballot for a successor is safe all the same. Its members accept only after every
// voter has retired, so no leader is left that could invite; and a member that was
// invited before refuses, since it votes: see founding.Runner. With a Dir the
// promise stays, because only an operator asks for it.
func (n *Node) resume(ctx context.Context) {
	id := n.founding.Cluster()
	for _, s := range provedFirst(n.gossip.Alive(), n.gossip.Shown) {
		if n.self.Is(s.Process) || s.Meta.Cluster != id {
			continue
		}
		if _, ok := n.founding.Confirmed(ctx, s.Process, id); ok {
			n.retiring <- struct{}{}
			defer func() { <-n.retiring }()
			if n.founding.Cluster() == id && !n.moving.Load() {
				n.self.Log.Info("the cluster answers again", "cluster", clusterText(id), "next", "nothing")
				if n.cfg.Dir == "" {
					_ = n.record.Update(func(rec *identity.Record) { rec.Retired = identity.Retirement{} }) // in memory: cannot fail
				}
				n.link.Return()
			}
			return
		}
	}
}

// provedFirst has those go first that a handshake has shown: each invented one answers
// nothing for timing.Dial.
func provedFirst(list []member.Sighting, shown func(name string, boot uint64) bool) []member.Sighting {
	var proved, others []member.Sighting
	for _, s := range list {
		if shown(s.Name, s.Boot) {
			proved = append(proved, s)
		} else {
			others = append(others, s)
		}
	}
	return append(proved, others...)
}

// grantedIn remembers the cluster in which locks were granted. The news of an
// earlier cluster says nothing about the present one.
type grantedIn struct {
	own func() machine.ClusterID
	id  atomic.Pointer[machine.ClusterID]
}

// Load reports whether the present cluster has granted since this node is in it.
func (g *grantedIn) Load() bool {
	id := g.id.Load()
	return id != nil && *id == g.own()
}

// watchGranting tells once in each cluster that locks are granted.
func (n *Node) watchGranting() {
	for n.ctx.Err() == nil {
		entered := n.entered.Wait()
		id := n.founding.Cluster()
		ctx, cancel := context.WithCancel(n.ctx)
		stop := make(chan struct{})
		n.spawn(func() {
			select {
			case <-entered:
				cancel()
			case <-stop:
			}
		})
		err := n.link.Granting(ctx)
		moved := ctx.Err() != nil || n.founding.Cluster() != id
		close(stop)
		cancel()
		if moved {
			continue // the answer is told in the next round
		}
		if err == nil {
			n.granted.id.Store(&id)
			n.event(Event{Kind: Granting})
		}
		select {
		case <-entered:
		case <-n.ctx.Done():
		}
	}
}
