package founding

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// ErrForeign is returned by Adopt for the founding of another cluster than the
// member's own.
var ErrForeign = errors.New("cluster: member of another cluster")

// errCannotLeave is returned by Change on a member without Config.Leave.
var errCannotLeave = errors.New("cluster: this member cannot leave its cluster")

// Members lists the living members as gossip sees this cluster, this node
// included, sorted by name and then by boot. Members of other clusters may be
// left out once this node is in a cluster.
type Members interface {
	Alive() []member.Sighting
	All() []member.Sighting   // the dead too, as long as they are remembered
	Changed() <-chan struct{} // closed at the next change of Alive
}

// Asker asks other members. Both methods return when ctx ends. AskInto decodes
// an answer of code OK into v, and fails for every other code.
type Asker interface {
	Ask(ctx context.Context, to member.Process, t wire.Type, body []byte) (wire.Frame, error)
	AskInto(ctx context.Context, to member.Process, t wire.Type, body []byte, v any) error
}

// Config configures a Runner. The fields up to TTL come from cluster.Config and
// mean the same there.
type Config struct {
	Self        member.Self
	Join        []string
	Founders    []string
	InitialSize int
	Voters      int
	TTL         time.Duration

	Record  *identity.Store
	Members Members
	Ask     Asker
	Joined  <-chan struct{} // closed when the addresses of Join have been tried once

	// Adopted is called when this member has entered the cluster founded by v, by
	// Adopt or by Change.
	// Votes says whether v names this member as a voter. The call comes after v is
	// stored, and no other Adopt or
	// Change runs meanwhile; Adopted must call neither.
	Adopted func(v wire.Founding, votes bool)

	// Conflict is called when another founder is configured differently, at each
	// ballot again, on the asking and on the asked member. The detail "" takes back
	// the earlier details about the process. The process has no address if this
	// member was asked. Conflict must not block.
	Conflict func(with member.Process, detail string)

	// Thin keeps this member from ever voting, and so from founding.
	Thin bool

	// The fields below may be nil or zero.

	// Ended reports a process that is proved to have ended, although gossip may
	// still take the process for alive.
	Ended func(name string, boot uint64) bool

	// Shown reports a process that a handshake has shown, with the voter role, since
	// this member started. Nil: unknown.
	Shown func(name string, boot uint64) bool

	// Tried says, in a text for each address of Join, what came of the last try.
	Tried func() []string

	// Complete returns the complete list of the addresses at which a member may
	// live, on the word of Recovery.JoinIsComplete. Ok is false, with the reason,
	// while the list is not certain. Nil: there is no such word.
	Complete func() (addrs []string, ok bool, why string)

	// AssumeGone is the silence after which members count as gone. 0: never.
	AssumeGone time.Duration

	// TokenFloor returns a token that the first token of a new cluster must
	// exceed. While it fails, this member takes no part in a founding: see floor.go.
	// It must return when ctx ends.
	TokenFloor func(ctx context.Context) (uint64, error)

	// Leaderless returns for how long no leader of its cluster has answered this
	// member, 0 while one does. Nil: the member of a cluster proposes no successor.
	Leaderless func() time.Duration

	// Retire makes this member, in the given cluster, vote never again, and
	// returns after the end of its vote. With a nil error the record has a raft
	// ID that has never voted. A second call answers again. With an error or with
	// RetireAnswer.Refused, nothing has changed. Nil: a member of a cluster refuses.
	Retire func(ctx context.Context, old machine.ClusterID) (wire.RetireAnswer, error)

	// Leave takes this member out of its cluster for the cluster of to: its
	// sessions and its vote end, and its record gets a raft ID that has never
	// voted, unless to names the present one. Nil: Change fails.
	Leave func(ctx context.Context, to wire.Founding) error

	// Stayed is called after Leave if the next cluster could not be stored: the member
	// is in its former cluster still. It must not block. Nil: nobody asks.
	Stayed func()
}

// Declared reports whether the configuration declares this member a founder.
func (c Config) Declared() bool {
	return !c.Thin && (c.InitialSize > 0 || slices.Contains(c.Founders, c.Self.Name))
}

// Runner brings this member into a cluster. Its methods may be called from any
// goroutine, Run from one at a time.
type Runner struct {
	cfg Config

	known  acquaintances // asked for themselves
	floors *floorAsker

	adopting chan struct{}                 // has a value while Adopt or Change runs; not a mutex, because Change waits for others
	value    atomic.Pointer[wire.Founding] // nil: in no cluster yet

	mu      sync.Mutex
	retired machine.ClusterID       // the cluster in which this member votes no more; zero: none
	spent   uint64                  // seenToken at the last retirement
	note    string                  // what the founding waits for, besides members
	yielded time.Time               // when this member last promised another member's ballot
	pledged pledge                  // the last promise in this process
	told    map[member.Process]bool // processes told as conflicts
	recover *recovery               // the running Recover; nil: none
	wake    wakeup.One              // a Recover has begun
}

// New returns a Runner. If cfg.Record names a cluster, the member is in this
// cluster from the start.
func New(cfg Config) *Runner {
	r := &Runner{cfg: cfg, adopting: make(chan struct{}, 1), told: make(map[member.Process]bool), wake: wakeup.NewOne()}
	r.value.Store(cfg.Record.Get().Founding)
	r.floors = newFloorAsker(cfg.TokenFloor, r.highest, r.warnFloor)
	return r
}

// Value returns the founding of this member's cluster, or nil while the member
// is in none. The caller must not change the value.
func (r *Runner) Value() *wire.Founding { return r.value.Load() }

// Cluster returns the ID of this member's cluster, zero while the member is in
// none.
func (r *Runner) Cluster() machine.ClusterID {
	if v := r.value.Load(); v != nil {
		return v.Cluster
	}
	return machine.ClusterID{}
}

// Declared reports whether this member is a declared founder.
func (r *Runner) Declared() bool { return r.cfg.Declared() }

// Run brings this member into a cluster, and looks for a successor, or founds one,
// while no leader of the cluster answers. Run returns when ctx ends. Run first waits
// for Config.Joined: a member that founds before looking for other members could
// found beside their cluster.
func (r *Runner) Run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	if r.floors.ask != nil {
		asking.Go(func() { r.floors.run(ctx) })
	}
	select {
	case <-r.cfg.Joined:
	case <-ctx.Done():
		return
	}
	s := &search{round: r.cfg.Record.Get().Promise.Promised.Round, unheard: make(map[machine.ClusterID]time.Time)}
	for ctx.Err() == nil {
		changed := r.cfg.Members.Changed()
		wait := r.look(ctx, s)
		if r.value.Load() != nil || s.hurried {
			changed = nil // news do not hurry the next ballot
		}
		select {
		case <-changed:
		case <-r.wake:
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// search is the memory of Run between two looks.
type search struct {
	round   uint64    // of this member's last ballot: a ballot is never used twice
	since   time.Time // when the group became large enough; zero: too small
	hurried bool      // the last look ended with a ballot
	failed  int       // ballots on a word without success, in a row

	unheard map[machine.ClusterID]time.Time // since when a cluster's leader is asked for in vain
}

// look takes one step towards a cluster, and returns the pause before the next.
func (r *Runner) look(ctx context.Context, s *search) time.Duration {
	s.hurried = false
	if own := r.value.Load(); own != nil && !r.leaderless() {
		s.since, s.failed = time.Time{}, 0
		clear(s.unheard)
		r.setNote("")
		return r.cfg.Self.Grid.Next(time.Now(), timing.FoundingRetry)
	}
	if r.adoptConfirmed(ctx) {
		return timing.FoundingRetry
	}
	if w := r.word(); w != wire.WordNone {
		return r.lookOnWord(ctx, s, w)
	}
	group := r.group()
	if group == nil {
		if len(r.claimants()) == 0 {
			r.setNote("")
		}
		s.since = time.Time{}
		return timing.FoundingRetry
	}
	return r.inTurn(s, rank(group, r.cfg.Self.Name), func() {
		s.round = r.tryBallot(ctx, group, s.round+1, r.allOf(s))
	})
}

// allOf returns the number of founders that must promise at present. Named founders
// may found without some of them, but with fewer voters, perhaps with two, of
// which none may fail. So for a while the others are waited for.
func (r *Runner) allOf(s *search) int {
	if time.Since(s.since) < timing.FoundersPatience {
		return len(r.cfg.Founders)
	}
	return 0
}

// leaderless reports whether this member is in a cluster and nothing has been
// heard of its leader.
func (r *Runner) leaderless() bool { return r.value.Load() != nil && r.silence() > 0 }

// silence returns for how long no leader of the own cluster has answered.
func (r *Runner) silence() time.Duration {
	if r.cfg.Leaderless == nil {
		return 0
	}
	return r.cfg.Leaderless()
}

// inTurn runs a ballot when it is this member's turn, and returns the pause before
// the next look. The first member of the group by name proposes. Each later member
// waits a turn longer, and steps in if the earlier members fail.
func (r *Runner) inTurn(s *search, rank int, ballot func()) time.Duration {
	if s.since.IsZero() {
		s.since = time.Now()
	}
	if wait := time.Until(s.since.Add(time.Duration(rank) * timing.FoundingTurn)); wait > 0 {
		return min(wait, timing.FoundingRetry) // earlier members may prove to be ghosts
	}
	ballot()
	s.hurried = true
	return timing.FoundingRetry/2 + rand.N(timing.FoundingRetry)
}

func rank(group []member.Sighting, name string) int {
	return slices.IndexFunc(group, func(s member.Sighting) bool { return s.Name == name })
}

func (r *Runner) setNote(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note = fmt.Sprintf(format, args...)
}
