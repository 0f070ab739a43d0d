package attack

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/wardmote/wardmote/internal/judge"
)

// Kinds of raft's messages: see package judge for the layout.
const (
	raftAppend   = 1
	raftVote     = 2
	raftPreVote  = 3
	raftSnapshot = 4
	raftTimeout  = 5
	raftAnswers  = 64 // added to the kind; alone: a refusal
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// as returns the process and the raft ID of member i; of the intruder's own, if i is itself.
func (k knowledge) as(i int) (peer, string) {
	if i == itself {
		return intruder, intruder.Name + "#1"
	}
	return k.process(i), k.raftID(i)
}

const itself = -1

// raft opens raft's stream to member i in the name of member as.
func (a *attacker) raft(i, as int) (*talk, error) { return a.raftFrom(i, 0, as) }

func (a *attacker) raftFrom(i, source, as int) (*talk, error) {
	from, _ := a.know.as(as)
	return a.dialFrom(i, source, hello{kind: kindRaft, from: from, id: a.know.cluster,
		to: peer{name(i), generation(a.know.raftID(i))}})
}

// raftMessage encodes a message of raft of the server with the ID.
func raftMessage(kind byte, id string, numbers []uint64, rest ...byte) []byte {
	b := append(make([]byte, 4), 1, kind)
	b = append(binary.AppendUvarint(b, uint64(len(id))), id...)
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	b = append(b, rest...)
	binary.BigEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// entry encodes an entry of raft's log.
func entry(term uint64, kind byte, data []byte) []byte {
	b := binary.AppendUvarint([]byte{kind}, term)
	b = binary.BigEndian.AppendUint64(b, 1<<63) // no time
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

// raftCall sends one of raft's messages to member i in the name of member as, and
// reports whether the answer grants it.
func (a *attacker) raftCall(i, as int, kind byte, numbers []uint64, rest ...byte) (granted bool) {
	t, err := a.raft(i, as)
	if err != nil {
		return false
	}
	_, id := a.know.as(as)
	return t.raftSend(raftMessage(kind, id, numbers, rest...))
}

// raftSend sends a message of raft and reports whether the answer grants it.
func (t *talk) raftSend(message []byte) (granted bool) {
	_ = t.SetDeadline(time.Now().Add(callWithin))
	if _, err := t.Write(message); err != nil {
		return false
	}
	var size [4]byte
	if _, err := io.ReadFull(t, size[:]); err != nil {
		return false
	}
	answer := make([]byte, min(binary.BigEndian.Uint32(size[:]), 1<<20))
	if _, err := io.ReadFull(t, answer); err != nil || len(answer) < 6 || answer[5] == raftAnswers {
		return false
	}
	// Behind the kind comes the term, and the last log of entries; then the flag.
	kind, fields := answer[5]-raftAnswers, answer[6:]
	for range map[byte]int{raftAppend: 2, raftVote: 1, raftPreVote: 1, raftSnapshot: 1}[kind] {
		_, n := binary.Uvarint(fields)
		fields = fields[max(n, 0):]
	}
	return kind == raftTimeout || len(fields) > 0 && fields[0] == 1
}

// Types of memberlist's messages.
const (
	gossipSuspect  = 3
	gossipAlive    = 4
	gossipDead     = 5
	gossipPushPull = 6
	gossipLabel    = 244
)

type fields map[string]any

// gossipMessage encodes a message of memberlist.
func gossipMessage(kind byte, f fields) []byte {
	b, err := msgpack.Marshal(map[string]any(f))
	if err != nil {
		panic(err)
	}
	return append([]byte{kind}, b...)
}

func gossipName(p peer) string { return p.Name + "." + strconv.FormatUint(p.Boot, 36) }

// gossipNode encodes the news that a process lives at addr.
func gossipNode(p peer, addr string, incarnation uint32, meta []byte) []byte {
	host, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	return gossipMessage(gossipAlive, fields{
		"Incarnation": incarnation, "Node": gossipName(p), "Addr": []byte(net.ParseIP(host).To4()), "Port": n,
		"Meta": meta, "Vsn": []byte{1, 5, 2, 0, 0, 0},
	})
}

// labelled is a message with the cluster's label.
func labelled(message []byte) []byte {
	return append(append([]byte{gossipLabel, byte(len(clusterName))}, clusterName...), message...)
}

// hasSecret reports whether the attacker knows the secret. In mode both a guest's own
// program needs it.
func (a *attacker) hasSecret() bool {
	return a.w.mode.secret() && (a.who == member || a.who == guest)
}

// sealed is a message with the label, sealed for a purpose if the attacker has the
// secret.
func (a *attacker) sealed(message []byte, purpose string) []byte {
	if a.hasSecret() {
		return seal(derive(a.w.papers.secret, "gossip", clusterName, 32), labelled(message), purpose)
	}
	return labelled(message)
}

// Purposes of sealed bytes.
const (
	asPacket  = "wardmote gossip packet/1 "
	asMessage = "wardmote gossip message/1 "
)

// newGCM returns the cipher of a key.
func newGCM(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return gcm
}

// seal seals bytes of gossip.
func seal(key, message []byte, purpose string) []byte {
	gcm := newGCM(key)
	out := make([]byte, 1+gcm.NonceSize(), 1+gcm.NonceSize()+len(message)+gcm.Overhead())
	out[0] = 1
	rand.Read(out[1:])
	return gcm.Seal(out, out[1:], message, []byte(purpose+clusterName))
}

// framed is a packet in a stream of packets, or a message in a stream of gossip.
func framed(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// packet sends a packet to member i.
func (a *attacker) packet(i int, b []byte) {
	c, err := net.Dial("udp", a.w.told[i])
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Write(b)
}

// The attacks speak raft as members do: a message that does not parse would attack nothing.
func TestRaftIsSpokenAsMembersSpeakIt(t *testing.T) {
	const id = "intruder#1"
	h := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(id)}
	config := configuration(id)
	for _, tt := range []struct {
		message []byte
		want    any
	}{
		{raftMessage(raftAppend, id, []uint64{9, 7, 8, 6, 1}, entry(8, entryConfiguration, config)...), &raft.AppendEntriesRequest{RPCHeader: h, Term: 9, PrevLogEntry: 7, PrevLogTerm: 8, LeaderCommitIndex: 6,
			Entries: []*raft.Log{{Index: 8, Term: 8, Type: raft.LogConfiguration, Data: config}}}},
		{raftMessage(raftVote, id, []uint64{9, 7, 8}, 1), &raft.RequestVoteRequest{RPCHeader: h, Term: 9, LastLogIndex: 7, LastLogTerm: 8, LeadershipTransfer: true}},
		{raftMessage(raftSnapshot, id, append([]uint64{9, 7, 8, 6, 5}, uint64(len(config))), config...), &raft.InstallSnapshotRequest{RPCHeader: h, SnapshotVersion: raft.SnapshotVersionMax, Leader: []byte(id),
			Term: 9, LastLogIndex: 7, LastLogTerm: 8, ConfigurationIndex: 6, Configuration: config, Size: 5}},
		{raftMessage(raftTimeout, id, nil), &raft.TimeoutNowRequest{RPCHeader: h}},
	} {
		got, err := judge.DecodeRequest(tt.message[4:])
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, tt.want)
		}
	}
	if _, err := judge.Configuration(config); err != nil {
		t.Error(err)
	}
}
