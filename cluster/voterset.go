package cluster

import (
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// voterNews is the state of the voters as the leaders of this member's cluster have
// told.
type voterNews struct {
	mu     sync.Mutex
	set    wire.VoterSet
	at     time.Time            // of the last word; zero: no leader of this cluster has told yet
	first  time.Time            // of the first word
	told   bool                 // set was told, by a leader of this cluster or of a former one
	missed map[string]time.Time // by raft ID: since when leaders have missed the voter

	changed wakeup.All // a leader has told
	news    memberNews // of changes
}

// votersTold takes the word of a leader of the given cluster on the voters, and tells
// the events of each voter removed or added since the last word. A voter that goes
// and comes back under another raft ID is told as removed and then as added, so the
// last event about a name is true. The first word of a process brings no events:
// every voter was there before. The first word of the next cluster does.
func (n *Node) votersTold(cluster machine.ClusterID, set wire.VoterSet) {
	n.voters.mu.Lock()
	var added, removed []wire.VoterState
	if cluster == n.founding.Cluster() {
		added, removed = n.voters.take(set, time.Now())
	}
	n.voters.mu.Unlock()
	n.voters.changed.Wake()
	for _, v := range removed {
		n.voterEvent(Event{Kind: VoterRemoved, Member: voterMember(v)})
	}
	for _, v := range added {
		n.voterEvent(Event{Kind: VoterAdded, Member: voterMember(v)})
	}
}

// forget begins anew in another cluster, whose terms and indexes begin low. The
// voters of the former cluster are kept for the events alone.
func (w *voterNews) forget() {
	w.mu.Lock()
	w.at, w.first, w.missed = time.Time{}, time.Time{}, nil
	w.mu.Unlock()
	w.changed.Wake()
}

// voterMember names a voter without the boot: a newer process may have the address.
func voterMember(v wire.VoterState) Member {
	name, _, _ := member.ParseRaftID(v.Raft)
	return Member{Name: name, Addr: v.Addr}
}

// take stores the word of a leader, unless a later leader has told already. The
// caller holds w.mu.
func (w *voterNews) take(set wire.VoterSet, now time.Time) (added, removed []wire.VoterState) {
	if !w.at.IsZero() && (set.Term < w.set.Term || set.Term == w.set.Term && set.Index < w.set.Index) {
		return nil, nil
	}
	if w.told {
		added, removed = without(set, w.set), without(w.set, set)
	}
	missed := make(map[string]time.Time)
	for _, v := range set.Voters {
		switch since, known := w.missed[v.Raft]; {
		case v.Reached:
		case known:
			missed[v.Raft] = since
		default:
			missed[v.Raft] = now
		}
	}
	if w.first.IsZero() {
		w.first = now
	}
	w.set, w.at, w.told, w.missed = set, now, true, missed
	return added, removed
}

// without returns the voters of a that are not in b.
func without(a, b wire.VoterSet) (out []wire.VoterState) {
	for _, v := range a.Voters {
		if !votes(b, v.Raft) {
			out = append(out, v)
		}
	}
	return out
}

// votes reports whether a raft ID is a voter of the set.
func votes(set wire.VoterSet, raftID string) bool {
	return slices.ContainsFunc(set.Voters, func(v wire.VoterState) bool { return v.Raft == raftID })
}

// missedSince returns the times since which the former leaders have missed a
// voter, for a new leader: a follower exchanges nothing with the other voters, so
// without the former leader's word each election would begin the wait anew.
//
// A leader that has just begun misses every voter without an exchange yet, and its
// members learn so. A voter reached a moment later is told as reached, which ends
// the time.
func (w *voterNews) missedSince() func(raftID string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	missed := w.missed // replaced, never changed
	return func(raftID string) time.Time { return missed[raftID] }
}

// voterSet returns the state of the voters by the leader's last word. The result is
// false before the first word.
func (n *Node) voterSet() (wire.VoterSet, bool) {
	n.voters.mu.Lock()
	defer n.voters.mu.Unlock()
	if n.voters.at.IsZero() {
		return wire.VoterSet{}, false
	}
	return n.voters.set, true
}

// untilFresh is how long the leader's word on the voters may still be of a time
// before the leader knew of this process.
//
// A member that starts reads within its first milliseconds of a complete set of
// voters that is not complete any more, in two ways. The set has a voter that was
// killed, and whose place this member takes: a voter counts as reached for
// timing.VoterMissed after its last answer. Or the set is small, for fewer members
// than live now: gossip has not told the leader of this member. Ready after such a
// word, the member would have the next voter taken. So a voter of this member's
// name under another raft ID is not complete at all, and a member that might vote
// and does not believes the word only after it has listened for so long: a voter
// that is missed and a member that lives are known to every leader by then. A
// member that votes itself needs no wait, because the word that names the member is
// younger than its process.
func (n *Node) untilFresh(set wire.VoterSet) time.Duration {
	if n.cfg.Voting.Thin {
		return 0
	}
	if r := n.seat.Current(); r != nil && votes(set, r.ID()) {
		return 0
	}
	for _, v := range set.Voters {
		if name, _, _ := member.ParseRaftID(v.Raft); name == n.self.Name {
			return timing.VoterMissed // and again, until the leader knows
		}
	}
	n.voters.mu.Lock()
	defer n.voters.mu.Unlock()
	return time.Until(n.voters.first.Add(timing.VoterMissed + timing.Reconcile))
}

// leaving reports whether this member has begun to leave.
func (n *Node) leaving() bool { return n.gossip.Described().Leaving }
