package machine

import (
	"maps"
	"slices"
)

// The questions of readers about groups.

// Group describes a group without its assignment. It is false if the table does not
// know the group. The caller owns the result.
func (s *State) Group(name string) (GroupStatus, bool) {
	g := s.groups.get(name)
	if g == nil {
		return GroupStatus{}, false
	}
	st := GroupStatus{
		Shards: g.shards, Next: g.next, Version: g.version, Settled: g.settled,
		Drain: g.drain, Grace: g.grace, MaxMoves: g.moves,
	}
	if len(g.callers) > 0 {
		st.Callers = make([]Caller, len(g.callers))
	}
	for i := range g.callers {
		c := &g.callers[i]
		st.Callers[i] = Caller{
			ID: c.id, Session: c.session, Seq: c.seq, Client: c.client, Node: c.node,
			Weight: c.weight, Succeeds: c.succeeds, Absent: c.absent, Next: c.next,
		}
	}
	callers := g.places()
	for _, id := range g.assigned {
		if id == 0 {
			st.Orphans++
			continue
		}
		st.Callers[callers.of(id)].Assigned++
	}
	return st, true
}

// GroupVersion returns the command count at which a group last changed; 0 if the table
// does not know the group.
func (s *State) GroupVersion(name string) uint64 {
	if g := s.groups.get(name); g != nil {
		return g.version
	}
	return 0
}

// Assignment appends to list the ID of each shard's caller, 0 for an orphan. A group
// without callers, and a group being resized, has no assignment.
func (s *State) Assignment(name string, list []uint32) []uint32 {
	if g := s.groups.get(name); g != nil {
		list = append(list, g.assigned...)
	}
	return list
}

// Groups calls f for the name of each group with callers and of each group being
// resized, in no order, until f returns false.
func (s *State) Groups(f func(name string) bool) {
	for name, g := range s.groups.all {
		if !g.isIdle() && !f(name) {
			return
		}
	}
}

// GroupNames returns, in no order, the names of the groups that Groups lists.
func (s *State) GroupNames() []string {
	var names []string
	s.Groups(func(name string) bool {
		names = append(names, name)
		return true
	})
	return names
}

// appendParts appends the parts of a session's callers, in the order of their Enlists.
func (s *State) appendParts(events []Event, o *session) []Event {
	for _, seq := range slices.Sorted(maps.Keys(o.index.enlisted)) {
		name := o.index.enlisted[seq]
		events = s.groups.get(name).partEvents(events, name, func(c *caller) bool { return c.requestID == requestID{o.id, seq} })
	}
	return events
}
