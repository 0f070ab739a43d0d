package attack

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// Types of raft's messages.
const (
	raftAppend   = 0
	raftVote     = 1
	raftSnapshot = 2
	raftTimeout  = 3
	raftPreVote  = 4
)

type fields map[string]any

// raft opens raft's stream to member i in the name of member as.
func (a *attacker) raft(i, as int) (*talk, error) {
	return a.dial(i, hello{kind: kindRaft, from: a.know.process(as), id: a.know.cluster,
		to: peer{name(i), generation(a.know.raftID(i))}})
}

// raftMessage encodes a message of raft as the server with ID from.
func raftMessage(kind byte, from string, f fields) []byte {
	all := fields{"ProtocolVersion": 3, "ID": []byte(from), "Addr": []byte(from)}
	for k, v := range f {
		all[k] = v
	}
	b, err := msgpack.Marshal(map[string]any(all))
	if err != nil {
		panic(err)
	}
	return append([]byte{kind}, b...)
}

// raftCall sends one of raft's messages to member i in the name of member as, and
// reads the answer.
func (a *attacker) raftCall(i, as int, kind byte, f fields, more ...byte) (fields, error) {
	t, err := a.raft(i, as)
	if err != nil {
		return nil, err
	}
	_ = t.SetDeadline(time.Now().Add(callWithin))
	if _, err := t.Write(append(raftMessage(kind, a.know.raftID(as), f), more...)); err != nil {
		return nil, err
	}
	d := msgpack.NewDecoder(t)
	var text string
	if err := d.Decode(&text); err != nil {
		return nil, err
	}
	if text != "" {
		return nil, errors.New(text)
	}
	answer := fields{}
	return answer, d.Decode(&answer)
}

// Types of memberlist's messages.
const (
	gossipSuspect  = 3
	gossipAlive    = 4
	gossipDead     = 5
	gossipPushPull = 6
	gossipLabel    = 244
)

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
