package survival

// leads reports whether slot p can lead its cluster: a majority of the voters
// known to p is on p's side and knows no later voters.
func (u succession) leads(s *lifeState, p int) bool {
	c := s.in[p]
	if c == 0 {
		return false
	}
	voters := s.clusters[c].voters[s.version[p]]
	if !voters.live(p) {
		return false
	}
	votes := 0
	for q := range u.slots {
		if s.in[q] == c && voters.live(q) && s.version[q] <= s.version[p] && s.reaches(p, q) {
			votes++
		}
	}
	return votes >= majority(voters.size())
}

// reaches reports whether a message passes between two slots.
func (s *lifeState) reaches(p, q int) bool {
	return s.side.has(p) == s.side.has(q) && !s.down.has(p) && !s.down.has(q)
}

// leader returns the slot of a leader of c, or -1.
func (u succession) leader(s *lifeState, c clusterID) int {
	for p := range u.slots {
		if s.in[p] == c && u.leads(s, p) {
			return p
		}
	}
	return -1
}

// mayAnswer reports whether the voter in slot q sees its cluster alive: q reaches a
// leader with a majority, or a majority of the voters known to q.
func (u succession) mayAnswer(s *lifeState, q int) bool {
	c := s.in[q]
	for p := range u.slots {
		if s.in[p] == c && s.reaches(p, q) && u.leads(s, p) {
			return true
		}
	}
	version := s.version[q]
	if !u.newest && version > 0 {
		version-- // the latest entry is appended, and not known to be committed
	}
	voters, reached := s.clusters[c].voters[version], 0
	for r := range u.slots {
		if s.in[r] == c && voters.live(r) && s.reaches(q, r) {
			reached++
		}
	}
	return reached >= majority(voters.size())
}

// leaderSteps are the changes of a cluster's voters by the leader in slot p.
func (u succession) leaderSteps(s lifeState, p int, to func(label, lifeState)) {
	c := s.in[p]
	k := &s.clusters[c]
	voters := k.voters[s.version[p]]
	for q := range u.slots {
		if s.in[q] == c && s.reaches(p, q) && s.version[q] < s.version[p] {
			t := s
			t.version[q] = s.version[p]
			to(label{"$a hears from the leader", q, 0}, t)
		}
	}
	if int(s.changes) >= u.changes || k.newest+1 == mostVersions {
		return
	}
	for q := range u.slots {
		next, text := processes(0), ""
		switch {
		case voters.names(q) && (!voters.live(q) || !s.reaches(p, q)) && voters.size() > 1,
			voters.names(q) && q != p && voters.size() > wantedVoters: // shrinking removes followers
			next, text = voters.without(q), "the leader $b removes voter $a"
		case !voters.names(q) && s.reaches(p, q) && s.in[q] == 0 && s.retired[q]>>c&1 == 0,
			!voters.names(q) && s.reaches(p, q) && s.in[q] == c:
			if voters.size() >= wantedVoters && u.oneByOne {
				continue
			}
			next, text = voters.with(q), "the leader $b adds voter $a"
		default:
			continue
		}
		if !u.oneByOne {
			for r := range u.slots {
				if next.names(r) && !s.reaches(p, r) && next.names(q) {
					next = next.without(r)
				}
			}
		}
		for late := -1; late < u.slots; late++ {
			if late == p || late == q && next.names(q) || late >= 0 && (s.in[late] != c || !next.live(late) || !s.reaches(p, late)) {
				continue
			}
			t := s
			t.changes += counted(u.changes)
			d := &t.clusters[c]
			d.newest++
			d.voters[d.newest] = next
			if next.names(q) {
				t.join(q, c, d.newest)
			}
			have := 0
			for r := range u.slots {
				if r != late && t.in[r] == c && next.live(r) && s.reaches(p, r) {
					t.version[r] = d.newest
					have++
				}
			}
			if have >= majority(next.size()) {
				to(label{text, q, p}, t)
			}
		}
	}
}

// leave ends the membership of slot q for good.
func (s *lifeState) leave(q int) {
	s.retired[q] |= 1 << s.in[q]
	s.in[q], s.version[q] = 0, 0
}

// join makes slot q a member of c with voters of this version.
func (s *lifeState) join(q int, c clusterID, version uint8) {
	s.in[q], s.version[q] = c, version
}
