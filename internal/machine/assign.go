package machine

// The leader's commands about a group, and the change of its number of shards.

func (s *State) assign(c Assign) Outcome {
	g := s.groups.get(c.Group)
	switch {
	case g == nil:
		return Outcome{Code: WrongVersion}
	case g.version != c.Version:
		return Outcome{Code: WrongVersion, Limit: g.version}
	case g.next != 0:
		return Outcome{Code: Resizing, Limit: uint64(g.next)}
	case len(c.Moves) == 0 || len(c.Moves) > MaxShards:
		return bad("Moves", MaxShards)
	}
	callers := g.places()
	to := make([]int32, len(c.Moves)) // indexes of the callers
	for i, m := range c.Moves {
		j := callers.of(m.Caller)
		if int(m.Shard) >= len(g.assigned) || i > 0 && c.Moves[i-1].Shard >= m.Shard || j < 0 || g.callers[j].absent != 0 {
			return bad("Moves", MaxShards)
		}
		to[i] = j
	}
	s.editGroup(c.Group, func(g *group) {
		g.settled = true
		for i, m := range c.Moves {
			before := g.assigned[m.Shard]
			if before == m.Caller {
				continue
			}
			if before != 0 {
				g.callers[callers.of(before)].part = s.commands
			}
			g.callers[to[i]].part = s.commands
			g.assigned[m.Shard] = m.Caller
		}
	})
	return Outcome{Code: OK}
}

func (s *State) dismiss(c Dismiss) Outcome {
	g := s.groups.get(c.Group)
	if g == nil || c.Since == 0 {
		return Outcome{Code: NoCaller}
	}
	i := g.caller(c.Caller)
	if i < 0 || g.callers[i].absent != c.Since {
		return Outcome{Code: NoCaller}
	}
	s.editGroup(c.Group, func(g *group) { g.drop(i) })
	return Outcome{Code: OK}
}

func (s *State) resize(owner *session, c Resize) Outcome {
	switch {
	case c.Seq == 0:
		return bad("Seq", 0)
	case owner.spent.has(c.Seq):
		return Outcome{Code: Withdrawn}
	case !validGroup(c.Group):
		return bad("Group", MaxGroupName)
	case c.From == 0 || c.From > MaxShards:
		return bad("From", MaxShards)
	case c.To == 0 || c.To > MaxShards || c.To == c.From:
		return bad("To", MaxShards)
	case !owner.spent.add(c.Seq):
		return bad("Seq", MaxGaps)
	}
	g := s.groups.get(c.Group)
	switch {
	case g == nil:
		return Outcome{Code: WrongShards}
	case g.shards != c.From && g.next != 0:
		return Outcome{Code: WrongShards, Limit: uint64(g.next)}
	case g.shards != c.From:
		return Outcome{Code: WrongShards, Limit: uint64(g.shards)}
	case g.next == c.To:
		return Outcome{Code: OK}
	case g.next != 0:
		return Outcome{Code: Resizing, Limit: uint64(g.next)}
	}
	if out := s.roomFor(g.sums(), groupSums{1, int(max(c.From, c.To))}); out.Code != 0 {
		return out
	}
	s.editGroup(c.Group, func(g *group) {
		g.shards, g.next, g.resized = c.From, c.To, true
		g.settled, g.assigned = false, nil
		for i := len(g.callers) - 1; i >= 0; i-- {
			if g.callers[i].absent != 0 {
				g.drop(i) // absent callers have nothing to end
			} else {
				g.callers[i].part = s.commands
			}
		}
	})
	return Outcome{Code: OK}
}

// reshard completes a Resize. No work of the old number is left then: each work runs
// under a grant of its shard's key, and no key is held; and a work begins only for a
// caller of the old number, and there is none.
func (s *State) reshard(c Reshard) Outcome {
	g := s.groups.get(c.Group)
	switch {
	case g == nil:
		return Outcome{Code: WrongVersion}
	case g.version != c.Version:
		return Outcome{Code: WrongVersion, Limit: g.version}
	case g.next == 0:
		return bad("Group", 0)
	}
	for i := range g.callers {
		if by := &g.callers[i]; !by.next {
			return Outcome{Code: Held, Holder: s.describe(by.session, 0, c.Group)}
		}
	}
	if shard, held := s.heldShard(c.Group, g.shards); held {
		key := ShardKey(c.Group, shard)
		return Outcome{Code: Held, Holder: s.describeHolder(&s.keys.get(key).holders[0], key)}
	}
	s.editGroup(c.Group, func(g *group) {
		g.shards, g.next = g.next, 0
		g.assigned = make([]uint32, g.shards)
		for i := range g.callers {
			g.callers[i].next, g.callers[i].part = false, s.commands
		}
	})
	return Outcome{Code: OK}
}
