package survival

func (u succession) faults(s lifeState, to func(label, lifeState)) {
	for q := range u.slots {
		if !s.down.has(q) && int(s.restarts) < u.restarts && u.restarting.has(q) {
			t := s
			t.restarts += counted(u.restarts)
			t.restart(q)
			to(label{"$a restarts without memory", q, 0}, t)
			if s.side != 0 && u.moves {
				t.side ^= 1 << q
				to(label{"$a restarts without memory, on the other side", q, 0}, t)
			}
			for g := range u.slots {
				if u.ghosts.has(g) && s.down.has(g) {
					t := s
					t.restarts += counted(u.restarts)
					t.ghost(q, g)
					t.side ^= 1 << q
					to(label{"$a is deleted and lives on as $b; the new $a is on the other side", q, g}, t)
				}
			}
		}
		if !s.down.has(q) && int(s.crashes) < u.crashes && u.crashing.has(q) {
			t := s
			t.crashes += counted(u.crashes)
			if !u.dirs {
				t.restart(q)
			}
			t.down |= 1 << q
			to(label{"$a crashes", q, 0}, t)
		}
		if s.down.has(q) && !u.ghosts.has(q) && (u.alone || !u.unheard(&s, q)) {
			to(label{"$a starts again", q, 0}, u.started(s, q))
		}
	}
	if s.side != 0 && u.cutsMost > 0 {
		t := s
		t.side = 0
		to(label{"the cut heals", 0, 0}, t)
	} else if s.side == 0 && int(s.cuts) < u.cutsMost {
		for _, side := range u.cuts {
			t := s
			t.side = side
			t.cuts += counted(u.cutsMost)
			to(label{"the network is cut", 0, 0}, t)
		}
	}
}

// started puts the process of slot q up again. With a Dir the process is still a
// member of its cluster, unless another member tells of a successor.
func (u succession) started(s lifeState, q int) lifeState {
	s.down &^= 1 << q
	for d := clusterID(1); d <= mostClusters; d++ {
		if c := s.in[q]; u.asks && c != 0 && u.succeeds(&s, d, c) && u.remembered(&s, q, d) {
			s.leave(q)
		}
	}
	return s
}

// remembered reports whether a member in reach of q is in d or has left d.
func (u succession) remembered(s *lifeState, q int, d clusterID) bool {
	for r := range u.slots {
		if s.reaches(q, r) && (s.in[r] == d || (s.retired[r]|s.shunned[r])>>d&1 != 0) {
			return true
		}
	}
	return false
}

// unheard reports whether slot q, down, is in a cluster with successors, and nobody
// would tell q of any.
func (u succession) unheard(s *lifeState, q int) bool {
	up := *s
	up.down &^= 1 << q
	some := false
	for d := clusterID(1); d <= mostClusters; d++ {
		if c := s.in[q]; c != 0 && u.isSuccessor(s, d, c) {
			if u.remembered(&up, q, d) {
				return false
			}
			some = true
		}
	}
	return some
}

// isSuccessor reports whether d succeeds c in truth, directly or not.
func (u succession) isSuccessor(s *lifeState, d, c clusterID) bool {
	if u.succeeds(s, d, c) {
		return true
	}
	for e := clusterID(1); e <= mostClusters; e++ {
		if e != d && u.succeeds(s, d, e) && u.succeeds(s, e, c) {
			return true
		}
	}
	return false
}

// ghost moves the process of slot q to slot g, where no address leads to it, and
// puts a new process into q.
func (s *lifeState) ghost(q, g int) {
	move := func(p processes) processes {
		return p.without(g) | p>>(2*q)&3<<(2*g)
	}
	for c := range s.clusters {
		k := &s.clusters[c]
		k.founders = move(k.founders)
		for v := range k.voters {
			k.voters[v] = move(k.voters[v]).without(q)
		}
	}
	s.in[g], s.version[g], s.retired[g], s.shunned[g] = s.in[q], s.version[q], s.retired[q], s.shunned[q]
	s.down &^= 1 << g
	s.side = s.side&^(1<<g) | s.side>>q&1<<g
	s.restart(q)
}

// unlimited as a bound: the explorer need not count, and there are fewer states.
const unlimited = 1000

// counted is 1 unless a bound is unlimited.
func counted(bound int) uint8 {
	if bound == unlimited {
		return 0
	}
	return 1
}

func (s *lifeState) restart(q int) {
	s.promised[q], s.accepted[q], s.in[q], s.version[q], s.retired[q], s.shunned[q] = 0, 0, 0, 0, 0, 0
	for c := range s.clusters {
		k := &s.clusters[c]
		k.founders = k.founders.restarted(q)
		for v := range k.voters {
			k.voters[v] = k.voters[v].restarted(q)
		}
	}
	for b := range s.ballots {
		bal := &s.ballots[b]
		bal.promises = bal.promises.restarted(q)
		if int(bal.by) == q+1 {
			bal.by = ended
		}
	}
}
