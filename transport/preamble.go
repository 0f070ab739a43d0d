package transport

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"
)

// maxName is the longest member name in a preamble, in bytes.
const maxName = 128

// The preamble, which the dialling side sends once the stream (and its TLS
// session) stands. Numbers are big-endian.
//
//	 0  magic        "wmt1"
//	 4  version      1
//	 5  kind
//	 6  length of the source's name, 1-128
//	 7  length of the destination's name, 0-128
//	 8  cluster      16 bytes of SHA-256 of the cluster's name
//	24  cluster ID   16 bytes, zero while unknown
//	40  source's boot
//	48  destination's boot, 0 for any; a raft generation in KindRaft
//	56  source's name, destination's name
//
// And the answer:
//
//	 0  magic        "wmt1"
//	 4  version      1
//	 5  status
//	 6  length of the answerer's name, 1-128
//	 7  zero
//	 8  cluster      16 bytes of SHA-256 of the cluster's name
//	24  cluster ID   16 bytes, zero while unknown
//	40  answerer's boot
//	48  answerer's name
//
// Later versions may change all but the first five bytes of both: an answer in
// another version is itself the message, whatever follows.
const (
	magic          = "wmt1"
	version        = 1
	helloHeader    = 56
	answerHeader   = 48
	maxHello       = helloHeader + 2*maxName
	maxAnswer      = answerHeader + maxName
	versionedBytes = 5 // magic and version
)

// A Kind says what a connection is for. Each has its own handler.
type Kind uint8

const (
	// KindRaft carries raft's own stream between voters.
	KindRaft Kind = 1
	// KindGossip carries gossip's streams: joins and push-pull.
	KindGossip Kind = 2
	// KindMember carries a member's requests to the leader, and its answers.
	KindMember Kind = 3
	// KindControl carries founding, invitations and operators' requests.
	KindControl Kind = 4
	// KindPackets is kept for gossip packets over streams, where UDP is
	// blocked. Nothing uses it yet.
	KindPackets Kind = 5
)

// String returns the kind's name as it stands in logs and errors.
func (k Kind) String() string {
	switch k {
	case KindRaft:
		return "raft"
	case KindGossip:
		return "gossip"
	case KindMember:
		return "member"
	case KindControl:
		return "control"
	case KindPackets:
		return "packets"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// A Peer is one incarnation of a member: a name, and a boot ID that is new at
// each start. Boot 0 means any, or unknown. In the destination of a KindRaft
// connection the number is the member's raft generation instead.
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

// A Hello is what the dialling side says of itself and of whom it looks for.
type Hello struct {
	Kind Kind
	// Cluster is the cluster's name. Only its hash travels: in a Hello that
	// came from elsewhere this is the own cluster's name, or "" for another's.
	Cluster string
	// ClusterID is the cluster's ID as the dialling side knows it; zero if it
	// does not.
	ClusterID [16]byte
	From, To  Peer
}

// A Status is the accepting side's verdict on a Hello.
type Status uint8

const (
	// StatusOK admits the connection.
	StatusOK Status = iota
	// StatusForeignCluster: the two sides belong to different clusters.
	StatusForeignCluster
	// StatusWrongDestination: another member, or another incarnation of the
	// member that was looked for, has this address now.
	StatusWrongDestination
	// StatusRefused: this member takes no connection of that kind, or not yet.
	StatusRefused
	// StatusTooManyConnections: a cap on connections is reached.
	StatusTooManyConnections
	// StatusBadVersion: the accepting side speaks another version.
	StatusBadVersion
	// StatusBadPreamble: the version is right and the rest makes no sense.
	StatusBadPreamble
)

// String returns the status in words.
func (s Status) String() string {
	switch s {
	case StatusOK:
		return "ok"
	case StatusForeignCluster:
		return "foreign cluster"
	case StatusWrongDestination:
		return "wrong destination"
	case StatusRefused:
		return "kind not admitted"
	case StatusTooManyConnections:
		return "too many connections"
	case StatusBadVersion:
		return "other protocol version"
	case StatusBadPreamble:
		return "bad preamble"
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// A RefusedError says that the other side was reached, and that the connection
// was refused: by it, or by this side because of its answer. Nothing of the
// connection's own protocol was exchanged.
type RefusedError struct {
	Addr      string // as dialled
	Status    Status // why, never StatusOK
	Kind      Kind   // of the connection
	ClusterID [16]byte
	Peer      Peer // who answered; its name is "" when unknown
}

// Error names the address, the kind, the reason and who answered.
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

var (
	errMagic   = errors.New("transport: not a wardmote connection")
	errVersion = errors.New("transport: other protocol version")
	errLayout  = errors.New("transport: bad preamble")
)

// hashCluster is what travels of a cluster's name: enough to tell clusters
// apart, and of one size.
func hashCluster(name string) (h [16]byte) {
	sum := sha256.Sum256([]byte(name))
	copy(h[:], sum[:])
	return h
}

// An answer is the accepting side's reply to a Hello.
type answer struct {
	status    Status
	cluster   [16]byte // hash of the name
	clusterID [16]byte
	from      Peer
}

func appendHello(b []byte, h Hello) []byte {
	b = append(b, magic...)
	b = append(b, version, byte(h.Kind), byte(len(h.From.Name)), byte(len(h.To.Name)))
	hash := hashCluster(h.Cluster)
	b = append(b, hash[:]...)
	b = append(b, h.ClusterID[:]...)
	b = binary.BigEndian.AppendUint64(b, h.From.Boot)
	b = binary.BigEndian.AppendUint64(b, h.To.Boot)
	b = append(b, h.From.Name...)
	return append(b, h.To.Name...)
}

// readHello reads exactly one preamble from r, never more: what follows
// belongs to the connection's own protocol. It fails with errMagic, errVersion
// or errLayout, or with r's error. The hash of the cluster's name is returned
// beside the Hello, whose Cluster stays empty.
func readHello(r io.Reader) (h Hello, hash [16]byte, err error) {
	var buf [maxHello]byte
	head := buf[:helloHeader]
	// Judged before the rest is awaited: a stranger need not send 56 bytes.
	if err := readVersion(r, head); err != nil {
		return h, hash, err
	}
	if _, err := io.ReadFull(r, head[versionedBytes:]); err != nil {
		return h, hash, err
	}
	from, to := int(head[6]), int(head[7])
	if from == 0 || from > maxName || to > maxName {
		return h, hash, errLayout
	}
	names := buf[helloHeader : helloHeader+from+to]
	if _, err := io.ReadFull(r, names); err != nil {
		return h, hash, err
	}
	h.Kind = Kind(head[5])
	hash = [16]byte(head[8:24])
	h.ClusterID = [16]byte(head[24:40])
	h.From = Peer{string(names[:from]), binary.BigEndian.Uint64(head[40:48])}
	h.To = Peer{string(names[from:]), binary.BigEndian.Uint64(head[48:56])}
	if !printable(h.From.Name) || !printable(h.To.Name) {
		return Hello{}, hash, errLayout
	}
	return h, hash, nil
}

func appendAnswer(b []byte, a answer) []byte {
	b = append(b, magic...)
	b = append(b, version, byte(a.status), byte(len(a.from.Name)), 0)
	b = append(b, a.cluster[:]...)
	b = append(b, a.clusterID[:]...)
	b = binary.BigEndian.AppendUint64(b, a.from.Boot)
	return append(b, a.from.Name...)
}

// readAnswer reads exactly one answer from r. See readHello for its errors.
func readAnswer(r io.Reader) (a answer, err error) {
	var buf [maxAnswer]byte
	head := buf[:answerHeader]
	if err := readVersion(r, head); err != nil {
		return a, err
	}
	if _, err := io.ReadFull(r, head[versionedBytes:]); err != nil {
		return a, err
	}
	n := int(head[6])
	if n == 0 || n > maxName {
		return a, errLayout
	}
	name := buf[answerHeader : answerHeader+n]
	if _, err := io.ReadFull(r, name); err != nil {
		return a, err
	}
	a.status = Status(head[5])
	a.cluster = [16]byte(head[8:24])
	a.clusterID = [16]byte(head[24:40])
	a.from = Peer{string(name), binary.BigEndian.Uint64(head[40:48])}
	if !printable(a.from.Name) {
		return answer{}, errLayout
	}
	return a, nil
}

// readVersion reads the first five bytes of head, and fails at the first wrong
// one without waiting for the others.
func readVersion(r io.Reader, head []byte) error {
	for n := 0; n < versionedBytes; {
		k, err := r.Read(head[n:versionedBytes])
		n += k
		if m := min(n, len(magic)); string(head[:m]) != magic[:m] {
			return errMagic
		}
		if err != nil && n < versionedBytes {
			if err == io.EOF && n > 0 {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	if head[4] != version {
		return errVersion
	}
	return nil
}

// printable says whether a name may stand in a log line as it is.
func printable(name string) bool {
	if !utf8.ValidString(name) {
		return false
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
