package model

type toSession = func(step, sessionState)

func (r sessions) steps(s sessionState, to toSession) {
	r.ticks(s, to)
	for c := range r.clients {
		r.clientSteps(s, c, to)
		for k := range r.keys {
			r.lockSteps(s, c, k, to)
		}
	}
	for k := range r.keys {
		r.otherSteps(s, k, to)
	}
	for i := range r.leaders {
		if s.leaders[i].life == serving {
			r.roundSteps(s, i, to)
			for c := range r.clients {
				r.keeperSteps(s, i, c, to)
			}
		}
		for c := range r.clients {
			r.commitSteps(s, i, c, to)
		}
	}
	r.electionSteps(s, to)
}

func less(x *uint8, d uint8) { *x -= min(*x, d) }

// ticks lets time pass. A client's clock and a leader's advance differently, within the
// bounds of their rates.
func (r sessions) ticks(s sessionState, to toSession) {
	if !r.anyRate {
		to(step{text: "time passes"}, r.tick(s, 0, 1<<r.leaders-1, -1))
	} else {
		for fastClients := range 1 << r.clients {
			for fastLeaders := range 1 << r.leaders {
				to(step{"time passes (fast clients %a, fast leaders %b)", fastClients, fastLeaders},
					r.tick(s, fastClients, fastLeaders, -1))
			}
		}
	}
	for c := range r.clients {
		if !r.sleepCounts && s.clients[c].life != lost {
			to(step{"time passes, while the host of client %A sleeps", c, 0}, r.tick(s, 0, 1<<r.leaders-1, c))
		}
	}
}

func (r sessions) rate(mask, i int) uint8 {
	if mask>>i&1 != 0 {
		return r.fast
	}
	return r.slow
}

func (r sessions) tick(s sessionState, fastClients, fastLeaders, asleep int) sessionState {
	for c := range r.clients {
		cl := &s.clients[c]
		less(&cl.markLeft, r.fast) // each voter counts by its own clock
		d := r.rate(fastClients, c)
		if asleep == c {
			d = 0
		}
		for b := range cl.beats {
			beat := &cl.beats[b]
			if r.fromSending && cl.life == living || r.openFromSending && cl.life == opening {
				less(&beat.trust, d)
			}
			for i := range r.leaders {
				less(&beat.due[i], r.rate(fastLeaders, i))
			}
			if beat.trust == 0 {
				*beat = beatState{}
			}
		}
		less(&cl.trust, d)
		if cl.life == living && cl.trust == 0 && (r.spentStays || cl.beats == [mostBeats]beatState{}) || cl.life == opening && cl.beats[0].trust == 0 {
			r.lose(&s, c)
		}
	}
	for i := range r.leaders {
		for c := range r.clients {
			less(&s.leaders[i].sessions[c].left, r.rate(fastLeaders, i))
		}
	}
	return s
}

// lose ends the session of client c as the client sees it. What the leaders know about
// the session matters no more: the table may end it at any time.
func (r sessions) lose(s *sessionState, c int) {
	cl := &s.clients[c]
	cl.life, cl.trust, cl.markLeft, cl.beats = lost, 0, 0, [mostBeats]beatState{}
	for k := range cl.locks {
		l := &cl.locks[k]
		l.held = 0
		if l.asked == granted && r.aliveAtGrant {
			l.asked = 0
		}
	}
	for i := range s.leaders {
		s.leaders[i].sessions[c] = deadlineState{gone: 1}
	}
}

func (r sessions) clientSteps(s sessionState, c int, to toSession) {
	cl := s.clients[c]
	if cl.life == lost {
		if cl.table == open || cl.table == marked {
			t := s
			r.end(&t, c)
			to(step{"the session of client %A ends", c, 0}, t)
		}
	}
	if cl.table == ending {
		t := s
		t.clients[c].table = over
		t.keys[mostKeys-1].holders &^= 1 << c
		to(step{"the last slice of the session of client %A frees a key", c, 0}, t)
	}
	if cl.life == opening && cl.table == unopened && s.elected == s.term {
		t := s
		t.clients[c].table = open
		t.clients[c].beats[0].acked = 1
		t.leaders[s.term].sessions[c] = deadlineState{left: r.ttl}
		to(step{"the session of client %A is opened", c, 0}, t)
	}
	if cl.life == living && cl.trust > 0 && cl.trust < r.trust() {
		r.send(s, c, to)
	}
	for b := range r.beats {
		beat := cl.beats[b]
		if beat.trust == 0 {
			continue
		}
		if beat.acked != 0 {
			t := s
			r.hearAck(&t, c, b)
			to(step{"client %A hears the confirmation", c, b}, t)
		}
		if cl.life != living {
			continue
		}
		t := s
		t.clients[c].beats[b] = beatState{}
		to(step{"client %A gives up a beat", c, b}, t)
		if beat.acked != 0 {
			continue
		}
		for i := range r.leaders {
			if l := &s.leaders[i]; l.life == serving && beat.at[i] == 0 && l.sessions[c].gone == 0 {
				t := s
				r.receive(&t, i, c, b, r.ttl)
				to(step{"leader %b receives a beat of client %A", c, i + 1}, t)
			}
		}
	}
}

func (r sessions) send(s sessionState, c int, to toSession) {
	free := -1
	for b := range r.beats {
		switch s.clients[c].beats[b].trust {
		case 0:
			free = b
		case r.trust():
			return // sent in the same tick
		}
	}
	if free >= 0 {
		s.clients[c].beats[free] = beatState{trust: r.trust()}
		to(step{"client %A sends a beat", c, 0}, s)
	}
}

// hearAck extends the trust. A window that is over stays so: the client is lost then.
func (r sessions) hearAck(s *sessionState, c, b int) {
	cl := &s.clients[c]
	cl.life = living
	cl.trust = max(cl.trust, cl.beats[b].trust)
	for b := range cl.beats {
		if cl.beats[b].trust <= cl.trust {
			cl.beats[b] = beatState{}
		}
	}
}

// busy reports whether the answers to beats wait for an entry about the session.
func (r sessions) busy(d *deadlineState) bool {
	switch {
	case d.phase == 0:
		return false
	case d.entry == expire:
		return r.expiryHolds
	case d.entry == silence:
		return r.markHolds
	}
	return true
}

// receive is keeper.receive, for a beat that moves the deadline to at least end.
func (r sessions) receive(s *sessionState, i, c, b int, end uint8) {
	beat, d := &s.clients[c].beats[b], &s.leaders[i].sessions[c]
	switch {
	case r.busy(d):
		beat.at[i], beat.due[i] = waits, end
		return
	case d.silent != 0 && r.silenceHolds:
		beat.at[i], beat.due[i] = waits, end
		d.entry, d.phase = hear, proposed
		return
	}
	if !r.fullTTL {
		end = min(end, r.ttl*2/3)
	}
	beat.at[i], beat.due[i] = received, 0
	d.left = max(d.left, end)
	if !r.confirms {
		beat.ack()
	}
}

func (b *beatState) ack() { *b = beatState{trust: b.trust, acked: 1} }

// roundSteps are rounds.run and confirmTerm.
func (r sessions) roundSteps(s sessionState, i int, to toSession) {
	l := &s.leaders[i]
	leads := !r.leads || int(s.voters[l.voter]) == i
	switch l.round {
	case 0:
		t, any := s, false
		for c := range r.clients {
			for b := range r.beats {
				if t.clients[c].beats[b].at[i] == received {
					t.clients[c].beats[b].at[i], any = inRound, true
				}
			}
		}
		if any && leads {
			t.leaders[i].round = asking
			to(step{"leader %b begins a round", 0, i + 1}, t)
		}
	case asking:
		for v := range voters {
			if v != int(l.voter) && int(s.voters[v]) <= i {
				t := s
				t.leaders[i].round = confirmed
				to(step{"a voter beside its own confirms leader %b", 0, i + 1}, t)
				break
			}
		}
		t := s
		t.leaders[i].round = 0
		for c := range r.clients {
			t.drop(i, c, inRound)
		}
		to(step{"the round of leader %b fails", 0, i + 1}, t)
	case confirmed:
		if !leads {
			return
		}
		t := s
		t.leaders[i].round = 0
		for c := range r.clients {
			for b := range r.beats {
				if at := t.clients[c].beats[b].at[i]; at == inRound || at == received && !r.asksAfter {
					r.confirmed(&t, i, c, b)
				}
			}
		}
		to(step{"leader %b ends the round", 0, i + 1}, t)
	}
}

// confirmed is keeper.confirmed.
func (r sessions) confirmed(s *sessionState, i, c, b int) {
	beat, d := &s.clients[c].beats[b], &s.leaders[i].sessions[c]
	switch {
	case r.busy(d):
		beat.at[i], beat.due[i] = waits, 0 // the deadline has moved already
	case d.silent != 0 && r.silenceHolds:
		r.receive(s, i, c, b, 0)
	default:
		beat.ack()
	}
}

// keeperSteps are the proposals of leader i about a session.
func (r sessions) keeperSteps(s sessionState, i, c int, to toSession) {
	d := &s.leaders[i].sessions[c]
	if d.gone != 0 || d.phase != 0 {
		return
	}
	if d.silent == 0 {
		t := s
		t.leaders[i].sessions[c].entry, t.leaders[i].sessions[c].phase = silence, proposed
		to(step{"leader %b proposes to mark the session of client %A", c, i + 1}, t)
	}
	if d.left == 0 || !r.due {
		t := s
		t.leaders[i].sessions[c].entry, t.leaders[i].sessions[c].phase = expire, proposed
		to(step{"leader %b proposes to end the session of client %A", c, i + 1}, t)
	}
}

var entryNames = [...]string{silence: "the mark", hear: "the end of the mark", expire: "the expiry"}

// commitSteps are the fates of an entry of leader i about a session.
func (r sessions) commitSteps(s sessionState, i, c int, to toSession) {
	d := s.leaders[i].sessions[c]
	name := entryNames[d.entry]
	switch d.phase {
	case proposed:
		now := int(s.elected)
		own := i == now && i == int(s.term)
		// A goroutine of an earlier term hands its entry to raft only now.
		stale := i < now && now == int(s.term) && s.leaders[i].voter == s.leaders[now].voter
		if own || stale && !r.termBound {
			t := s
			r.apply(&t, d.entry, c, i)
			t.leaders[i].sessions[c].phase = committed
			if stale {
				t.leaders[i].sessions[c] = deadlineState{gone: 1}
				to(step{name + " of client %A, decided in term %b, is committed in a later one", c, i + 1}, t)
			} else {
				to(step{name + " of client %A is committed", c, i + 1}, t)
			}
		}
		if s.leaders[i].life == serving {
			t := s
			t.leaders[i].sessions[c].entry, t.leaders[i].sessions[c].phase = 0, 0
			t.drop(i, c, waits)
			to(step{"leader %b hears that " + name + " of client %A is in no log", c, i + 1}, t)
		}
	case committed:
		if s.leaders[i].life == serving {
			t := s
			r.decided(&t, i, c)
			to(step{"leader %b hears that " + name + " of client %A is committed", c, i + 1}, t)
		}
	}
}

// drop answers the beats of a client at leader i, all or of a kind: the client may send
// them again.
func (s *sessionState) drop(i, c int, kind uint8) {
	for b := range s.clients[c].beats {
		if beat := &s.clients[c].beats[b]; kind == 0 || beat.at[i] == kind {
			beat.at[i], beat.due[i] = 0, 0
		}
	}
}

// decided is keeper.decided after a success.
func (r sessions) decided(s *sessionState, i, c int) {
	d := &s.leaders[i].sessions[c]
	entry := d.entry
	d.entry, d.phase = 0, 0
	switch entry {
	case expire:
		if r.endsForGood || s.clients[c].table == over {
			*d = deadlineState{gone: 1}
			s.drop(i, c, 0)
			return
		}
	case silence:
		d.silent = 1
	case hear:
		d.silent = 0
	}
	for b := range r.beats {
		if beat := &s.clients[c].beats[b]; beat.at[i] == waits {
			d.left = max(d.left, beat.due[i])
			r.receive(s, i, c, b, beat.due[i])
		}
	}
}

// apply applies an entry proposed in term i.
func (r sessions) apply(s *sessionState, entry uint8, c, i int) {
	cl := &s.clients[c]
	if r.termBound && int(s.term) != i || cl.table != open && cl.table != marked {
		return
	}
	switch entry {
	case silence:
		if cl.table == open {
			cl.table, cl.markLeft = marked, r.ttl
			if !r.markFull {
				cl.markLeft = r.ttl / 3
			}
		}
	case hear:
		cl.table, cl.markLeft = open, 0
	case expire:
		r.end(s, c)
	}
}

// end ends a session in the table. With two keys, the second is free with a later slice.
func (r sessions) end(s *sessionState, c int) {
	cl := &s.clients[c]
	cl.table, cl.markLeft = over, 0
	s.keys[0].holders &^= 1 << c
	if r.keys > 1 {
		cl.table = ending
	}
}
