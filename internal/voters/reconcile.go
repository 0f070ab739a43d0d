package voters

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// Raft is the leader's raft. A change of the configuration blocks until it is
// committed or has failed, and fails unless prev is still the index of the
// configuration.
type Raft interface {
	ID() string
	Servers() []member.Server
	LastIndex() uint64
	Leads(term uint64) bool
	AddNonvoter(id string, prev uint64) error
	AddVoter(id string, prev uint64) error
	Remove(id string, prev uint64) error
	Transfer(ctx context.Context) error // hands leadership to another voter
}

// Term is the term of this node's leadership, with the leader's lock table. Decide
// and Confirm do not block; both call back once, on any goroutine.
type Term interface {
	Number() uint64
	Decide(cmd machine.Command, done func(machine.Outcome, wire.Code)) // commits the leader's own command
	Confirm(done func(ok bool))                                        // ok: a majority has confirmed this term after the call
	Bound() uint64                                                     // of session TTLs, in milliseconds
	AnnounceBound(ttl uint64)                                          // to every member
	Lifted() bool                                                      // the founding wait is over
	Format() int                                                       // of the table
	ConfigIndex() uint64                                               // of the newest configuration applied
}

// Peers asks other members. The implementation is *stream.Peers.
type Peers interface {
	AskInto(ctx context.Context, to member.Process, t wire.Type, body []byte, v any) error
	Begin(ctx context.Context, to member.Process, t wire.Type, body []byte, done func(wire.Frame, error))
}

// Change says how a member's part in the configuration has changed.
type Change uint8

const (
	Added   Change = iota + 1 // the member became a voter
	Removed                   // the member is a voter no more
)

// Config is everything a Reconciler needs. Every field must be set.
type Config struct {
	Self    member.Self
	Want    int  // number of voters
	Durable bool // this member has a Dir
	Format  int  // the newest format of log entries this program reads
	Raft    Raft
	Term    Term
	Peers   Peers

	// Members returns every known process, dead processes and this one included,
	// with the metadata of now.
	Members func() []member.Sighting

	// Locate finds the holder of a raft ID.
	Locate func(raftID string) (member.Process, error)

	// Changed is called by Run when the voters have changed. The process has no
	// more than a name if no address is known.
	Changed func(Change, member.Process)
}

// A Reconciler brings the voters to the wanted set in one term of this node.
type Reconciler struct {
	Config
	started   time.Time
	departing wakeup.One   // departs has grown
	changing  atomic.Bool  // a change of the configuration is under way
	raising   atomic.Int64 // the format proposed last

	mu      sync.Mutex
	departs map[string]func(wire.Code) // by raft ID: members waiting to be replaced
	stopped bool

	// Of Run's goroutine alone.
	trials *trials
	known  map[string]bool // the voters as last reported
}

// New returns a Reconciler for cfg.Term, which has just begun.
func New(cfg Config) *Reconciler {
	return &Reconciler{
		Config:    cfg,
		started:   time.Now(),
		departing: wakeup.NewOne(),
		departs:   make(map[string]func(wire.Code)),
		trials:    newTrials(),
		known:     make(map[string]bool),
	}
}

// Run changes the configuration one step at a time until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	t := time.NewTicker(timing.Reconcile)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-r.departing:
		}
		r.reconcileBound()
		r.reconcileFormat()
		r.reconcileVoters(ctx)
	}
}

// reconcileVoters looks at the servers and takes at most one step.
func (r *Reconciler) reconcileVoters(ctx context.Context) {
	servers, candidates := r.look(ctx)
	now := time.Now()
	for i := range servers {
		if s := &servers[i]; r.trials.overdue(s, now) {
			s.gone = true
			if p, err := r.Locate(s.id); err == nil {
				r.trials.fail(p, now)
			}
		}
	}
	candidates = r.trials.passOver(candidates, now)
	r.reportVoters(servers)
	r.answerDeparted(servers)
	s := planVoters(servers, len(candidates), r.Want)
	if s.kind == stepNone || !r.Raft.Leads(r.Term.Number()) {
		return
	}
	if err := r.take(ctx, s, candidates); err != nil {
		r.Self.Log.Debug("voter change", "step", s.kind, "raft", s.id, "error", err)
		if s.kind == stepInvite {
			r.trials.fail(candidates[0].Process, now)
		}
	}
}

// look returns the servers and the candidates. On the way look asks, one after the
// other, every silent server for an answer and every living non-voter for its
// progress.
func (r *Reconciler) look(ctx context.Context) (servers []server, candidates []member.Sighting) {
	sc := scene{
		self: r.Raft.ID(), durable: r.Durable, started: r.started, now: time.Now(),
		sightings: r.Members(), departs: r.departingIDs(), format: r.required(), config: r.Raft.Servers(),
	}
	servers, candidates = sc.view()
	for i := range servers {
		s := &servers[i]
		if s.silent {
			if _, ok := r.progress(ctx, s.id); !ok {
				s.gone = true
			}
		}
		if !s.voter && s.alive {
			r.trials.check(s, r.lag(ctx, s.id))
		}
	}
	return servers, candidates
}

// take makes step s. Instead of removing itself the leader hands over.
func (r *Reconciler) take(ctx context.Context, s step, candidates []member.Sighting) error {
	r.changing.Store(true)
	defer r.changing.Store(false)
	prev := r.Term.ConfigIndex()
	switch s.kind {
	case stepInvite:
		return r.invite(ctx, candidates[0].Process, prev)
	case stepPromote:
		return r.Raft.AddVoter(s.id, prev)
	case stepRemove:
		if s.id == r.Raft.ID() {
			// The next leader removes this one.
			return r.Raft.Transfer(ctx)
		}
		r.Self.Log.Info("removing a server", "raft", s.id)
		if err := r.Raft.Remove(s.id, prev); err != nil {
			return err
		}
		if p, err := r.Locate(s.id); err == nil {
			notice := wire.RemovedNotice{Raft: s.id, Term: r.Term.Number()}
			r.Peers.Begin(ctx, p, wire.Removed, wire.Marshal(&notice), func(wire.Frame, error) {})
		}
	}
	return nil
}

// invite asks a member to run raft, and adds its raft ID as a non-voter.
func (r *Reconciler) invite(ctx context.Context, p member.Process, prev uint64) error {
	ctx, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	var a wire.InviteAnswer
	invitation := wire.InviteRequest{Term: r.Term.Number()}
	if err := r.Peers.AskInto(ctx, p, wire.Invite, wire.Marshal(&invitation), &a); err != nil {
		return err
	}
	r.Self.Log.Info("adding a server", "raft", a.Raft)
	return r.Raft.AddNonvoter(a.Raft, prev)
}

// progress asks the holder of a raft ID for its progress. Ok is false if the holder
// does not answer, or answers for another ID.
func (r *Reconciler) progress(ctx context.Context, id string) (a wire.ProgressAnswer, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, timing.ProgressAnswer)
	defer cancel()
	p, err := r.Locate(id)
	if err != nil || r.Peers.AskInto(ctx, p, wire.Progress, nil, &a) != nil {
		return a, false
	}
	return a, a.Raft == id
}

// lag returns how many entries a raft ID is behind the leader, and the largest
// number if the holder does not answer.
func (r *Reconciler) lag(ctx context.Context, id string) uint64 {
	a, ok := r.progress(ctx, id)
	if !ok {
		return ^uint64(0)
	}
	last := r.Raft.LastIndex()
	return last - min(last, a.Applied)
}

// reportVoters calls Changed for each voter added or removed since the last call.
// The first call reports nothing, because every voter was there before.
func (r *Reconciler) reportVoters(servers []server) {
	first := len(r.known) == 0
	now := make(map[string]bool)
	for _, s := range servers {
		if s.voter {
			now[s.id] = true
			if !r.known[s.id] && !first {
				r.Changed(Added, r.process(s.id))
			}
		}
	}
	for id := range r.known {
		if !now[id] {
			r.Changed(Removed, r.process(id))
		}
	}
	r.known = now
}

// process returns the holder of a raft ID, with the name alone if no address is
// known.
func (r *Reconciler) process(id string) member.Process {
	name, _, _ := member.ParseRaftID(id)
	p, _ := r.Locate(id)
	p.Name = name
	return p
}
