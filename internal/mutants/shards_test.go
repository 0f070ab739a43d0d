//go:build mutants

package mutants

// Groups of shards.
var shardMutants = []mutant{
	{
		name: "too many declines are forgotten", promise: hardToKill, breaks: "a shard is kept from the caller that declined it for a TTL",
		file: "internal/term/declined.go", old: "		d.folded[shard/64] |= 1 << (shard % 64)\n", new: "		_ = shard\n",
		pkg: "internal/term", run: "DeclinedShardsAreBounded",
	},
	{
		name: "shards are declined together", promise: hardToKill, breaks: "a thousand shards are declined by a thousand commands",
		file: "locks/spreadgroup.go", old: "		defer func() { <-en.declining }()\n", new: "		<-en.declining\n",
		pkg: "locks", run: "DeclinedTogether",
	},
	{
		name: "keys of the old number ignored", promise: oneHolder, breaks: "no work of the next number begins beside one of the old",
		file: "internal/machine/assign.go", old: "if shard, held := s.heldShard(c.Group, g.shards); held {", new: "if shard, held := s.heldShard(c.Group, g.shards); held && g.next == 0 {",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "callers of the old number ignored", promise: oneHolder, breaks: "no work of the next number begins beside one of the old",
		file: "internal/machine/assign.go", old: "if by := &g.callers[i]; !by.next {", new: "if by := &g.callers[i]; !by.next && g.next == 0 {",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "another number beside slow works", promise: oneHolder, breaks: "a group changes its number only while no key of the former is held",
		file: "internal/machine/enlist.go", old: "	return !held\n", new: "	return !held || g.next == 0\n",
		and: [2]string{"	if g.resized || g.busy < g.shards && s.keys.isHeld(ShardKey(name, g.busy)) {", "	if g.resized {"},
		pkg: "internal/machine", run: "Scripts/group",
	},
	{
		name: "assignment of another version", promise: oneHolder, breaks: "an Assign binds for the version that it was computed from",
		file: "internal/machine/assign.go", old: "	case g.version != c.Version:\n		return Outcome{Code: WrongVersion, Limit: g.version}\n	case g.next != 0:", new: "	case g.next != 0:",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "a caller comes back by a late copy", promise: exactlyOnce, breaks: "a copy of an Enlist brings no caller back that has left",
		file: "internal/machine/enlist.go", old: "	if !owner.spent.has(seq) {", new: "	if !owner.spent.has(seq) || owner.index.enlisted[seq] == \"\" {",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "the former owner is not told", promise: noSilence, breaks: "each caller is told its part in the entry that changes it",
		file: "internal/machine/assign.go", old: "g.callers[callers.of(before)].part = s.commands", new: "_ = callers.of(before)",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "parts are not told again", promise: noSilence, breaks: "a caller on a new connection is told its part",
		file: "internal/machine/query.go", old: "return s.appendParts(events, o)", new: "return events",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "a Decline of an earlier part", promise: exactlyOnce, breaks: "a late copy of a Decline changes nothing",
		file: "internal/machine/enlist.go", old: "	case by.part != c.Version:", new: "	case by.part < c.Version:",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "a Dismiss of an earlier absence", promise: exactlyOnce, breaks: "a late copy of a Dismiss ends no later absence",
		file: "internal/machine/assign.go", old: "g.callers[i].absent != c.Since", new: "g.callers[i].absent == 0",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "successors wait for each other", promise: fair, breaks: "a caller stands by for one that leads",
		file: "internal/machine/enlist.go", old: "	if i := g.find(c.succeeds, func(o *caller) bool { return sameNumber(o) && o.leads() }); i >= 0 {", new: "	if i := g.find(c.succeeds, sameNumber); i >= 0 {",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "a plan for each caller", promise: cheap, breaks: "callers that start together share one plan",
		file: "internal/term/planner_plan.go", old: "if balance = !now.Before(quiet); balance {", new: "if balance = !now.Before(quiet.Add(-time.Hour)); balance {",
		pkg: "internal/term", run: "StartTogether|FirstPlan",
	},
	{
		name: "orphans wait for the balance", promise: hardToKill, breaks: "an orphan of a settled group is assigned at once",
		file: "internal/term/planner_plan.go", old: "!balance && (!st.Settled || st.Orphans == 0)", new: "!balance",
		pkg: "internal/term", run: "Orphan",
	},
	{
		name: "a declined shard comes back", promise: fair, breaks: "a declined shard is kept from its caller for a TTL",
		file: "internal/term/declined.go", old: "	d.until[c.Shard] = until\n", new: "	_ = until\n",
		pkg: "internal/term", run: "Declined|Orphan",
	},
	{
		name: "balance all at once", promise: fair, breaks: "the moves that only restore the balance are bounded",
		file: "internal/term/planner_plan.go", old: "MaxMoves: int(st.MaxMoves)}", new: "MaxMoves: 64 * int(st.MaxMoves)}",
		pkg: "internal/term", run: "Balance",
	},
	{
		name: "a key's change is not heard", promise: hardToKill, breaks: "the planner goes on when a shard has changed hands",
		file: "internal/term/planner.go", old: "	if g.waits {\n		p.dirty[g] = struct{}{}\n	}\n	return g.waits", new: "	return false",
		pkg: "internal/term", run: "Balance|NextNumber",
	},
}
