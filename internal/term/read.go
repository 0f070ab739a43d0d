package term

import (
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// Read answers q from the table, once a round begun after the reading has
// confirmed the leader. With q.Version set, the reading waits until the version
// differs; cancel ends the waiting. done gets CodeOK and the answer,
// CodeNotLeader if the leader may have been replaced, or CodeBusy if too many
// bytes of answers wait.
func (t *Term) Read(q replica.Query, done func(replica.Answer, wire.Code)) (cancel func()) {
	return read(t, "", q, whole[replica.Answer], done)
}

// read is Read for a member, "" for this node, with the answer in another form.
func read[B any](t *Term, from string, q replica.Query, form func(*replica.Answer) (B, int), done func(B, wire.Code)) (cancel func()) {
	if q.Version == 0 || t.table.version(q) != q.Version {
		readNow(t, from, q, form, done)
		return func() {}
	}
	return t.watches.add(&watch{
		from:  from,
		name:  q.Key,
		group: q.Group,
		look: func() func() int {
			if t.table.version(q) == q.Version {
				return nil
			}
			return func() int { return readNow(t, from, q, form, done) }
		},
		fail: fail(done),
	})
}

// fail returns done for failures, which have no answer.
func fail[B any](done func(B, wire.Code)) func(wire.Code) {
	return func(c wire.Code) {
		var none B
		done(none, c)
	}
}

// readNow answers q, and returns the size of the answer.
func readNow[B any](t *Term, from string, q replica.Query, form func(*replica.Answer) (B, int), done func(B, wire.Code)) (size int) {
	if t.held.full(from) {
		fail(done)(wire.CodeBusy)
		return 0
	}
	a := t.table.answer(q)
	t.keeper.describe(a.Status.Holders)
	b, size := fitAnswer(&a, form)
	answerAfterRound(t, from, b, size, done)
	return size
}

// Scan answers q like Read. With q.Since set and nothing to tell, Scan waits for a
// change of a key with the prefix; cancel ends the waiting.
func (t *Term) Scan(q replica.Scan, done func(replica.Scanned, wire.Code)) (cancel func()) {
	return scan(t, "", q, whole[replica.Scanned], done)
}

// scan is Scan for a member, "" for this node, with the answer in another form.
func scan[B any](t *Term, from string, q replica.Scan, form func(*replica.Scanned) (B, int), done func(B, wire.Code)) (cancel func()) {
	a := t.table.scan(q, q.Limit)
	if q.Since == 0 || tells(a) {
		scanned(t, from, q, a, form, done)
		return func() {}
	}
	return t.watches.add(&watch{
		from:    from,
		subject: aPrefix,
		name:    q.Prefix,
		look: func() func() int {
			a := t.table.scan(q, q.Limit)
			if !tells(a) {
				q.Since = a.Version
				return nil
			}
			return func() int { return scanned(t, from, q, a, form, done) }
		},
		fail: fail(done),
	})
}

// tells reports whether a says more than "nothing has changed".
func tells(a replica.Scanned) bool { return len(a.Keys) > 0 || a.Lost || a.More }

// scanned answers q with a, read just now and cut to one frame. An answer with
// fewer keys says "more". After q.Since, fewer keys also mean an earlier version,
// so the table is read again with the smaller limit; a single key always fits. It returns the
// size of the answer.
func scanned[B any](t *Term, from string, q replica.Scan, a replica.Scanned, form func(*replica.Scanned) (B, int), done func(B, wire.Code)) int {
	if t.held.full(from) {
		fail(done)(wire.CodeBusy)
		return 0
	}
	for {
		room := metaRoom
		for i := range a.Keys {
			t.keeper.describe(a.Keys[i].Holders)
			room = limitMetas(&a.Keys[i], room)
		}
		if q.Shards {
			a.PackShards(q.Prefix)
		}
		b, size := form(&a)
		if size <= wire.MaxBody {
			answerAfterRound(t, from, b, size, done)
			return size
		}
		read := len(a.Keys)
		if fitKeys(&a); len(a.Keys) < read {
			a.More = true
			if q.Since != 0 {
				a = t.table.scan(q, len(a.Keys))
			}
		}
	}
}

// answerAfterRound calls done with an answer of size bytes once a round begun after
// now has confirmed the leader, and counts the bytes as held for the member until then. CodeBusy
// if too much is held.
func answerAfterRound[B any](t *Term, from string, answer B, size int, done func(B, wire.Code)) {
	if !t.held.add(from, size) {
		fail(done)(wire.CodeBusy)
		return
	}
	t.Confirm(func(ok bool) {
		defer t.held.giveBack(from, size)
		if ok {
			done(answer, wire.CodeOK)
		} else {
			fail(done)(wire.CodeNotLeader)
		}
	})
}
