package term

import (
	"container/heap"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// A beat is a keepalive of a session, not answered yet.
type beat struct {
	received time.Time
	done     func(wire.Code)
}

// receive moves the deadline of a session and answers b: CodeOK after a round
// beginning after now, CodeNoSession if no such session is open, CodeNotLeader if
// this leader may have been replaced or the session is revoked. The answer waits while a
// Silence, Hear, Expire or EndSession of the session is in flight.
func (k *keeper) receive(id machine.SessionID, b beat) {
	k.mu.Lock()
	d := k.sessions[id]
	switch {
	case k.stopped:
		k.mu.Unlock()
		b.done(wire.CodeNotLeader)
		return
	case d == nil:
		k.mu.Unlock()
		// A deposed leader may lack a newer session: only a confirmed leader
		// may deny a session.
		k.t.confirmThen(wire.CodeNoSession, b.done)
		return
	case d.revoked:
		k.mu.Unlock()
		b.done(wire.CodeNotLeader) // see keeper.revoked
		return
	case d.busy || d.orders > 0:
		d.waiting = append(d.waiting, b)
		k.mu.Unlock()
		return
	case d.silent:
		d.waiting = append(d.waiting, b)
		d.busy = true
		k.mu.Unlock()
		k.hear(id)
		return
	}
	// An unconfirmed beat has only delayed the expiry.
	d.hear(b.received)
	heap.Fix(&k.due, d.place)
	k.mu.Unlock()
	k.t.rounds.addBeat(func(ok bool) { k.confirmed(id, b, ok) })
}

func (d *deadline) hear(at time.Time) {
	if at.After(d.heard) {
		d.heard = at
	}
	if end := at.Add(d.ttl); end.After(d.end) {
		d.end = end
	}
	d.schedule()
}

// confirmed acknowledges a beat after the round, unless the session is being
// marked or expired, or has been.
func (k *keeper) confirmed(id machine.SessionID, b beat, ok bool) {
	if !ok {
		b.done(wire.CodeNotLeader)
		return
	}
	k.mu.Lock()
	d := k.sessions[id]
	switch {
	case k.stopped:
		k.mu.Unlock()
		b.done(wire.CodeNotLeader)
		return
	case d == nil:
		k.mu.Unlock()
		b.done(wire.CodeNoSession)
		return
	case d.revoked:
		k.mu.Unlock()
		b.done(wire.CodeNotLeader)
		return
	case d.busy || d.orders > 0:
		d.waiting = append(d.waiting, b)
		k.mu.Unlock()
		return
	case d.silent:
		k.mu.Unlock()
		k.receive(id, b)
		return
	}
	d.beats++
	k.mu.Unlock()
	b.done(wire.CodeOK)
}

// unknown notes that the fate of an entry about a session is unknown. The term ends, and
// no beat of the session is acknowledged in it any more: a mark that this leader does not
// know of may stand, and its TTL count at every voter, and an Expire may come yet. The
// waiting beats are answered with CodeNotLeader.
func (k *keeper) unknown(id machine.SessionID) {
	k.mu.Lock()
	d := k.sessions[id]
	if d == nil {
		k.mu.Unlock()
		return
	}
	waiting := d.waiting // d.busy and d.orders stay
	d.waiting = nil
	k.mu.Unlock()
	for _, b := range waiting {
		b.done(wire.CodeNotLeader)
	}
}

// decided takes the verdict on a Silence, Hear or Expire of a session: the session
// is busy no more, and the waiting beats go on. If done, change edits the session
// first; if not, the waiting beats are answered with CodeNotLeader, so that the
// clients beat again.
func (k *keeper) decided(id machine.SessionID, done bool, change func(*deadline)) {
	k.mu.Lock()
	d := k.sessions[id]
	if d == nil {
		k.mu.Unlock()
		return
	}
	d.busy = false
	if done {
		change(d)
	}
	waiting := d.waiting
	d.waiting = nil
	for _, b := range waiting {
		d.hear(b.received) // before a tick can find the old deadline passed
	}
	d.schedule()
	heap.Fix(&k.due, d.place)
	k.mu.Unlock()
	for _, b := range waiting {
		if done {
			k.receive(id, b)
		} else {
			b.done(wire.CodeNotLeader)
		}
	}
}
