//go:build mutants

package mutants

var clusterMutants = []mutant{
	// The log, the cluster, the fence.
	{
		name: "one queue for all members", promise: fair, breaks: "one member's crowd costs the others no more than their turn",
		file: "internal/term/lane.go", old: "part := max(1, min(quota, wholeEntry/lanes))", new: "part := wholeEntry",
		pkg: "internal/term", run: "NextEntry|EqualParts",
	},
	{
		name: "patience with a first waiter", promise: fair, breaks: "only who stands behind a waiter waits for company",
		file: "internal/machine/acquire.go", old: " && n > 0 && r.queue[0].Priority >= 0 && r.queue[n-1].Priority >= 0", new: " || n < 0",
		pkg: "internal/term", run: "OtherRequests",
	},
	{
		name: "patience with a try", promise: fair, breaks: "a try is answered at once",
		file: "internal/machine/acquire.go", old: "c.Key == \"\" || c.Try || c.MaxWaiters > 0", new: "c.Key == \"\" || c.MaxWaiters > 0",
		pkg: "internal/term", run: "OtherRequests",
	},
	{
		name: "patience anew for each", promise: fair, breaks: "company is waited for once",
		file: "internal/term/patience.go", old: "	case p.due.IsZero():\n", new: "	case true:\n",
		pkg: "internal/term", run: "GoesAlone",
	},
	{
		name: "long entries for everybody", promise: fair, breaks: "while a second member is about, a member adds a part to each entry",
		file: "internal/term/pace.go", old: "now.Sub(c.about[1].at) <= aboutFor", new: "now.Sub(c.about[1].at) < 0",
		pkg: "internal/term", run: "EntriesAreShort|PartGrows",
	},
	{
		name: "slices back to back", promise: fair, breaks: "while members have commands, a slice is in every second entry at most",
		file: "internal/term/propose.go", old: "p.passed = (passed || heavy) && !last", new: "p.passed = passed && !last",
		pkg: "internal/term", run: "SliceIsInEverySecondEntry",
	},
	{
		name: "commands applied as made", promise: oneHolder, breaks: "the leader applies the commands that the other voters decode",
		file: "internal/term/propose.go", old: "frame, cmd = p.arena[start:len(p.arena):len(p.arena)], nil", new: "frame = p.arena[start:len(p.arena):len(p.arena)]",
		pkg: "internal/term", run: "Leader",
	},
	{
		name: "founding by half", promise: oneHolder, breaks: "two foundings share a member",
		file: "internal/founding/kernel.go", old: "return max(voters, majority(m), m-majority(voters)+1)", new: "return max(1, m/2)",
		pkg: "internal/founding", run: "Quorum|Founding|Chosen",
	},
	{
		name: "accepted value not repeated", promise: oneHolder, breaks: "a later ballot repeats the value of an earlier one",
		file: "internal/founding/kernel.go", old: "if best := newestAccepted(promises); best != nil && !superseded(best.Voters, promises) {", new: "if best := newestAccepted(promises); best != nil && superseded(best.Voters, promises) {",
		pkg: "internal/founding", run: "Propose|Founding|Chosen",
	},
	{
		name: "store goes on after a failed write", promise: oneHolder, breaks: "no write succeeds after a failed one",
		file: "internal/raftstore/store.go", old: "s.failure.Store(newFailure(err))", new: "_ = newFailure(err)",
		pkg: "internal/raftstore", run: "Fail|Fault|Write|Disk",
	},
	{
		name: "leader not left when silent", promise: hardToKill, breaks: "a leader that answers nothing is left",
		file: "internal/link/find.go", old: ">= timing.AnswerLimit", new: ">= 1000*timing.AnswerLimit",
		pkg: "internal/link", run: "Leader|Answer|Silent|Stall|Hung",
	},
	{
		name: "no question while the leader answers", promise: hardToKill, breaks: "an idle member hears of the next leader from a voter",
		file: "internal/link/find.go", old: "	if f.standby != nil {\n		return\n	}\n", new: "	if true {\n		return\n	}\n",
		pkg: "internal/link", run: "Idle",
	},
	{
		name: "question not kept", promise: hardToKill, breaks: "a voter keeps a question until the election",
		file: "internal/term/find.go", old: "if ready || wait == 0 {", new: "if wait = 0; ready || wait == 0 {",
		pkg: "internal/term", run: "Question",
	},
	{
		name: "left for a claim", promise: hardToKill, breaks: "a leader that gives signs of life is left only for a leader that has answered",
		file: "internal/link/find.go", old: "	f.hear(above, lost)\n", new: "	f.hear(above, lost)\n	if up != nil && len(f.claims) > 0 {\n		up.stream.Stop(context.Canceled)\n	}\n",
		pkg: "internal/link", run: "LeaderThatLives",
	},
	{
		name: "fence admits a lower token", promise: stoppedFinds, breaks: "a guard refuses a token lower than one it has seen",
		file: "fence/guard.go", old: "	case t < mark, once && t == mark:", new: "	case once && t == mark:",
		pkg: "fence", run: "Guard|Token|Mark",
	},
	// Voters.
	{
		name: "ended processes not believed", promise: hardToKill, breaks: "a voter whose end is proved is replaced at once",
		file: "internal/voters/view.go", old: "	case succeeded, known && !sc.durable && sc.allEnded(name, generation):", new: "	case succeeded, known && false:",
		pkg: "internal/voters", run: "Seen|Ended",
	},
	{
		name: "gossip counts as reach", promise: hardToKill, breaks: "a voter that raft cannot reach is replaced",
		file: "internal/voters/view.go", old: "	s.silent = !s.up && silence >= sc.patience()", new: "	s.silent = !s.up && !s.alive && silence >= sc.patience()",
		pkg: "internal/voters", run: "Seen|Silent",
	},
	{
		name: "the wait begins anew", promise: hardToKill, breaks: "the wait for a silent voter survives an election",
		file: "internal/voters/view.go", old: "	last := sc.missed(id)", new: "	last := time.Time{}",
		pkg: "internal/voters", run: "Seen|Wait",
	},
	{
		name: "the leader shrinks away", promise: hardToKill, breaks: "shrinking removes followers",
		file: "internal/voters/plan.go", old: "		if s.self || !t.spares(*s) {", new: "		if !t.spares(*s) {",
		pkg: "internal/voters", run: "Step|Fewer",
	},
	{
		name: "newcomers lag anywhere", promise: hardToKill, breaks: "a newcomer may lag only where the majority does not grow",
		file: "internal/voters/plan.go", old: "t.voters%2 == 0 && t.fit >= majority(t.voters+1)", new: "t.fit >= majority(t.voters)",
		pkg: "internal/voters", run: "Step",
	},
	{
		name: "living voters not counted", promise: hardToKill, breaks: "no step takes the quorum",
		file: "internal/voters/plan.go", old: "	return fit >= majority(t.voters-1)", new: "	return fit >= majority(t.voters-1)-1",
		pkg: "internal/voters", run: "Step",
	},
	{
		name: "five become three at once", promise: hardToKill, breaks: "a rolling restart of five changes no number of voters",
		file: "internal/voters/size.go", old: "	case z.fewer.IsZero():\n		z.fewer = now\n", new: "	case z.fewer.IsZero():\n		return fewVoters\n",
		pkg: "internal/voters", run: "Five",
	},
	// Proof.
	{
		name: "one dial to another name", promise: safe, breaks: "another name at the address needs two dials a second apart",
		file: "internal/proof/kernel.go", old: "	case now.Sub(p.since) < timing.ProofAgain:\n", new: "	case now.Sub(p.since) < 0:\n",
		pkg: "internal/proof", run: "Proved",
	},
	{
		name: "an address is not claimed", promise: safe, breaks: "the answerer must claim the address",
		file: "internal/proof/kernel.go", old: "who.id > p.holder.id && advertised == addr:", new: "who.id > p.holder.id:",
		pkg: "internal/proof", run: "Proved",
	},
	{
		name: "shared addresses are believed", promise: safe, breaks: "an address where two processes answer in turn proves nothing",
		file: "internal/proof/kernel.go", old: "	case p.shared:\n", new: "	case false:\n",
		pkg: "internal/proof", run: "Proved|Shared",
	},
	{
		name: "gossiped boots are believed", promise: safe, breaks: "a newer boot must show itself in a handshake",
		file: "internal/proof/kernel.go", old: "p.shared || k.newest[older.name] <= older.id {", new: "p.shared {",
		pkg: "internal/proof", run: "Proved|Gossiped",
	},
}
