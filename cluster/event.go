package cluster

import "fmt"

// EventKind is the kind of an Event.
type EventKind uint8

const (
	MemberJoined   EventKind = iota + 1 // Member, of that Boot, is alive
	MemberLeft                          // Member left or is taken for dead; the end of a killed process may be told after its next start joined
	ClusterFounded                      // this member has entered a cluster, new or not; a new one grants nothing for one TTL; see Detail
	Granting                            // the founding wait is over: locks are granted
	LeaderChanged                       // Member leads, and serves
	VoterAdded                          // Member became a voter
	VoterRemoved                        // Member is no longer a voter
	QuorumLost                          // this member reaches no leader
	QuorumRegained                      // this member reaches a leader again
	Conflict                            // two members of one name, or two clusters, met; told again while it lasts; see Detail
	NodeFailed                          // this member votes no more because of its disk or table, or can take no part at all; see Detail
	Founding                            // this member is in no cluster yet; Detail has the members seen and missing; told when it changes
)

var eventNames = [...]string{
	MemberJoined: "member joined", MemberLeft: "member left", ClusterFounded: "cluster founded",
	Granting: "granting", LeaderChanged: "leader changed", VoterAdded: "voter added",
	VoterRemoved: "voter removed", QuorumLost: "quorum lost", QuorumRegained: "quorum regained",
	Conflict: "conflict", NodeFailed: "node failed", Founding: "founding",
}

func (k EventKind) String() string {
	if int(k) < len(eventNames) && eventNames[k] != "" {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is a change of the cluster, for operators and programs, as this member
// saw the change: members may see events in different orders, or not at all.
type Event struct {
	Kind   EventKind
	Member Member // the member concerned; zero if the event concerns none in particular
	Term   uint64 // LeaderChanged
	Detail string
	Next   string // what an operator does, in words; "" if nothing: every trouble has an action
}

func (e Event) String() string {
	s := e.Kind.String()
	if e.Member.Name != "" {
		s += ": " + e.Member.Name
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}
