package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file is the only one that imports hashicorp/raft. What the rest of the
// package uses of it is named here.
type (
	raftLog           = raft.Log
	raftLogStore      = raft.LogStore
	raftSnapshotStore = raft.SnapshotStore
	raftSnapshotSink  = raft.SnapshotSink
	raftSnapshotMeta  = raft.SnapshotMeta
	raftConfiguration = raft.Configuration
	raftTransport     = raft.Transport
	raftSnapVersion   = raft.SnapshotVersion
)

var (
	errRaftLogNotFound   = raft.ErrLogNotFound
	newRaftFileSnapshots = raft.NewFileSnapshotStoreWithLogger
)

// Raft's settings. Its timeouts are not derived from TTL: they bound how fast a new leader
// is found, and below half a second a pause of the garbage collector or of
// a throttled CPU deposes a healthy one.
const (
	electionTimeout  = 500 * time.Millisecond
	leaseTimeout     = 250 * time.Millisecond
	raftIOTimeout    = 2 * time.Second
	enqueueTimeout   = 5 * time.Second
	barrierTimeout   = 5 * time.Second
	changeTimeout    = 5 * time.Second
	transferTimeout  = 2 * time.Second
	transferLimit    = 6 * electionTimeout
	leaveTimeout     = 5 * time.Second
	snapshotEvery    = 30 * time.Second
	snapshotEntries  = 16 << 10
	trailingEntries  = 10 << 10
	entriesPerAppend = 64

	// A leader whose disk does not answer for so long must not go on looking
	// healthy: its heartbeats fail, and another is elected.
	stallLimit = 3 * time.Second
)

// raftNode is one life of a voter: raft under one ID, from invitation or
// founding to removal or the node's end.
type raftNode struct {
	id      string // name#generation; also its raft address
	table   *table
	raft    *raft.Raft
	trans   *raft.NetworkTransport
	stream  *raftStream
	store   *store
	ended   func()                    // ends lead
	left    chan struct{}             // closed when lead has returned
	handing atomic.Bool               // a leadership transfer is under way
	refused atomic.Pointer[time.Time] // since when entries are refused for a transfer; nil: they are not
}

// raftID is a member's raft identity: a new generation with every empty store,
// so that what a lost store voted or acknowledged is never taken for the new one's.
func raftID(name string, generation uint64) string {
	return name + "#" + strconv.FormatUint(generation, 36)
}

func splitRaftID(id string) (name string, generation uint64, err error) {
	name, gen, ok := strings.Cut(id, "#")
	if ok {
		generation, err = strconv.ParseUint(gen, 36, 64)
	}
	if !ok || err != nil || generation == 0 || checkName(name) != "" {
		return "", 0, fmt.Errorf("cluster: %q is not a raft ID", id)
	}
	return name, generation, nil
}

// startRaft runs raft on the given stores, which it owns from now on, also if
// it fails. dial reaches the holder of a raft ID.
func startRaft(id string, st *store, snaps raftSnapshotStore, dial func(context.Context, string) (net.Conn, error), logger hclog.Logger) (*raftNode, error) {
	n := &raftNode{id: id, table: newTable(), store: st}
	n.stream = &raftStream{id: id, dial: dial, accepted: make(map[net.Conn]struct{}), conns: make(chan net.Conn), closed: make(chan struct{})}
	n.trans = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream:  n.stream,
		MaxPool: 3,
		// Pipelining can deadlock replication while heartbeats look healthy,
		// and costs more than it saves once commands share entries.
		MaxRPCsInFlight: 1,
		Timeout:         raftIOTimeout,
		Logger:          logger,
	})
	cfg := raft.DefaultConfig()
	cfg.LocalID = raft.ServerID(id)
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = electionTimeout, electionTimeout, leaseTimeout
	cfg.SnapshotInterval, cfg.SnapshotThreshold, cfg.TrailingLogs = snapshotEvery, snapshotEntries, trailingEntries
	cfg.MaxAppendEntries = entriesPerAppend
	cfg.ShutdownOnRemove = false
	cfg.NoLegacyTelemetry = true
	cfg.Logger = logger
	var err error
	func() {
		// Raft panics on what it cannot read where it must: of a snapshot that
		// is damaged, say, in front of a log that was cut behind it.
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("its stored state cannot be used: %v", p)
			}
		}()
		n.raft, err = raft.NewRaft(cfg, fsm{n.table}, st, st, snaps, raftLink{n.trans, st})
	}()
	if err != nil {
		n.trans.Close()
		n.trans.CloseStreams()
		n.stream.closeAccepted()
		st.Close()
		return nil, fmt.Errorf("cluster: raft: %w", err)
	}
	return n, nil
}

// bootstrap writes the founding configuration as the first entry, the same
// bytes on every founding voter. It does nothing if there are entries already.
func (n *raftNode) bootstrap(voters []string) error {
	var c raft.Configuration
	for _, id := range voters {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	if err := n.raft.BootstrapCluster(c).Error(); err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
		return fmt.Errorf("cluster: bootstrap: %w", err)
	}
	return nil
}

// stop ends raft, then what used it, then its streams, then its store, in this
// order: raft panics if its store closes under it.
func (n *raftNode) stop() error {
	n.ended()
	// Raft's Shutdown may forget to answer an entry that is committed but not
	// yet applied: what waits for one ends first, while raft lives, unless it
	// cannot.
	t := time.NewTimer(leaveTimeout)
	select {
	case <-n.left:
	case <-t.C:
	}
	t.Stop()
	err := n.raft.Shutdown().Error()
	<-n.left
	return errors.Join(err, n.close())
}

// abandon ends a raft that lead has not been called on.
func (n *raftNode) abandon() error {
	return errors.Join(n.raft.Shutdown().Error(), n.close())
}

func (n *raftNode) close() error {
	n.trans.CloseStreams()
	n.stream.closeAccepted()
	return n.store.Close()
}

// commit has one log entry committed and applied. CodeNotLeader is definite: the entry is in
// no log. CodeUnknown is not: it may be committed yet.
func (n *raftNode) commit(entry []byte) ([]machine.Outcome, wire.Code) {
	f := n.raft.Apply(entry, enqueueTimeout)
	err := f.Error()
	switch {
	case err == nil:
		n.refused.Store(nil)
		outcomes, _ := f.Response().([]machine.Outcome)
		return outcomes, wire.CodeOK
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		n.refused.CompareAndSwap(nil, new(time.Now()))
		return nil, wire.CodeNotLeader
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout):
		return nil, wire.CodeNotLeader
	}
	return nil, wire.CodeUnknown
}

// stuck reports whether raft has been refusing entries for the sake of a
// leadership transfer for longer than one can take: raft may forget to end a
// transfer that was interrupted, and then leads for ever without serving.
func (n *raftNode) stuck() bool {
	since := n.refused.Load()
	return since != nil && time.Since(*since) > transferLimit
}

// leads reports whether raft leads in the given term. Another leader may have
// been elected already; see rounds.
func (n *raftNode) leads(term uint64) bool {
	return n.raft.State() == raft.Leader && n.raft.CurrentTerm() == term
}

// leadership is the term this node leads in, if it does.
func (n *raftNode) leadership() (term uint64, ok bool) {
	term = n.raft.CurrentTerm()
	return term, n.leads(term)
}

// followed returns a channel that hears of each new leader that raft follows,
// and what ends it.
func (n *raftNode) followed() (news <-chan raft.Observation, end func()) {
	ch := make(chan raft.Observation, 1)
	o := raft.NewObserver(ch, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	n.raft.RegisterObserver(o)
	return ch, func() { n.raft.DeregisterObserver(o) }
}

func (n *raftNode) term() uint64               { return n.raft.CurrentTerm() }
func (n *raftNode) leaderChanged() <-chan bool { return n.raft.LeaderCh() }
func (n *raftNode) barrier() error             { return n.raft.Barrier(barrierTimeout).Error() }
func (n *raftNode) lastIndex() uint64          { return n.raft.LastIndex() }
func (n *raftNode) appliedIndex() uint64       { return n.raft.AppliedIndex() }

// leaderID is the raft ID of the leader that raft follows, or "".
func (n *raftNode) leaderID() string {
	_, id := n.raft.LeaderWithID()
	return string(id)
}

// server is one line of the raft configuration.
type server struct {
	ID    string
	Voter bool
}

// servers is the latest configuration, which may not be committed yet, by ID.
func (n *raftNode) servers() []server {
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	var out []server
	for _, s := range f.Configuration().Servers {
		out = append(out, server{string(s.ID), s.Suffrage == raft.Voter})
	}
	slices.SortFunc(out, func(a, b server) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func (n *raftNode) voters() []string {
	var out []string
	for _, s := range n.servers() {
		if s.Voter {
			out = append(out, s.ID)
		}
	}
	return out
}

// Changes of the configuration name the committed one that they build on, so
// that one decided on a stale view is refused. raft's own
// GetConfiguration().Index() cannot serve: it is always 0, which turns the
// comparison off. The table learns the index from the log.

func (n *raftNode) addNonvoter(id string, prev uint64) error {
	return n.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(id), prev, changeTimeout).Error()
}

func (n *raftNode) addVoter(id string, prev uint64) error {
	return n.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(id), prev, changeTimeout).Error()
}

func (n *raftNode) removeServer(id string, prev uint64) error {
	return n.raft.RemoveServer(raft.ServerID(id), prev, changeTimeout).Error()
}

// transfer hands leadership to another voter, of raft's choice: the one that
// has come furthest. It tries for a while at most, and one try at a time: raft
// may leave a transfer unanswered that it was stopped in.
func (n *raftNode) transfer(ctx context.Context) error {
	if !n.handing.CompareAndSwap(false, true) {
		return raft.ErrLeadershipTransferInProgress
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- n.raft.LeadershipTransfer().Error()
		n.handing.Store(false)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fsm puts the table behind raft's interface.
type fsm struct{ t *table }

var _ raft.BatchingFSM = fsm{}

func (f fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch takes configuration entries too; a plain FSM would leave raft
// unable to snapshot behind one.
func (f fsm) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	for i, l := range logs {
		switch l.Type {
		case raft.LogCommand:
			out[i] = f.t.apply(l.Data, l.AppendedAt)
		case raft.LogConfiguration:
			f.t.configured(l.Index)
		}
	}
	return out
}

// Snapshot refuses to make a table that has parted what a later start begins with.
func (f fsm) Snapshot() (raft.FSMSnapshot, error) {
	if err := f.t.parted(); err != nil {
		return nil, err
	}
	return fsmSnapshot{f.t.snapshot()}, nil
}

func (f fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	return f.t.restore(r)
}

type fsmSnapshot struct{ image tableImage }

func (s fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.image.writeTo(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (fsmSnapshot) Release() {}

// raftLink is the network transport without its heartbeat fast path, which
// changes the term outside raft's main goroutine and can let logs diverge. It
// fails what a leader with a stalled disk would send.
type raftLink struct {
	*raft.NetworkTransport
	store *store
}

var (
	_ raft.Transport   = raftLink{}
	_ raft.WithPreVote = raftLink{}
	_ raft.WithClose   = raftLink{}
)

var errDiskStalled = errors.New("cluster: the disk does not answer")

func (raftLink) SetHeartbeatHandler(func(raft.RPC)) {}

func (l raftLink) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if l.store.StalledFor() > stallLimit {
		return errDiskStalled
	}
	return l.NetworkTransport.AppendEntries(id, to, args, resp)
}

// raftStream carries raft over the port. Raft's addresses are raft IDs,
// resolved at each dial, so changed ports and hosts need no recovery.
type raftStream struct {
	id    string
	dial  func(context.Context, string) (net.Conn, error)
	conns chan net.Conn

	once   sync.Once
	closed chan struct{}

	mu       sync.Mutex
	accepted map[net.Conn]struct{} // nil once closed
}

// serve hands an accepted connection to raft.
func (s *raftStream) serve(c *port.Conn) {
	s.mu.Lock()
	if s.accepted == nil {
		s.mu.Unlock()
		c.Close()
		return
	}
	conn := &raftConn{Conn: c, stream: s}
	s.accepted[conn] = struct{}{}
	s.mu.Unlock()
	select {
	case s.conns <- conn:
	case <-s.closed:
		conn.Close()
	}
}

func (s *raftStream) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *raftStream) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.dial(ctx, string(addr))
}

func (s *raftStream) Addr() net.Addr { return raftAddr(s.id) }

func (s *raftStream) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// closeAccepted ends the connections that raft's Shutdown leaves open.
func (s *raftStream) closeAccepted() {
	s.Close()
	s.mu.Lock()
	accepted := s.accepted
	s.accepted = nil
	s.mu.Unlock()
	for c := range accepted {
		c.Close()
	}
}

type raftConn struct {
	net.Conn
	stream *raftStream
}

func (c *raftConn) Close() error {
	c.stream.mu.Lock()
	delete(c.stream.accepted, c)
	c.stream.mu.Unlock()
	return c.Conn.Close()
}

type raftAddr string

func (a raftAddr) Network() string { return "wardmote" }
func (a raftAddr) String() string  { return string(a) }

// newHCLogger makes a logger for raft and memberlist that ends in ours. What
// they call Info is Debug to us.
func newHCLogger(l *slog.Logger) hclog.Logger {
	i := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Off})
	i.RegisterSink(slogSink{l})
	return i
}

type slogSink struct{ l *slog.Logger }

func (s slogSink) Accept(name string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch level {
	case hclog.Trace:
		return
	case hclog.Warn:
		to = slog.LevelWarn
	case hclog.Error:
		// Of one peer or one try, mostly: raft goes on, and so do we.
		to = slog.LevelWarn
	}
	s.l.Log(context.Background(), to, msg, append([]any{"source", name}, args...)...)
}
