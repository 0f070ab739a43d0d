package attack

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// The attackers.
const (
	stranger = "stranger"
	impostor = "impostor"
	guest    = "guest"
	member   = "member"
)

// Kinds of connections in the preamble.
const (
	kindRaft    = 1
	kindGossip  = 2
	kindMember  = 3
	kindControl = 4
	kindPackets = 5
	kindRelay   = 6
)

// A peer is a process in a preamble.
type peer struct {
	Name string
	Boot uint64
}

// intruder is the process that attackers are when they say their own name.
var intruder = peer{"intruder", 77}

// callWithin bounds a dial and a call of an attacker.
const callWithin = 2 * time.Second

// An attacker attacks a town.
type attacker struct {
	t       *testing.T
	w       *town
	who     string
	openers []opener
	know    knowledge

	mu       sync.Mutex
	admitted int // streams that a member has admitted
	open     []io.Closer
	streams  map[int]*talk // of packets, by member
}

// knowledge is everything that an attacker may have found out before. Every
// attacker has it, whatever its papers: a secret is no secret because nobody knows
// the rest.
type knowledge struct {
	members []wire.WhoAnswer
	cluster [16]byte
	term    uint64
	last    uint64 // index of the leader's log
	victim  machine.Grant
	key     string // that the victim holds
}

func (w *town) attacker(who string) *attacker {
	return &attacker{t: w.t, w: w, who: who, openers: w.papers.openers(w.t, who)}
}

func (a *attacker) close() {
	a.mu.Lock()
	open := a.open
	a.open = nil
	a.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
}

// closer makes a function a Closer.
type closer func()

func (f closer) Close() error { f(); return nil }

// atEnd has f called when the attack is over.
func (a *attacker) atEnd(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = append(a.open, closer(f))
}

// raw opens a connection to member i, from an address of the attacker's own. Each
// source is an address.
func (a *attacker) raw(i, source int) (net.Conn, error) {
	d := net.Dialer{Timeout: callWithin, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 254, 1, byte(1+source))}}
	c, err := d.Dial("tcp", a.w.told[i])
	if err == nil {
		a.mu.Lock()
		a.open = append(a.open, c)
		a.mu.Unlock()
	}
	return c, err
}

// hello is a preamble: see package port for the layout.
type hello struct {
	kind     byte
	from, to peer
	id       [16]byte
}

func (h hello) bytes() []byte {
	b := append([]byte("wmt1"), 1, h.kind, byte(len(h.from.Name)), byte(len(h.to.Name)))
	sum := sha256.Sum256([]byte(clusterName))
	b = append(append(b, sum[:16]...), h.id[:]...)
	b = binary.BigEndian.AppendUint64(b, h.from.Boot)
	b = binary.BigEndian.AppendUint64(b, h.to.Boot)
	return append(append(b, h.from.Name...), h.to.Name...)
}

// A talk is an admitted stream.
type talk struct {
	net.Conn
	ids uint64
}

// statusError is a refusal in the answer to a preamble.
type statusError byte

func (e statusError) Error() string { return fmt.Sprintf("refused with status %d", byte(e)) }

// statusOK is the status of an admitted connection.
const statusOK = 0

// dial opens a stream to member i by the first opener that the member admits.
func (a *attacker) dial(i int, h hello) (*talk, error) { return a.dialFrom(i, 0, h) }

func (a *attacker) dialFrom(i, source int, h hello) (*talk, error) {
	if h.from.Name == "" {
		h.from = intruder
	}
	err := errors.New("no opener")
	for _, open := range a.openers {
		var raw net.Conn
		if raw, err = a.raw(i, source); err != nil {
			return nil, err
		}
		var t *talk
		if t, err = a.shake(raw, open, h); err == nil {
			a.mu.Lock()
			a.admitted++
			a.mu.Unlock()
			return t, nil
		}
		_ = raw.Close()
	}
	return nil, err
}

// shake begins a stream with its preamble, and reads the answer.
func (a *attacker) shake(raw net.Conn, open opener, h hello) (*talk, error) {
	_ = raw.SetDeadline(time.Now().Add(callWithin))
	c, err := open(raw, h.from)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(h.bytes()); err != nil {
		return nil, err
	}
	var head [48]byte
	if _, err := io.ReadFull(c, head[:4]); err != nil {
		return nil, err
	}
	if string(head[:4]) != "wmt1" {
		return nil, errors.New("no answer of a member")
	}
	if _, err := io.ReadFull(c, head[4:]); err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, c, int64(head[6])+int64(head[7])); err != nil {
		return nil, err
	}
	if head[5] != statusOK {
		return nil, statusError(head[5])
	}
	_ = raw.SetDeadline(time.Time{})
	return &talk{Conn: c}, nil
}

// control opens a control stream to member i in the name of from.
func (a *attacker) control(i int, from peer) (*talk, error) {
	return a.dial(i, hello{kind: kindControl, from: from})
}

// send sends a request without waiting for the answer.
func (t *talk) send(kind wire.Type, body []byte) error {
	t.ids++
	b, err := wire.AppendFrame(nil, wire.Frame{Type: kind, ID: t.ids, Body: body})
	if err == nil {
		_ = t.SetWriteDeadline(time.Now().Add(callWithin))
		_, err = t.Write(b)
	}
	return err
}

// call sends a request and waits for its answer.
func (t *talk) call(kind wire.Type, body []byte) (wire.Frame, error) {
	if err := t.send(kind, body); err != nil {
		return wire.Frame{}, err
	}
	id := t.ids
	_ = t.SetReadDeadline(time.Now().Add(callWithin))
	for {
		f, err := wire.ReadFrame(t)
		if err != nil || f.ID == id && f.Code != wire.CodeRequest {
			return f, err
		}
	}
}

// ask calls member i on a control stream in the name of from.
func (a *attacker) ask(i int, from peer, kind wire.Type, body any) (wire.Frame, error) {
	t, err := a.control(i, from)
	if err != nil {
		return wire.Frame{}, err
	}
	var b []byte
	if body != nil {
		b = wire.Marshal(body)
	}
	return t.call(kind, b)
}

// session opens a member's stream to the leader, in the name of from, and attaches.
func (a *attacker) session(from peer, ids ...machine.SessionID) (*talk, error) {
	t, err := a.dial(a.w.leader(), hello{kind: kindMember, from: from})
	if err != nil {
		return nil, err
	}
	f, err := t.call(wire.Attach, attachBody(ids, t.proof()))
	if err == nil && f.Code != wire.CodeOK {
		err = fmt.Errorf("attach: code %d", f.Code)
	}
	return t, err
}

// A sessionKey shows that a stream may act for a session. The session's ID is a hash of
// the key.
type sessionKey [32]byte

// newSession draws the key of a session of the attacker's own.
func newSession() (key sessionKey, id machine.SessionID) {
	key = sessionKey(ownKeys.NewKey())
	sum := sha256.Sum256(append([]byte("wardmote session"), key[:]...))
	return key, machine.SessionID(sum[:len(id)])
}

// ownKeys seals the keys of the attacker's own sessions.
var ownKeys = wire.NewKeySigner()

// proof makes ownKeys count on the stream, as every member's keys must be made to.
func (t *talk) proof() *wire.KeyProof { return ownKeys.Prove(t.binding()) }

// binding returns the bytes that bind a proof to the stream; nil without TLS.
func (t *talk) binding() []byte {
	c, ok := t.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	cs := c.ConnectionState()
	binding, err := cs.ExportKeyingMaterial("EXPORTER-wardmote-stream", nil, 32)
	if err != nil {
		return nil
	}
	return binding
}

// showDir proves on the stream to have the directory of a key.
func (t *talk) showDir(proof *wire.DirProof) {
	body, err := msgpack.Marshal(map[string]any{"Dir": proof})
	if err != nil {
		panic(err)
	}
	_, _ = t.call(wire.Attach, body)
}

// attachBody attaches to sessions by their IDs alone: the attacker has learnt IDs, and
// guesses that a key is like its ID. The new keys are its own.
func attachBody(ids []machine.SessionID, proof *wire.KeyProof, own ...sessionKey) []byte {
	var guesses []sessionKey
	for _, id := range ids {
		var guess sessionKey
		copy(guess[:], id[:])
		guesses = append(guesses, guess)
	}
	b, err := msgpack.Marshal(map[string]any{"Term": 0, "Sessions": ids, "Keys": guesses, "New": own, "Proof": proof})
	if err != nil {
		panic(err)
	}
	return b
}

// propose sends a command. The code is 0 unless the outcome came.
func (t *talk) propose(c machine.Command) (machine.Outcome, error) {
	f, err := t.call(wire.Propose, machine.EncodeCommand(c))
	if err != nil {
		return machine.Outcome{}, err
	}
	if f.Code != wire.CodeOK {
		return machine.Outcome{}, fmt.Errorf("propose: code %d", f.Code)
	}
	return machine.DecodeOutcome(f.Body)
}

// status reads the state of a key.
func (t *talk) status(key string) (replica.Answer, error) {
	var answer replica.Answer
	f, err := t.call(wire.Read, wire.Marshal(&replica.Query{Key: key, Waiters: 16}))
	if err == nil && f.Code != wire.CodeOK {
		err = fmt.Errorf("read: code %d", f.Code)
	}
	if err == nil {
		err = wire.Unmarshal(f.Body, &answer)
	}
	return answer, err
}

// learn finds out everything about the town, with good papers.
func (w *town) learn() (k knowledge, err error) {
	a := w.attacker(member)
	defer a.close()
	for i := range w.addrs {
		f, err := a.ask(i, peer{}, wire.Who, nil)
		var who wire.WhoAnswer
		if err == nil {
			err = wire.Unmarshal(f.Body, &who)
		}
		if err != nil {
			return k, err
		}
		k.members = append(k.members, who)
		k.term = max(k.term, who.Hint.Term)
		if who.Founding != nil {
			k.cluster = who.Founding.Cluster
		}
	}
	if f, err := a.ask(w.leader(), peer{}, wire.Progress, nil); err == nil && f.Code == wire.CodeOK {
		var p wire.ProgressAnswer
		if wire.Unmarshal(f.Body, &p) == nil {
			k.last, k.term = p.Last, max(k.term, p.Term)
		}
	}
	for key, h := range w.held {
		if h.i == w.victim() {
			k.key = key
		}
	}
	if s, err := a.session(peer{}); err == nil {
		if answer, err := s.status(k.key); err == nil && len(answer.Status.Holders) == 1 {
			k.victim = answer.Status.Holders[0]
		}
	}
	return k, nil
}

// process returns the preamble's name of member i.
func (k knowledge) process(i int) peer { return peer{k.members[i].Name, k.members[i].Boot} }

// raftID returns the raft ID of member i.
func (k knowledge) raftID(i int) string {
	for _, m := range k.members {
		if m.Founding == nil {
			continue
		}
		for _, id := range m.Founding.Voters {
			if n := len(name(i)); len(id) > n && id[:n] == name(i) && id[n] == '#' {
				return id
			}
		}
	}
	return name(i) + "#1"
}

// generation returns the number in a raft ID.
func generation(id string) uint64 {
	_, digits, _ := bytes.Cut([]byte(id), []byte("#"))
	n, _ := strconv.ParseUint(string(digits), 36, 64)
	return n
}
