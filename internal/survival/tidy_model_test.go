package survival

// tidy forgets everything without a meaning for any rule. States with no other
// difference become the same state.
func (s *lifeState) tidy() {
	for b := range s.ballots {
		bal := &s.ballots[b]
		if bal.by == ended {
			*bal = lifeBallot{by: ended, value: bal.value, decided: bal.decided, promises: bal.promises}
			if bal.value == 0 {
				bal.promises = 0
			}
		}
	}
	defer s.tidyBallots()
	for c := clusterID(1); c <= mostClusters; c++ {
		if s.known(c) {
			s.renumber(c)
			continue
		}
		s.clusters[c] = cluster{}
		for q := range s.retired {
			s.retired[q] &^= 1 << c
			s.shunned[q] &^= 1 << c
		}
		for d := range s.clusters {
			s.clusters[d].ends &^= 1 << c
		}
		for b := range s.ballots {
			bal := &s.ballots[b]
			if bal.ends &^= 1 << c; bal.value == c {
				*bal = lifeBallot{by: ended}
			}
		}
	}
}

// tidyBallots makes the number of a ballot free again once nothing can come of
// the ballot.
func (s *lifeState) tidyBallots() {
	dead := uint8(0) // ballots below, all dead
	for b := range s.ballots {
		if bal := &s.ballots[b]; bal.by == ended && bal.value == 0 {
			*bal = lifeBallot{}
			for q := range s.accepted {
				if int(s.accepted[q]) == b+1 {
					s.accepted[q] = 0
				}
			}
		}
		if s.ballots[b].by == 0 && int(dead) == b {
			dead++
		}
	}
	for q := range s.promised {
		if s.promised[q] <= dead {
			s.promised[q] = 0
		}
	}
}

// known reports whether anything may still come of cluster c.
func (s *lifeState) known(c clusterID) bool {
	if s.trusted>>c&1 != 0 {
		return true
	}
	for q := range s.in {
		if s.in[q] == c || s.accepted[q] != 0 && s.ballots[s.accepted[q]-1].value == c {
			return true
		}
	}
	for b := range s.ballots {
		bal := &s.ballots[b]
		for q := range s.in {
			if bal.value == c && bal.promises.live(q) || bal.accepted[q] != 0 && s.ballots[bal.accepted[q]-1].value == c {
				return true
			}
		}
	}
	return false
}

// renumber drops the versions of c's voters unknown to every process, except the
// first version, adopted by late members.
func (s *lifeState) renumber(c clusterID) {
	k := &s.clusters[c]
	var used [mostVersions]bool
	used[0] = c > 1
	for q := range s.in {
		if s.in[q] == c {
			used[s.version[q]] = true
		}
	}
	n := uint8(0)
	for v := range used {
		if !used[v] {
			k.voters[v] = 0
			continue
		}
		for q := range s.in {
			if s.in[q] == c && int(s.version[q]) == v {
				s.version[q] = n
			}
		}
		if k.voters[n] = k.voters[v]; int(n) != v {
			k.voters[v] = 0
		}
		n++
	}
	k.newest = max(n, 1) - 1
}
