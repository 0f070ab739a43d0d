package survival

// heal plays a calm end: no cut, and no process down unless the silence of the
// process means death. Members meet, adopt decided foundings, and hold ballots.
// Without a voice, members of a cluster without an answer are restarted in turn.
func (u succession) heal(s lifeState) string {
	s.side = 0
	for c := clusterID(mostClusters); u.voice != assumeGone && c <= mostClusters; c-- { // successors first
		for q := range u.slots {
			if s.down.has(q) && s.in[q] == c && !u.ghosts.has(q) {
				s = u.started(s, q)
			}
		}
	}
	for range 3 * u.slots {
		u.calmMeetings(&s)
		for c := clusterID(1); c <= mostClusters; c++ {
			if u.leader(&s, c) >= 0 && (s.clusters[c].lifted || u.mayLift(&s, c)) {
				return u.strays(&s, c)
			}
		}
		if s.in == [mostSlots]clusterID{} && u.voice == recovery {
			return "" // nobody is in a cluster: the first founding
		}
		for c := clusterID(1); c <= mostClusters; c++ {
			if u.leader(&s, c) >= 0 {
				return deadEnd + " a silent cluster has a leader: members of another one hold it back"
			}
		}
		before := s
		if u.voice == noVoice {
			restarted := false
			for q := range u.slots {
				if s.in[q] != 0 && !restarted {
					s.restart(q)
					restarted = true
				}
			}
			if !restarted {
				return "" // nobody remembers a cluster: the first founding
			}
		} else {
			u.calmBallot(&s)
		}
		if s == before {
			break
		}
	}
	return deadEnd + " every fault has ended"
}

// strays names the member in another cluster than c, the granting cluster.
func (u succession) strays(s *lifeState, c clusterID) string {
	for q := range u.slots {
		if d := s.in[q]; d != 0 && d != c && !s.down.has(q) {
			return slotName(q) + " stays for ever in a cluster that grants nothing"
		}
	}
	return ""
}

// calmMeetings has every process meet every other, until no process has a reason
// to change its cluster.
func (u succession) calmMeetings(s *lifeState) {
	for changed := true; changed; {
		changed = false
		for q := range u.slots {
			for r := range u.slots {
				if c := s.in[r]; c != 0 && s.in[q] == 0 && u.named(s, q, c) {
					was := s.in[q]
					s.adopt(q, c)
					changed = changed || s.in[q] != was
				}
			}
			u.meetingSteps(*s, q, func(_ label, t lifeState) {
				*s, changed = t, true
			})
		}
	}
	s.tidy()
}

// calmBallot holds a ballot without lost messages.
func (u succession) calmBallot(s *lifeState) {
	p := 0
	for p < u.slots-1 && (s.down.has(p) || u.voice == recovery && s.in[p] == 0) {
		p++
	}
	b := u.ballots
	t := *s
	t.ballots[b] = lifeBallot{}
	all := mask(0)
	for q := range u.slots {
		all |= 1<<s.in[q] | s.retired[q]
	}
	v := u
	v.atomic = false
	v.open(t, b, p, func(_ label, opened lifeState) { t = opened })
	t.ballots[b].ends |= all &^ 1
	for q := range u.slots {
		if t.ballots[b].group.has(q) {
			t, _ = u.promise(t, b, q)
		}
	}
	// A retired member stays retired, also if the ballot fails.
	for q := range u.slots {
		s.in[q], s.version[q], s.retired[q] = t.in[q], t.version[q], t.retired[q]
	}
	t, ok := u.propose(t, b)
	if !ok {
		return
	}
	for q := range u.slots {
		t, _ = u.accept(t, b, q)
	}
	if u.chosen(&t, &t.ballots[b]) {
		for q := range u.slots {
			if c := t.ballots[b].value; u.named(&t, q, c) {
				t.adopt(q, c)
			}
		}
		*s = t
	}
}
