package term

import (
	"slices"

	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// maxHeld bounds the encoded bytes of the answers waiting for a round. A
// round may take a second, and a member can ask for much with few bytes.
const maxHeld = 64 << 20

// Read answers q from the table, once a round begun after the reading has
// confirmed the leader. With q.Version set, the reading waits until the version
// differs; cancel ends the waiting. done gets CodeOK and the answer,
// CodeNotLeader if the leader may have been replaced, or CodeBusy if too many
// bytes of answers wait.
func (t *Term) Read(q replica.Query, done func(replica.Answer, wire.Code)) (cancel func()) {
	return t.read(q, false, func(a replica.Answer, _ []byte, c wire.Code) { done(a, c) })
}

// read is Read, for a stream with encode: done then gets the encoded answer in
// place of the answer.
func (t *Term) read(q replica.Query, encode bool, done func(replica.Answer, []byte, wire.Code)) (cancel func()) {
	if q.Version == 0 || t.table.version(q) != q.Version {
		t.readNow(q, encode, done)
		return func() {}
	}
	return t.watches.add(&watch{
		keys: append(slices.Clone(q.Also), q.Key),
		look: func() func() {
			if t.table.version(q) == q.Version {
				return nil
			}
			return func() { t.readNow(q, encode, done) }
		},
		fail: func(c wire.Code) { done(replica.Answer{}, nil, c) },
	})
}

func (t *Term) readNow(q replica.Query, encode bool, done func(replica.Answer, []byte, wire.Code)) {
	if t.held.Load() > maxHeld-wire.MaxFrame {
		done(replica.Answer{}, nil, wire.CodeBusy) // before the answer costs anything
		return
	}
	a := t.table.answer(q)
	t.keeper.describe(a.Status.Holders)
	body, size := fitAnswer(&a, encode)
	if encode {
		a = replica.Answer{}
	}
	t.answerAfterRound(size, func(c wire.Code) {
		if c != wire.CodeOK {
			done(replica.Answer{}, nil, c)
			return
		}
		done(a, body, c)
	})
}

// Scan answers q like Read. With q.Since set and nothing to tell, Scan waits for a
// change of a key with the prefix; cancel ends the waiting.
func (t *Term) Scan(q replica.Scan, done func(replica.Scanned, wire.Code)) (cancel func()) {
	return t.scan(q, false, func(a replica.Scanned, _ []byte, c wire.Code) { done(a, c) })
}

// scan is Scan, for a stream with encode: done then gets the encoded answer in
// place of the answer.
func (t *Term) scan(q replica.Scan, encode bool, done func(replica.Scanned, []byte, wire.Code)) (cancel func()) {
	a := t.table.scan(q, q.Limit)
	if q.Since == 0 || tells(a) {
		t.scanned(q, a, encode, done)
		return func() {}
	}
	return t.watches.add(&watch{
		prefix: q.Prefix,
		look: func() func() {
			a := t.table.scan(q, q.Limit)
			if !tells(a) {
				q.Since = a.Version
				return nil
			}
			return func() { t.scanned(q, a, encode, done) }
		},
		fail: func(c wire.Code) { done(replica.Scanned{}, nil, c) },
	})
}

// tells reports whether a says more than "nothing has changed".
func tells(a replica.Scanned) bool { return len(a.Keys) > 0 || a.Lost || a.More }

// scanned answers q with a, read just now.
func (t *Term) scanned(q replica.Scan, a replica.Scanned, encode bool, done func(replica.Scanned, []byte, wire.Code)) {
	keys, size := t.fit(q, &a, encode)
	parts := wire.EncodedScanned{Keys: keys, More: a.More, Version: a.Version, Lost: a.Lost}
	if encode {
		a = replica.Scanned{}
	}
	t.answerAfterRound(size, func(c wire.Code) {
		switch {
		case c != wire.CodeOK:
			done(replica.Scanned{}, nil, c)
		case encode:
			done(a, wire.Append(make([]byte, 0, size), &parts), c)
		default:
			done(a, nil, c)
		}
	})
}

// fit cuts a to one frame. An answer with fewer keys says "more". After q.Since,
// fewer keys also mean an earlier version, so the table is read again with the
// smaller limit; a single key always fits.
func (t *Term) fit(q replica.Scan, a *replica.Scanned, encode bool) (keys []wire.EncodedStatus, size int) {
	for {
		for i := range a.Keys {
			t.keeper.describe(a.Keys[i].Holders)
		}
		read := len(a.Keys)
		keys, size = fitScanned(a, encode)
		told := len(a.Keys)
		switch {
		case told == read:
			return keys, size
		case q.Since == 0:
			a.More = true
			return keys, size
		}
		*a = t.table.scan(q, told)
	}
}

// answerAfterRound calls answer once a round begun after now has confirmed
// the leader, and counts size bytes as held until then. CodeBusy if too much is
// held.
func (t *Term) answerAfterRound(size int, answer func(wire.Code)) {
	if t.held.Add(int64(size)) > maxHeld {
		t.held.Add(-int64(size))
		answer(wire.CodeBusy)
		return
	}
	t.Confirm(func(ok bool) {
		defer t.held.Add(-int64(size))
		if ok {
			answer(wire.CodeOK)
		} else {
			answer(wire.CodeNotLeader)
		}
	})
}
