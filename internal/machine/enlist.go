package machine

import (
	"math"
	"slices"
)

// How callers come to a group, and go by themselves.

func (s *State) enlist(owner *session, c *Enlist) Outcome {
	if out, isCopy := s.enlistCopy(owner, c.Seq); isCopy {
		return out
	}
	if out := c.check(); out.Code != 0 {
		return out
	}
	if !owner.spent.add(c.Seq) {
		return bad("Seq", MaxGaps)
	}
	g := s.groups.get(c.Group)
	if out := s.checkEnlist(owner, g, c); out.Code != 0 {
		return out
	}
	owner.index.enlist(c.Seq, c.Group)
	s.editGroup(c.Group, func(g *group) {
		if g.isIdle() {
			if g.shards != c.Shards {
				g.shards, g.resized = c.Shards, false
			}
			g.assigned = make([]uint32, g.shards)
		}
		g.drain, g.grace, g.moves, g.node = c.Drain, c.Grace, c.MaxMoves, owner.node
		g.addCaller(caller{
			requestID: requestID{owner.id, c.Seq},
			client:    owner.client,
			node:      owner.node,
			weight:    c.Weight,
			succeeds:  c.Succeeds,
			next:      g.next != 0,
		}, s.commands)
	})
	return Outcome{Code: OK}
}

// enlistCopy answers a second copy of an Enlist, or an Enlist under a seq that is spent
// otherwise.
func (s *State) enlistCopy(owner *session, seq uint64) (out Outcome, isCopy bool) {
	if seq == 0 {
		return bad("Seq", 0), true
	}
	if !owner.spent.has(seq) {
		return Outcome{}, false
	}
	if _, ok := owner.index.enlisted[seq]; ok {
		return Outcome{Code: OK}, true
	}
	return Outcome{Code: Withdrawn}, true
}

// check returns the refusal of fields over a limit, and the zero Outcome if there are
// none.
func (c *Enlist) check() Outcome {
	switch {
	case !validGroup(c.Group):
		return bad("Group", MaxGroupName)
	case c.Shards == 0 || c.Shards > MaxShards:
		return bad("Shards", MaxShards)
	case c.Weight > MaxWeight:
		return bad("Weight", MaxWeight)
	case !validName(c.Succeeds):
		return bad("Succeeds", MaxName)
	case c.Drain > MaxGrace:
		return bad("Drain", MaxGrace)
	case c.Grace > MaxGrace:
		return bad("Grace", MaxGrace)
	case c.MaxMoves > MaxShards:
		return bad("MaxMoves", MaxShards)
	}
	return Outcome{}
}

// checkEnlist returns the refusal of another number of shards and of a caller too many,
// and the zero Outcome if there are none. g is nil if the table does not know the group.
func (s *State) checkEnlist(owner *session, g *group, c *Enlist) Outcome {
	if len(owner.index.enlisted) >= MaxEnlisted {
		return Outcome{Code: TooManyCallers, Limit: MaxEnlisted}
	}
	if g == nil {
		if out := s.roomForName(owner.node); out.Code != 0 {
			return out
		}
		return s.roomForNode(owner.node, c.Shards)
	}
	number := g.shards
	if g.next != 0 {
		number = g.next
	}
	switch {
	case number != c.Shards && !(g.isIdle() && s.mayRenumber(c.Group, g)):
		return Outcome{Code: WrongShards, Limit: uint64(number)}
	case g.isIdle():
		return s.roomForNode(owner.node, c.Shards)
	case g.ids == math.MaxUint32: // IDs are in ascending order, and 0 is nobody's
		return Outcome{Code: TooManyCallers, Limit: math.MaxUint32}
	case len(g.callers) >= MaxCallers && (g.next != 0 || g.find(owner.client, (*caller).isAbsent) < 0):
		return Outcome{Code: TooManyCallers, Limit: MaxCallers}
	case g.callersOf(owner.node) >= MaxNodeCallers && (g.next != 0 || g.find(owner.client, (*caller).isAbsent) < 0):
		return Outcome{Code: TooManyCallers, Limit: MaxNodeCallers}
	}
	return Outcome{}
}

// roomForName returns the refusal of one more group to remember for a node, and the zero
// Outcome if there is room: see forgetOldestGroup.
func (s *State) roomForName(node string) Outcome {
	idle := s.groups.n - s.groupSums.active
	if idle < MaxNodeIdleGroups {
		return Outcome{}
	}
	if idle >= MaxBusyGroups {
		return Outcome{Code: TooManyGroups, Limit: MaxBusyGroups}
	}
	own := 0
	for _, g := range s.groups.all {
		if g.node == node && g.isIdle() {
			own++
		}
	}
	if own >= MaxNodeIdleGroups {
		return Outcome{Code: TooManyGroups, Limit: MaxNodeIdleGroups}
	}
	return Outcome{}
}

// callersOf counts the callers of a node, absent ones included.
func (g *group) callersOf(node string) (n int) {
	for i := range g.callers {
		if g.callers[i].node == node {
			n++
		}
	}
	return n
}

// roomForNode returns the refusal of one more group with the first caller of a node, over
// the limits of all groups or of the groups that the node has for itself, and the zero
// Outcome if there is room. It looks at every group, but only at the callers of this node
// and one more.
func (s *State) roomForNode(node string, shards uint32) Outcome {
	if out := s.roomFor(groupSums{}, groupSums{1, int(shards)}); out.Code != 0 {
		return out
	}
	if s.groupSums.active < MaxNodeGroups && s.groupSums.shards+int(shards) <= MaxNodeShards {
		return Outcome{}
	}
	own := groupSums{1, int(shards)}
	for _, g := range s.groups.all {
		if !g.isIdle() && !slices.ContainsFunc(g.callers, func(c caller) bool { return c.node != node }) {
			sums := g.sums()
			own.active += sums.active
			own.shards += sums.shards
		}
	}
	switch {
	case own.active > MaxNodeGroups:
		return Outcome{Code: TooManyGroups, Limit: MaxNodeGroups}
	case own.shards > MaxNodeShards:
		return Outcome{Code: TooManyGroups, Limit: MaxNodeShards}
	}
	return Outcome{}
}

// mayRenumber reports whether an idle group may begin anew with another number of
// shards. The works of callers that have gone may run for a while, under keys of the
// former number: they would overlap with the works of the new number.
func (s *State) mayRenumber(name string, g *group) bool {
	// Callers with the wrong number may ask again and again while one work goes on.
	if g.resized || g.busy < g.shards && s.keys.isHeld(ShardKey(name, g.busy)) {
		return false
	}
	shard, held := s.heldShard(name, g.shards)
	if held {
		g.busy = shard
	}
	return !held
}

// roomFor returns the refusal of a group's growth over the limits of all groups, and
// the zero Outcome if there is room.
func (s *State) roomFor(before, after groupSums) Outcome {
	switch {
	case s.groupSums.active+after.active-before.active > MaxGroups:
		return Outcome{Code: TooManyGroups, Limit: MaxGroups}
	case s.groupSums.shards+after.shards-before.shards > MaxAllShards:
		return Outcome{Code: TooManyGroups, Limit: MaxAllShards}
	}
	return Outcome{}
}

// addCaller adds a caller, in the place of an absent caller of its client if there is
// one, and otherwise with the assignment of an absent caller that it succeeds. now is
// the command count.
func (g *group) addCaller(c caller, now uint64) {
	if !c.next {
		c.part = now
		if i := g.find(c.client, (*caller).isAbsent); i >= 0 {
			c.id, c.succeeds = g.callers[i].id, ""
			g.callers[i] = c
			return
		}
	}
	g.ids++
	c.id = g.ids
	if c.succeeds != "" {
		c.succeeds = g.standBy(&c)
	}
	g.callers = append(g.callers, c)
}

// standBy returns the client for which a new caller stands by, given the client that it
// wants to succeed. All callers that stand by do so for a caller that leads, so two
// never wait for each other:
//
//   - An absent caller of the client hands its assignment over at once.
//   - A caller of the client that stands by itself has the new one stand by with it.
//   - Without a caller of the client there is nothing to wait for.
func (g *group) standBy(c *caller) string {
	if i := g.find(c.succeeds, (*caller).isAbsent); i >= 0 && !c.next {
		g.reassign(g.callers[i].id, c.id)
		g.drop(i)
		return ""
	}
	sameNumber := func(o *caller) bool { return o.next == c.next }
	if i := g.find(c.succeeds, func(o *caller) bool { return sameNumber(o) && o.leads() }); i >= 0 {
		return c.succeeds
	}
	if i := g.find(c.succeeds, sameNumber); i >= 0 {
		return g.callers[i].succeeds
	}
	return ""
}

func (s *State) delist(owner *session, c Delist) Outcome {
	if c.Seq == 0 {
		return bad("Seq", 0)
	}
	name, ok := owner.index.enlisted[c.Seq]
	if !ok {
		// The Enlist has not come yet, or the caller has left.
		if !owner.spent.add(c.Seq) {
			return bad("Seq", MaxGaps)
		}
		return Outcome{Code: OK}
	}
	delete(owner.index.enlisted, c.Seq)
	s.leaveGroup(requestID{owner.id, c.Seq}, name)
	return Outcome{Code: OK}
}

func (s *State) decline(owner *session, c Decline) Outcome {
	name, ok := owner.index.enlisted[c.Seq]
	if !ok {
		return Outcome{Code: NoCaller}
	}
	g := s.groups.get(name)
	i := g.callerOf(requestID{owner.id, c.Seq})
	switch by := &g.callers[i]; {
	case by.part != c.Version:
		return Outcome{Code: WrongVersion, Limit: by.part}
	case int(c.Shard) >= len(g.assigned) || g.assigned[c.Shard] != by.id:
		return bad("Shard", uint64(g.shards))
	}
	s.editGroup(name, func(g *group) {
		g.assigned[c.Shard] = 0
		g.callers[i].part = s.commands
	})
	return Outcome{Code: OK}
}
