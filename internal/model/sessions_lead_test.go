package model

// electionSteps are a won election, the start of the winner's term, and the same leader's
// term established anew.
func (r sessions) electionSteps(s sessionState, to toSession) {
	now := int(s.elected)
	if next := now + 1; next < r.leaders {
		for x := range voters {
			if now == 0 && x == 2 {
				continue // like voter B
			}
			for v := range voters {
				if v != x {
					t := s
					t.elected = uint8(next)
					t.voters[x], t.voters[v] = uint8(next), uint8(next)
					t.leaders[next] = leaderState{voter: uint8(x), life: elected}
					for c := range t.leaders[next].sessions {
						t.leaders[next].sessions[c].gone = 1
					}
					r.depose(&t)
					to(step{"voters %A and %B elect %A", x, v}, t)
				}
			}
		}
	}
	l := &s.leaders[now]
	if l.life == elected {
		r.fates(s, int(s.term), func(t sessionState) {
			r.begin(&t, now)
			to(step{"leader %b starts", 0, now + 1}, t)
		})
	}
	if l.life == serving && int(s.doubts) < r.doubts && int(s.voters[l.voter]) == now {
		again := func(t sessionState) {
			t.doubts++
			r.begin(&t, now)
			to(step{"leader %b doubts an entry and starts anew", 0, now + 1}, t)
		}
		r.fates(s, now, again)
		for c := range r.clients {
			if d := &l.sessions[c]; !r.barrier && d.phase == proposed {
				t := s
				t.stray, t.strayOf = d.entry, uint8(c)
				again(t)
			}
		}
	}
	if s.stray != 0 {
		t := s
		t.stray, t.strayOf = 0, 0
		r.apply(&t, s.stray, int(s.strayOf), int(s.term))
		to(step{entryNames[s.stray] + " of client %A, doubted, is committed", int(s.strayOf), 0}, t)
	}
}

// depose stops the earlier leaders with news of the election, and leaders without a voter to
// confirm anything any more: to go on would change nothing for anybody. Their entries may be
// committed still.
func (r sessions) depose(s *sessionState) {
	for i := range int(s.elected) {
		l := &s.leaders[i]
		if l.life == 0 || l.life == deposed || !r.leads || !r.confirms {
			continue
		}
		can := l.round == confirmed
		for v := range voters {
			can = can || v != int(l.voter) && int(s.voters[v]) <= i
		}
		if l.life == serving && can && int(s.voters[l.voter]) == i {
			continue
		}
		l.life, l.round = deposed, 0
		for c := range r.clients {
			d := &l.sessions[c]
			*d = deadlineState{gone: 1, entry: d.entry, phase: d.phase}
			if d.phase != proposed {
				d.entry, d.phase = 0, 0
			}
			s.drop(i, c, 0)
		}
	}
}

// fates calls f for each combination of fates of the entries in flight of leader i: in the
// log of the next leader and committed before its first entry, or in no log.
func (r sessions) fates(s sessionState, i int, f func(sessionState)) {
	var open []int
	for c := range r.clients {
		if s.leaders[i].sessions[c].phase == proposed {
			open = append(open, c)
		}
	}
	for chosen := range 1 << len(open) {
		t := s
		for n, c := range open {
			if chosen>>n&1 != 0 {
				r.apply(&t, s.leaders[i].sessions[c].entry, c, i)
			}
		}
		f(t)
	}
}

// begin is term.Establish, Term.Start and keeper.begin, behind the barrier.
func (r sessions) begin(s *sessionState, i int) {
	again := int(s.term) == i && s.leaders[i].life == serving
	s.term = uint8(i)
	if !again {
		s.stray, s.strayOf = 0, 0
	}
	if !again && !r.keepsCounter {
		s.token = 0
		for _, k := range s.keys {
			if k.holders != 0 {
				s.token = max(s.token, k.token)
			}
		}
	}
	for j := range i {
		for c := range r.clients {
			if d := &s.leaders[j].sessions[c]; r.termBound && d.phase == proposed {
				d.entry, d.phase = 0, 0
				s.drop(j, c, waits)
			}
		}
	}
	l := &s.leaders[i]
	l.life, l.round = serving, 0
	for c := range r.clients {
		s.drop(i, c, 0)
		cl, d := &s.clients[c], &l.sessions[c]
		*d = deadlineState{left: r.ttl}
		switch {
		case cl.life == lost || cl.table == unopened || cl.table == over || cl.table == ending:
			*d = deadlineState{gone: 1}
		case cl.table == marked:
			d.silent, d.left = 1, cl.markLeft
		case !r.freshTTL:
			d.left = 0
		}
	}
}

func (r sessions) lockSteps(s sessionState, c, k int, to toSession) {
	cl := &s.clients[c]
	l := cl.locks[k]
	is := func(text string, t sessionState) { to(step{text, c, k}, t) }
	if cl.life == living && l.held == 0 && l.asked == 0 && int(s.token) < r.grants {
		t := s
		t.clients[c].locks[k].asked = underWay
		is("client %A asks for the key", t)
	}
	switch dead := cl.table != open && cl.table != marked; {
	case l.asked == underWay && dead && r.openOnly:
		t := s
		t.clients[c].locks[k].asked = 0
		is("a late request of client %A is refused", t)
	case l.asked == underWay && (s.keys[k].holders == 0 || !r.exclusive) && int(s.token) < r.grants:
		t := s
		t.grant(c, k)
		t.clients[c].locks[k].asked, t.clients[c].locks[k].token = granted, t.token
		if dead {
			t.bad = deadHolder
		}
		if cl.life == lost && r.aliveAtGrant {
			t.clients[c].locks[k].asked = 0
		}
		is("the key is granted to client %A", t)
	case l.asked == granted && cl.life != opening:
		t := s
		t.clients[c].locks[k].asked, t.clients[c].locks[k].held = 0, trusted
		if cl.life == lost {
			t.clients[c].locks[k].held = blindly
		}
		is("client %A hears of its grant", t)
	}
	if l.held == trusted && l.release == 0 {
		t := s
		t.clients[c].locks[k].release = l.token
		t.clients[c].locks[k].held = 0
		if !r.endsFirst {
			t.clients[c].locks[k].held = freed
		}
		is("client %A releases", t)
	}
	if l.held == freed {
		t := s
		t.clients[c].locks[k].held = 0
		is("the context of client %A's lock ends", t)
	}
	if l.release != 0 {
		t := s
		if s.keys[k].holders>>c&1 != 0 && (!r.byToken || s.keys[k].token == l.release) {
			t.keys[k].holders &^= 1 << c
			if !r.byToken {
				is("a copy of the Release of client %A arrives, and another is under way", t)
			}
		}
		t.clients[c].locks[k].release = 0
		is("the Release of client %A arrives", t)
	}
}

// grant makes c a holder.
func (s *sessionState) grant(c, k int) {
	if s.keys[k].holders != 0 {
		s.bad = twoHolders
	}
	if s.token++; s.token <= s.highest {
		s.bad = tokenFell
	}
	s.highest = max(s.highest, s.token)
	s.keys[k].holders |= 1 << c
	s.keys[k].token = s.token
}

// otherSteps are the steps of a client without a clock.
func (r sessions) otherSteps(s sessionState, k int, to toSession) {
	t := s
	if s.keys[k].holders>>other&1 != 0 {
		t.keys[k].holders &^= 1 << other
		to(step{"the other releases", 0, k}, t)
		return
	}
	if (s.keys[k].holders == 0 || !r.exclusive) && int(s.token) < r.grants {
		t.grant(other, k)
		to(step{"the key is granted to the other", 0, k}, t)
	}
}
