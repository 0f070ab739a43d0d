package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wardmote/wardmote/internal/member"
)

// plight is the knowledge from which verdictOf judges a cluster without a leader.
type plight struct {
	durable  bool
	complete bool // the list in Join is complete
	retired  bool // this member has retired from the cluster
	voters   []voterPlight
}

// voterPlight is a voter of the cluster as last known.
type voterPlight struct {
	name string
	fate fate
}

// fate is the state of a voter, as seen from this member.
type fate uint8

const (
	seen     fate = iota // alive under the raft ID that votes
	silent               // neither seen nor known to have ended
	forgets              // alive under another raft ID: the vote was lost with the memory or the disk
	abstains             // silent, and its name runs as a member that never votes
)

// outlook judges the cluster of a member without a leader: whether it can come back
// by itself, and the next action of an operator, "" if there is no cluster.
func (n *Node) outlook() (hopeless bool, next string) {
	v := n.founding.Value()
	if v == nil {
		return false, ""
	}
	rec := n.record.Get()
	p := plight{durable: n.cfg.Dir != "", complete: n.cfg.Recovery.JoinIsComplete, retired: rec.RetiredHere()}
	ids := v.Voters
	if r := n.seat.Current(); r != nil {
		ids = r.Voters()
	} else if p.retired && len(rec.Retired.Voters) > 0 {
		ids = rec.Retired.Voters
	} else if set, told := n.voterSet(); told {
		ids = nil
		for _, voter := range set.Voters {
			ids = append(ids, voter.Raft)
		}
	}
	all := n.gossip.All()
	for _, id := range ids {
		p.voters = append(p.voters, voterPlightOf(id, all))
	}
	return verdictOf(p)
}

// voterPlightOf looks for the holder of a raft ID among the sightings. A later process of the
// name that never votes says nothing of the voter: another host may run it.
func voterPlightOf(id string, all []member.Sighting) voterPlight {
	name, generation, _ := member.ParseRaftID(id)
	var newest member.Sighting // of those that may vote
	abstaining := false
	for _, s := range all {
		switch {
		case s.Name != name:
		case s.Meta.Thin:
			abstaining = abstaining || s.Alive
		case newest.Name == "" || s.Boot > newest.Boot:
			newest = s
		}
	}
	switch {
	case newest.Alive && newest.Meta.Generation == generation:
		return voterPlight{name, seen}
	case newest.Alive && newest.Meta.Generation != 0:
		return voterPlight{name, forgets}
	case abstaining:
		return voterPlight{name, abstains}
	}
	return voterPlight{name, silent}
}

// verdictOf tells whether the cluster can come back by itself.
//
//   - It can while the voters that are seen or silent are a majority: a silent
//     voter may be behind a partition, or start again with its Dir.
//   - It cannot once a majority has lost its votes: a voter that lives under
//     another raft ID never votes again under the old one. In memory the silent
//     ones are as good as lost too, unless they are behind a partition; only an
//     operator can tell.
func verdictOf(p plight) (hopeless bool, next string) {
	var gone, abstain []string
	present, lost := 0, 0
	for _, v := range p.voters {
		switch v.fate {
		case seen:
			present++
			continue
		case forgets:
			lost++
		case abstains:
			abstain = append(abstain, v.name)
		}
		gone = append(gone, v.name)
	}
	slices.Sort(gone)
	majority := len(p.voters)/2 + 1
	hopeless = len(p.voters)-lost < majority
	call := fmt.Sprintf("call Node.Recover on one member with Gone: %s", strings.Join(gone, ", "))
	switch {
	case p.retired:
		return hopeless, "wait for the successor; if a member of the group is missing, start it again, or " + call
	case present >= majority:
		return false, "wait for the election; if it lasts, let the voters reach each other on their ports, TCP and UDP"
	case p.durable && hopeless:
		return true, "put the lost Dirs back; if they are lost for good, " + call
	case p.durable && len(abstain) > 0:
		slices.Sort(abstain)
		return false, fmt.Sprintf("start as voters again, with their Dirs: %s, and all silent voters; only if the disks are lost for good, %s", strings.Join(abstain, ", "), call)
	case p.durable:
		return false, "start the silent voters with their Dirs; only if the disks are lost for good, " + call
	case p.complete && hopeless:
		return true, "start every member listed in Join: the living ones then found a successor by themselves"
	case p.complete:
		return false, "restore the network, or start every member listed in Join: the living ones then found a successor by themselves"
	case hopeless:
		return true, "restart every member, or " + call
	}
	return false, "restore the network to the missing voters; if their processes have ended, restart every remaining member, or " + call
}
