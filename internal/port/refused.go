package port

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
)

// A Status is the accepting side's verdict on a Hello.
type Status uint8

const (
	// StatusOK admits the connection.
	StatusOK Status = iota
	// StatusForeignCluster: the two sides belong to different clusters.
	StatusForeignCluster
	// StatusWrongDestination: the address now belongs to another member, or to
	// another incarnation of the intended member.
	StatusWrongDestination
	// StatusRefused: this member takes no connection of this kind, or not yet.
	StatusRefused
	// StatusTooManyConnections: a cap on connections is reached.
	StatusTooManyConnections
	// StatusBadVersion: the accepting side speaks another version.
	StatusBadVersion
	// StatusBadPreamble: the version is right and the rest makes no sense.
	StatusBadPreamble
	// StatusImpostor: the preamble names another process than the certificate.
	StatusImpostor
	// StatusNoVoter: the certificate does not allow raft.
	StatusNoVoter
)

var statusWords = map[Status]string{
	StatusOK:                 "ok",
	StatusForeignCluster:     "foreign cluster",
	StatusWrongDestination:   "wrong destination",
	StatusRefused:            "kind not admitted",
	StatusTooManyConnections: "too many connections",
	StatusBadVersion:         "other protocol version",
	StatusBadPreamble:        "bad preamble",
	StatusImpostor:           "the certificate is another member's",
	StatusNoVoter:            "the certificate's role is not voter",
}

// String returns the status in words.
func (s Status) String() string { return cmp.Or(statusWords[s], fmt.Sprintf("status %d", uint8(s))) }

// A RefusedError says: the other side was reached, and the connection was
// refused, by the other side or by this side because of the answer. No byte of
// the connection's own protocol was exchanged.
type RefusedError struct {
	Addr      string // as dialled
	Status    Status // the reason, never StatusOK
	Kind      Kind   // of the connection
	ClusterID [16]byte
	Peer      Peer // the answering member; its name is "" when unknown

	// Claimed means that the answering member has proved neither its name nor the voter role:
	// Peer is what it says of itself.
	Claimed bool

	// Advertised is the address at which the answering member wants to be
	// reached; "" if unknown.
	Advertised string
}

// Error names the address, the kind, the reason and the answering member.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("transport: %s refused %s connection: %s", e.Addr, e.Kind, e.Status)
	if e.Peer.Name != "" {
		text += fmt.Sprintf(" (answered by %s)", e.Peer)
	}
	if e.Status == StatusForeignCluster && e.ClusterID != ([16]byte{}) {
		text += " of cluster " + hex.EncodeToString(e.ClusterID[:])
	}
	return text
}

// Refusal says whether the other side is of another cluster, and in a few words why
// the connection was refused. For another cluster the words are its ID, if known.
func (e *RefusedError) Refusal() (foreign bool, why string) {
	switch {
	case e.Status != StatusForeignCluster:
		return false, e.Status.String()
	case e.ClusterID == [16]byte{}:
		return true, ""
	}
	return true, ", id " + hex.EncodeToString(e.ClusterID[:4])
}

func isRefused(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused)
}
