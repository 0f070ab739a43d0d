package consensus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/judge"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// Limits of raft's log. A follower that is more than trailingEntries behind needs
// a snapshot.
const (
	snapshotEntries  = 16 << 10         // entries since the last snapshot that make a new snapshot due
	trailingEntries  = 10 << 10         // entries kept in front of a snapshot
	entriesPerAppend = judge.MaxEntries // entries sent to a follower at once
)

// maxPool is the number of idle streams that raft keeps to a server.
const maxPool = 3

// Raft is a single life of raft under a single ID, from founding or invitation
// to removal or the end of the node. Its methods may be called from any
// goroutine.
type Raft struct {
	id     string // a raft ID; also the address, see stream
	table  FSM
	raft   *raft.Raft
	trans  *transport
	stream *stream // of trans
	store  *raftstore.Store
	fsm    *fsm
	reach  *reach
	cfg    *Config

	news     wakeup.One    // for attend: a change of raft's state, its leader or the TTL
	coldNews wakeup.One    // for stand: look again whether a first leader can be elected
	silence  wakeup.One    // for stand: the leader has been silent for a timeout
	patience patience      // noted by attend alone
	nudged   atomic.Uint64 // how often raft was told to stand, for tests
	stood    atomic.Uint64 // the highest term whose leader this voter tried to succeed at once
	ended    atomic.Pointer[process]

	contacts *contacts
	commits  timing.Latest // how long the latest commits took

	snapshots raft.SnapshotStore
	reloading sync.Mutex // held from reading to writing raft's configuration

	stopLead context.CancelFunc // ends the ctx of Config.Lead, attend and stand
	leadDone chan struct{}      // closed when Config.Lead has returned
	watching sync.WaitGroup     // attend, stand and compact

	transferring atomic.Bool               // a leadership transfer is under way
	refusedSince atomic.Pointer[time.Time] // since when raft refuses entries for a transfer; nil: raft takes entries
}

// startRaft runs raft on the given stores, of which dir is the directory, or "". The
// Raft closes the store, even if startRaft fails.
func startRaft(id string, table FSM, store *raftstore.Store, snapshots raft.SnapshotStore, dir string, seat *Config, logger hclog.Logger) (*Raft, error) {
	r := &Raft{id: id, table: table, store: store, snapshots: snapshots, reach: newReach(), contacts: newContacts(), cfg: seat,
		news: wakeup.NewOne(), coldNews: wakeup.NewOne(), silence: wakeup.NewOne()}
	r.fsm = newFSM(table, snapshots, seat.Disk, r.news.Wake)
	r.trans = newTransport(r, dir)
	r.stream = r.trans.stream
	cfg := raft.DefaultConfig()
	cfg.LocalID = raft.ServerID(id)
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = timing.ColdElection, timing.ColdElection, timing.LeaderLease
	cfg.SnapshotInterval = timing.SnapshotEvery
	cfg.SnapshotThreshold, cfg.TrailingLogs = seat.Disk.Entries(snapshotEntries), seat.Disk.Entries(trailingEntries)
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
				if cause, ok := p.(error); ok {
					err = fmt.Errorf("its stored state cannot be used: %w", cause)
				}
			}
		}()
		r.raft, err = raft.NewRaft(cfg, r.fsm, r.trans.log(store), store, snapshots, r.trans)
	}()
	if err != nil {
		r.close()
		if errno := syscall.Errno(0); !errors.As(err, &errno) && !errors.Is(err, raftstore.ErrDamaged) {
			err = fmt.Errorf("%w: %w", raftstore.ErrDamaged, err) // raft answers a sound store with a start
		}
		return nil, fmt.Errorf("cluster: raft: %w", err)
	}
	r.trans.base.start(snapshots, r.raft.AppliedIndex())
	r.reach.started(r.serves)
	r.raft.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		if o.Data == raft.Candidate {
			seat.Self.Meter.Elections.Inc()
		}
		switch o.Data.(type) {
		case raft.RaftState, raft.LeaderObservation, raft.PeerObservation:
			r.reach.changed.Wake()
			r.trans.told.news.Wake()
			r.news.Wake()
		}
		return false
	}))
	return r, nil
}

// serves reports whether this raft leads in the term and replicates to the server.
func (r *Raft) serves(server string, term uint64) bool {
	return r.Leads(term) && slices.ContainsFunc(r.Servers(), func(s member.Server) bool { return s.ID == server })
}

// startLead runs lead on a goroutine of its own until stop, beside the goroutines
// that attend to raft's timeouts and stand for election. stop joins all of them;
// the node does not, because the node must be able to give up a raft whose disk
// hangs.
func (r *Raft) startLead(lead func(context.Context, *Raft)) {
	ctx, cancel := context.WithCancel(context.Background())
	r.stopLead, r.leadDone = cancel, make(chan struct{})
	r.watching.Go(func() { r.attend(ctx) })
	r.watching.Go(func() { r.stand(ctx) })
	r.watching.Go(func() { r.compact(ctx) })
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
	err := r.shutDown()
	<-r.leadDone
	r.watching.Wait()
	return errors.Join(err, r.close())
}

// abandon ends a Raft before startLead.
func (r *Raft) abandon() error {
	return errors.Join(r.shutDown(), r.close())
}

// shutDown ends raft, which begins nothing once Shutdown was called. Shutdown then waits
// for the exchanges under way, and would wait timing.RaftIO for one with a server out of
// reach: a vote asked of a host that is gone, for example. So the transport gives the
// exchanges up. No exchange is worth that wait: the leadership has ended, and a vote
// elects nobody any more.
func (r *Raft) shutDown() error {
	ended := r.raft.Shutdown()
	r.trans.Close()
	return ended.Error()
}

func (r *Raft) close() error {
	r.trans.end()
	return r.store.Close()
}

// ID returns the raft ID, name#generation.
func (r *Raft) ID() string { return r.id }

// Table returns the FSM that this Raft applies entries to.
func (r *Raft) Table() FSM { return r.table }

// Committed is an entry that a leader has committed and applied.
type Committed struct {
	Index, Term uint64
	Bytes       int
	Outcomes    any           // of FSM.Apply
	Append      time.Duration // the write of the entry to the leader's own store, its flush included
	Took        time.Duration // from Commit to the application
}

// Commit appends an entry to the log and waits until the entry is committed and
// applied. On CodeOK, outcomes is the result of FSM.Apply. An entry that exceeds
// judge.MaxEntry is refused with CodeBad.
//
// CodeNotLeader is definite: the entry is in no log. CodeUnknown is indefinite:
// the entry may be committed, now or later.
func (r *Raft) Commit(entry []byte) (outcomes any, code wire.Code) {
	if len(entry) > judge.MaxEntry {
		return nil, wire.CodeBad // no voter would take it
	}
	began, term := time.Now(), r.raft.CurrentTerm()
	f := r.raft.Apply(entry, timing.Enqueue)
	err := f.Error()
	switch {
	case err == nil:
		r.refusedSince.Store(nil)
		r.commits.Add(time.Since(began))
		if r.cfg.Committed != nil {
			r.cfg.Committed(Committed{
				Index: f.Index(), Term: term, Bytes: len(entry), Outcomes: f.Response(),
				Append: r.store.AppendTime(f.Index()), Took: time.Since(began),
			})
		}
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
