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
// declared members. The other files move its messages.
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
// where possible: see quorum.

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

// firstVoters returns the number of voters with which m members found a
// cluster: the largest odd number up to m and want.
func firstVoters(m, want int) int {
	n := min(m, want)
	if n%2 == 0 {
		n--
	}
	return n
}

// quorum returns the number of the m declared members that must take part in a
// founding with so many voters. The quorum is the largest of three numbers:
//
//   - all the voters;
//   - more than half of m, so that two foundings share a member;
//   - more than m less a majority of the voters, so that members restarted
//     without memory cannot found a second cluster while a majority of the voters
//     still runs. At most the members outside the majority can have forgotten
//     their promises, and their number is below the quorum.
func quorum(m, voters int) int {
	majority := voters/2 + 1
	return max(voters, m/2+1, m-majority+1)
}

// propose returns the value to put to the vote, given the promises collected, by
// member name: the value accepted in the highest ballot, or a fresh value if no
// member has accepted any. If the promises are too few, propose returns nil.
func propose(promises map[string]wire.PrepareAnswer, m, voters int, fresh func(voters []string, promises map[string]wire.PrepareAnswer) wire.Founding) *wire.Founding {
	for _, p := range promises {
		m = max(m, p.Members)
	}
	n := firstVoters(m, voters)
	if len(promises) < quorum(m, n) {
		return nil
	}
	var best wire.PrepareAnswer
	for _, p := range promises {
		if p.Value != nil && (best.Value == nil || compareBallots(p.Accepted, best.Accepted) > 0) {
			best = p
		}
	}
	if best.Value != nil && !superseded(best.Value.Voters, promises) {
		return best.Value
	}
	v := fresh(chooseVoters(promises, n), promises)
	return &v
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
	return len(voters)-lost < len(voters)/2+1
}

// Check returns an error if no cluster could begin with v.
func Check(v wire.Founding) error {
	if v.Cluster == (machine.ClusterID{}) || len(v.Voters) == 0 || len(v.Voters)%2 == 0 || v.Floor == 0 {
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

var errBadFounding = errors.New("cluster: a founding that no cluster could begin with")
