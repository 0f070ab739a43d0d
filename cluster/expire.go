package cluster

import (
	"container/heap"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// A keeper decides, on the leader, when sessions end. Their deadlines are
// here and nowhere else; only a committed Expire, bound to the leader's term,
// makes one true.
//
// Why no holder can still trust its locks when an Expire frees them:
//
//   - A beat moves the deadline when it is *received*, to receipt + TTL; its
//     sender counts its trust from when it was *sent*, and less than a TTL.
//   - A beat is acknowledged only after a majority of the voters said, asked
//     after the beat had come, that their term is not above this leader's (see
//     rounds). A later leader's electors include one of them, so that leader
//     was elected after the beat was sent, and gives every session a whole TTL
//     from its own start.
//   - While an Expire of a session is in flight its beats wait for the
//     result. Else a beat could be acknowledged, and the session end a
//     moment later.
//
// New leaders give whole TTLs, so leadership that flaps could keep a dead session for
// ever. Hence Silence: a session unheard for two thirds of its TTL is marked in
// the table. A marked session's beats are acknowledged only after a committed
// Hear has unmarked it; so while the mark stands no beat sent after it was
// proposed has been acknowledged, and each voter may count one TTL from its
// own Apply of the mark, whoever leads.
//
// It also ends the delays for which grants of expired sessions keep their keys
// taken. A delay is counted from the leader's own Apply of the expiry, and by a
// new leader once more from its start: later than the expiry was committed, so
// never too short.
type keeper struct {
	l *leader

	mu       sync.Mutex
	sessions map[machine.SessionID]*kept
	delays   map[machine.Token]*delayed
	due      dueHeap
	lastTick time.Time
}

// kept is one session, as the keeper sees it.
type kept struct {
	slot
	id       machine.SessionID
	ttl      time.Duration
	heard    time.Time // when its last beat was received
	deadline time.Time // heard + ttl, or what a mark or a new leader grants
	silent   bool      // marked in the table
	busy     bool      // a Silence, Hear or Expire of it is in flight
	waiting  []beat    // beats that came meanwhile
	beats    uint64    // acknowledged
}

// delayed is a grant whose session has expired.
type delayed struct {
	slot
	token machine.Token
	until time.Time
}

type beat struct {
	received time.Time
	done     func(wire.Code)
}

const (
	tickInterval = 100 * time.Millisecond
	// A tick that comes later than this shows that the process stood still,
	// while beats lay unread in its sockets.
	stallGap = 500 * time.Millisecond
	// So many proposals of a tick leave room for clients' among them. After a
	// leader change all that is over is so at once.
	perTick = maxProposals / 16
)

func newKeeper(l *leader) *keeper {
	return &keeper{
		l:        l,
		sessions: make(map[machine.SessionID]*kept),
		delays:   make(map[machine.Token]*delayed),
		lastTick: time.Now(),
	}
}

// begin gives every session of the table a whole TTL from now, or what its
// mark leaves of it, and every delay its whole time.
func (k *keeper) begin() {
	now := time.Now()
	t := k.l.table
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastTick = now
	t.mu.RLock()
	defer t.mu.RUnlock()
	t.m.Sessions(func(st machine.SessionStatus) bool {
		ttl := time.Duration(st.TTL) * time.Millisecond
		s := &kept{id: st.ID, ttl: ttl, heard: now, deadline: now.Add(ttl)}
		if mark, ok := t.marks[st.ID]; ok {
			s.silent, s.deadline = true, mark.Add(ttl)
		}
		k.addLocked(s)
		return true
	})
	t.m.Delays(func(token machine.Token, ms uint64) bool {
		k.delayLocked(token, now.Add(time.Duration(ms)*time.Millisecond))
		return true
	})
}

// delay notes a grant that stays for so many milliseconds from now.
func (k *keeper) delay(token machine.Token, ms uint64) {
	until := time.Now().Add(time.Duration(ms) * time.Millisecond)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delayLocked(token, until)
}

func (k *keeper) delayLocked(token machine.Token, until time.Time) {
	if k.delays[token] == nil {
		d := &delayed{slot: slot{at: until}, token: token, until: until}
		k.delays[token] = d
		heap.Push(&k.due, d)
	}
}

func (k *keeper) addLocked(s *kept) {
	k.sessions[s.id] = s
	s.schedule()
	heap.Push(&k.due, s)
}

func (s *kept) schedule() {
	s.at = s.deadline
	if quiet := s.heard.Add(s.ttl * 2 / 3); !s.silent && quiet.Before(s.at) {
		s.at = quiet
	}
}

// opened notes a session that was just opened.
func (k *keeper) opened(id machine.SessionID, ttl time.Duration) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sessions[id] == nil {
		k.addLocked(&kept{id: id, ttl: ttl, heard: now, deadline: now.Add(ttl)})
	}
}

// ended forgets a session.
func (k *keeper) ended(id machine.SessionID) {
	k.mu.Lock()
	s := k.sessions[id]
	if s == nil {
		k.mu.Unlock()
		return
	}
	delete(k.sessions, id)
	heap.Remove(&k.due, s.place)
	waiting := s.waiting
	s.waiting = nil
	k.mu.Unlock()
	for _, b := range waiting {
		b.done(wire.CodeNoSession)
	}
}

// beat takes a session's beat and answers it when it is confirmed.
func (k *keeper) beat(id machine.SessionID, done func(wire.Code)) {
	k.receive(id, beat{time.Now(), done})
}

func (k *keeper) receive(id machine.SessionID, b beat) {
	k.mu.Lock()
	s := k.sessions[id]
	switch {
	case s == nil:
		k.mu.Unlock()
		// A deposed leader may lack a newer session: only a confirmed leader
		// may say that there is none.
		k.l.rounds.add(func(ok bool) { b.answer(ok, wire.CodeNoSession) })
		return
	case s.busy:
		s.waiting = append(s.waiting, b)
		k.mu.Unlock()
		return
	case s.silent:
		s.waiting = append(s.waiting, b)
		s.busy = true
		k.mu.Unlock()
		k.l.propose(machine.Hear{Session: id, Term: k.l.term}, func(o machine.Outcome, c wire.Code) {
			k.settle(id, c == wire.CodeOK && o.Code == machine.OK, func(s *kept) { s.silent = false })
		})
		return
	}
	// Counting from a beat that is never confirmed only delays the expiry.
	s.hear(b.received)
	heap.Fix(&k.due, s.place)
	k.mu.Unlock()
	k.l.rounds.add(func(ok bool) { k.confirmed(id, b, ok) })
}

func (s *kept) hear(at time.Time) {
	if at.After(s.heard) {
		s.heard = at
	}
	if d := at.Add(s.ttl); d.After(s.deadline) {
		s.deadline = d
	}
	s.schedule()
}

// confirmed acknowledges a beat after its round, unless the session is being
// marked or expired, or has been.
func (k *keeper) confirmed(id machine.SessionID, b beat, ok bool) {
	if ok {
		k.mu.Lock()
		s := k.sessions[id]
		switch {
		case s == nil:
			k.mu.Unlock()
			b.done(wire.CodeNoSession)
			return
		case s.busy:
			s.waiting = append(s.waiting, b)
			k.mu.Unlock()
			return
		case s.silent:
			k.mu.Unlock()
			k.receive(id, b)
			return
		}
		s.beats++
		k.mu.Unlock()
	}
	b.answer(ok, wire.CodeOK)
}

func (b beat) answer(ok bool, code wire.Code) {
	if !ok {
		code = wire.CodeNotLeader
	}
	b.done(code)
}

// settle ends a session's being busy and lets its waiting beats go on.
func (k *keeper) settle(id machine.SessionID, done bool, change func(*kept)) {
	k.mu.Lock()
	s := k.sessions[id]
	if s == nil {
		k.mu.Unlock()
		return
	}
	s.busy = false
	if done {
		change(s)
	}
	waiting := s.waiting
	s.waiting = nil
	for _, b := range waiting {
		s.hear(b.received) // before a tick can find the old deadline passed
	}
	s.schedule()
	heap.Fix(&k.due, s.place)
	k.mu.Unlock()
	for _, b := range waiting {
		if done {
			k.receive(id, b)
		} else {
			b.done(wire.CodeNotLeader)
		}
	}
}

// describe adds to grants what only the keeper knows.
func (k *keeper) describe(grants []machine.Grant) {
	if len(grants) == 0 {
		return
	}
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range grants {
		g := &grants[i]
		var end time.Time
		if s := k.sessions[g.Session]; s != nil {
			end, g.Beats = s.deadline, s.beats
		} else if d := k.delays[g.Token]; d != nil && g.Delayed {
			end = d.until
		}
		g.Left = uint64(max(end.Sub(now), 0) / time.Millisecond)
	}
}

// tick proposes the marks, expiries and ends of delays that are due.
func (k *keeper) tick(now time.Time) {
	var marks, ends []machine.SessionID
	var over []machine.Token
	k.mu.Lock()
	if gap := now.Sub(k.lastTick); gap > stallGap {
		// This process did not run, so it cannot say that nobody beat.
		for _, s := range k.sessions {
			s.heard, s.deadline = s.heard.Add(gap), s.deadline.Add(gap)
			s.schedule()
		}
		heap.Init(&k.due)
	}
	k.lastTick = now
	for n := 0; n < perTick && len(k.due) > 0 && !k.due[0].slotted().at.After(now); n++ {
		s, ok := k.due[0].(*kept)
		if !ok {
			d := k.due[0].(*delayed)
			d.at = now.Add(delayRetry)
			heap.Fix(&k.due, 0)
			over = append(over, d.token)
			continue
		}
		// Look again in a while, should the proposal fail.
		s.at = now.Add(s.ttl/3 + tickInterval)
		heap.Fix(&k.due, 0)
		if s.busy {
			continue
		}
		s.busy = true
		if now.Before(s.deadline) {
			marks = append(marks, s.id)
		} else {
			ends = append(ends, s.id)
		}
	}
	k.mu.Unlock()
	for _, id := range marks {
		k.l.propose(machine.Silence{Session: id, Term: k.l.term}, func(o machine.Outcome, c wire.Code) {
			k.settle(id, c == wire.CodeOK && o.Code == machine.OK, func(s *kept) { s.silent = true })
		})
	}
	for _, id := range ends {
		k.l.propose(machine.Expire{Session: id, Term: k.l.term}, func(o machine.Outcome, c wire.Code) {
			// If it was done the session is gone by now.
			k.settle(id, false, nil)
		})
	}
	for _, token := range over {
		k.l.propose(machine.EndDelay{Token: token, Term: k.l.term}, func(o machine.Outcome, c wire.Code) {
			// NotHeld: reclaimed by its client, or broken. Anything else is
			// tried again.
			if c == wire.CodeOK && (o.Code == machine.OK || o.Code == machine.NotHeld) {
				k.delayEnded(token)
			}
		})
	}
}

// A delay whose end could not be proposed is tried again after so long; a second
// copy does nothing.
const delayRetry = time.Second

func (k *keeper) delayEnded(token machine.Token) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.delays[token]; d != nil {
		delete(k.delays, token)
		heap.Remove(&k.due, d.place)
	}
}

// stop answers the beats that still wait.
func (k *keeper) stop() {
	k.mu.Lock()
	var waiting []beat
	for _, s := range k.sessions {
		waiting = append(waiting, s.waiting...)
		s.waiting = nil
	}
	k.mu.Unlock()
	for _, b := range waiting {
		b.done(wire.CodeNotLeader)
	}
}

// slot is a thing's part in dueHeap.
type slot struct {
	at    time.Time // when to look at it next
	place int       // in the heap
}

func (s *slot) slotted() *slot { return s }

// dueHeap orders sessions and delays by when to look at them next.
type dueHeap []interface{ slotted() *slot }

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].slotted().at.Before(h[j].slotted().at) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slotted().place, h[j].slotted().place = i, j
}

func (h *dueHeap) Push(x any) {
	s := x.(interface{ slotted() *slot })
	s.slotted().place = len(*h)
	*h = append(*h, s)
}

func (h *dueHeap) Pop() any {
	old := *h
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return s
}
