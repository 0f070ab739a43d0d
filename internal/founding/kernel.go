package founding

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file is the pure kernel of founding: single-decree Paxos over the
// declared members. succession.go has the rules for a founding that rests on
// somebody's word. The other files move messages.
//
// Why Paxos and not "bootstrap when n members are seen": with differing views,
// or a partition at the wrong moment, two sets of members each see n members,
// write different first entries, and both serve. Here a value is chosen when
// more than half of the M declared members have accepted the value in the same
// ballot. Any two such groups share a member, and the shared member tells the
// later ballot the choice of the earlier ballot. The value names the voters by
// raft ID, so all voters bootstrap with the byte-identical configuration.
//
// A single rule is not Paxos: a value is not repeated if a majority of the voters
// in the value have lost their stores since. No cluster can come of such a value.
//
// The members are known by name, and a member without a Dir forgets the accepted
// values at a restart. For this reason the quorum is larger than a bare majority
// where promises do not last: see voterCount.

func compareBallots(a, b wire.Ballot) int {
	return cmp.Or(cmp.Compare(a.Round, b.Round), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Boot, b.Boot))
}

// prepare promises to accept no ballot below b. If a higher ballot has the
// promise already, prepare refuses and returns p unchanged.
func prepare(p identity.Promise, b wire.Ballot) (identity.Promise, bool) {
	if compareBallots(b, p.Promised) < 0 {
		return p, false
	}
	p.Promised = b
	return p, true
}

// accept accepts v in ballot b. If a higher ballot has the promise, accept
// refuses and returns p unchanged.
func accept(p identity.Promise, b wire.Ballot, v wire.Founding) (identity.Promise, bool) {
	p, ok := prepare(p, b)
	if ok {
		p.Accepted, p.Value = b, &v
	}
	return p, ok
}

// automatic returns the number of voters to aim at, given the configured number
// and the number m of founders. The configured number 0 means 5 where at least
// five members found in memory, because members in memory are lost sooner than
// disks, and else 3.
func automatic(configured, m int, promises map[string]wire.PrepareAnswer) int {
	switch {
	case configured > 0:
		return configured
	case m >= 5 && durable(promises) == 0:
		return 5
	}
	return 3
}

// durable counts the promises that outlive their processes.
func durable(promises map[string]wire.PrepareAnswer) (n int) {
	for _, p := range promises {
		if p.Durable {
			n++
		}
	}
	return n
}

func majority(n int) int { return n/2 + 1 }

// oddUpTo returns the largest odd number up to n, and 0 for 0.
func oddUpTo(n int) int {
	if n%2 == 0 {
		return max(n-1, 0)
	}
	return n
}

// voterCount returns the number of voters with which so many present founders of
// m found a cluster, and whether the present ones suffice. lasting is the number
// of present founders named in Founders whose promises outlive their processes.
//
// A bare majority of lasting promises suffices: every other founding group has
// more than half of the names too, so the two groups share a member, and the
// member remembers. The condition is a Dir that was never lost. A blank Dir
// cannot be told from a lost one. With three founders a lost Dir does no harm
// that a lost vote in raft would not do; with five, {A,B,C} could found, C lose
// its disk, and {C,D,E} found again, cut off from {A,B}.
//
// Where promises die with their processes, the present founders must be as many
// as quorum says for the number of voters.
//
// The number of voters is odd wherever an odd number suffices: of 2n voters as of
// 2n-1, n-1 may fail, so the even number bears no more, and one more voter must be
// heard for every entry. An even number remains where the next lower odd number
// would need an absent founder. Two of three founders in memory found with two
// voters, a and b. Not with the voter a alone: b, restarted without memory, and c
// would be two of three as well, and would found a second cluster beside a. With
// two voters this cannot be, because a cannot act without b as it was.
//
// The number is never above want or the number present: a voter must have
// promised, since nobody else knows its raft ID.
func voterCount(present, lasting, m, want int) (n int, ok bool) {
	if lasting >= majority(m) {
		return oddUpTo(min(want, present)), true
	}
	n = min(want, present)
	if odd := oddUpTo(n); odd > 0 && quorum(m, odd) <= present {
		n = odd
	}
	return n, n > 0 && quorum(m, n) <= present
}

// quorum returns the number of the m founders that must take part in a founding
// in memory with so many voters. The quorum is the largest of three numbers:
//
//   - all the voters;
//   - more than half of m, so that two foundings share a member;
//   - more than m less a majority of the voters, so that members restarted
//     without memory cannot found a second cluster while a majority of the voters
//     still runs. At most the members outside the majority can have forgotten
//     their promises, and their number is below the quorum.
//
// The third number breaks this execution: five founders, the voters A, B and C, of
// whom A and B live. C, D and E restart without memory and are cut off. A bare
// majority, 3 of 5, would found beside A and B.
func quorum(m, voters int) int {
	return max(voters, majority(m), m-majority(voters)+1)
}

// LeastVoters returns the number of voters below which a cluster must not shrink
// that was founded in memory by so many named founders, with want voters wanted: 2
// for three founders. With fewer voters, the founders outside a majority of the
// voters, restarted without memory, would be enough to found a second cluster.
// The argument counts names, so only founders may vote in such a cluster.
func LeastVoters(founders, want int) int {
	for n := 1; n <= founders; n++ {
		enough := false
		for present := range founders - majority(n) + 1 {
			_, ok := voterCount(present, 0, founders, automatic(want, founders, nil))
			enough = enough || ok
		}
		if !enough {
			return n
		}
	}
	return founders
}

// propose returns the value to put to the vote, given the promises collected, by
// member name: the value accepted in the highest ballot, or a fresh value if no
// member has accepted any. If the promises are too few, propose returns nil. Named
// says that the m founders are declared by name.
func propose(promises map[string]wire.PrepareAnswer, named bool, m, voters int, fresh func(voters []string, promises map[string]wire.PrepareAnswer) wire.Founding) *wire.Founding {
	want := automatic(voters, m, promises)
	n, ok := voterCount(len(promises), lasting(promises, named), m, want)
	if !named {
		// All of the first members were seen, so none of them needs to be missing
		// among the voters.
		n = oddUpTo(min(want, m))
		ok = len(promises) >= quorum(m, n)
	}
	if !ok {
		return nil
	}
	if best := newestAccepted(promises); best != nil && !superseded(best.Voters, promises) {
		return best
	}
	v := fresh(chooseVoters(promises, n), promises)
	return &v
}

// lasting counts the promises that bind for ever: a lasting promise is durable,
// and the names of all founders are known. With founders declared by number a
// group of new names remembers nothing, whatever is on the disks of others.
func lasting(promises map[string]wire.PrepareAnswer, named bool) int {
	if !named {
		return 0
	}
	return durable(promises)
}

// chosen reports whether the acceptances are enough to choose v. Accepted has the
// promises of the members that accepted v.
func chosen(v wire.Founding, accepted map[string]wire.PrepareAnswer, named bool, m int) bool {
	return lasting(accepted, named) >= majority(m) || len(accepted) >= quorum(m, len(v.Voters))
}

// newestAccepted returns the value accepted in the highest ballot, or nil.
func newestAccepted(promises map[string]wire.PrepareAnswer) *wire.Founding {
	var best wire.PrepareAnswer
	for _, p := range promises {
		if p.Value != nil && (best.Value == nil || compareBallots(p.Accepted, best.Accepted) > 0) {
			best = p
		}
	}
	return best.Value
}

// chooseVoters returns the raft IDs of n of the promising members, ascending.
// Durable members come first, so that a mixed cluster is founded on disks where
// possible. Then names decide, so the choice can be foreseen.
func chooseVoters(promises map[string]wire.PrepareAnswer, n int) []string {
	var durable, others []string // raft IDs
	for _, name := range slices.Sorted(maps.Keys(promises)) {
		if p := promises[name]; p.Durable {
			durable = append(durable, p.Raft)
		} else {
			others = append(others, p.Raft)
		}
	}
	ids := append(durable, others...)[:n]
	slices.Sort(ids)
	return ids
}

// superseded reports whether a majority of the voters are known to have lost
// their stores: the members of those names promise under other raft IDs. Such
// voters never vote again, so no cluster has come of the value, and none ever
// will.
func superseded(voters []string, promises map[string]wire.PrepareAnswer) bool {
	lost := 0
	for _, id := range voters {
		name, _, _ := member.ParseRaftID(id)
		if p, ok := promises[name]; ok && p.Raft != id {
			lost++
		}
	}
	return len(voters)-lost < majority(len(voters))
}

// Check returns an error if no cluster could begin with v.
func Check(v wire.Founding) error {
	if v.Cluster == (machine.ClusterID{}) || len(v.Voters) == 0 || len(v.Voters) > maxVoters || v.Floor == 0 || v.Floor > mostFloor || v.TTL > mostTTL ||
		len(v.Predecessors) > maxPredecessors || slices.Contains(v.Predecessors, v.Cluster) {
		return errBadFounding
	}
	names := make(map[string]bool)
	for _, id := range v.Voters {
		name, _, err := member.ParseRaftID(id)
		if err != nil || names[name] {
			return errBadFounding
		}
		names[name] = true
	}
	return nil
}

// Limits of a founding.
const (
	maxVoters       = 7
	maxPredecessors = 64 // of a founding; a longer lineage forgets the oldest
)

var errBadFounding = errors.New("cluster: a founding that no cluster could begin with")
