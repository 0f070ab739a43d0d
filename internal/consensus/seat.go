package consensus

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/judge"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/meter"
	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// Config describes a Seat's node. All functions must be set. A Seat may call a
// function from any goroutine.
type Config struct {
	Self   member.Self
	Dir    string           // of the member; "": in memory
	Record *identity.Store  // the member's memory: whether and as which generation it votes
	Engine raftstore.Engine // for tests with a bad disk; nil: a store in Dir, or memory

	Store    raftstore.Options // of the store in Dir
	HostBoot func() string     // identity.HostBoot; called for a store with unflushed writes alone

	Disk *host.Disk // under the store; nil: does as the Engine says

	NewTable  func() FSM       // makes an empty FSM for a new Raft
	LastToken func(FSM) uint64 // the highest token that an FSM knows, kept for a founding anew

	// Dial connects to the holder of a raft ID.
	Dial func(ctx context.Context, raftID string) (net.Conn, error)

	// Look dials the process of a raft ID, of that boot, and returns the evidence.
	// With boot 0 any process of the ID is meant. Look returns when ctx ends.
	Look func(ctx context.Context, raftID string, boot uint64) Evidence

	// AskStand asks a voter whether this member may stand for election: see
	// Raft.MayStand. An error means that no answer came before ctx ended.
	AskStand func(ctx context.Context, q wire.StandRequest) (a wire.StandAnswer, yes bool, err error)

	// AskFollows asks a voter which leader it follows: see Raft.Follows. An error
	// means that no answer came before ctx ended, or that the raft ID does not run.
	AskFollows func(ctx context.Context, q wire.FollowsRequest) (wire.FollowsAnswer, error)

	// Lead runs the leadership of a Raft, in every term that the Raft wins,
	// until ctx ends. Each Raft calls Lead once, on a goroutine of its own.
	Lead func(ctx context.Context, r *Raft)

	// Advertise changes the description that this member spreads.
	Advertise func(change func(*member.Metadata))

	// AskRemoved asks the leader that this node has found without raft whether
	// raftID has left the configuration. AskRemoved returns false if no leader is
	// known or no answer comes before ctx ends.
	AskRemoved func(ctx context.Context, raftID string) bool

	// Committed is told of each entry that Raft.Commit has committed; nil: of none. It
	// must not block.
	Committed func(Committed)

	Changed func()      // a Raft began or ended; must not block
	Retired func(error) // this member votes no more, because of the disk or the FSM
	Fail    func(error) // the node cannot go on
}

// Seat is this member's place among the voters. Its methods may be called from
// any goroutine, unless their comments say otherwise.
type Seat struct {
	cfg  Config
	work chan func() // run by Run, in order

	// Only the goroutine that runs Run uses these; before Run, the caller of
	// Resume.
	retired bool      // the disk failed or the FSM has parted: this process does not vote again
	orphan  time.Time // since when the Raft has known no leader; zero: the Raft knows a leader

	mu   sync.Mutex
	raft *Raft // nil: thin
}

// NewSeat returns the Seat of a thin member: see Resume and Run.
func NewSeat(cfg Config) *Seat {
	if cfg.Self.Meter == nil {
		cfg.Self.Meter = new(meter.Node)
	}
	return &Seat{cfg: cfg, work: make(chan func(), 16)}
}

// Current returns the running Raft, or nil.
func (s *Seat) Current() *Raft {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raft
}

// Admits reports whether a Raft of the given generation runs here. No stream of
// raft may be accepted for another generation, or before founding or invitation:
// a raft without a configuration votes for any candidate.
func (s *Seat) Admits(generation uint64) bool { return s.running(generation) != nil }

// Accept passes a stream of raft to the Raft of the given generation, which serves
// and closes the stream, or closes the stream if no such Raft runs. from is the process that
// dialled, and voter tells whether the process may act as a voter.
func (s *Seat) Accept(conn net.Conn, from member.Process, voter bool, generation uint64) {
	if r := s.running(generation); r != nil {
		r.stream.take(conn, from, judge.Sender{Name: from.Name, Voter: voter})
		return
	}
	conn.Close()
}

func (s *Seat) running(generation uint64) *Raft {
	if r := s.Current(); r != nil && r.id == member.RaftID(s.cfg.Self.Name, generation) {
		return r
	}
	return nil
}

// Run starts and stops Rafts as the other methods ask, one step at a time, and
// looks after the running Raft, until ctx ends. A Raft that runs then keeps
// running: see Stop.
func (s *Seat) Run(ctx context.Context) {
	next := func() time.Duration { return s.cfg.Self.Grid.Next(time.Now(), timing.VoterCheck) }
	t := time.NewTimer(next())
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-s.work:
			f()
		case <-t.C:
			s.check(ctx)
			t.Reset(next())
		}
	}
}

// do runs f on the goroutine of Run and waits until f has returned, or until ctx
// ends. If do fails, f may run all the same.
func (s *Seat) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case s.work <- func() {
		if ctx.Err() == nil { // else the caller has stopped waiting
			f()
		}
		close(done)
	}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// set makes r the running Raft and starts its leadership, or, with nil, makes the
// member thin.
func (s *Seat) set(r *Raft) {
	s.mu.Lock()
	s.raft = r
	s.mu.Unlock()
	s.orphan = time.Time{}
	if r != nil {
		r.startLead(s.cfg.Lead)
		generation := s.cfg.Record.Get().Generation
		s.cfg.Advertise(func(m *member.Metadata) { m.Generation = generation })
	}
	s.cfg.Changed()
}

// Stop ends the running Raft with the node, and keeps the highest token that its
// FSM knows. The caller must have ended Run. If the disk hangs, Stop gives up
// after timing.StopWithoutDisk with ErrDiskStalled, keeps no token, and leaves
// the Raft running: nobody can end such a write.
func (s *Seat) Stop() error {
	r := s.Current()
	if r == nil {
		return nil
	}
	last := s.cfg.LastToken(r.table)
	s.set(nil)
	err := r.stopInTime()
	if s.cfg.Dir == "" || err == ErrDiskStalled {
		return err
	}
	kept := s.cfg.Record.Update(func(rec *identity.Record) {
		rec.Token = max(rec.Token, last)
		if err == nil {
			rec.Unflushed = "" // closing the store has flushed it
		}
	})
	return errors.Join(err, kept)
}
