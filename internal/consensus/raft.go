package consensus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// Limits of raft's log. A follower that is more than trailingEntries behind needs
// a snapshot.
const (
	snapshotEntries  = 16 << 10 // entries since the last snapshot that make a new snapshot due
	trailingEntries  = 10 << 10 // entries kept in front of a snapshot
	entriesPerAppend = 64       // entries sent to a follower at once
)

// Raft is a single life of raft under a single ID, from founding or invitation
// to removal or the end of the node. Its methods may be called from any
// goroutine.
type Raft struct {
	id     string // a raft ID; also the address, see stream
	table  FSM
	raft   *raft.Raft
	trans  *raft.NetworkTransport
	stream *stream
	store  *raftstore.Store

	stopLead context.CancelFunc // ends the ctx of Config.Lead
	leadDone chan struct{}      // closed when Config.Lead has returned

	transferring atomic.Bool               // a leadership transfer is under way
	refusedSince atomic.Pointer[time.Time] // since when raft refuses entries for a transfer; nil: raft takes entries
}

// startRaft runs raft on the given stores. The Raft closes the store, even if
// startRaft fails. dial connects to the holder of a raft ID.
func startRaft(id string, table FSM, store *raftstore.Store, snapshots raft.SnapshotStore,
	dial func(context.Context, string) (net.Conn, error), logger hclog.Logger) (*Raft, error) {
	r := &Raft{id: id, table: table, store: store, stream: newStream(id, dial)}
	r.trans = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream:  r.stream,
		MaxPool: 3,
		// Pipelining can deadlock replication while heartbeats look healthy,
		// and gains nothing once commands share entries.
		MaxRPCsInFlight: 1,
		Timeout:         timing.RaftIO,
		Logger:          logger,
	})
	cfg := raft.DefaultConfig()
	cfg.LocalID = raft.ServerID(id)
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = timing.Election, timing.Election, timing.LeaderLease
	cfg.SnapshotInterval, cfg.SnapshotThreshold, cfg.TrailingLogs = timing.SnapshotEvery, snapshotEntries, trailingEntries
	cfg.MaxAppendEntries = entriesPerAppend
	cfg.ShutdownOnRemove = false
	cfg.NoLegacyTelemetry = true
	cfg.Logger = logger
	var err error
	func() {
		// Raft panics if a required part of its state cannot be read: a damaged
		// snapshot, for example, in front of a log that was cut behind the
		// snapshot.
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("its stored state cannot be used: %v", p)
			}
		}()
		r.raft, err = raft.NewRaft(cfg, fsm{table}, store, store, snapshots, transport{r.trans, store})
	}()
	if err != nil {
		r.trans.Close()
		r.close()
		return nil, fmt.Errorf("cluster: raft: %w", err)
	}
	return r, nil
}

// bootstrap writes the founding configuration as the first entry: the same bytes
// on every founding voter. bootstrap does nothing if the log has entries.
func (r *Raft) bootstrap(voters []string) error {
	var c raft.Configuration
	for _, id := range voters {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	if err := r.raft.BootstrapCluster(c).Error(); err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
		return fmt.Errorf("cluster: bootstrap: %w", err)
	}
	return nil
}

// startLead runs lead on a goroutine of its own until stop. stop joins the
// goroutine; the node does not, because the node must be able to give up a raft
// whose disk hangs.
func (r *Raft) startLead(lead func(context.Context, *Raft)) {
	ctx, cancel := context.WithCancel(context.Background())
	r.stopLead, r.leadDone = cancel, make(chan struct{})
	go func() {
		defer close(r.leadDone)
		lead(ctx, r)
	}()
}

// stop ends the leadership, then raft, then the streams, then the store, in this
// order: raft panics if the store closes first. stop blocks for as long as the
// disk hangs.
func (r *Raft) stop() error {
	r.stopLead()
	// Raft's Shutdown may leave a committed entry unanswered if the entry is not
	// applied yet. So the leadership, which waits for entries, ends first, while
	// raft runs. A leadership that does not end in time waits for raft, and ends
	// after Shutdown.
	select {
	case <-r.leadDone:
	case <-time.After(timing.RaftStop):
	}
	err := r.raft.Shutdown().Error()
	<-r.leadDone
	return errors.Join(err, r.close())
}

// abandon ends a Raft before startLead.
func (r *Raft) abandon() error {
	return errors.Join(r.raft.Shutdown().Error(), r.close())
}

func (r *Raft) close() error {
	r.trans.CloseStreams()
	r.stream.closeAccepted()
	return r.store.Close()
}

// ID returns the raft ID, name#generation.
func (r *Raft) ID() string { return r.id }

// Table returns the FSM that this Raft applies entries to.
func (r *Raft) Table() FSM { return r.table }

// Commit appends an entry to the log and waits until the entry is committed and
// applied. On CodeOK, outcomes is the result of FSM.Apply.
//
// CodeNotLeader is definite: the entry is in no log. CodeUnknown is indefinite:
// the entry may be committed, now or later.
func (r *Raft) Commit(entry []byte) (outcomes any, code wire.Code) {
	f := r.raft.Apply(entry, timing.Enqueue)
	err := f.Error()
	switch {
	case err == nil:
		r.refusedSince.Store(nil)
		return f.Response(), wire.CodeOK
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		r.refusedSince.CompareAndSwap(nil, new(time.Now()))
		return nil, wire.CodeNotLeader
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout):
		return nil, wire.CodeNotLeader
	}
	return nil, wire.CodeUnknown
}

// Barrier waits until the FSM has applied every entry committed before, or fails
// after timing.Barrier.
func (r *Raft) Barrier() error { return r.raft.Barrier(timing.Barrier).Error() }

// Stuck reports whether raft has refused entries for the sake of a leadership
// transfer for longer than a transfer can take. Raft may forget to end an
// interrupted transfer, and then leads for ever without serving. Seat.Restart
// helps.
func (r *Raft) Stuck() bool {
	since := r.refusedSince.Load()
	return since != nil && time.Since(*since) > timing.TransferStuck
}

// Stalled returns how long the running write of the store has been running, or 0
// if no write runs.
func (r *Raft) Stalled() time.Duration { return r.store.StalledFor() }

// Vouches reports whether this voter can confirm to a leader of the given term
// that this voter has voted in no higher term. voter is the raft ID that the
// leader asks. Vouches returns false for another ID, and once the store has
// failed, because raft may then believe in a term that a restart forgets.
//
// Raft stores and publishes a higher term before voting in that term, so a single
// atomic read is enough.
func (r *Raft) Vouches(voter string, term uint64) bool {
	return r.id == voter && r.raft.CurrentTerm() <= term && r.store.Failed() == nil
}

// Term returns raft's current term.
func (r *Raft) Term() uint64 { return r.raft.CurrentTerm() }

// Leads reports whether raft leads in the given term. Another leader may have
// been elected already: only a round of the voters can tell.
func (r *Raft) Leads(term uint64) bool {
	return r.raft.State() == raft.Leader && r.raft.CurrentTerm() == term
}

// Leadership returns the current term, and whether raft leads in that term.
func (r *Raft) Leadership() (term uint64, leads bool) {
	term = r.raft.CurrentTerm()
	return term, r.Leads(term)
}

// LeaderID returns the raft ID of the leader that raft follows, or "".
func (r *Raft) LeaderID() string {
	_, id := r.raft.LeaderWithID()
	return string(id)
}

// LastIndex returns the index of the newest entry in the log.
func (r *Raft) LastIndex() uint64 { return r.raft.LastIndex() }

// AppliedIndex returns the index of the newest entry handed to the FSM.
func (r *Raft) AppliedIndex() uint64 { return r.raft.AppliedIndex() }

// LeaderChanged receives when raft wins or loses leadership. The channel keeps a
// single change and drops further changes, so the receiver reads Leadership.
func (r *Raft) LeaderChanged() <-chan bool { return r.raft.LeaderCh() }

// Followed returns a channel that receives when raft follows a new leader, or
// none. The caller calls stop at the end.
func (r *Raft) Followed() (news <-chan struct{}, stop func()) {
	ch := wakeup.NewOne()
	// The filter itself tells the news. A channel of raft's observations would
	// need a goroutine between raft's type and this one.
	o := raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		if _, ok := o.Data.(raft.LeaderObservation); ok {
			ch.Wake()
		}
		return false
	})
	r.raft.RegisterObserver(o)
	return ch, func() { r.raft.DeregisterObserver(o) }
}
