package port

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"unicode"
	"unicode/utf8"
)

// maxName is the longest member name in a preamble, in bytes.
const maxName = 128

// The dialling side sends the preamble once the stream (and its TLS session)
// stands. Numbers are big-endian.
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
// The accepting side sends the answer:
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
// Later versions may change all but the first five bytes of both: the version
// of an answer is itself a message, and the dialling side needs no other byte.
const (
	magic          = "wmt1"
	version        = 1
	helloHeader    = 56
	answerHeader   = 48
	maxHello       = helloHeader + 2*maxName
	maxAnswer      = answerHeader + maxName
	versionedBytes = 5 // magic and version
)

var (
	errMagic   = errors.New("transport: not a wardmote connection")
	errVersion = errors.New("transport: other protocol version")
	errLayout  = errors.New("transport: bad preamble")
)

// hashCluster returns the hash of a cluster's name. The hash travels in place of
// the name: it tells clusters apart, and has a fixed size.
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

// readHello reads exactly one preamble from r, never more: the following bytes
// belong to the connection's own protocol. It fails with errMagic, errVersion
// or errLayout, or with r's error. It returns the hash of the cluster's name
// beside the Hello, and leaves Hello.Cluster empty.
func readHello(r io.Reader) (h Hello, hash [16]byte, err error) {
	var buf [maxHello]byte
	head := buf[:helloHeader]
	// The version is judged first: a stranger need not send 56 bytes.
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

// readAnswer reads exactly one answer from r, with the errors of readHello.
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
// byte without waiting for the rest.
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

// printable reports whether a name may stand unquoted in a log line.
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
