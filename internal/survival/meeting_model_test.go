package survival

// meetingSteps are steps of a process in contact with another cluster.
func (u succession) meetingSteps(s lifeState, q int, to func(label, lifeState)) {
	c := s.in[q]
	if c == 0 {
		return
	}
	for r := range u.slots {
		d := s.in[r]
		if d == 0 || d == c || !s.reaches(q, r) {
			continue
		}
		if u.follows && (u.strangers || u.succeeds(&s, d, c)) && u.leads(&s, r) && !u.mayAnswer(&s, q) {
			t := s
			t.leave(q)
			to(label{"$a retires, for another cluster has a leader", q, 0}, t)
		}
		dissolved := u.dissolves && u.succeeds(&s, c, d) ||
			u.siblings && !u.succeeds(&s, c, d) && (s.clusters[d].lifted || c > d && !u.succeeds(&s, d, c))
		if dissolved && u.leads(&s, r) && !s.clusters[c].lifted {
			t := s
			t.leave(q)
			to(label{"$a leaves the successor, for the leader of another cluster lives", q, 0}, t)
		}
	}
}

// succeeds reports whether cluster c knows d as a predecessor.
func (u succession) succeeds(s *lifeState, c, d clusterID) bool {
	return s.clusters[c].ends>>d&1 != 0
}

// mayLift reports whether cluster c may grant for the first time.
func (u succession) mayLift(s *lifeState, c clusterID) bool {
	if u.healing && s.side != 0 {
		return false
	}
	p := u.leader(s, c)
	for q := range u.slots {
		if d := s.in[q]; u.holds && d != 0 && d != c && s.reaches(p, q) {
			return false
		}
	}
	return true
}

// lift ends the silence of c. Trust in locks of a cluster without confirmations
// has ended by then.
func (u succession) lift(s *lifeState, c clusterID) {
	s.clusters[c].lifted = true
	for d := clusterID(1); d < mostClusters; d++ {
		if d != c && u.leader(s, d) < 0 {
			s.trusted &^= 1 << d
		}
	}
	s.trusted |= 1 << c
}
