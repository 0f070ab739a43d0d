package founding

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file holds the pure rules of a founding that rests on somebody's word: a
// first founding where the list in Join is complete, and a succession.
//
// A cluster in memory whose majority is lost can never grant again. Its living
// members may found a successor, if nobody else lives in the cluster. No rule over
// the knowledge of the living themselves can tell. Suppose the voters A, B, C, and
// C cut off. On the other side a restart A' of A, and B, take in the new members D
// and E, and the voters become A', D, E. Then A' and B crash and come back on C's
// side. C knows the voters A, B, C; newer processes of A and B are here; nobody is
// silent. C would found a successor while D and E grant. Nobody lied: the memory
// of D and E died with A' and B. Somebody outside must bound the places where
// members may live: a complete list, an operator, or an accepted silence. See
// wire.Word.
//
// The rules of a ballot with a word:
//
//  1. The group has all processes that the word allows to live, each by name, boot
//     and address. All of the group must promise, every member of a cluster among
//     them must retire, and then all of the group must accept, under the same
//     boots. So there is an instant T after the last promise and retirement, and
//     before the first acceptance, at which exactly these processes lived. At T no
//     voter of any cluster of the group was unretired. A majority of the group is
//     not enough: the execution above, with {A', B'} of {A', B', C} as the majority
//     and C the leader of a cluster unknown to A' and B'.
//  2. An acceptance is refused by a process that the group names under another
//     boot, that has entered a cluster since its promise, that is in a cluster and
//     has not retired, or that votes although it has. Without the check, a newcomer
//     promises, is made a voter of the old cluster by a leader cut off from the
//     proposer, and accepts. So does a thin member that retires before the leader.
//  3. "Decided" goes before retirement: the proposer that meets a member of a
//     cluster first passes that founding on to those named in the founding, and
//     waits until the cluster could have elected a leader. Else a slow proposer
//     would end a successor while the news of its founding are under way.
//  4. The new founding names as predecessors every cluster of the group, and their
//     predecessors. A voter of the oldest that was away may meet the newest first,
//     and must know it as a successor.
//  5. A member that accepted a founding never again enters a cluster that the founding
//     ends, unless a leader of that cluster confirms it. Suppose A, C and D choose a
//     successor Y, and the news reach D alone. D cannot lead Y, and with B and new
//     promises of A and C founds Z, which ends Y. Then the late news of Y reach A and
//     C. As a majority of Y they would grant beside Z.
//  6. A member whose cluster cannot answer, and that meets a confirmed leader of any
//     other cluster of the name, retires and joins that one, related or not. Suppose A
//     learns late that Y was chosen, whose other voters B and C have restarted and
//     founded Z. Z does not descend from Y, and Y never answers. A would stay in Y for
//     ever, and hold the first grant of Z by its mere life. Retiring endangers
//     nobody, so no lineage needs to be proved.
//  7. An accepted value is repeated as in kernel.go, unless a majority of its voters
//     are gone. A voter outside the group is gone, by the word.

// maxAhead is how far a token that is told may be ahead of a member's own clock and of
// the tokens that the member has seen: a day.
const maxAhead = uint64(24*time.Hour/time.Second) << tokenBits

// tokenBits is the number of a token's bits below the seconds since 1970: a
// cluster may grant 2^21 tokens a second before tokens run ahead of the clock.
const tokenBits = 21

// tokenOf returns the first token of a cluster founded at the given time without
// knowledge of an earlier cluster, and at least 1: a host without a clock may stand at
// 1970, or before.
func tokenOf(t time.Time) uint64 {
	return max(1, uint64(max(t.Unix(), 0))<<tokenBits+uint64(t.Nanosecond())<<tokenBits/1e9)
}

// floorOf returns the first token of a new cluster: above the tokens of the
// clock, above the tokens that fresh members or their TokenFloors told, above guarded,
// the answer of the proposer's TokenFloor, and above each token that
// a retired member saw plus the number of tokens that the former cluster could have
// granted since. The last part rests on no wall clock: a founder whose clock is a
// month behind still begins above all tokens seen. Only after a total loss, with
// nobody left to tell a token, does the floor rest on a wall clock alone.
//
// A told token may not be the highest granted, so unseen is added. But only if the
// clock is behind: else a cluster founded within half an hour after another would
// begin ahead of a right clock, and the next one, founded by the clock alone, below.
func floorOf(now time.Time, guarded uint64, promises map[string]wire.PrepareAnswer, retired map[string]wire.RetireAnswer) uint64 {
	floor, told := tokenOf(now), guarded
	for _, p := range promises {
		told = max(told, p.Token)
	}
	if told >= floor {
		floor = told + unseen + 1
	}
	for _, a := range retired {
		floor = max(floor, seenToken(a))
	}
	return floor
}

// seenToken is the least token that the cluster of a retired member can have granted
// no other token above: see floorOf.
func seenToken(a wire.RetireAnswer) uint64 {
	if a.Token == 0 {
		return 0
	}
	return a.Token + (a.TokenAge/1000+1)<<tokenBits
}

// noClock is a time before which a clock was never set.
var noClock = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// checkFloor returns why a member refuses the first token of a founding, or "". Guarded
// is the answer of the member's TokenFloor, and seen the highest token that the member
// knows otherwise, by its clock too.
//
// A token too far ahead would spend the tokens that are left. A cluster founded by a
// clock years ahead has a successor all the same, since its members know its tokens. No
// message of another member raises guarded or seen. A host without a clock stands at 1970
// and judges no first founding.
func checkFloor(v wire.Founding, guarded, seen uint64) string {
	switch {
	case guarded > 0 && v.Floor <= guarded:
		return fmt.Sprintf("the first token would be %d, and the protected resource has seen %d: set Recovery.TokenFloor on every founder, and restart the one that proposed without",
			v.Floor, guarded)
	case v.Floor <= seen+maxAhead+unseen+1:
		return ""
	case len(v.Predecessors) == 0 && seen < tokenOf(noClock):
		return ""
	case len(v.Predecessors) == 0:
		return fmt.Sprintf("the first token would be %v ahead of this member's clock, a day at most is accepted: set the clocks of the hosts right", aheadOf(v.Floor, seen))
	}
	return fmt.Sprintf("the successor's first token is %v ahead of this member's clock and of the tokens that it has seen, a day at most is accepted: set the clocks of the hosts right; "+
		"if they are right, the former cluster was founded by a wrong clock: stop this member, and start it again after the recovery", aheadOf(v.Floor, seen))
}

// tellFloor warns of a founding whose tokens are ahead of this member's clock by more
// than a former cluster's grants can explain. The tokens rise all the same, but after the
// loss of every process the clock alone would be too low.
func (r *Runner) tellFloor(v wire.Founding) {
	if now := tokenOf(r.cfg.Self.Clock.Wall()); v.Floor > now+unseen {
		r.cfg.Self.Log.Warn("the first token is ahead of this host's clock", "token", v.Floor, "ahead", aheadOf(v.Floor, now),
			"next", "set the clocks of the founders right; set Recovery.TokenFloor on all of them")
	}
}

// aheadOf returns how far a token is above a limit, as time.
func aheadOf(token, limit uint64) time.Duration {
	return time.Duration(min((token-limit)>>tokenBits, math.MaxInt64/uint64(time.Second))) * time.Second
}

// silenceOf returns the TTL of a founding in milliseconds: the largest bound that
// any member of the group was ever told. A dead member may have had a bound of
// 60 s where the living have 10 s, and its holders trust their locks for so long. The word
// of a member without the voter role counts too: it may be the last to know the bound, and
// to wait a day for a liar is better than to grant a lock twice.
func silenceOf(promises map[string]wire.PrepareAnswer, retired map[string]wire.RetireAnswer) (ttl uint64) {
	for _, p := range promises {
		ttl = max(ttl, p.TTL)
	}
	for _, a := range retired {
		ttl = max(ttl, a.TTL)
	}
	return ttl
}

// lineageOf returns the predecessors of a founding by members of the given
// clusters: the clusters and their predecessors, the nearest first.
func lineageOf(decided []wire.Founding) (ids []machine.ClusterID) {
	add := func(id machine.ClusterID) {
		if !slices.Contains(ids, id) && len(ids) < maxPredecessors {
			ids = append(ids, id)
		}
	}
	decided = slices.Clone(decided)
	slices.SortFunc(decided, func(a, b wire.Founding) int { return slices.Compare(a.Cluster[:], b.Cluster[:]) })
	for _, v := range decided {
		add(v.Cluster)
	}
	for _, v := range decided {
		for _, id := range v.Predecessors {
			add(id)
		}
	}
	return ids
}

// proposeOnWord returns the value to put to the vote of a group, all of whose
// members promised and, if in a cluster, retired. It returns nil with the reason if
// there is none.
func proposeOnWord(promises map[string]wire.PrepareAnswer, ended []machine.ClusterID, voters []string, fresh func(voters []string) wire.Founding) (*wire.Founding, string) {
	best := newestAccepted(promises)
	if best != nil && !gone(best.Voters, promises) && !slices.Contains(ended, best.Cluster) {
		for _, id := range ended {
			if !slices.Contains(best.Predecessors, id) {
				// All processes lived in the group of this value when it was accepted, so
				// no such cluster should be: somebody's word was not true.
				return nil, "an accepted founding does not know a cluster of this group"
			}
		}
		return best, ""
	}
	if len(voters) == 0 {
		return nil, "too few members of the group may vote: start more of the Founders, or members that are not Voting.Thin"
	}
	v := fresh(voters)
	return &v, ""
}

// shun adds the predecessors of an accepted founding to the clusters that this member
// never enters again by name. Of a long list the oldest are forgotten.
func shun(shunned []machine.ClusterID, v wire.Founding) []machine.ClusterID {
	out := slices.Clone(shunned)
	for _, id := range v.Predecessors {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out[max(0, len(out)-maxPredecessors):]
}

// gone reports whether so many voters are outside the group, or in it under
// another raft ID, that no majority of them is left.
func gone(voters []string, promises map[string]wire.PrepareAnswer) bool {
	left := 0
	for _, id := range voters {
		name, _, _ := member.ParseRaftID(id)
		if p, ok := promises[name]; ok && p.Raft == id {
			left++
		}
	}
	return left < majority(len(voters))
}

// electorate returns the first voters of a group, ascending: an odd number of its
// members up to want, thin members and members outside of only left out; nil means
// that nobody is outside of only. The number is even if only so it reaches least; if
// not even all members do, nobody votes. A table on a disk goes on under the one
// member with the newest log.
func electorate(promises map[string]wire.PrepareAnswer, retired map[string]wire.RetireAnswer, only []string, least, want int) []string {
	able := make(map[string]wire.PrepareAnswer)
	newest := ""
	for _, name := range slices.Sorted(maps.Keys(promises)) {
		p := promises[name]
		if p.Thin || only != nil && !slices.Contains(only, name) {
			continue
		}
		able[name] = p
		a, b := retired[name], retired[newest]
		if p.Durable && a.LogIndex > 0 && (newest == "" || cmp.Or(cmp.Compare(a.LogTerm, b.LogTerm), cmp.Compare(a.LogIndex, b.LogIndex)) > 0) {
			newest = name
		}
	}
	if newest != "" {
		return []string{promises[newest].Raft}
	}
	if len(able) < least {
		return nil
	}
	return chooseVoters(able, max(oddUpTo(min(len(able), want)), least))
}
