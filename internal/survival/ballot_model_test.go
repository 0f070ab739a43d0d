package survival

// open begins ballot b. The ballot ends the clusters in the proposer's sight.
func (u succession) open(s lifeState, b, p int, to func(label, lifeState)) {
	bal := &s.ballots[b]
	bal.by = uint8(p + 1)
	for q := range u.slots {
		switch u.voice {
		case completeList:
			if u.listed.has(q) {
				bal.group |= 1 << q
			}
		case assumeGone:
			if s.reaches(p, q) {
				bal.group |= 1 << q
			}
		case knownVoters:
			if c := s.in[p]; c != 0 && s.clusters[c].voters[s.version[p]].names(q) {
				bal.group |= 1 << q
			}
		case recovery:
			if s.in[p] != 0 && !s.down.has(q) { // Recover is a survivor's
				bal.group |= 1 << q
			}
		}
		if c := s.in[q]; c != 0 && s.reaches(p, q) {
			bal.ends |= 1 << c
		}
		if s.reaches(p, q) {
			bal.ends |= s.retired[q]
		}
	}
	if bal.group == 0 {
		return
	}
	for q := range u.slots {
		if u.voice == recovery && !u.returns && s.down.has(q) {
			s.restart(q) // gone, as the operator says
		}
	}
	if !u.atomic {
		to(label{"$a opens ballot #b", p, b}, s)
		return
	}
	for q := range u.slots {
		if bal.group.has(q) && s.reaches(p, q) {
			s, _ = u.promise(s, b, q)
		}
	}
	to(label{"$a opens ballot #b, and its side answers", p, b}, s)
}

func (u succession) ballotSteps(s lifeState, b int, to func(label, lifeState)) {
	bal := &s.ballots[b]
	p := int(bal.by) - 1
	running := bal.by != ended
	for q := range u.slots {
		if running && !u.atomic && bal.value == 0 && bal.group.has(q) {
			if t, ok := u.promise(s, b, q); ok {
				to(label{"$a answers ballot #b", q, b}, t)
			}
		}
		if bal.value != 0 {
			if t, ok := u.accept(s, b, q); ok {
				to(label{"$a accepts in ballot #b", q, b}, t)
			}
			if bal.decided && u.named(&s, q, bal.value) {
				t := s
				t.adopt(q, bal.value)
				if t != s {
					to(label{"$a hears what ballot #b has chosen", q, b}, t)
				}
			}
		}
	}
	if !running {
		return
	}
	if bal.value == 0 {
		if t, ok := u.propose(s, b); ok {
			to(label{"$a has every promise for ballot #b", p, b}, t)
		}
	} else if !bal.decided && u.chosen(&s, bal) {
		t := s
		t.ballots[b].decided = true
		if u.named(&s, p, bal.value) {
			t.adopt(p, bal.value)
		}
		to(label{"$a knows that ballot #b has chosen", p, b}, t)
	}
}

// chosen reports whether enough members have accepted.
func (u succession) chosen(s *lifeState, bal *lifeBallot) bool {
	if u.allAccept {
		return bal.accepts.size() >= bal.promises.size()
	}
	have, founders := 0, s.clusters[bal.value].founders
	for q := range u.slots {
		if founders.live(q) && bal.accepts.has(q) {
			have++
		}
	}
	return have >= majority(founders.size())
}

// adopt makes slot q a member of c, unless q is in a cluster or has left c.
func (s *lifeState) adopt(q int, c clusterID) {
	if s.in[q] == 0 && (s.retired[q]|s.shunned[q])>>c&1 == 0 && !s.down.has(q) {
		s.join(q, c, 0)
	}
}

// named reports whether c names the process in slot q among its first voters.
func (u succession) named(s *lifeState, q int, c clusterID) bool {
	return s.clusters[c].founders.live(q)
}

// promise has slot q answer the Prepare of ballot b.
func (u succession) promise(s lifeState, b, q int) (lifeState, bool) {
	bal := &s.ballots[b]
	p := int(bal.by) - 1
	if s.down.has(q) || bal.promises.live(q) || int(s.promised[q]) > b+1 {
		return s, false
	}
	if c := s.in[q]; c != 0 {
		if bal.ends>>c&1 == 0 {
			before := s.in[p]
			if u.named(&s, p, c) {
				s.adopt(p, c)
			}
			return s, s.in[p] != before
		}
		if u.spares && u.mayAnswer(&s, q) {
			return s, false
		}
		if u.retires {
			lived := u.leader(&s, c) >= 0
			s.leave(q)
			s.killed = s.killed || lived && u.leader(&s, c) < 0
			bal = &s.ballots[b]
		}
	}
	s.promised[q] = uint8(b + 1)
	bal.promises = bal.promises.with(q)
	bal.accepted[q] = s.accepted[q]
	bal.ends |= s.retired[q]
	return s, true
}

// propose puts a value to the vote once the group has promised.
func (u succession) propose(s lifeState, b int) (lifeState, bool) {
	bal := &s.ballots[b]
	missing := 0
	for q := range u.slots {
		answered := bal.promises.names(q) // if it has restarted since, it will not accept
		for _, pair := range u.shared {
			answered = answered || pair.has(q) && u.anyOf(bal, pair)
		}
		if bal.group.has(q) && !answered {
			missing++
		}
	}
	if missing > 0 && (u.whole || bal.group.size()-missing < majority(bal.group.size())) {
		return s, false
	}
	best := uint8(0)
	for q := range u.slots {
		if bal.promises.live(q) {
			best = max(best, bal.accepted[q])
		}
	}
	if best != 0 && u.repeats {
		c := s.ballots[best-1].value
		live := 0
		for q := range u.slots {
			if s.clusters[c].founders.live(q) {
				live++
			}
		}
		if !u.supersedes || live >= majority(s.clusters[c].founders.size()) && bal.ends>>c&1 == 0 {
			bal.value = c
			return s, true
		}
	}
	c := clusterID(2)
	for s.clusters[c].founders != 0 {
		if c++; c > mostClusters {
			return s, false
		}
	}
	k := &s.clusters[c]
	for i := range u.slots {
		q := i
		if b == 1 {
			q = u.slots - 1 - i // the proposers differ in their choice of voters
		}
		if bal.promises.names(q) && k.founders.size() < u.size {
			if k.founders = k.founders.with(q); !bal.promises.live(q) {
				k.founders = k.founders.restarted(q)
			}
		}
	}
	k.voters[0] = k.founders
	k.ends = bal.ends
	if u.ancestry {
		for d := range mostClusters {
			if bal.ends>>d&1 != 0 {
				k.ends |= s.clusters[d].ends
			}
		}
	}
	k.lifted = !u.silence
	bal.value = c
	return s, true
}

func (u succession) anyOf(bal *lifeBallot, pair mask) bool {
	for q := range u.slots {
		if pair.has(q) && bal.promises.live(q) {
			return true
		}
	}
	return false
}

// accept has slot q answer the Accept of ballot b.
func (u succession) accept(s lifeState, b, q int) (lifeState, bool) {
	bal := &s.ballots[b]
	if s.down.has(q) || int(s.promised[q]) > b+1 || int(s.accepted[q]) >= b+1 {
		return s, false
	}
	if !bal.promises.live(q) && (u.sameProcess || !bal.promises.names(q)) {
		return s, false
	}
	switch c := s.in[q]; {
	case c == 0 || !u.again:
	case u.retires || bal.ends>>c&1 == 0 || u.mayAnswer(&s, q):
		return s, false
	}
	s.promised[q], s.accepted[q] = uint8(b+1), uint8(b+1)
	if bal.by != ended {
		bal.accepts |= 1 << q
	}
	if u.shuns {
		s.shunned[q] |= s.clusters[bal.value].ends
	}
	return s, true
}
