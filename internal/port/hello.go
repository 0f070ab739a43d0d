package port

import (
	"cmp"
	"fmt"
)

// A Kind is the purpose of a connection. Each kind has its own handler.
type Kind uint8

const (
	// KindRaft carries raft's own stream between voters.
	KindRaft Kind = 1
	// KindGossip carries gossip's streams: joins and push-pull.
	KindGossip Kind = 2
	// KindMember carries a member's requests to the leader, and the answers.
	KindMember Kind = 3
	// KindControl carries founding, rounds, and questions about the configuration.
	KindControl Kind = 4
	// KindPackets carries gossip's packets where nothing else encrypts them: under
	// the user's own certificates without a secret.
	KindPackets Kind = 5
	// KindRelay carries another connection, unread, to the member named as the
	// destination: see Port.DialVia and Port.Relay.
	KindRelay Kind = 6
)

var kindNames = map[Kind]string{
	KindRaft: "raft", KindGossip: "gossip", KindMember: "member", KindControl: "control", KindPackets: "packets",
	KindRelay: "relay",
}

// String returns the kind's name for logs and errors.
func (k Kind) String() string { return cmp.Or(kindNames[k], fmt.Sprintf("kind %d", uint8(k))) }

// A Peer is one incarnation of a member: a name, and a boot ID that is new at
// each start. Boot 0 means any, or unknown. In the destination of a KindRaft
// connection, Boot is the member's raft generation instead. The destination of a
// KindRelay connection is not the accepting side, but the member beyond.
type Peer struct {
	Name string
	Boot uint64
}

// String returns name@boot in hexadecimal, or the name alone when Boot is 0.
func (p Peer) String() string {
	if p.Boot == 0 {
		return p.Name
	}
	return fmt.Sprintf("%s@%x", p.Name, p.Boot)
}

// A Hello names the dialling side and its intended destination.
type Hello struct {
	Kind Kind
	// Cluster is the cluster's name. Only its hash travels: in a received Hello,
	// Cluster is this member's own cluster name if the hashes agree, else "".
	Cluster string
	// ClusterID is the cluster's ID as known to the dialling side, zero if
	// unknown.
	ClusterID [16]byte
	From, To  Peer
}
