package port

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/wardmote/wardmote/internal/auth"
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
//	 7  length of the advertised address, 0-128
//	 8  cluster      16 bytes of SHA-256 of the cluster's name
//	24  cluster ID   16 bytes, zero while unknown
//	40  answerer's boot
//	48  answerer's name, the address at which the answerer wants to be reached
//
// Later versions may change all but the first five bytes of both: the version
// of an answer is itself a message, and the dialling side needs no other byte.
const (
	magic          = "wmt1"
	version        = 1
	helloHeader    = 56
	answerHeader   = 48
	maxHello       = helloHeader + 2*maxName
	maxAnswer      = answerHeader + 2*maxName
	versionedBytes = 5 // magic and version

	tlsAlert, tlsHandshake = 0x15, 0x16 // the first byte of a record
)

var (
	errMagic   = errors.New("transport: not a wardmote connection")
	errTLS     = &auth.RefusedError{Reason: "speaks TLS: only one side has Security.Secrets or Security.TLS"}
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
	addr      string // advertised by the answerer
}

// message is the content that preamble and answer share. header tells them
// apart: helloHeader or answerHeader. Only a preamble has a destination: in an
// answer, to.Name is the advertised address.
type message struct {
	code      byte     // Kind or Status
	cluster   [16]byte // hash of the name
	clusterID [16]byte
	from, to  Peer
}

func appendHello(b []byte, h Hello) []byte {
	return message{byte(h.Kind), hashCluster(h.Cluster), h.ClusterID, h.From, h.To}.append(b, helloHeader)
}

func appendAnswer(b []byte, a answer) []byte {
	return message{byte(a.status), a.cluster, a.clusterID, a.from, Peer{Name: a.addr}}.append(b, answerHeader)
}

func (m message) append(b []byte, header int) []byte {
	b = append(b, magic...)
	b = append(b, version, m.code, byte(len(m.from.Name)), byte(len(m.to.Name)))
	b = append(b, m.cluster[:]...)
	b = append(b, m.clusterID[:]...)
	b = binary.BigEndian.AppendUint64(b, m.from.Boot)
	if header == helloHeader {
		b = binary.BigEndian.AppendUint64(b, m.to.Boot)
	}
	b = append(b, m.from.Name...)
	return append(b, m.to.Name...)
}

// readHello reads exactly one preamble from r, never more: the following bytes
// belong to the connection's own protocol. It fails with errMagic, errVersion
// or errLayout, or with r's error. It returns the hash of the cluster's name
// beside the Hello, and leaves Hello.Cluster empty.
func readHello(r io.Reader) (h Hello, hash [16]byte, err error) {
	m, err := readMessage(r, helloHeader)
	return Hello{Kind: Kind(m.code), ClusterID: m.clusterID, From: m.from, To: m.to}, m.cluster, err
}

// readAnswer reads exactly one answer from r, with the errors of readHello.
func readAnswer(r io.Reader) (answer, error) {
	m, err := readMessage(r, answerHeader)
	return answer{Status(m.code), m.cluster, m.clusterID, m.from, m.to.Name}, err
}

func readMessage(r io.Reader, header int) (m message, err error) {
	var buf [maxHello]byte
	head := buf[:header]
	// The version is judged first: a stranger need not send the whole header.
	if err := readVersion(r, head); err != nil {
		return m, err
	}
	if _, err := io.ReadFull(r, head[versionedBytes:]); err != nil {
		return m, err
	}
	from := Peer{Boot: binary.BigEndian.Uint64(head[40:])}
	fromLen, toLen := int(head[6]), int(head[7])
	var to Peer
	if header == helloHeader {
		to.Boot = binary.BigEndian.Uint64(head[48:])
	}
	if fromLen == 0 || fromLen > maxName || toLen > maxName {
		return m, errLayout
	}
	names := buf[header : header+fromLen+toLen]
	if _, err := io.ReadFull(r, names); err != nil {
		return m, err
	}
	from.Name, to.Name = string(names[:fromLen]), string(names[fromLen:])
	if !printable(from.Name) || !printable(to.Name) {
		return m, errLayout
	}
	return message{head[5], [16]byte(head[8:24]), [16]byte(head[24:40]), from, to}, nil
}

// readVersion reads the first five bytes of head, and fails at the first wrong
// byte without waiting for the rest.
func readVersion(r io.Reader, head []byte) error {
	for n := 0; n < versionedBytes; {
		k, err := r.Read(head[n:versionedBytes])
		n += k
		if m := min(n, len(magic)); string(head[:m]) != magic[:m] {
			if head[0] == tlsHandshake || head[0] == tlsAlert {
				return errTLS
			}
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
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	return utf8.ValidString(name) && !strings.ContainsFunc(name, unprintable)
}
