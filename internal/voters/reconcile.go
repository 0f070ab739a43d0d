package voters

import (
	"cmp"
	"context"
	"fmt"
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
	Leads(term uint64) bool
	Contact(id string) member.Contact // how this leader's exchanges with a server went
	ContactChanged() <-chan struct{}  // receives at news from Contact
	AddNonvoter(id string, prev uint64) error
	AddVoter(id string, prev uint64) error
	Remove(id string, prev uint64) error
	TransferTo(ctx context.Context, id string) error // hands leadership to another voter
}

// Term is the term of this node's leadership, with the leader's lock table. Decide
// and Confirm do not block; both call back once, on any goroutine.
type Term interface {
	Number() uint64
	Decide(cmd machine.Command, done func(machine.Outcome, wire.Code)) // commits the leader's own command
	Confirm(done func(ok bool))                                        // ok: a majority has confirmed this term after the call
	Bound() uint64                                                     // of session TTLs, in milliseconds
	AnnounceBound(ttl uint64)                                          // to every member
	AnnounceVoters(wire.VoterSet)                                      // to every member, and to members that attach later
	Lifted() bool                                                      // the founding wait is over
	Format() int                                                       // of the table
	ConfigIndex() uint64                                               // of the newest configuration applied

	// Described returns a process's own description, told on its own stream. The
	// channel receives after each change.
	Described(name string, boot uint64) (meta member.Metadata, ok bool)
	Attachments() <-chan struct{}
}

// Peers asks other members. The implementation is *stream.Peers.
type Peers interface {
	AskInto(ctx context.Context, to member.Process, t wire.Type, body []byte, v any) error
	Begin(ctx context.Context, to member.Process, t wire.Type, body []byte, done func(wire.Frame, error))
}

// Config is everything a Reconciler needs. Every field but Only must be set.
type Config struct {
	Self    member.Self
	Want    int  // number of voters; 0: three, or five in memory while five members live
	Least   int  // the voters never become fewer than this
	Durable bool // this member has a Dir
	Format  int  // the newest format of log entries this program reads
	Raft    Raft
	Term    Term
	Peers   Peers

	// Only has the names of the members that may vote; nil: every member may.
	Only []string

	// Members returns every known process, dead processes and this one included,
	// with the metadata of now.
	Members func() []member.Sighting

	// The channels of Gossiped and Proved are closed at the next change of Members
	// and of Ended.
	Gossiped func() <-chan struct{}
	Proved   func() <-chan struct{}

	// Ended reports whether a process has ended for certain. Suspect has the process
	// looked at.
	Ended   func(name string, boot uint64) bool
	Suspect func(member.Process)

	// Missed returns since when the former leader has missed a voter, and the zero
	// time if the former leader reached the voter.
	Missed func(raftID string) time.Time

	// Locate finds the holder of a raft ID.
	Locate func(raftID string) (member.Process, error)
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
	leavers map[member.Process]bool    // by name and boot: processes that have agreed to leave
	stopped bool

	farewells map[string]*farewell // by raft ID: servers said to leave

	// Of Run's goroutine alone.
	trials *trials
	size   size
	told   wire.VoterSet // as announced last
	known  int           // processes, as of the last look
}

// New returns a Reconciler for cfg.Term, which has just begun.
func New(cfg Config) *Reconciler {
	return &Reconciler{
		Config:    cfg,
		started:   time.Now(),
		departing: wakeup.NewOne(),
		departs:   make(map[string]func(wire.Code)),
		leavers:   make(map[member.Process]bool),
		farewells: make(map[string]*farewell),
		trials:    newTrials(),
		size:      size{explicit: cfg.Want, durable: cfg.Durable},
	}
}

// Run changes the configuration one step at a time until ctx ends. A committed step
// is followed by the next step at once; otherwise Run waits for news: from gossip,
// about the end of a process, from raft about its contacts, a departure, or the end
// of a wait. A look without news each timing.Reconcile makes up for news that
// nobody tells, for example a longer TTL of this member.
func (r *Reconciler) Run(ctx context.Context) {
	for ctx.Err() == nil {
		gossiped, proved := r.Gossiped(), r.Proved()
		r.reconcileBound()
		r.reconcileFormat()
		stepped, pause, err := r.reconcileVoters(ctx)
		if stepped {
			continue
		}
		if err != nil {
			gossiped, proved = nil, nil // no news makes the pause shorter
			pause = timing.ReconcileAgain
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-gossiped:
		case <-proved:
		case <-r.Raft.ContactChanged():
		case <-r.Term.Attachments():
			r.awaitOthers(ctx)
		case <-r.departing:
		}
		t.Stop()
	}
}

// awaitOthers waits a moment after an attachment in a large cluster. After an election the
// members attach one by one, and a look goes over every member.
func (r *Reconciler) awaitOthers(ctx context.Context) {
	rest := timing.News(r.known)
	if rest == 0 {
		return
	}
	t := time.NewTimer(rest)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-r.departing:
	}
}

// reconcileVoters looks at the servers, tells the members the state of the voters,
// and takes at most one step. Stepped reports that the configuration has changed;
// otherwise the next look is due in pause at the latest.
func (r *Reconciler) reconcileVoters(ctx context.Context) (stepped bool, pause time.Duration, err error) {
	now := time.Now()
	sc := r.scene(now)
	r.known = len(sc.sightings)
	r.forgetLeavers(sc.sightings)
	servers, candidates := sc.view()
	r.unlessAgreed(ctx, servers)
	r.trials.forgetAllBut(servers)
	for i := range servers {
		s := &servers[i]
		p, located := r.Locate(s.id)
		if r.trials.overdue(s, now) {
			s.gone = true
			if located == nil {
				r.trials.fail(p, now)
			}
		}
		if s.silent && s.gone && !s.proved && located == nil {
			// Not a candidate as soon as it is removed. A process that runs without
			// its former raft is another matter: it may be the only candidate.
			r.trials.fail(p, now)
		}
		if s.voter && !s.up && !s.proved && located == nil {
			r.Suspect(p)
		}
	}
	candidates = r.trials.passOver(candidates, now)
	list := make([]candidate, len(candidates))
	for i, c := range candidates {
		list[i] = candidate{zone: c.Meta.Zone, stable: sc.stable(c)}
	}
	g := goal{want: r.size.want(servers, list, now), least: r.Least}
	r.tell(servers, list, g, sc.sightings)
	r.answerDeparted(servers)
	pause = r.Self.Grid.Next(now, timing.Reconcile)
	if sc.next > 0 {
		pause = min(pause, sc.next)
	}
	s := planVoters(servers, list, g)
	if s.kind == stepNone || !r.Raft.Leads(r.Term.Number()) {
		return false, pause, nil
	}
	if young := timing.Reconcile - now.Sub(r.started); s.kind == stepTransfer && young > 0 {
		// The chosen voter may be the one that has just handed over, because it leaves
		// too, and gossip has not said so yet: without a pause the two would hand
		// leadership to each other every few milliseconds.
		return false, min(pause, young), nil
	}
	if err := r.take(ctx, s, candidates); err != nil {
		r.Self.Log.Debug("voter change failed", "step", s.kind, "raft", cmp.Or(s.id, "a candidate"), "error", err)
		return false, pause, err
	}
	return s.kind != stepTransfer, pause, nil
}

// scene gathers the leader's knowledge.
func (r *Reconciler) scene(now time.Time) *scene {
	return &scene{
		self: r.Raft.ID(), durable: r.Durable, started: r.started, now: now,
		sightings: r.Members(), own: r.own, departs: r.departingIDs(), format: r.required(), config: r.Raft.Servers(),
		only: r.Only, ended: r.Ended, leaves: r.leaves, contact: r.Raft.Contact, missed: r.Missed,
	}
}

// take makes step s.
func (r *Reconciler) take(ctx context.Context, s step, candidates []member.Sighting) error {
	r.changing.Store(true)
	defer r.changing.Store(false)
	prev := r.Term.ConfigIndex()
	switch s.kind {
	case stepInvite, stepAdd, stepMakeRoom:
		id, err := r.invite(ctx, candidates[s.with].Process)
		if err != nil {
			r.trials.fail(candidates[s.with].Process, time.Now())
			return err
		}
		switch s.kind {
		case stepInvite:
			r.Self.Log.Info("adding a server", "raft", id, "next", "nothing: it votes once it has caught up")
			return r.Raft.AddNonvoter(id, prev)
		case stepAdd:
			r.Self.Log.Info("adding a voter", "raft", id, "next", "nothing: it votes once it has caught up")
			return r.Raft.AddVoter(id, prev)
		}
		return r.remove(ctx, s.id, prev)
	case stepPromote:
		return r.Raft.AddVoter(s.id, prev)
	case stepRemove:
		return r.remove(ctx, s.id, prev)
	case stepTransfer:
		return r.Raft.TransferTo(ctx, s.id) // the next leader removes this one
	}
	return nil
}

// remove removes a server, and tells its holder.
func (r *Reconciler) remove(ctx context.Context, id string, prev uint64) error {
	r.Self.Log.Info("removing a server", "raft", id, "next", "nothing")
	if err := r.Raft.Remove(id, prev); err != nil {
		return err
	}
	if p, err := r.Locate(id); err == nil && !r.Ended(p.Name, p.Boot) {
		notice := wire.RemovedNotice{Raft: id, Term: r.Term.Number()}
		r.Peers.Begin(ctx, p, wire.Removed, wire.Marshal(&notice), func(wire.Frame, error) {})
	}
	return nil
}

// invite asks a member to run raft, and returns its raft ID.
func (r *Reconciler) invite(ctx context.Context, p member.Process) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	var a wire.InviteAnswer
	invitation := wire.InviteRequest{Term: r.Term.Number()}
	if err := r.Peers.AskInto(ctx, p, wire.Invite, wire.Marshal(&invitation), &a); err != nil {
		return "", err
	}
	if name, _, err := member.ParseRaftID(a.Raft); err != nil || name != p.Name {
		return "", fmt.Errorf("cluster: %s answers an invitation as %q", p.Name, a.Raft)
	}
	return a.Raft, nil
}
