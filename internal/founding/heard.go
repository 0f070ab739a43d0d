package founding

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file asks the processes that gossip lists for themselves. Members relay words
// about others, so one member can list processes that do not exist, as members of
// another cluster or as founders. A founding must not wait for such ghosts for ever.
//
// A process counts while it has answered on its own stream within
// timing.GhostPatience, or within twice the time if gossip lists it as alive, by its own
// word. Gossip's word about an unheard process, or
// about a process not asked since the word changed, counts for a bounded time:
//
//   - For GhostPatience from the first such word. A living process
//     that does not answer for a moment counts for as long as gossip itself would
//     need to give up a process that nobody reaches.
//   - After that, a process listed within that time counts until it has been asked
//     once. A flood of ghosts hides no true process: all of them are asked.
//   - The time begins anew only after timing.GhostQuiet without any such word. New
//     ghosts every second gain nothing, and a ghost after each GhostQuiet leaves most of
//     the time free.
//
// What does the wait protect? A first founding beside a cluster that lives. Without
// the wait the founding would still need all first members, or a quorum of names, and
// a member that has heard a member of another cluster refuses, which ends the ballot
// (wire.PrepareAnswer.Claimed). So a founding beside a true cluster needs all of: no
// founder of the ballot gets an answer from any member of that cluster for the whole
// patience, dials repeated; someone else reaches such a member, or gossip would have
// given it up; and the two clusters do not meet before the first grant (doc.go).
//
// A process that answers on its own stream as a member of a cluster holds a founding
// back for as long as it answers. A claim with a handshake behind it is the word of a
// member, whose cluster may grant elsewhere.
//
// A process without the voter role takes the place of no process that may have the role.
// Many may own its certificate, and run it under a voter's name with a later boot. An
// honest voter can be started anew without the role, too. Then the dead voter stands
// where any dead voter stands, though its name runs: its claim ends with its answers, its
// silence counts from its death, and an operator names it as gone.

// acquaintance is the knowledge of a process from its own stream.
type acquaintance struct {
	first time.Time         // when gossip made the present claim first
	claim machine.ClusterID // the cluster of the process, by gossip
	asked time.Time         // when the last question about the claim has ended; zero: not asked
	heard time.Time         // the last answer; zero: none
	word  machine.ClusterID // the cluster of the process, by its last answer; zero: none
	mere  bool              // the process has proved to be no voter
}

// lately reports whether the process has answered within timing.GhostPatience.
func (a acquaintance) lately() bool {
	return !a.heard.IsZero() && time.Since(a.heard) < timing.GhostPatience
}

// remains reports whether a process that gossip takes for alive counts by its last
// answer. Such a process counts for twice GhostPatience: silent for a moment, again and
// again, it must not depend on the wait for the unheard.
func (a acquaintance) remains(s member.Sighting) bool {
	return a.lately() || s.Alive && !a.heard.IsZero() && time.Since(a.heard) < 2*timing.GhostPatience
}

// acquaintances remembers the processes asked. Its methods may be called from any
// goroutine.
type acquaintances struct {
	mu    sync.Mutex
	of    map[member.Process]acquaintance
	since time.Time // when the wait for unheard processes began; zero: never
	clear time.Time // since when no look has found any; zero: the last look has
}

// maxAcquaintances bounds the memory; gossip lists fewer processes.
const maxAcquaintances = 8192

// see notes the processes listed now, and forgets all others. Unheard processes among
// them for which a founding would wait begin the wait.
func (q *acquaintances) see(all []member.Sighting, waits func(member.Sighting) bool) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	listed := make(map[member.Process]acquaintance)
	unheard := false
	for _, s := range all {
		a, known := q.of[s.Process]
		if !known || a.claim != s.Meta.Cluster {
			a.first, a.claim, a.asked = now, s.Meta.Cluster, time.Time{}
		}
		settled := a.lately() && (a.word != machine.ClusterID{} || !a.asked.IsZero())
		unheard = unheard || s.Alive && !settled && waits(s)
		if len(listed) < maxAcquaintances {
			listed[s.Process] = a
		}
	}
	q.of = listed
	switch {
	case !unheard && q.clear.IsZero():
		q.clear = now
	case unheard:
		if q.fresh(now) {
			q.since = now
		}
		q.clear = time.Time{}
	}
}

// fresh reports whether an unheard process would begin the wait anew. The caller holds
// q.mu.
func (q *acquaintances) fresh(now time.Time) bool {
	return q.since.IsZero() || !q.clear.IsZero() && now.Sub(q.clear) > timing.GhostQuiet
}

// begin begins the wait for unheard processes now, and has every process asked anew.
func (q *acquaintances) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.since, q.clear = time.Now(), time.Time{}
	for p, a := range q.of {
		a.first, a.asked = q.since, time.Time{}
		q.of[p] = a
	}
}

// answered notes the end of a question about a claim. Without an answer, ok is false.
func (q *acquaintances) answered(p member.Process, claim machine.ClusterID, who wire.WhoAnswer, mere, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a, known := q.of[p]
	if !known {
		return
	}
	now := time.Now()
	if a.claim == claim {
		a.asked = now
	}
	if ok {
		a.heard, a.mere, a.word = now, mere, machine.ClusterID{}
		if who.Founding != nil {
			a.word = who.Founding.Cluster
		}
	}
	q.of[p] = a
}

// get returns the knowledge of a process, and whether gossip's word about the process
// counts for a time.
func (q *acquaintances) get(p member.Process) (a acquaintance, waited bool) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	a, known := q.of[p]
	end := q.since.Add(timing.GhostPatience)
	waited = q.fresh(now) || now.Before(end) || known && a.asked.IsZero() && a.first.Before(end)
	return a, waited
}

// counts reports whether a process that gossip lists counts: see above.
func (r *Runner) counts(s member.Sighting) bool {
	a, waited := r.known.get(s.Process)
	return r.cfg.Self.Is(s.Process) || a.remains(s) || waited
}

// claimOf returns the cluster of a process, zero if it is in none or does not count.
// Heard says that the process itself has told so.
func (r *Runner) claimOf(s member.Sighting) (id machine.ClusterID, heard bool) {
	a, waited := r.known.get(s.Process)
	none := machine.ClusterID{}
	switch {
	case a.remains(s) && a.word != none:
		return a.word, true
	case a.lately() && !a.asked.IsZero() && a.claim == s.Meta.Cluster:
		return none, true // asked about this very claim
	case waited:
		return s.Meta.Cluster, false
	}
	return none, false
}

// concerns reports whether a founding would wait for the process: a member of another
// cluster or a founder, by gossip; or anybody, while an operator's word is carried out.
func (r *Runner) concerns(s member.Sighting) bool {
	return !r.cfg.Self.Is(s.Process) && !r.ended(s.Process) &&
		(s.Meta.InCluster() && s.Meta.Cluster != r.Cluster() || s.Meta.Founder && r.value.Load() == nil || r.recovering())
}

// doubtful returns the processes to be asked now, the longest unasked first, at most
// maxAsked, half of them such that hold a founding back or take part in it. Each member of
// another cluster is due at every look. A process beside another one of its name or address
// is asked too: a forged newer boot would hide the true one. Gossip's dead are asked before a founding and before a silence is believed:
// a death is a word like any other. A member that proposes nothing asks them too: the
// others need its word that they are silent. A later process of a dead one's name is
// asked, because it supersedes the dead one by its answer alone.
func (r *Runner) doubtful() (out []member.Sighting) {
	all := r.cfg.Members.All()
	r.known.see(all, r.concerns)
	dead := r.value.Load() == nil || r.cfg.AssumeGone > 0
	names, addrs := make(map[string]int), make(map[string]int)
	for _, s := range all {
		if s.Alive || dead && s.Meta.InCluster() && !r.ended(s.Process) {
			names[s.Name]++
		}
		if s.Alive {
			addrs[s.Addr]++
		}
	}
	asked := make(map[member.Process]time.Time)
	for _, s := range all {
		if r.cfg.Self.Is(s.Process) || r.ended(s.Process) {
			continue
		}
		a, _ := r.known.get(s.Process)
		claims := s.Alive && s.Meta.InCluster() && s.Meta.Cluster != r.Cluster()
		due := time.Since(a.asked) > timing.GhostPatience/4
		rival := names[s.Name] > 1 || addrs[s.Addr] > 1
		if claims || due && s.Alive && (r.concerns(s) || rival) || due && dead && !s.Alive && s.Meta.InCluster() {
			out = append(out, s)
			asked[s.Process] = a.asked
		}
	}
	slices.SortStableFunc(out, func(a, b member.Sighting) int { return asked[a.Process].Compare(asked[b.Process]) })
	var first, others []member.Sighting
	for _, s := range out {
		if s.Alive && len(first) < maxAsked/2 && r.concerns(s) {
			first = append(first, s)
		} else {
			others = append(others, s)
		}
	}
	return append(first, others[:min(len(others), maxAsked-len(first))]...)
}

// maxAsked bounds the processes asked at a time.
const maxAsked = 64

// inquire asks processes for their clusters, and the members of other clusters for a
// leader. Inquire enters the first cluster that a leader confirms, or one whose
// founding names this member, and reports whether it has.
func (r *Runner) inquire(ctx context.Context, list []member.Sighting) bool {
	asks, cancel := context.WithTimeout(ctx, 2*timing.Dial)
	defer cancel()
	found := make(chan wire.Founding, len(list))
	told := make(map[string]wire.Founding) // by the name of the teller
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, s := range list {
		asking.Go(func() {
			who, mere, ok := r.who(asks, s.Process)
			if asks.Err() == nil || ok {
				r.known.answered(s.Process, s.Meta.Cluster, who, mere, ok)
			}
			if !ok || who.Founding == nil || who.Founding.Cluster == r.Cluster() {
				return
			}
			mu.Lock()
			told[s.Name] = *who.Founding
			mu.Unlock()
			if v, ok := r.Confirmed(asks, s.Process, who.Founding.Cluster); ok {
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
	}
	if r.value.Load() != nil {
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(told)) {
		if r.adoptNamed(ctx, name, told[name]) {
			return true
		}
	}
	return false
}

// who asks a process who it is. Ok is false without an answer of this very process.
func (r *Runner) who(ctx context.Context, p member.Process) (who wire.WhoAnswer, mere, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	f, err := r.cfg.Ask.Ask(ctx, p, wire.Who, nil)
	ok = err == nil && f.Code == wire.CodeOK && wire.Unmarshal(f.Body, &who) == nil &&
		who.Name == p.Name && who.Boot == p.Boot && (who.Founding == nil || Check(*who.Founding) == nil)
	return who, f.Mere, ok
}

// best returns one process of each key, sorted by name: heard processes before others,
// among them those with the voter role, and then the newest.
func (r *Runner) best(all []member.Sighting, key func(member.Sighting) string) (out []member.Sighting) {
	rank := func(s member.Sighting) int {
		switch a, _ := r.known.get(s.Process); {
		case r.cfg.Self.Is(s.Process), a.lately() && !a.mere:
			return 2
		case a.lately():
			return 1
		}
		return 0
	}
	of := make(map[string]member.Sighting)
	for _, s := range all {
		if o, ok := of[key(s)]; !ok || cmp.Or(cmp.Compare(rank(s), rank(o)), cmp.Compare(s.Boot, o.Boot)) > 0 {
			of[key(s)] = s
		}
	}
	return slices.SortedFunc(maps.Values(of), member.Compare)
}

// supersedes reports whether a process takes the place of an earlier one of its name: it
// has answered with the voter role, or the earlier one has none either.
func (r *Runner) supersedes(later, earlier member.Process) bool {
	if later.Name != earlier.Name || later.Boot <= earlier.Boot {
		return false
	}
	a, _ := r.known.get(later)
	return r.cfg.Self.Is(later) || !a.heard.IsZero() && !a.mere || r.guest(earlier)
}

func nameOf(s member.Sighting) string { return s.Name }
func addrOf(s member.Sighting) string { return s.Addr }
