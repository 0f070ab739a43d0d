package founding

import (
	"context"
	"encoding/hex"
	"slices"
	"sync"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file holds this member's view of the others.

// living returns the processes that live as far as this member can tell, sorted by
// name: of each name one process, the newest of those that have answered this member
// lately, with the voter role if one has, or else the newest, and none that is proved to
// have ended.
// Gossip alone is not enough: gossip takes a killed process for alive for several
// seconds, and each of these seconds the process would claim its dead cluster.
func (r *Runner) living() []member.Sighting { return r.best(r.listed(), nameOf) }

// listed returns the processes that gossip takes for alive and that are not proved to
// have ended.
func (r *Runner) listed() []member.Sighting {
	return slices.DeleteFunc(slices.Clone(r.cfg.Members.Alive()), func(s member.Sighting) bool { return r.ended(s.Process) })
}

func (r *Runner) ended(p member.Process) bool {
	return r.cfg.Ended != nil && !r.cfg.Self.Is(p) && r.cfg.Ended(p.Name, p.Boot)
}

// claimants returns the claims of living processes to be in other clusters than this
// member's own, sorted by name, as far as the claims count: see heard.go. A process
// that gossip takes for dead claims if it has answered lately. An earlier
// process of a name counts until a later one has answered and supersedes it: gossip alone
// can invent the later one.
func (r *Runner) claimants() (out []claim) {
	own, all := r.Cluster(), r.cfg.Members.All()
	for _, s := range all {
		id, heard := r.claimOf(s)
		if id == (machine.ClusterID{}) || id == own || r.cfg.Self.Is(s.Process) || r.ended(s.Process) || !s.Alive && !heard {
			continue
		}
		if !slices.ContainsFunc(all, func(o member.Sighting) bool { return r.supersedes(o.Process, s.Process) && r.shown(o) }) {
			out = append(out, claim{s.Process, id, heard})
		}
	}
	return out
}

// shown reports whether a process has answered lately, or is this one.
func (r *Runner) shown(s member.Sighting) bool {
	a, _ := r.known.get(s.Process)
	return a.lately() || r.cfg.Self.Is(s.Process)
}

// group returns the members ready to found a cluster now without anybody's word,
// sorted by name. The group is nil if this member is not included, if the members
// are too few, or while a living member of a cluster is seen: that cluster may
// grant, and only its leader's silence towards everybody could tell otherwise.
func (r *Runner) group() []member.Sighting {
	if !r.Declared() || len(r.claimants()) > 0 {
		return nil
	}
	group := r.founders()
	if rank(group, r.cfg.Self.Name) < 0 {
		return nil
	}
	if len(r.cfg.Founders) == 0 {
		// All of the first members, and not a majority of them: the number says how
		// many are started first, and nothing says which.
		if len(group) < r.cfg.InitialSize {
			return nil
		}
		return group
	}
	lasting := 0
	for _, s := range group {
		if s.Meta.Durable {
			lasting++
		}
	}
	m := len(r.cfg.Founders)
	want := r.cfg.Voters
	if want == 0 {
		want = automatic(0, m, nil)
	}
	if _, ok := voterCount(len(group), lasting, m, want); !ok {
		return nil
	}
	return group
}

// founders returns the living founders without a cluster, sorted by name, as far as
// they count: see heard.go. A process without the voter role is no founder. Of
// several processes with the same address, one counts, chosen as in living.
func (r *Runner) founders() []member.Sighting {
	all := r.listed()
	at := r.best(all, addrOf)
	return slices.DeleteFunc(r.best(all, nameOf), func(s member.Sighting) bool {
		named := len(r.cfg.Founders) == 0 || slices.Contains(r.cfg.Founders, s.Name)
		claim, _ := r.claimOf(s)
		known, _ := r.known.get(s.Process)
		return !s.Meta.Founder || claim != (machine.ClusterID{}) || !named || known.mere || !r.counts(s) ||
			!slices.ContainsFunc(at, func(o member.Sighting) bool { return o.Process == s.Process })
	})
}

// declaredSize returns M, the number of members from which the majorities of
// the founding are counted. If the members are declared by number and more
// members are seen, M is the number seen: then a majority of the seen members is
// needed.
func (r *Runner) declaredSize(seen int) int {
	if len(r.cfg.Founders) > 0 {
		return len(r.cfg.Founders)
	}
	return max(r.cfg.InitialSize, seen)
}

// Stranded is in the text of Progress while a member of a cluster without a leader
// keeps this member from founding.
const Stranded = ", of which no leader answers: this member waits for a leader"

// maxClaimants bounds the members asked for a leader at a time.
const maxClaimants = 16

// claim is a process with its cluster. Heard says that the process itself has told.
type claim struct {
	at      member.Process
	cluster machine.ClusterID
	heard   bool
}

// adoptConfirmed asks the processes that gossip lists as members of other clusters,
// and those of doubt, and enters a cluster if it can: see inquire. The news of a
// founding may have reached one voter alone, which cannot lead without this one and
// tells nobody again; and while a member of a cluster is seen, this member prepares no
// ballot that would be told.
func (r *Runner) adoptConfirmed(ctx context.Context) bool {
	if r.inquire(ctx, r.doubtful()) {
		return true
	}
	if claims := r.claimants(); r.value.Load() == nil && len(claims) > 0 {
		c := claims[0]
		r.setNote("%s at %s is in cluster %s%s, or for the restart of all its members", c.at.Name, c.at.Addr, clusterText(c.cluster), Stranded)
	}
	return false
}

// followClaims asks members of other clusters for a leader that confirms its
// cluster, and enters the first confirmed one: see follow. The result says whether
// the member entered.
func (r *Runner) followClaims(ctx context.Context, claims []claim) bool {
	claims = claims[:min(len(claims), maxClaimants)]
	asks, cancel := context.WithTimeout(ctx, 2*timing.Dial)
	defer cancel()
	found := make(chan wire.Founding, len(claims))
	var asking sync.WaitGroup
	for _, c := range claims {
		asking.Go(func() {
			if v, ok := r.Confirmed(asks, c.at, c.cluster); ok {
				found <- v
				cancel()
			}
		})
	}
	asking.Wait()
	select {
	case v := <-found:
		return r.follow(ctx, v)
	default:
		return false
	}
}

// Follow asks for a leader of a cluster, beginning at one of its members, and enters
// the cluster if the leader confirms it and this member may: a member of no cluster
// always, a member of a cluster that cannot answer after its retirement. Follow
// reports whether the member has entered.
func (r *Runner) Follow(ctx context.Context, at member.Process, cluster machine.ClusterID) bool {
	return r.followClaims(ctx, []claim{{at: at, cluster: cluster}})
}

// follow enters the cluster of v, confirmed by its leader. A member of a successor's
// predecessor leaves its cluster by retiring. So does a member of any other cluster
// in memory that has had no leader for a while; on a disk the cluster may come back.
func (r *Runner) follow(ctx context.Context, v wire.Founding) bool {
	ctx, cancel := context.WithTimeout(ctx, timing.Retirement)
	defer cancel()
	own := r.value.Load()
	if own == nil || Kin(*own, v) == Successor {
		return r.enterFrom(ctx, v)
	}
	if own.Cluster == v.Cluster {
		return true
	}
	if r.cfg.Record.Durable() || r.silence() < timing.SuccessionPatience || r.cfg.Retire == nil {
		return false
	}
	a, err := r.cfg.Retire(ctx, own.Cluster)
	if err != nil || a.Refused != "" {
		return false
	}
	if err := r.Dissolve(ctx, v); err != nil {
		r.cfg.Self.Log.Debug("cluster not left", "error", err)
		return false
	}
	return true
}

func clusterText(id machine.ClusterID) string { return hex.EncodeToString(id[:4]) }
