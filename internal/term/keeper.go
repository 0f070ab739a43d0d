package term

import (
	"container/heap"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// A keeper decides, on the leader, when sessions end. Only the keeper has their
// deadlines, and only a committed Expire, bound to the leader's term, ends a
// session whose deadline has passed.
//
// When an Expire frees locks, no holder can still trust these locks. Proof:
//
//   - A beat moves the deadline when the leader receives the beat, to receipt +
//     TTL. The client counts trust from sending the beat, and for less than a TTL.
//   - A beat is acknowledged only after a majority of the voters, asked after
//     the beat had come, said: my term is not above this leader's (see rounds).
//     The electors of a later leader include a voter of this majority, so the
//     later leader was elected after the beat was sent, and gives every session
//     a whole TTL from its own start.
//   - While an Expire of a session is in flight, the session's beats wait for
//     the verdict. Else a beat could be acknowledged and the session end a
//     moment later.
//
// A new leader gives whole TTLs, so a flapping leadership could keep a dead session
// for ever. Silence prevents this: a session unheard for two thirds of the TTL is
// marked in the table. Beats of a marked session are acknowledged only
// after a committed Hear has removed the mark. So while the mark stands, no beat
// sent after the mark was proposed has been acknowledged, and each voter may
// count a TTL from its own Apply of the mark, under any leader.
//
// Leaders that change faster than that would mark nobody. So a leader counts the
// silence from the beginning of the first in the row of short leaders before it,
// which every voter knows from the LeaderStarts it has applied. Each leader hears
// living sessions anew, and marks the others at once when the row is old enough. A
// living session that is marked too early only waits for an entry.
//
// The keeper also ends the delays of the grants of expired sessions, during
// which the keys stay taken. The leader counts a delay from its own Apply of the expiry,
// and a new leader counts the whole delay again from taking over. Both moments are
// later than the commit of the expiry, so no delay is too short.
type keeper struct {
	t *Term

	mu       sync.Mutex
	sessions map[machine.SessionID]*deadline
	delays   map[machine.Token]*delay
	due      dueHeap
	lastTick time.Time
	stopped  bool // no beat is acknowledged any more
}

// A deadline is a session as seen by the keeper.
type deadline struct {
	dueAt
	id      machine.SessionID
	node    string
	ttl     time.Duration
	heard   time.Time // when the last beat was received
	end     time.Time // heard + ttl, or as granted by a mark or a new leader
	silent  bool      // marked in the table
	busy    bool      // a Silence, Hear or Expire of the session is in flight
	revoked bool      // in the table: no beat counts any more
	orders  int       // number of EndSessions of the session in flight
	waiting []beat    // beats received while busy, or with orders in flight
	beats   uint64    // acknowledged
}

// A delay is a grant of an expired session, with the keys still taken.
type delay struct {
	dueAt
	token machine.Token
	end   time.Time
}

// perTick bounds the proposals of a tick, so that clients' commands find room even
// when very many sessions or delays end at once, for example a TTL
// after a change of the leader.
const perTick = maxProposals / 16

func newKeeper(t *Term) *keeper {
	return &keeper{
		t:        t,
		sessions: make(map[machine.SessionID]*deadline),
		delays:   make(map[machine.Token]*delay),
		lastTick: t.table.Clock.Now(),
	}
}

// begin gives every session of the table a whole TTL from now, or the rest left
// by the session's mark, and every delay the whole time. The keeper knows a session
// already if the session was opened since the table is watched.
func (k *keeper) begin() {
	now := k.t.table.Clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastTick = now
	table := k.t.table
	table.mu.RLock()
	defer table.mu.RUnlock()
	table.m.Sessions(func(st machine.SessionStatus) bool {
		if st.Ending {
			return true // its beats are over
		}
		d := newDeadline(st.ID, st.Node, time.Duration(st.TTL)*time.Millisecond, now)
		if !table.flaps.IsZero() {
			d.heard = table.flaps
		}
		if mark, ok := table.marks[st.ID]; ok {
			d.silent, d.end = true, mark.Add(d.ttl)
		}
		d.revoked = st.Revoked
		k.addLocked(d)
		return true
	})
	table.m.Delays(func(token machine.Token, ms uint64) bool {
		k.delayLocked(token, now.Add(time.Duration(ms)*time.Millisecond))
		return true
	})
}

func newDeadline(id machine.SessionID, node string, ttl time.Duration, now time.Time) *deadline {
	return &deadline{id: id, node: node, ttl: ttl, heard: now, end: now.Add(ttl)}
}

// delayed notes a grant with its keys taken for ms milliseconds from now.
func (k *keeper) delayed(token machine.Token, ms uint64) {
	end := k.t.table.Clock.Now().Add(time.Duration(ms) * time.Millisecond)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delayLocked(token, end)
}

func (k *keeper) delayLocked(token machine.Token, end time.Time) {
	if k.delays[token] == nil {
		d := &delay{dueAt: dueAt{at: end}, token: token, end: end}
		k.delays[token] = d
		heap.Push(&k.due, d)
	}
}

func (k *keeper) addLocked(d *deadline) {
	if k.sessions[d.id] == nil {
		k.sessions[d.id] = d
		d.schedule()
		heap.Push(&k.due, d)
	}
}

// schedule sets the time of the next look: when the session becomes silent, or
// its deadline once the session is marked.
func (d *deadline) schedule() {
	d.at = d.end
	if quiet := d.heard.Add(d.ttl * 2 / 3); !d.silent && quiet.Before(d.at) {
		d.at = quiet
	}
}

// opened notes a newly opened session.
func (k *keeper) opened(id machine.SessionID, node string, ttl time.Duration) {
	now := k.t.table.Clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.addLocked(newDeadline(id, node, ttl, now))
}

// ended forgets a session and answers the waiting beats with CodeNoSession.
func (k *keeper) ended(id machine.SessionID) {
	k.mu.Lock()
	d := k.sessions[id]
	if d == nil {
		k.mu.Unlock()
		return
	}
	delete(k.sessions, id)
	heap.Remove(&k.due, d.place)
	waiting := d.waiting
	d.waiting = nil
	k.mu.Unlock()
	for _, b := range waiting {
		b.done(wire.CodeNoSession)
	}
}

// describe adds to grants the facts known only to the keeper: the time until a
// session or a delay ends, and the beats acknowledged.
func (k *keeper) describe(grants []machine.Grant) {
	if len(grants) == 0 {
		return
	}
	now := k.t.table.Clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range grants {
		g := &grants[i]
		var end time.Time
		if d := k.sessions[g.Session]; d != nil {
			end, g.Beats = d.end, d.beats
		} else if d := k.delays[g.Token]; d != nil && g.Delayed {
			end = d.end
		}
		g.Left = uint64(max(end.Sub(now), 0) / time.Millisecond)
	}
}

// tick proposes the marks, expiries and ends of delays due at now.
func (k *keeper) tick(now time.Time) {
	for _, propose := range k.takeDue(now) {
		propose()
	}
}

// takeDue returns the proposals due at now.
func (k *keeper) takeDue(now time.Time) (proposals []func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if gap := now.Sub(k.lastTick); gap > timing.ProcessStalled {
		// This process did not run while beats lay unread in the sockets, so
		// the keeper does not know of silence.
		for _, d := range k.sessions {
			d.heard, d.end = d.heard.Add(gap), d.end.Add(gap)
			d.schedule()
		}
		heap.Init(&k.due)
	}
	k.lastTick = now
	for n := 0; n < perTick && len(k.due) > 0 && !k.due[0].when().at.After(now); n++ {
		switch d := k.due[0].(type) {
		case *delay:
			d.at = now.Add(timing.EndDelayAgain)
			proposals = append(proposals, func() { k.endDelay(d.token) })
		case *deadline:
			// Look again later, should the proposal fail.
			d.at = now.Add(d.ttl/3 + timing.KeeperTick)
			if !d.busy {
				d.busy = true
				propose := k.expire
				if now.Before(d.end) {
					propose = k.silence
				}
				proposals = append(proposals, func() { propose(d.id) })
			}
		}
		heap.Fix(&k.due, 0)
	}
	return proposals
}

func (k *keeper) silence(id machine.SessionID) {
	k.decide(id, machine.Silence{Session: id, Term: k.t.Number()}, func(d *deadline) { d.silent = true })
}

func (k *keeper) hear(id machine.SessionID) {
	k.decide(id, machine.Hear{Session: id, Term: k.t.Number()}, func(d *deadline) { d.silent = false })
}

func (k *keeper) expire(id machine.SessionID) {
	// After success the session is gone: Apply has called ended.
	k.decide(id, machine.Expire{Session: id, Term: k.t.Number()}, nil)
}

// decide proposes a Silence, Hear or Expire of a busy session. After success change
// edits the session; nil means that the session is gone. If the fate is unknown, the
// session stays busy.
func (k *keeper) decide(id machine.SessionID, cmd machine.Command, change func(*deadline)) {
	k.t.Decide(cmd, func(o machine.Outcome, c wire.Code) {
		if c == wire.CodeUnknown {
			k.unknown(id)
			return
		}
		k.decided(id, c == wire.CodeOK && o.Code == machine.OK && change != nil, change)
	})
}

// endDelay frees the keys of a delayed grant. A second copy does nothing, so the
// command is proposed again after a failure.
func (k *keeper) endDelay(token machine.Token) {
	k.t.Decide(machine.EndDelay{Token: token, Term: k.t.Number()}, func(o machine.Outcome, c wire.Code) {
		// NotHeld: the client took the grant back, or the grant was broken.
		if c != wire.CodeOK || o.Code != machine.OK && o.Code != machine.NotHeld {
			return
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if d := k.delays[token]; d != nil {
			delete(k.delays, token)
			heap.Remove(&k.due, d.place)
		}
	})
}

// stop answers every waiting beat, and every beat whose answer is still to come, with
// CodeNotLeader. Once stop has returned, the keeper acknowledges no beat, whatever verdict
// on a round or on a command comes later.
func (k *keeper) stop() {
	k.mu.Lock()
	k.stopped = true
	var waiting []beat
	for _, d := range k.sessions {
		waiting = append(waiting, d.waiting...)
		d.waiting = nil
	}
	k.mu.Unlock()
	for _, b := range waiting {
		b.done(wire.CodeNotLeader)
	}
}
