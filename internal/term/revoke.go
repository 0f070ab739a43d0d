package term

import (
	"container/heap"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// How the keeper ends a session on an operator's order: see machine.EndSession.
//
// The order marks the session, as a Silence does, and no Hear takes the mark away. Each
// voter counts a TTL from its own Apply of the order, under any leader. The session
// expires then, unless its client has closed it before. When the keys are freed, no
// holder can still trust them. Proof:
//
//   - A client closes the session after it has ended its locks.
//   - Otherwise, no beat of the session that the leader received after it put the order
//     in its log is ever acknowledged: such beats wait for the verdict, and after the
//     verdict each is refused. A leader that does not learn the verdict stops. The next
//     leader has the order in its table when it begins, or never will.
//   - So the last acknowledged beat was sent before the order was in any log, and each
//     voter's Apply of the order comes later.

// holdBeats lets the beats of the session of ref wait while an order about the session
// is in flight, and returns done for the order.
//
// Beats do not wait for the order of a session that is revoked itself: the table refuses
// it, and such orders in a row would keep the beats of a living session waiting for ever.
func (k *keeper) holdBeats(order machine.EndSession, done func(machine.Outcome, wire.Code)) func(machine.Outcome, wire.Code) {
	var st machine.SessionStatus
	held := false
	k.t.table.View(func(m *machine.State) {
		open := false
		st, open = m.SessionOf(order.Ref)
		by, _ := m.Session(order.Session)
		if !open || st.Ending || by.Revoked || by.Ending {
			return
		}
		held = true
		// The table first and mu second: a caller that waits for the table must not keep
		// beats waiting. The keeper may be about to hear that the session is open. It cannot
		// have heard of the end: the session is in the table, and ended comes after the entry.
		k.mu.Lock()
		defer k.mu.Unlock()
		k.addLocked(newDeadline(st.ID, st.Node, time.Duration(st.TTL)*time.Millisecond, k.t.table.Clock.Now()))
		k.sessions[st.ID].orders++
	})
	if !held {
		return done
	}
	return func(o machine.Outcome, c wire.Code) {
		k.orderDecided(st.ID, c)
		done(o, c)
	}
}

// orderDecided takes the verdict on an order. If the order was applied, the session is
// revoked by now, or the order changed nothing. With CodeUnknown the term ends, and the
// waiting beats are answered with CodeNotLeader.
func (k *keeper) orderDecided(id machine.SessionID, c wire.Code) {
	if c == wire.CodeUnknown {
		k.unknown(id)
		return
	}
	k.mu.Lock()
	d := k.sessions[id]
	if d == nil {
		k.mu.Unlock()
		return
	}
	d.orders--
	var waiting []beat
	if d.orders == 0 && !d.busy {
		waiting, d.waiting = d.waiting, nil
		for _, b := range waiting {
			d.hear(b.received) // before a tick can find the old deadline passed
		}
		d.schedule()
		heap.Fix(&k.due, d.place)
	}
	k.mu.Unlock()
	for _, b := range waiting {
		k.receive(id, b)
	}
}

// revoked notes that a session is revoked, and answers the waiting beats with
// CodeNotLeader, as all later beats. Not CodeNoSession: a client that hears of the end
// before it hears of the order would not know the reason, and would not close the
// session.
func (k *keeper) revoked(id machine.SessionID) {
	k.mu.Lock()
	d := k.sessions[id]
	if d == nil {
		k.mu.Unlock()
		return
	}
	d.revoked, d.silent = true, true
	d.schedule()
	heap.Fix(&k.due, d.place)
	waiting := d.waiting
	d.waiting = nil
	k.mu.Unlock()
	for _, b := range waiting {
		b.done(wire.CodeNotLeader)
	}
}

// timesLeft returns the milliseconds until each session expires if it is not heard
// again.
func (k *keeper) timesLeft(sessions []machine.SessionStatus) []uint64 {
	left := make([]uint64, len(sessions))
	now := k.t.table.Clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range sessions {
		if d := k.sessions[sessions[i].ID]; d != nil {
			left[i] = uint64(max(d.end.Sub(now), 0) / time.Millisecond)
		}
	}
	return left
}
