package founding

import (
	"context"
	"slices"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file holds the ways into a cluster.
//
// A founding is adopted in two ways only:
//
//   - A member named as a voter, by the raft ID under which the member would vote
//     now, adopts a founding that the member has accepted, or that a majority
//     confirms, on the news from anybody: from Chosen, from the answer "decided" to
//     a Prepare, or from the member's own ballot. claims.go has the rule.
//   - Every other member adopts the founding only after a leader of that cluster
//     confirmed the founding through a round of a majority of its voters.
//
// Why not from any member: suppose two of three voters are killed, and then every
// process restarts in turn. Each newcomer meets an older process that remembers
// the dead cluster and, adopting the founding, passes the founding on. The
// memory of the dead cluster never ends, and no member ever founds another
// one. With a leader's confirmation a founding whose cluster cannot answer is
// passed on by nobody, and is forgotten with the last process of the cluster.
//
// Why the voters need no leader: let A, B and C choose a founding, and let the
// news reach A alone. A cannot lead without B or C, so a rule "only from a leader"
// would keep B and C out for ever.
//
// Why by the present raft ID: a voter that restarted without memory has another
// raft ID, and cannot vote in the cluster. The voter is a newcomer as any other.

// Kinship says how two foundings of one name are related.
type Kinship int

const (
	Stranger    Kinship = iota // neither descends from the other
	Same                       // one and the same cluster
	Successor                  // the other cluster succeeds the own one
	Predecessor                // the own cluster succeeds the other one
)

// Kin returns how the cluster of other is related to the cluster of own.
func Kin(own, other wire.Founding) Kinship {
	switch {
	case own.Cluster == other.Cluster:
		return Same
	case slices.Contains(other.Predecessors, own.Cluster):
		return Successor
	case slices.Contains(own.Predecessors, other.Cluster):
		return Predecessor
	}
	return Stranger
}

// Adopt enters the cluster founded by v. A second Adopt of the same cluster does
// nothing. Adopt fails with ErrForeign if the member is in another cluster, and
// also if v is no sound founding or cannot be stored; after a failure nothing has
// changed. Adopt blocks while v is stored and while Adopted runs. The caller
// answers for v: see the rules above.
func (r *Runner) Adopt(v wire.Founding) error {
	r.adopting <- struct{}{}
	defer func() { <-r.adopting }()
	if own := r.value.Load(); own != nil {
		if own.Cluster != v.Cluster {
			return ErrForeign
		}
		return nil
	}
	if err := Check(v); err != nil {
		return err
	}
	return r.enter(v)
}

// Change moves this member from its cluster into a successor or, if its cluster
// succeeds the cluster of v, back into the predecessor. No process ends. Change
// fails with ErrForeign if the two clusters are not related, and also if v is no
// sound founding, if the member cannot leave its cluster, or if v cannot be
// stored. The member then is in its former cluster still, where Config.Leave may
// have ended its sessions and its vote. A member without a cluster adopts v.
//
// Unless v names this member as a voter, the caller must have met a confirmed leader
// of the cluster: see Confirmed.
func (r *Runner) Change(ctx context.Context, v wire.Founding) error {
	return r.move(ctx, v, func(k Kinship) bool { return k != Stranger })
}

// Dissolve moves this member from its cluster into the cluster of v, related or not.
// The caller must know two things: a leader of the cluster of v confirmed v, and the
// own cluster endangers nobody, because the own cluster has granted nothing or this
// member has retired from the own cluster. Dissolve fails as Change does.
func (r *Runner) Dissolve(ctx context.Context, v wire.Founding) error {
	return r.move(ctx, v, func(Kinship) bool { return true })
}

// move is Change into a cluster of any kin that may be entered.
func (r *Runner) move(ctx context.Context, v wire.Founding, may func(Kinship) bool) error {
	if err := Check(v); err != nil {
		return err
	}
	select {
	case r.adopting <- struct{}{}:
		defer func() { <-r.adopting }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if own := r.value.Load(); own != nil {
		switch kin := Kin(*own, v); {
		case kin == Same:
			return nil
		case !may(kin):
			return ErrForeign
		case r.cfg.Leave == nil:
			return errCannotLeave
		}
		if err := r.cfg.Leave(ctx, v); err != nil {
			return err
		}
		if err := r.enter(v); err != nil {
			if r.cfg.Stayed != nil {
				r.cfg.Stayed()
			}
			return err
		}
		return nil
	}
	return r.enter(v)
}

// enter stores v and tells Config.Adopted. The caller holds r.adopting.
func (r *Runner) enter(v wire.Founding) error {
	if err := r.cfg.Record.Update(func(rec *identity.Record) {
		rec.Founding, rec.Promise = &v, identity.Promise{}
	}); err != nil {
		return err
	}
	r.value.Store(&v)
	r.settle()
	r.cfg.Adopted(v, r.namedBy(v))
	return nil
}

// namedBy reports whether v names this member as a voter by its present raft ID.
func (r *Runner) namedBy(v wire.Founding) bool {
	return slices.Contains(v.Voters, member.RaftID(r.cfg.Self.Name, r.cfg.Record.Get().Generation))
}

// adoptNamed enters the cluster of v if v names this member as a voter and this
// member believes v, told by the member from. The result says whether the member is
// in the cluster then. A member of another cluster changes over if v succeeds that
// cluster. adoptNamed may ask others: see believes.
func (r *Runner) adoptNamed(ctx context.Context, from string, v wire.Founding) bool {
	if own := r.value.Load(); own != nil && own.Cluster == v.Cluster {
		return true
	}
	// A shunned cluster was ended by a founding that this member accepted: see
	// succession.go.
	if Check(v) != nil || !r.namedBy(v) || slices.Contains(r.cfg.Record.Get().Shunned, v.Cluster) {
		return false
	}
	if own := r.value.Load(); own != nil && Kin(*own, v) != Successor {
		return false // nobody needs to be asked
	}
	if !r.believes(ctx, v) {
		r.claimed(from, v)
		return false
	}
	return r.enterFrom(ctx, v)
}

// enterFrom enters the cluster of v from no cluster or from a predecessor, and
// reports success. Failures are logged.
func (r *Runner) enterFrom(ctx context.Context, v wire.Founding) bool {
	var err error
	if own := r.value.Load(); own == nil {
		err = r.Adopt(v)
	} else if Kin(*own, v) != Successor {
		return false // only a confirmed leader opens other ways: see follow
	} else {
		err = r.Change(ctx, v)
	}
	if err != nil {
		r.cfg.Self.Log.Warn("founding not adopted", "error", err, "next", "check the disk of Dir")
	}
	return err == nil
}

// maxHops bounds the hints that Confirmed follows.
const maxHops = 4

// Confirmed looks for a leader of a cluster, beginning at one of its members and
// following hints. If a leader confirms the cluster by a round of a majority of
// its voters, Confirmed returns the founding and true. Confirmed returns false if
// nobody answers as such a leader, and when ctx ends.
func (r *Runner) Confirmed(ctx context.Context, at member.Process, cluster machine.ClusterID) (wire.Founding, bool) {
	a, ok := r.vouched(ctx, at, cluster)
	return a.Founding, ok
}

// vouched is Confirmed with the whole answer of the leader.
func (r *Runner) vouched(ctx context.Context, at member.Process, cluster machine.ClusterID) (wire.VouchAnswer, bool) {
	body := wire.Marshal(&wire.VouchRequest{Cluster: cluster})
	asked := make(map[member.Process]bool)
	for range maxHops {
		asked[at] = true
		hop, cancel := context.WithTimeout(ctx, timing.Dial)
		f, err := r.cfg.Ask.Ask(hop, at, wire.Vouch, body)
		cancel()
		if err != nil {
			return wire.VouchAnswer{}, false
		}
		if f.Code == wire.CodeOK {
			var a wire.VouchAnswer
			ok := wire.Unmarshal(f.Body, &a) == nil && a.Founding.Cluster == cluster && Check(a.Founding) == nil
			return a, ok
		}
		var h wire.Hint
		if f.Code != wire.CodeNotLeader || wire.Unmarshal(f.Body, &h) != nil || h.Addr == "" {
			return wire.VouchAnswer{}, false
		}
		if at = (member.Process{Name: h.Leader, Addr: h.Addr}); asked[at] {
			return wire.VouchAnswer{}, false
		}
	}
	return wire.VouchAnswer{}, false
}
