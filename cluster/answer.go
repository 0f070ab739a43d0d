package cluster

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// What the table tells to readers. One answer is one frame, whatever is asked
// for: lists are cut where it is full, after metas have been left out. Only long
// names can fill it, or many metas.
const (
	answerRoom = wire.MaxFrame - 8<<10 // bytes that an answer's parts may take
	metaRoom   = 256 << 10             // bytes of these that metas may take

	// What a part takes besides its texts, by its field names mostly.
	statusBytes = 128
	grantBytes  = 224
	waiterBytes = 160
	ownerBytes  = 48
)

// room is what is left of an answer's frame.
type room struct{ bytes, metas int }

func newRoom() room { return room{answerRoom, metaRoom} }

func grantSize(g *machine.Grant) int   { return grantBytes + len(g.Client) + len(g.Node) }
func waiterSize(w *machine.Waiter) int { return waiterBytes + len(w.Client) + len(w.Node) }

// statusSize is what st takes whole, save for its metas, and those.
func statusSize(st *machine.Status) (size, metas int) {
	size = statusBytes + len(st.Key) + len(st.Value)
	for i := range st.Holders {
		size += grantSize(&st.Holders[i])
		metas += len(st.Holders[i].Meta) + len(st.Holders[i].SessionMeta)
	}
	for i := range st.Waiters {
		size += waiterSize(&st.Waiters[i])
		metas += len(st.Waiters[i].Meta)
	}
	return size, metas
}

// holds reports whether st fits whole, save for its metas.
func (r *room) holds(st *machine.Status) bool {
	size, _ := statusSize(st)
	return size <= r.bytes
}

// heldRoom bounds the bytes of answers that wait for their round, more or less:
// a round may take a second, in which a member can ask for much with little.
const heldRoom = 64 << 20

// hold takes room for an answer until its round is over, and reports whether there
// was any.
func (l *leader) hold(statuses []machine.Status, owners int) (done func(), ok bool) {
	sum := int64(owners) * ownerBytes
	for i := range statuses {
		size, metas := statusSize(&statuses[i])
		sum += int64(size + metas)
	}
	if l.held.Add(sum) > heldRoom {
		l.held.Add(-sum)
		return nil, false
	}
	return func() { l.held.Add(-sum) }, true
}

// put takes room for st, and cuts of it what there is no room for.
func (r *room) put(st *machine.Status) {
	r.bytes -= statusBytes + len(st.Key) + len(st.Value)
	for i := range st.Holders {
		size := grantSize(&st.Holders[i])
		if size > r.bytes {
			st.Holders = st.Holders[:i]
			break
		}
		r.bytes -= size
	}
	for i := range st.Waiters {
		size := waiterSize(&st.Waiters[i])
		if size > r.bytes {
			st.Waiters = st.Waiters[:i]
			break
		}
		r.bytes -= size
	}
	for i := range st.Holders {
		r.putMeta(&st.Holders[i].Meta)
		r.putMeta(&st.Holders[i].SessionMeta)
	}
	for i := range st.Waiters {
		r.putMeta(&st.Waiters[i].Meta)
	}
}

func (r *room) putMeta(meta *string) {
	if len(*meta) > min(r.metas, r.bytes) {
		*meta = ""
	}
	r.metas -= len(*meta)
	r.bytes -= len(*meta)
}

// answer reads what q asks for.
func (t *table) answer(q replica.Query) replica.Answer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	a := replica.Answer{Status: t.m.Status(q.Key, q.Waiters), Version: t.versionLocked(q)}
	if q.Value {
		a.Status.Value = t.m.Value(q.Key)
	}
	if q.Seq != 0 {
		a.Behind, a.Waits = t.m.Behind(q.Session, q.Seq)
	}
	r := newRoom()
	for _, key := range q.Also {
		session, token := t.m.Owner(key)
		a.Also = append(a.Also, replica.Owner{Session: session, Token: token})
		r.bytes -= ownerBytes
	}
	r.put(&a.Status)
	return a
}

func (t *table) version(q replica.Query) uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.versionLocked(q)
}

// versionLocked digests the versions of all keys of q, so that an answer of
// many keys has one version; it is never zero, which stands for none. A request's
// place in the queue of q.Key changes only with that key.
func (t *table) versionLocked(q replica.Query) uint64 {
	h := fnv.New64a()
	var b [8]byte
	add := func(key string) {
		binary.BigEndian.PutUint64(b[:], t.m.Version(key))
		h.Write(b[:])
	}
	add(q.Key)
	for _, key := range q.Also {
		add(key)
	}
	return h.Sum64() | 1
}

// scan reads what q asks for. With q.Since and nothing to tell, the answer has no
// keys; nothing of note has happened up to its version.
func (t *table) scan(q replica.Scan) replica.Scanned {
	t.mu.RLock()
	defer t.mu.RUnlock()
	now := t.m.Commands()
	if q.Since == 0 {
		keys := t.m.Keys(q.Prefix, q.From, q.Limit+1)
		told := t.tellLocked(keys[:min(len(keys), q.Limit)])
		return replica.Scanned{Keys: told, More: len(told) < len(keys), Version: now}
	}
	for limit := q.Limit; ; {
		keys, upTo, ok := t.m.Changes(q.Prefix, q.Since, limit)
		if !ok || len(keys) > 0 && upTo <= q.Since {
			// Forgotten, or one command has changed more keys than can be told
			// at once: there is no version between its changes to go on from.
			return replica.Scanned{Version: now, Lost: true}
		}
		told := t.tellLocked(keys)
		if len(told) == len(keys) {
			return replica.Scanned{Keys: told, More: upTo < now, Version: upTo}
		}
		limit = len(told)
	}
}

// tellLocked describes keys, up to the first that does not fit.
func (t *table) tellLocked(keys []string) []machine.Status {
	told := make([]machine.Status, 0, len(keys))
	r := newRoom()
	for _, key := range keys {
		st := t.m.Status(key, replica.MaxScannedEach)
		if !r.holds(&st) {
			break
		}
		r.put(&st)
		told = append(told, st)
	}
	return told
}

func checkQuery(q replica.Query) error {
	over := len(q.Key) > machine.MaxKey || len(q.Also) > replica.MaxAlso || q.Waiters < 0 || q.Waiters > replica.MaxListed
	size := 0
	for _, key := range q.Also {
		size += len(key)
		over = over || len(key) > machine.MaxKey || size > replica.MaxAlsoBytes
	}
	if over {
		return &ConfigError{"query", "over its limits"}
	}
	return nil
}

func checkScan(q replica.Scan) error {
	// From may be a key's successor, which is one byte longer.
	if len(q.Prefix) > machine.MaxKey || len(q.From) > machine.MaxKey+1 || q.Limit < 1 || q.Limit > replica.MaxScanned {
		return &ConfigError{"scan", "over its limits"}
	}
	return nil
}

func answerToWire(a replica.Answer) *wire.Answer {
	w := &wire.Answer{Status: a.Status, Behind: a.Behind, Waits: a.Waits, Version: a.Version}
	for _, o := range a.Also {
		w.Also = append(w.Also, wire.Owner(o))
	}
	return w
}

func answerFromWire(w wire.Answer) replica.Answer {
	a := replica.Answer{Status: w.Status, Behind: w.Behind, Waits: w.Waits, Version: w.Version}
	for _, o := range w.Also {
		a.Also = append(a.Also, replica.Owner(o))
	}
	return a
}
