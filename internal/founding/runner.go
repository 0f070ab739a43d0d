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
	"github.com/wardmote/wardmote/internal/wire"
)

// ErrForeign is returned by Adopt for the founding of another cluster than the
// member's own.
var ErrForeign = errors.New("cluster: member of another cluster")

// Members lists the living members as gossip sees this cluster, this node
// included, sorted by name and then by boot. Members of other clusters are
// left out once this node is in a cluster.
type Members interface {
	Alive() []member.Sighting
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

	// Adopted is called when this member has entered the cluster founded by v.
	// Votes says whether v names this member as a voter. The call comes after v is
	// stored, and no other Adopt runs meanwhile; Adopted must not call Adopt.
	Adopted func(v wire.Founding, votes bool)

	// Conflict is called when another founder is configured differently. The
	// process has no address. Conflict must not block.
	Conflict func(with member.Process, detail string)
}

// Declared reports whether the configuration declares this member a founder.
func (c Config) Declared() bool {
	return c.InitialSize > 0 || slices.Contains(c.Founders, c.Self.Name)
}

// Runner brings this member into a cluster. Its methods may be called from any
// goroutine.
type Runner struct {
	cfg Config

	adopting sync.Mutex                    // serialises Adopt
	value    atomic.Pointer[wire.Founding] // nil: in no cluster yet
}

// New returns a Runner. If cfg.Record names a cluster, the member is in this
// cluster from the start.
func New(cfg Config) *Runner {
	r := &Runner{cfg: cfg}
	r.value.Store(cfg.Record.Get().Founding)
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

// Run returns when this member is in a cluster, or when ctx ends. Run first waits
// for Config.Joined: a member that founds before looking for other members could
// found beside their cluster.
func (r *Runner) Run(ctx context.Context) {
	select {
	case <-r.cfg.Joined:
	case <-ctx.Done():
		return
	}
	round := r.cfg.Record.Get().Promise.Promised.Round // a ballot is never used twice
	var since time.Time                                // when the group became large enough; zero: too small
	for r.value.Load() == nil && ctx.Err() == nil {
		changed := r.cfg.Members.Changed()
		if r.adoptExisting(ctx) {
			return
		}
		wait := timing.FoundingRetry
		if group := r.group(); group == nil {
			since = time.Time{}
		} else {
			if since.IsZero() {
				since = time.Now()
			}
			// The first member by name proposes. Each later member waits a turn
			// longer, and steps in if the earlier members fail.
			rank := slices.IndexFunc(group, func(s member.Sighting) bool { return s.Name == r.cfg.Self.Name })
			if wait = time.Until(since.Add(time.Duration(rank) * timing.FoundingTurn)); wait <= 0 {
				round = r.tryBallot(ctx, group, round+1)
				wait = timing.FoundingRetry/2 + rand.N(timing.FoundingRetry)
				changed = nil // news do not hurry the next ballot
			}
		}
		select {
		case <-changed:
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// adoptExisting asks the members that are in a cluster for their founding, in
// turn, and adopts the first answer. The result says whether this member is in a
// cluster now.
func (r *Runner) adoptExisting(ctx context.Context) bool {
	for _, s := range r.cfg.Members.Alive() {
		if !s.Meta.InCluster() {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, timing.Dial)
		var who wire.WhoAnswer
		err := r.cfg.Ask.AskInto(ctx, s.Process, wire.Who, nil, &who)
		cancel()
		if err == nil && who.Founding != nil && r.Adopt(*who.Founding) == nil {
			return true
		}
	}
	return false
}

// Adopt enters the cluster founded by v. A second Adopt of the same cluster does
// nothing. Adopt fails with ErrForeign if the member is in another cluster, and
// also if v is no sound founding or cannot be stored; after a failure nothing has
// changed. Adopt blocks while v is stored and while Adopted runs.
func (r *Runner) Adopt(v wire.Founding) error {
	r.adopting.Lock()
	defer r.adopting.Unlock()
	if own := r.value.Load(); own != nil {
		if own.Cluster != v.Cluster {
			return ErrForeign
		}
		return nil
	}
	if err := Check(v); err != nil {
		return err
	}
	if err := r.cfg.Record.Update(func(rec *identity.Record) {
		rec.Founding, rec.Promise = &v, identity.Promise{}
	}); err != nil {
		return err
	}
	r.value.Store(&v)
	r.cfg.Adopted(v, slices.Contains(v.Voters, member.RaftID(r.cfg.Self.Name, r.cfg.Record.Get().Generation)))
	return nil
}

// Progress says how far a member without a cluster has come. In a cluster the
// text means nothing.
func (r *Runner) Progress() string {
	alive := r.cfg.Members.Alive()
	switch {
	case len(r.cfg.Founders) > 0:
		seen := 0
		for _, s := range alive {
			if slices.Contains(r.cfg.Founders, s.Name) {
				seen++
			}
		}
		return fmt.Sprintf("no cluster yet: %d of %d founders seen", seen, len(r.cfg.Founders))
	case r.cfg.InitialSize > 0:
		return fmt.Sprintf("no cluster yet: %d of %d first members seen", len(alive), r.cfg.InitialSize)
	}
	return fmt.Sprintf("no cluster found at %q", r.cfg.Join)
}
