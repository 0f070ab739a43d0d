package machine

// checkGroups verifies the groups, and the sizes of all of them.
func (s checker) checkGroups() error {
	var sums groupSums
	enlisted := make(map[SessionID]int)
	for name, g := range s.groups.all {
		if err := s.checkGroup(name, g); err != nil {
			return err
		}
		sums.active += g.sums().active
		sums.shards += g.sums().shards
		for i := range g.callers {
			if c := &g.callers[i]; c.absent == 0 {
				enlisted[c.session]++
			}
		}
	}
	for id, n := range enlisted {
		if n > MaxEnlisted {
			return broken(10, "session %x has %d callers", id, n)
		}
	}
	if sums != s.groupSums || sums.active > MaxGroups || sums.shards > MaxAllShards || s.groups.n-sums.active > MaxGroups+MaxBusyGroups {
		return broken(13, "%d groups of sums %+v, counted %+v", s.groups.n, s.groupSums, sums)
	}
	return nil
}

func (s checker) checkGroup(name string, g *group) error {
	switch {
	case !validGroup(name) || g.shards == 0 || g.shards > MaxShards || g.next > MaxShards || g.next == g.shards:
		return broken(10, "group %q has %d shards, and then %d", name, g.shards, g.next)
	case g.version == 0 || g.version > s.commands:
		return broken(13, "group %q changed at command %d of %d", name, g.version, s.commands)
	case g.moves > MaxShards || g.drain > MaxGrace || g.grace > MaxGrace || len(g.callers) > MaxCallers:
		return broken(10, "group %q of %d callers has %d moves, %d ms drain, %d ms grace", name, len(g.callers), g.moves, g.drain, g.grace)
	case g.next != 0 && (!g.resized || g.settled || g.assigned != nil):
		return broken(13, "group %q is resized, settled %t, and has an assignment of %d shards", name, g.settled, len(g.assigned))
	case g.next == 0 && len(g.callers) > 0 && len(g.assigned) != int(g.shards):
		return broken(13, "group %q has %d shards, and %d are assigned", name, g.shards, len(g.assigned))
	case len(g.callers) == 0 && (g.settled || g.assigned != nil):
		return broken(13, "group %q has no callers, is settled %t, and has an assignment of %d shards", name, g.settled, len(g.assigned))
	}
	for i := range g.callers {
		if err := s.checkCaller(name, g, i); err != nil {
			return err
		}
	}
	for shard, id := range g.assigned {
		if i := g.caller(id); id != 0 && (i < 0 || g.callers[i].next) {
			return broken(13, "shard %d of %q is assigned to caller %d, which is not in the group", shard, name, id)
		}
	}
	return nil
}

func (s checker) checkCaller(name string, g *group, i int) error {
	c := &g.callers[i]
	o := s.sessions.get(c.session)
	switch {
	case c.id == 0 || c.id > g.ids || i > 0 && g.callers[i-1].id >= c.id:
		return broken(13, "caller %d of %q out of order, or above %d", c.id, name, g.ids)
	case c.client == "" || !validName(c.client) || !validName(c.node) || !validName(c.succeeds) || c.weight > MaxWeight:
		return broken(10, "caller %d of %q has a name or a weight over its limit", c.id, name)
	case c.part > g.version || c.absent > g.version || (c.part == 0) != c.next:
		return broken(13, "caller %d of %q changed at %d, left at %d, of the next number %t", c.id, name, c.part, c.absent, c.next)
	case c.next && g.next == 0:
		return broken(13, "caller %d of %q waits for no number", c.id, name)
	case c.absent != 0 && (c.requestID != requestID{} || c.next || g.next != 0 || c.succeeds != ""):
		return broken(13, "absent caller %d of %q has a session, or stands by, or is of a group being resized", c.id, name)
	case c.absent == 0 && (o == nil || o.client != c.client || o.node != c.node):
		return broken(13, "caller %d of %q is session %x of %q", c.id, name, c.session, c.client)
	}
	if c.succeeds != "" && g.find(c.succeeds, func(l *caller) bool { return l.leads() && l.next == c.next }) < 0 {
		return broken(13, "caller %d of %q stands by for %q, which does not lead", c.id, name, c.succeeds)
	}
	return nil
}
