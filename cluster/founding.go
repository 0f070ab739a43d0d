package cluster

import (
	"cmp"
	"errors"
	"slices"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file is the pure kernel of founding: single-decree Paxos over the
// members that were started first. found.go moves its messages.
//
// Why Paxos and not "bootstrap when n members are seen": with differing views
// or a partition at the wrong moment two sets of members each see n, write
// different first entries, and both serve. Here a value is chosen when more
// than half of the M declared members have accepted it in one ballot, any two
// such groups share a member, and that member tells the later ballot what the earlier
// one chose. The value names the voters by raft ID, so all of them
// bootstrap with the byte-identical configuration.
//
// One thing is not Paxos: a value is not repeated if a majority of the voters
// that it names have lost their stores since. No cluster can come of it.
//
// Less formally: whoever wants to found must first ask most of the declared
// members what they have heard, and must then repeat the newest of it.
//
// The members are remembered by name, and one that restarts without a Dir has
// forgotten what it accepted. That is why the group is larger than a bare
// majority where it can be: see foundingQuorum.

// acceptor is a member's memory of the founding, durable where there is a Dir
// and stored before the member answers.
type acceptor struct {
	Promised wire.Ballot
	Accepted wire.Ballot
	Value    *wire.Founding
}

func compareBallots(a, b wire.Ballot) int {
	return cmp.Or(cmp.Compare(a.Round, b.Round), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Boot, b.Boot))
}

// prepare promises to accept nothing below b, unless that was promised to a
// higher ballot already.
func (a acceptor) prepare(b wire.Ballot) (acceptor, bool) {
	if compareBallots(b, a.Promised) < 0 {
		return a, false
	}
	a.Promised = b
	return a, true
}

// accept takes v in ballot b, unless a higher ballot was promised.
func (a acceptor) accept(b wire.Ballot, v wire.Founding) (acceptor, bool) {
	if compareBallots(b, a.Promised) < 0 {
		return a, false
	}
	a.Promised, a.Accepted, a.Value = b, b, &v
	return a, true
}

// firstVoters is how many voters found a cluster of m members: the odd number
// that is possible, at most want.
func firstVoters(m, want int) int {
	n := min(m, want)
	if n%2 == 0 {
		n--
	}
	return n
}

// foundingQuorum is how many of m members must take part in a founding with
// that many voters: all the voters; more than half of m, so that two
// foundings meet in a member; and more than m less a majority of the voters,
// so that members which restarted without memory cannot found a second
// cluster beside a majority of voters that still runs. For then at most m less
// that majority are left to forget.
func foundingQuorum(m, voters int) int {
	majority := voters/2 + 1
	return max(voters, m/2+1, m-majority+1)
}

// propose returns the value that a proposer must put to the vote, given the
// promises it collected by member name: the value accepted in the highest
// ballot, or a new one of its own making if nobody accepted any. It returns nil
// if the promises are too few.
func propose(promises map[string]wire.PrepareAnswer, m, voters int, fresh func(voters []string, promises map[string]wire.PrepareAnswer) wire.Founding) *wire.Founding {
	for _, p := range promises {
		m = max(m, p.Members)
	}
	n := firstVoters(m, voters)
	if len(promises) < foundingQuorum(m, n) {
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
	// Durable members first, lest a mixed cluster found on what it may lose;
	// then by name, so that the choice can be foreseen.
	names := make([]string, 0, len(promises))
	for name := range promises {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d, e := promises[a].Durable, promises[b].Durable; d != e {
			if d {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	})
	ids := make([]string, 0, n)
	for _, name := range names[:n] {
		ids = append(ids, promises[name].Raft)
	}
	slices.Sort(ids)
	v := fresh(ids, promises)
	return &v
}

// superseded reports whether a majority of the voters are known to have lost
// their stores: the members of that name promise under other raft IDs. Such
// voters never vote again, so nothing can have come of a value that names them,
// nor ever will.
func superseded(voters []string, promises map[string]wire.PrepareAnswer) bool {
	lost := 0
	for _, id := range voters {
		name, _, _ := splitRaftID(id)
		if p, ok := promises[name]; ok && p.Raft != id {
			lost++
		}
	}
	return len(voters)-lost < len(voters)/2+1
}

// checkFounding refuses a value that no cluster could begin with.
func checkFounding(v wire.Founding) error {
	if v.Cluster == (machine.ClusterID{}) || len(v.Voters) == 0 || len(v.Voters)%2 == 0 || v.Floor == 0 {
		return errBadFounding
	}
	names := make(map[string]bool)
	for _, id := range v.Voters {
		name, _, err := splitRaftID(id)
		if err != nil || names[name] {
			return errBadFounding
		}
		names[name] = true
	}
	return nil
}

var errBadFounding = errors.New("cluster: a founding that no cluster could begin with")
