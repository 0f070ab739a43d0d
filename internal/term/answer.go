package term

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"iter"

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
)

// answer reads the state asked for by q.
func (t *Table) answer(q replica.Query) replica.Answer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	a := replica.Answer{Status: t.m.Status(q.Key, q.Waiters), Version: t.versionLocked(q)}
	if q.Value {
		a.Status.Value = t.m.Value(q.Key)
	}
	if q.Group != "" {
		a.Group, a.Since, a.Gone = t.groups.read(t.m, q.Group, q.Since)
	}
	if q.Seq != 0 {
		a.Behind, a.Waits = t.m.Behind(q.Session, q.Seq)
	}
	return a
}

func (t *Table) version(q replica.Query) uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.versionLocked(q)
}

// versionLocked digests the versions of the key and the group of q, so that an answer about
// both has a single version, never 0: zero stands for no version. The position
// of a request in the queue of q.Key changes only with the key.
func (t *Table) versionLocked(q replica.Query) uint64 {
	h := fnv.New64a()
	var b [8]byte
	add := func(version uint64) {
		binary.BigEndian.PutUint64(b[:], version)
		h.Write(b[:])
	}
	add(t.m.Version(q.Key))
	if q.Group != "" {
		add(t.m.GroupVersion(q.Group))
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

// whole is the form of an answer for a reader of this process: the answer itself,
// with the size of its encoding.
func whole[A any](a *A) (A, int) { return *a, wire.Size(a) }

// encoded is the form of an answer for a stream: the body of a frame, with its size. The
// body takes no more than that: thousands of answers may wait for a round.
func encoded[A any](a *A) ([]byte, int) {
	buf := wire.Buffer()
	defer wire.Free(buf)
	*buf = wire.Append(*buf, a)
	return bytes.Clone(*buf), len(*buf)
}

// fitAnswer cuts a to one frame.
func fitAnswer[B any](a *replica.Answer, form func(*replica.Answer) (B, int)) (B, int) {
	limitMetas(&a.Status, metaRoom)
	b, size := form(a)
	if size <= wire.MaxBody {
		return b, size
	}
	cut(&a.Status, wire.MaxBody-size+wire.Size(&a.Status))
	return form(a)
}

// fitKeys cuts a to one frame, if the frame is over full: the first key without
// room is left out, with all later keys. A key is told whole, save for metas.
func fitKeys(a *replica.Scanned) {
	room := wire.MaxBody - wire.Size(&replica.Scanned{Version: a.Version}) - listHeads
	for i := range a.Keys {
		st := &a.Keys[i]
		if wire.Size(st) > room && !cut(st, room) {
			a.Keys = a.Keys[:i]
			return
		}
		room -= wire.Size(st)
	}
}

// limitMetas leaves out the metas of st that find no room, and returns the rest of
// the room.
func limitMetas(st *machine.Status, room int) int {
	for meta := range metas(st) {
		if len(*meta) > room {
			*meta = ""
		}
		room -= len(*meta)
	}
	return room
}

// cut shortens the lists of st, so that st finds room in so many bytes, and leaves
// out metas without room beside the lists. cut reports whether both lists are
// whole still.
func cut(st *machine.Status, room int) (whole bool) {
	bare := *st
	bare.Holders, bare.Waiters = nil, nil
	room -= wire.Size(&bare) + listHeads
	holders, waiters := len(st.Holders), len(st.Waiters)
	st.Holders = cutList(st.Holders, &room, func(g *machine.Grant) { g.Meta, g.SessionMeta = "", "" })
	st.Waiters = cutList(st.Waiters, &room, func(w *machine.Waiter) { w.Meta = "" })
	for meta := range metas(st) {
		if n := wire.Size(*meta) - wire.Size(""); n <= room {
			room -= n
		} else {
			*meta = ""
		}
	}
	return room >= 0 && len(st.Holders) == holders && len(st.Waiters) == waiters
}

// cutList returns the first elements of a list, as many as find room without their
// metas, and takes their bytes off the room.
func cutList[E any](list []E, room *int, withoutMetas func(*E)) []E {
	for i, e := range list {
		withoutMetas(&e)
		n := wire.Size(&e)
		if n > *room {
			return list[:i]
		}
		*room -= n
	}
	return list
}

// metas yields every meta of st, the most wanted first.
func metas(st *machine.Status) iter.Seq[*string] {
	return func(yield func(*string) bool) {
		for i := range st.Holders {
			if g := &st.Holders[i]; !yield(&g.Meta) || !yield(&g.SessionMeta) {
				return
			}
		}
		for i := range st.Waiters {
			if !yield(&st.Waiters[i].Meta) {
				return
			}
		}
	}
}
