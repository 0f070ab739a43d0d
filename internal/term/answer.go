package term

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// An answer to a reader is one frame, for any question. Sizes are the sizes of the
// encoding itself. If the frame is full, metas are left out first, then the lists
// are cut; only long names, or many metas, can fill a frame. An answer for a
// reader of this process is cut alike, so all members are told the same.
const (
	metaRoom = 256 << 10 // bytes for the metas of an answer

	// The head of a full list is longer than the head of an empty list.
	listHeads = 2 * 4

	// The encoding of a key with a single holder finds room in so many bytes.
	usualAnswer = 768
)

// answer reads the state asked for by q.
func (t *Table) answer(q replica.Query) replica.Answer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	a := replica.Answer{Status: t.m.Status(q.Key, q.Waiters), Version: t.versionLocked(q)}
	if q.Value {
		a.Status.Value = t.m.Value(q.Key)
	}
	if q.Seq != 0 {
		a.Behind, a.Waits = t.m.Behind(q.Session, q.Seq)
	}
	if len(q.Also) > 0 {
		a.Also = make([]replica.Owner, 0, len(q.Also))
	}
	for _, key := range q.Also {
		session, token := t.m.Owner(key)
		a.Also = append(a.Also, replica.Owner{Session: session, Token: token})
	}
	return a
}

func (t *Table) version(q replica.Query) uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.versionLocked(q)
}

// versionLocked digests the versions of all keys of q, so that an answer about
// many keys has a single version, never 0: zero stands for no version. The position
// of a request in the queue of q.Key changes only with the key.
func (t *Table) versionLocked(q replica.Query) uint64 {
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

// scan reads the keys asked for by q, at most limit. With q.Since and nothing to
// tell, the answer has no keys: no key has changed up to the answer's version.
func (t *Table) scan(q replica.Scan, limit int) replica.Scanned {
	t.mu.RLock()
	defer t.mu.RUnlock()
	now := t.m.Commands()
	if q.Since == 0 {
		keys := t.m.Keys(q.Prefix, q.From, limit+1)
		told := keys[:min(len(keys), limit)]
		return replica.Scanned{Keys: t.statusesLocked(told), More: len(told) < len(keys), Version: now}
	}
	keys, upTo, ok := t.m.Changes(q.Prefix, q.Since, limit)
	if !ok || len(keys) > 0 && upTo <= q.Since {
		// The changes are forgotten, or a single command has changed more keys
		// than fit in an answer: there is no version between the changes.
		return replica.Scanned{Version: now, Lost: true}
	}
	return replica.Scanned{Keys: t.statusesLocked(keys), More: upTo < now, Version: upTo}
}

func (t *Table) statusesLocked(keys []string) []machine.Status {
	statuses := make([]machine.Status, len(keys))
	for i, key := range keys {
		statuses[i] = t.m.Status(key, replica.MaxScannedEach)
	}
	return statuses
}

// A frameRoom is the room left in an answer's frame.
type frameRoom struct {
	bytes int
	metas int // of bytes, for metas
}

func newFrameRoom() frameRoom { return frameRoom{wire.MaxBody, metaRoom} }

// fitAnswer cuts a to one frame. fitAnswer returns the size of the encoded answer
// and, if keep, the encoding.
func fitAnswer(a *replica.Answer, keep bool) (body []byte, size int) {
	r := newFrameRoom()
	r.limitMetas(&a.Status)
	if body, size = encodeAnswer(a, keep); size <= r.bytes {
		return body, size
	}
	bare := *a
	bare.Status.Holders, bare.Status.Waiters = nil, nil
	cut(&a.Status, r.bytes-wire.Size(&bare)-listHeads)
	return encodeAnswer(a, keep)
}

// encodeAnswer encodes a, with the fields of a wire.Answer.
func encodeAnswer(a *replica.Answer, keep bool) (body []byte, size int) {
	if !keep {
		return nil, wire.Size(a)
	}
	body = wire.Append(make([]byte, 0, usualAnswer), a)
	return body, len(body)
}

// fitScanned cuts a to one frame: the first key without room is left out, with
// all later keys. A key is told whole, save for metas. fitScanned
// returns the size of the encoded answer and, if keep, the encoded keys.
func fitScanned(a *replica.Scanned, keep bool) (keys []wire.EncodedStatus, size int) {
	r := newFrameRoom()
	r.bytes -= wire.Size(&wire.Scanned{Version: a.Version}) + listHeads
	var buf []byte
	encode := func(st *machine.Status) int {
		if !keep {
			return wire.Size(st)
		}
		start := len(buf)
		buf = wire.Append(buf, st)
		return len(buf) - start
	}
	ends := make([]int, 0, len(a.Keys))
	for i := range a.Keys {
		st, start := &a.Keys[i], len(buf)
		r.limitMetas(st)
		n := encode(st)
		if n > r.bytes {
			buf = buf[:start]
			bare := *st
			bare.Holders, bare.Waiters = nil, nil
			if !cut(st, r.bytes-wire.Size(&bare)-listHeads) {
				a.Keys = a.Keys[:i]
				break
			}
			n = encode(st)
		}
		r.bytes -= n
		ends = append(ends, len(buf))
	}
	if keep {
		keys = make([]wire.EncodedStatus, len(ends))
		start := 0
		for i, end := range ends {
			keys[i], start = buf[start:end:end], end
		}
	}
	return keys, wire.MaxBody - r.bytes
}

// limitMetas leaves out the metas of st without room.
func (r *frameRoom) limitMetas(st *machine.Status) {
	eachMeta(st, func(meta *string) {
		if len(*meta) > r.metas {
			*meta = ""
		}
		r.metas -= len(*meta)
	})
}

// cut shortens the lists of st to at most room bytes, and leaves out metas without
// room beside the lists. cut reports whether both lists
// are whole still.
func cut(st *machine.Status, room int) (whole bool) {
	whole = room >= 0
	for i, g := range st.Holders {
		g.Meta, g.SessionMeta = "", ""
		n := wire.Size(&g)
		if n > room {
			st.Holders, whole = st.Holders[:i], false
			break
		}
		room -= n
	}
	for i, w := range st.Waiters {
		w.Meta = ""
		n := wire.Size(&w)
		if n > room {
			st.Waiters, whole = st.Waiters[:i], false
			break
		}
		room -= n
	}
	fit := func(meta *string, part any) {
		if *meta == "" {
			return
		}
		with, kept := wire.Size(part), *meta
		*meta = ""
		// The difference, because an empty meta has no field name either.
		if n := with - wire.Size(part); n <= room {
			*meta = kept
			room -= n
		}
	}
	for i := range st.Holders {
		g := &st.Holders[i]
		fit(&g.Meta, g)
		fit(&g.SessionMeta, g)
	}
	for i := range st.Waiters {
		fit(&st.Waiters[i].Meta, &st.Waiters[i])
	}
	return whole
}

// eachMeta calls f for every meta of st, the most wanted first.
func eachMeta(st *machine.Status, f func(meta *string)) {
	for i := range st.Holders {
		f(&st.Holders[i].Meta)
		f(&st.Holders[i].SessionMeta)
	}
	for i := range st.Waiters {
		f(&st.Waiters[i].Meta)
	}
}
