//go:build mutants

package mutants

var mutants = []mutant{
	// Loss is told first, and one holder.
	{
		name: "no confirmation", breaks: "a beat counts only after a majority confirmed the term",
		file: "internal/term/rounds.go", old: "ok := r.ask(ctx)", new: "ok := true || r.ask(ctx)",
		pkg: "internal/term", run: "Deposed|Round|Beat|Trust",
	},
	{
		name: "own vote not asked", breaks: "a leader counts its own voter only while raft leads in the term",
		file: "internal/term/rounds.go", old: "return yes >= need && t.cfg.Log.Leads(t.cfg.Term) && slices.Equal(before, after)", new: "return yes >= need && slices.Equal(before, after)",
		and: [2]string{"	if !t.cfg.Log.Leads(t.cfg.Term) {\n		return false\n	}\n", ""},
		pkg: "internal/term", run: "Own|Deposed|Round|Trust|Lead",
	},
	{
		name: "no fresh TTL", breaks: "a new leader gives every session a whole TTL",
		file: "internal/term/keeper.go",
		old:  "d := newDeadline(st.ID, st.Node, time.Duration(st.TTL)*time.Millisecond, now)",
		new:  "d := newDeadline(st.ID, st.Node, time.Duration(st.TTL)*time.Millisecond, now.Add(-time.Duration(st.TTL)*time.Millisecond/2))",
		pkg:  "internal/term", run: "Leader|TTL|Trust",
	},
	{
		name: "watch after begin", breaks: "no session escapes the keeper while a term starts",
		file: "internal/term/term.go", old: "	t.table.setWatch(t.applied)\n	t.keeper.begin()", new: "	t.keeper.begin()\n	t.table.setWatch(t.applied)",
		pkg: "internal/term", run: "Keeper|Start|Session",
	},
	{
		name: "beats answered during an expiry", breaks: "no beat is acknowledged while an Expire or a mark is in flight",
		file: "internal/term/beat.go",
		old:  "	case d.busy || d.orders > 0:\n		d.waiting = append(d.waiting, b)\n		k.mu.Unlock()\n		return\n	case d.silent:\n		k.mu.Unlock()\n		k.receive(id, b)",
		new:  "	case d.silent && !d.busy:\n		k.mu.Unlock()\n		k.receive(id, b)",
		pkg:  "internal/term", run: "Beat|Expire|Mark|Silent|Trust",
	},
	{
		name: "beats answered behind an order", breaks: "no beat is acknowledged while an EndSession is in flight",
		file: "internal/term/revoke.go", old: "	k.sessions[st.ID].orders++\n", new: "",
		pkg: "internal/term", run: "Order",
	},
	{
		name: "revoked sessions end at once", breaks: "a key is free only when its holder has answered, or its trust has ended",
		file: "internal/machine/revoke.go", old: "	s.takeSlice([]*session{o}, workPerKey*s.slice)\n", new: "	s.endSessions([]*session{o}, Closed, allWork)\n",
		pkg: "locks", run: "EndSession",
	},
	{
		name: "waiters of an ending session granted", breaks: "from the first slice on a session is granted nothing",
		file: "internal/machine/admit.go", old: "if owner.dead() || held ||", new: "if held ||",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "an ending session acts", breaks: "no command of an ending session is taken",
		file: "internal/machine/ending.go", old: "o != nil && o.ending == 0 {\n		return o", new: "o != nil {\n		return o",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "an ending session is opened", breaks: "an Open is refused until the last slice",
		file: "internal/machine/session.go", old: "		if o.ending != 0 {", new: "		if o.ending > Revoked {",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "a slice without a measure", breaks: "no step of a session's end takes long",
		file: "internal/machine/ending.go", old: "			work -= workPerKey*(1+r.nextGrants(g)) +", new: "			work -= 0*workPerKey*(1+r.nextGrants(g)) +",
		pkg: "internal/machine", run: "LongStep",
	},
	{
		name: "readers granted without a measure", breaks: "a key with thousands of readers is a slice of its own",
		file: "internal/machine/ending.go", old: "workPerKey*(1+r.nextGrants(g))", new: "workPerKey*(1+0*r.nextGrants(g))",
		pkg: "internal/machine", run: "Readers",
	},
	{
		name: "waits leave without a measure", breaks: "no step of a session's end takes long",
		file: "internal/machine/ending.go", old: "			work -= workPerKey\n			if _, known", new: "			work -= 0 * workPerKey\n			if _, known",
		pkg: "internal/machine", run: "Script|LongStep",
	},
	{
		name: "slices begun anew in a restored table", breaks: "every voter takes the same slices",
		file: "internal/machine/index.go", old: "		if o.begun {", new: "		if o.begun = false; o.begun {",
		pkg: "internal/machine", run: "Commands|Restored",
	},
	{
		name: "dead waiters in deadlocks", breaks: "a wait of a session that ends by itself closes no cycle",
		file: "internal/machine/deadlock_needs.go", old: "	if owner.dead() {\n		return 0 // a slice", new: "	if owner == nil {\n		return 0 // a slice",
		pkg: "internal/machine", run: "Deadlock|Commands",
	},
	{
		name: "a broken key of a closed session unclean", breaks: "a closed session leaves its keys as its client left them",
		file: "internal/machine/grant.go", old: "	if owner.ending == Closed {", new: "	if owner.ending > Revoked {",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "a dead successor", breaks: "a waiter of an ending session is nobody's successor",
		file: "internal/machine/queue.go", old: "o.client == client && !o.dead()", new: "o.client == client",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "endings forgotten by the next leader", breaks: "a new leader goes on with the slices",
		file: "internal/term/term.go", old: "	t.endings.begin()\n", new: "",
		pkg: "internal/term", run: "NextLeader",
	},
	{
		name: "a slice proposed once", breaks: "a slice that found no room is proposed again",
		file: "internal/term/term.go", old: "			t.endings.next()\n", new: "",
		pkg: "internal/term", run: "Again",
	},
	{
		name: "closed too early", breaks: "a Close is answered when the last key is free",
		file: "internal/term/ending.go", old: "		if c != wire.CodeOK || o.Code != machine.Unfinished && o.Code != machine.NoSession {", new: "		if o.Code = machine.OK; o.Code == machine.OK {",
		pkg: "internal/term", run: "Slices",
	},
	{
		name: "beats of an ending session", breaks: "no beat of an ending session is acknowledged",
		file: "internal/term/term.go", old: "		case machine.EventEnding:\n			t.keeper.ended(e.Session)\n", new: "		case machine.EventEnding:\n",
		pkg: "internal/term", run: "Ending|Slices",
	},
	{
		name: "a closed revoked session forgotten", breaks: "a session that ends behind its last waits is sliced too",
		file: "internal/term/ending.go", old: "o.Code != machine.Unfinished && !e.isUnfinished(id) {", new: "o.Code != machine.Unfinished {",
		pkg: "internal/term", run: "ClosedWithASlice",
	},
	{
		name: "beats answered behind a mark", breaks: "a marked session's beats wait for Hear",
		file: "internal/term/beat.go", old: "	case d.silent:\n		d.waiting", new: "	case false:\n		d.waiting",
		and: [2]string{"	case d.silent:\n		k.mu.Unlock()\n		k.receive(id, b)\n		return\n", ""},
		pkg: "internal/term", run: "Silent|Mark|Beat",
	},
	{
		name: "mark ignored by the next leader", breaks: "a mark counts one TTL, whichever voter leads",
		file: "internal/term/keeper.go", old: "d.silent, d.end = true, mark.Add(d.ttl)", new: "d.silent, d.end = true, now.Add(d.ttl+0*time.Since(mark))",
		pkg: "internal/term", run: "Mark|Flapping|Silent",
	},
	{
		name: "stall ignored", breaks: "a leader that stood still cannot say that nobody beat",
		file: "internal/term/keeper.go", old: "gap > timing.ProcessStalled", new: "gap > 1000*timing.ProcessStalled",
		pkg: "internal/term", run: "Still|Stall|Trust",
	},
	{
		name: "verdict of a deposed leader", breaks: "Expire, marks, Lift and ends of delays act in their leader's term only",
		file: "internal/machine/apply.go", old: "	if term != s.term {", new: "	if term > s.term {",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "trust counted half as long again", breaks: "a holder trusts for less than a TTL since the send time",
		file: "locks/trust.go", old: "return t.ttl - margin(t.ttl) - now.since(t.sent)", new: "return t.ttl*3/2 - margin(t.ttl) - now.since(t.sent)",
		pkg: "locks", run: "Trust|Promise|Window|Beat",
	},
	{
		name: "trust without a margin", breaks: "the margin covers the rates of clocks",
		file: "locks/trust.go", old: "return min(ttl/100+100*time.Millisecond, ttl/4)", new: "return min(ttl/100+100*time.Millisecond, ttl/4) * 0",
		pkg: "locks", run: "Trust|Margin|Window",
	},
	{
		name: "host sleep ignored", breaks: "the time that a host slept counts",
		file: "locks/trust.go", old: "		j.slept += max(0, d)", new: "		j.slept += 0 * max(0, d)",
		pkg: "locks", run: "Jump|Sleep|Slept",
	},

	// The lock table.
	{
		name: "second queue entry on a resend", breaks: "a request is in one place at most",
		file: "internal/machine/once.go", old: "	case waiting:\n		out := Outcome{Code: Queued}", new: "	case waiting:\n		if len(s.sets.shards) > 0 {\n			return Outcome{}, false\n		}\n		out := Outcome{Code: Queued}",
		pkg: "internal/machine", run: "Script|Commands|Copy",
	},
	{
		name: "token counter not restored", breaks: "tokens rise over a restore",
		file: "internal/machine/codec_table.go", old: "(*uint64)(&h.last), &h.commands", new: "new(uint64), &h.commands",
		pkg: "internal/machine", run: "Image|Snapshot|Commands|Restore",
	},
	{
		name: "reader beside a writer", breaks: "no two holders of a key conflict",
		file: "internal/machine/conflict.go", old: "	case mode == Shared && w.Mode == Shared:", new: "	case w.Mode == Shared:",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "reader passes a waiting writer", breaks: "nobody is granted before an earlier waiter in conflict",
		file: "internal/machine/conflict.go", old: "		if r.queue[j].Mode != Shared {\n			return true", new: "		if r.queue[j].Mode != Shared {\n			return false",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "one permit too many", breaks: "a key has at most as many permits as its capacity",
		file: "internal/machine/conflict.go", old: "		return permits+int(w.N) > int(r.capacity)", new: "		return permits+int(w.N) > int(r.capacity)+1",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "a lower capacity forgets its waiters", breaks: "a waiter for more permits than a lowered capacity fails at once",
		file: "internal/machine/capacity.go", old: "	lower := c.Of > 0 && c.Of < uint32(r.capacity)", new: "	lower := false",
		pkg: "internal/machine", run: "Script|Permits",
	},
	{
		name: "one holder of permits is enough", breaks: "a request that would wait for ever for permits of its own caller is refused",
		file: "internal/machine/deadlock_needs.go", old: "	return int(r.permits) + int(w.N) - int(r.capacity)", new: "	return 1",
		pkg: "internal/machine", run: "Script|Deadlocks",
	},

	// The end of a process, and its past.
	{
		name: "directory before the locks", breaks: "the directory is given back after all locks have ended",
		file: "cluster/leave.go", old: "	n.guests.AwaitEnded()\n", new: "",
		pkg: "cluster", run: "GivenBack",
	},
	{
		name: "everybody waits for everybody", breaks: "a member that ends is nobody's successor",
		file: "cluster/leave.go", old: " && (!s.Meta.Leaving && !s.Meta.Ending || n.staying.insists(s.Process))", new: "",
		pkg: "cluster", run: "NobodyWaits",
	},
	{
		name: "nobody left but waited for", breaks: "a command that only frees keys is given up once every other member ends",
		file: "internal/link/freeing.go", old: "if k.cfg.AllEnd() {", new: "if k.cfg.AllEnd() && again == nil {",
		pkg: "cluster", run: "ToBeTold",
	},
	{
		name: "silent is gone", breaks: "a member that went silent has not said that it ends",
		file: "cluster/leave.go", old: "case n.stays(s):", new: "case s.Alive && n.stays(s):",
		pkg: "cluster", run: "ToBeTold",
	},
	{
		name: "keys freed under work", breaks: "a stopping node frees keys after the work under them",
		file: "locks/keepalive.go", old: "if s.awaitWork() {", new: "if s.ttl > 0 || s.awaitWork() {",
		pkg: "locks", run: "StoppingNode",
	},
	{
		name: "past freed on another host", breaks: "a past is freed only if the host was not booted in between",
		file: "cluster/past.go", old: "case r.Host != host || r.Key.Key() == nil:", new: "case r.Key.Key() == nil:",
		pkg: "cluster", run: "MayLive",
	},
	{
		name: "past freed while it answers", breaks: "a past is freed only if nothing answers as that process",
		file: "cluster/past.go", old: "return p.Addr != n.self.Addr &&", new: "return p.Addr == n.self.Addr &&",
		pkg: "cluster", run: "WhoAnswers",
	},
	{
		name: "anybody forgets", breaks: "a leader takes a Forget only from a later process of the very member",
		file: "internal/term/authority.go", old: "if s == nil || c.Node != s.Node || c.Boot >= s.Boot || c.Dir == (machine.DirID{}) || c.Dir != s.Dir {", new: "if s == nil {",
		pkg: "cluster", run: "ItselfForgets",
	},
	{
		name: "a past by its name", breaks: "a leader takes a Forget only on a stream that has shown the directory's key",
		file: "internal/term/authority.go", old: " || c.Dir != s.Dir {", new: " {",
		pkg: "internal/term", run: "OnlyTheDirectory",
	},
	{
		name: "a past by the ID of nothing", breaks: "a process without a directory forgets no process",
		file: "internal/machine/forget.go", old: "case c.Dir == (DirID{}):", new: "case c.Boot == 0:",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "a past by another's proof", breaks: "a proof of a directory counts on the stream for which it was made",
		file: "internal/term/serve.go", old: "if !req.Dir.Holds(m.guide.Bound) {", new: "if !req.Dir.Holds(nil) {",
		pkg: "internal/term", run: "OnlyTheDirectory",
	},
	{
		name: "a proof without a signature", breaks: "under TLS a directory's key is proved by a signature",
		file: "internal/wire/dirkey.go", old: "(binding == nil || ed25519", new: "(len(p.Signature) == 0 || ed25519",
		pkg: "internal/wire", run: "ADirProof",
	},
	{
		name: "sessions of another directory", breaks: "a Forget ends the sessions of its own directory alone",
		file: "internal/machine/forget.go", old: "b = append(append(b, node...), dir[:]...)", new: "b = append(b, node...)",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "a living process shut out", breaks: "a Forget keeps no process of another directory from opening sessions",
		file: "internal/machine/forget.go", old: "return cmp.Or(strings.Compare(e.node, node), bytes.Compare(e.dir[:], dir[:]))", new: "return cmp.Or(strings.Compare(e.node, node), 0*bytes.Compare(e.dir[:], dir[:]))",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "an old copy's key", breaks: "the key of a directory ends with the boot of its host",
		file: "cluster/past.go", old: "			r.Past, r.Key = nil, wire.NewDirSeed()", new: "			if r.Past = nil; r.Key == nil {\n				r.Key = wire.NewDirSeed()\n			}",
		pkg: "cluster", run: "TheKeyOfADirectory",
	},
	{
		name: "a Forget without its proof", breaks: "a process shows the proof of its directory ahead of a Forget",
		file: "internal/link/remote.go", old: "		u.showDir()\n", new: "",
		pkg: "cluster", run: "OwnPast",
	},
	{
		name: "a piece as long as it claims", breaks: "noise in a snapshot is found before much of it is in memory",
		file: "internal/machine/restore.go", old: "size <= 0 || size > maxPiece ||", new: "size <= 0 || size > 129<<20 ||",
		pkg: "internal/machine", run: "Noise",
	},
	{
		name: "pieces of two chunks", breaks: "all pieces of a chunk have its kind",
		file: "internal/machine/restore.go", old: "if r.piece&^pieceFollows != kind {", new: "if kind == 0 {",
		pkg: "internal/machine", run: "SeveralPieces",
	},
	{
		name: "a chunk with a rest", breaks: "no bytes of a chunk are passed over",
		file: "internal/machine/restore.go", old: "	if r.follows() {\n		return errTrailing", new: "	if r.follows() && c == nil {\n		return errTrailing",
		pkg: "internal/machine", run: "SeveralPieces",
	},
	{
		name: "a later process by a claim", breaks: "a process that proves neither a name nor the voter role shows no later process of a name",
		file: "cluster/proof.go", old: "c.Proved.Name == \"\" && !c.Proved.Voter; !claimed {", new: "c.Proved.Name == \"\" && !c.Proved.Voter; err != nil || c != nil || !claimed {",
		pkg: "cluster", run: "ALaterProcess",
	},
	{
		name: "a session without its key", breaks: "a stream acts for a session only after the session's key was shown on it",
		file: "internal/term/authority.go", old: "case !has || st.Node != s.Node", new: "case has != has || st.Node != s.Node",
		pkg: "internal/term", run: "Stolen|NobodyElse",
	},
	{
		name: "a stolen key", breaks: "a stream acts for the sessions of its own process alone",
		file: "internal/term/authority.go", old: "case !has || st.Node != s.Node || st.Boot != s.Boot:", new: "case !has || st.Node == \"\":",
		pkg: "internal/term", run: "Stolen",
	},
	{
		name: "a session in another's name", breaks: "a process opens sessions in its own name alone",
		file: "internal/term/authority.go", old: "if !has || c.Node != s.Node || c.Boot != s.Boot {", new: "if !has {",
		pkg: "internal/term", run: "AnothersName",
	},
	{
		name: "a living process forgotten", breaks: "nobody ends the sessions of a process that is attached",
		file: "internal/term/authority.go", old: "if o.Node == c.Node && o.Boot == c.Boot {", new: "if false {",
		pkg: "internal/term", run: "Forgotten",
	},
	{
		name: "late Open of a dead process", breaks: "no session opens for a process that has ended",
		file: "internal/machine/session.go", old: "	if s.hasEnded(c.Node, c.Dir, c.Boot) {", new: "	if s.hasEnded(c.Node, c.Dir, c.Boot) && c.Boot == 0 {",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "readiness by an old word", breaks: "a new member is ready once the leader counts with it, and no longer with the dead",
		file: "cluster/health.go", old: "whole(set) && rest <= 0", new: "whole(set)",
		pkg: "cluster", run: "RollingRestart/3_members,_Dir_false,_kill_false",
	},

	// The log, the cluster, the fence.
	{
		name: "one queue for all members", breaks: "one member's crowd costs the others no more than their turn",
		file: "internal/term/lane.go", old: "part := max(1, min(quota, wholeEntry/lanes))", new: "part := wholeEntry",
		pkg: "internal/term", run: "NextEntry|EqualParts",
	},
	{
		name: "long entries for everybody", breaks: "while a second member is about, a member adds a part to each entry",
		file: "internal/term/pace.go", old: "now.Sub(c.about[1].at) <= aboutFor", new: "now.Sub(c.about[1].at) < 0",
		pkg: "internal/term", run: "EntriesAreShort|PartGrows",
	},
	{
		name: "slices back to back", breaks: "while members have commands, a slice is in every second entry at most",
		file: "internal/term/propose.go", old: "p.passed = (passed || heavy) && !last", new: "p.passed = passed && !last",
		pkg: "internal/term", run: "SliceIsInEverySecondEntry",
	},
	{
		name: "commands applied as made", breaks: "the leader applies the commands that the other voters decode",
		file: "internal/term/propose.go", old: "frame, cmd = p.arena[start:len(p.arena):len(p.arena)], nil", new: "frame = p.arena[start:len(p.arena):len(p.arena)]",
		pkg: "internal/term", run: "Leader",
	},
	{
		name: "founding by half", breaks: "two foundings share a member",
		file: "internal/founding/kernel.go", old: "return max(voters, majority(m), m-majority(voters)+1)", new: "return max(1, m/2)",
		pkg: "internal/founding", run: "Quorum|Founding|Chosen",
	},
	{
		name: "accepted value not repeated", breaks: "a later ballot repeats the value of an earlier one",
		file: "internal/founding/kernel.go", old: "if best := newestAccepted(promises); best != nil && !superseded(best.Voters, promises) {", new: "if best := newestAccepted(promises); best != nil && superseded(best.Voters, promises) {",
		pkg: "internal/founding", run: "Propose|Founding|Chosen",
	},
	{
		name: "store goes on after a failed write", breaks: "no write succeeds after a failed one",
		file: "internal/raftstore/store.go", old: "s.failure.Store(newFailure(err))", new: "_ = newFailure(err)",
		pkg: "internal/raftstore", run: "Fail|Fault|Write|Disk",
	},
	{
		name: "leader not left when silent", breaks: "a leader that answers nothing is left",
		file: "internal/link/find.go", old: ">= timing.AnswerLimit", new: ">= 1000*timing.AnswerLimit",
		pkg: "internal/link", run: "Leader|Answer|Silent|Stall|Hung",
	},
	{
		name: "no question while the leader answers", breaks: "an idle member hears of the next leader from a voter",
		file: "internal/link/find.go", old: "	if f.standby != nil {\n		return\n	}", new: "	if true {\n		return\n	}",
		pkg: "internal/link", run: "Idle",
	},
	{
		name: "question not kept", breaks: "a voter keeps a question until the election",
		file: "internal/term/find.go", old: "if ready || wait == 0 {", new: "if wait = 0; ready || wait == 0 {",
		pkg: "internal/term", run: "Question",
	},
	{
		name: "left for a claim", breaks: "a leader that gives signs of life is left only for a leader that has answered",
		file: "internal/link/find.go", old: "	f.hear(above, lost)\n", new: "	f.hear(above, lost)\n	if up != nil && len(f.claims) > 0 {\n		up.stream.Stop(context.Canceled)\n	}\n",
		pkg: "internal/link", run: "LeaderThatLives",
	},
	{
		name: "fence admits a lower token", breaks: "a guard refuses a token lower than one it has seen",
		file: "fence/guard.go", old: "	case t < mark, once && t == mark:", new: "	case once && t == mark:",
		pkg: "fence", run: "Guard|Token|Mark",
	},

	// Voters.
	{
		name: "ended processes not believed", breaks: "a voter whose end is proved is replaced at once",
		file: "internal/voters/view.go", old: "	case succeeded, known && !sc.durable && sc.allEnded(name, generation):", new: "	case succeeded, known && false:",
		pkg: "internal/voters", run: "Seen|Ended",
	},
	{
		name: "gossip counts as reach", breaks: "a voter that raft cannot reach is replaced",
		file: "internal/voters/view.go", old: "	s.silent = !s.up && silence >= sc.patience()", new: "	s.silent = !s.up && !s.alive && silence >= sc.patience()",
		pkg: "internal/voters", run: "Seen|Silent",
	},
	{
		name: "the wait begins anew", breaks: "the wait for a silent voter survives an election",
		file: "internal/voters/view.go", old: "	last := sc.missed(id)", new: "	last := time.Time{}",
		pkg: "internal/voters", run: "Seen|Wait",
	},
	{
		name: "the leader shrinks away", breaks: "shrinking removes followers",
		file: "internal/voters/plan.go", old: "		if s.self || !t.spares(*s) {", new: "		if !t.spares(*s) {",
		pkg: "internal/voters", run: "Step|Fewer",
	},
	{
		name: "newcomers lag anywhere", breaks: "a newcomer may lag only where the majority does not grow",
		file: "internal/voters/plan.go", old: "t.voters%2 == 0 && t.fit >= majority(t.voters+1)", new: "t.fit >= majority(t.voters)",
		pkg: "internal/voters", run: "Step",
	},
	{
		name: "living voters not counted", breaks: "no step takes the quorum",
		file: "internal/voters/plan.go", old: "	return fit >= majority(t.voters-1)", new: "	return fit >= majority(t.voters-1)-1",
		pkg: "internal/voters", run: "Step",
	},
	{
		name: "five become three at once", breaks: "a rolling restart of five changes no number of voters",
		file: "internal/voters/size.go", old: "	case z.fewer.IsZero():\n		z.fewer = now\n", new: "	case z.fewer.IsZero():\n		return fewVoters\n",
		pkg: "internal/voters", run: "Five",
	},
	// Proof.
	{
		name: "one dial to another name", breaks: "another name at the address needs two dials a second apart",
		file: "internal/proof/kernel.go", old: "	case now.Sub(p.since) < timing.ProofAgain:\n", new: "	case now.Sub(p.since) < 0:\n",
		pkg: "internal/proof", run: "Proved",
	},
	{
		name: "an address is not claimed", breaks: "the answerer must claim the address",
		file: "internal/proof/kernel.go", old: "who.id > p.holder.id && advertised == addr:", new: "who.id > p.holder.id:",
		pkg: "internal/proof", run: "Proved",
	},
	{
		name: "shared addresses are believed", breaks: "an address where two processes answer in turn proves nothing",
		file: "internal/proof/kernel.go", old: "	case p.shared:\n", new: "	case false:\n",
		pkg: "internal/proof", run: "Proved|Shared",
	},
	{
		name: "gossiped boots are believed", breaks: "a newer boot must show itself in a handshake",
		file: "internal/proof/kernel.go", old: "p.shared || k.newest[older.name] <= older.id {", new: "p.shared {",
		pkg: "internal/proof", run: "Proved|Gossiped",
	},

	// Leadership moves at once when the leader's process has ended, and for nothing less.
	{
		name: "stand on a reset alone", breaks: "a reset is confirmed by a dial",
		file: "internal/consensus/stand.go", old: "lost := func() bool { return r.hasEnded(ctx, q.Leader, from.boot) }", new: "lost := func() bool { return true }",
		pkg: "internal/consensus", run: "Reset|Unreachable",
	},
	{
		name: "stand without a majority", breaks: "a majority of the voters agrees first",
		file: "internal/consensus/stand.go", old: "if yes < len(voters)/2+1 {", new: "if yes < 1 {",
		pkg: "internal/consensus", run: "Majority|MayStand",
	},
	{
		name: "stand without a vote", breaks: "only a voter of the committed configuration stands",
		file: "internal/consensus/stand.go", old: "!slices.Contains(voters, r.id) || !r.Votes() || !proved()", new: "!proved()",
		pkg: "internal/consensus", run: "NonVoter",
	},
	{
		name: "agree with an older log", breaks: "a voter with a newer log refuses",
		file: "internal/consensus/stand.go", old: "if ahead || r.Term() > q.Term", new: "if r.Term() > q.Term",
		pkg: "internal/consensus", run: "MayStand",
	},
	{
		name: "no order of candidates", breaks: "two voters never stand at one moment",
		file: "internal/consensus/stand.go", old: "time.Duration(better) * stagger", new: "0 * time.Duration(better) * stagger",
		pkg: "internal/consensus", run: "Best|AtOnce|Five",
	},
	{
		name: "any answer from ahead", breaks: "an answer to a message sent ahead answers the same message alone",
		file: "internal/consensus/ahead.go", old: "args.PrevLogEntry == m.args.PrevLogEntry && ", new: "",
		pkg: "internal/consensus", run: "FromAhead",
	},
	{
		name: "sent ahead in any term", breaks: "entries are sent ahead to servers that acknowledged the log in their term",
		file: "internal/consensus/ahead.go", old: "s.latest.term != first.Term || ", new: "",
		pkg: "internal/consensus", run: "EntriesAhead",
	},
	{
		name: "sent ahead after a refusal", breaks: "entries are sent ahead to servers that acknowledged all before",
		file: "internal/consensus/ahead.go", old: "if err != nil || !resp.Success {\n		s.latest", new: "if err != nil {\n		s.latest",
		pkg: "internal/consensus", run: "EntriesAhead",
	},
	{
		name: "a vote lost to a stale stream", breaks: "a kept stream that is broken costs no call",
		file: "internal/consensus/transport.go", old: "if err == nil || kept == 0", new: "if true || kept == 0",
		pkg: "internal/consensus", run: "Stale",
	},
	{
		name: "replication backs off", breaks: "a server that comes back is replicated to at once",
		file: "internal/consensus/transport.go", old: "return t.reach.keep(string(id), args.Term, send)", new: "return send()",
		pkg: "internal/consensus", run: "ComesBack",
	},
	{
		name: "a stranger leads", breaks: "a leader that nobody confirms is not followed",
		file: "internal/judge/judge.go", old: "if d := (Doubt{Sender: id, Term: term}); !r.Confirmed(d) {", new: "if d := (Doubt{Sender: id, Term: term}); false {",
		pkg: "internal/consensus", run: "KnowsNobody",
	},
	{
		name: "a stranger leads on its own word", breaks: "a majority of the configuration shown confirms its leader",
		file: "internal/judge/confirm.go", old: "	return yes+own > voters/2\n}\n\n// Near", new: "	return yes > 0\n}\n\n// Near",
		pkg: "internal/judge", run: "Confirm",
	},
	{
		name: "committed entries replaced", breaks: "an entry at or below the commit index stays",
		file: "internal/judge/judge.go", old: "case ok && mine != l.Term:", new: "case ok && mine == 0:",
		pkg: "internal/judge", run: "Judge",
	},
	{
		name: "a leader without the committed entries answered", breaks: "a false vote stops no cluster",
		file: "internal/consensus/serve.go", old: "		t.without.note(m, err, t.voters)\n", new: "		_ = m\n",
		pkg: "internal/consensus", run: "LacksCommitted",
	},
	{
		name: "entries below a snapshot appended", breaks: "no entry that a snapshot covers is appended behind the log",
		file: "internal/judge/judge.go", old: "if _, ok := r.TermAt(l.Index); !ok {", new: "if _, ok := r.TermAt(l.Index); !ok && l.Index == 0 {",
		pkg: "internal/judge", run: "Judge",
	},
	{
		name: "two leaders of a term", breaks: "a term has one leader",
		file: "internal/judge/judge.go", old: "		if leader != string(sender) {", new: "		if leader == \"\" {",
		pkg: "internal/consensus", run: "Hostile",
	},
	{
		name: "configurations unread", breaks: "raft sees no configuration that it cannot decode",
		file: "internal/judge/judge.go", old: "			if _, err := Configuration(l.Data); err != nil {", new: "			if _, err := Configuration(l.Data); err != nil && len(l.Data) == 0 {",
		pkg: "internal/judge", run: "Judge",
	},
	{
		name: "snapshots unread", breaks: "raft stores no snapshot that it cannot restore",
		file: "internal/consensus/spool.go", old: "err := a.spool.check(l)", new: "err := error(nil)",
		pkg: "internal/consensus", run: "Drips",
	},
	{
		name: "streams renewed too early", breaks: "a new stream is there before the old one closes",
		file: "internal/consensus/pool.go", old: "	var heir *dialled\n", new: "	p.drop(c)\n	var heir *dialled\n",
		pkg: "internal/consensus", run: "Ageing",
	},
	{
		name: "a leader's slow heartbeats", breaks: "a leader is quick while a voter does not answer",
		file: "internal/consensus/attend.go", old: "state == raft.Leader && !r.missing():", new: "state == raft.Leader:",
		pkg: "internal/consensus", run: "ALeaderIsQuick",
	},
	{
		name: "a fixed lease", breaks: "a leader bears a silence of most of an election timeout",
		file: "internal/timing/ttl.go", old: "return max(Election(ttl)-LeaderLease-Attend/2, 0)", new: "return 0",
		pkg: "internal/consensus", run: "ACutOffLeader",
	},
	{
		name: "a lease beyond the timeout", breaks: "a leader that is cut off steps down before the next one is elected",
		file: "internal/timing/ttl.go", old: "return max(Election(ttl)-LeaderLease-Attend/2, 0)", new: "return Election(ttl) - LeaderLease/2",
		pkg: "internal/consensus", run: "ACutOffLeader",
	},
	{
		name: "a late heartbeat answered for ever", breaks: "a leader that is cut off steps down before the next one is elected",
		file: "internal/consensus/heartbeat.go", old: "if late := h.take(id, args.Term); late != nil {", new: "if late := h.late[id]; late != nil {\n\t\treturn nil\n\t}\n\tif late := h.take(id, args.Term); late != nil {",
		pkg: "internal/consensus", run: "ACutOffLeader",
	},
	{
		name: "heartbeats beside the grid", breaks: "an idle leader's messages leave at moments of the grid",
		file: "internal/consensus/attend.go", old: "if r.tune() && looks {", new: "if r.tune() && looks && r.stood.Load() == 1<<63 {",
		pkg: "internal/consensus", run: "AnIdleLeader",
	},
	{
		name: "a heartbeat at every moment", breaks: "an idle leader sends no heartbeat that its followers do not need",
		file: "internal/consensus/heartbeat.go", old: "if t.told.heard(id, args, resp, timing.HeartbeatRest(ttl)) {", new: "if t.told.heard(id, args, resp, 0) {",
		pkg: "internal/consensus", run: "AnIdleLeader",
	},
	{
		name: "raft's own timers for repeated messages", breaks: "an idle leader's messages leave at moments of the grid",
		file: "internal/consensus/told.go", old: "time.NewTimer(t.grid.Within(time.Now(), again, timing.Attend))", new: "time.NewTimer(again)",
		pkg: "internal/consensus", run: "AnIdleLeader",
	},
	{
		name: "silence forgotten by short leaders", breaks: "leaders that flap hand the age of silence on",
		file: "internal/term/keeper.go", old: "d.heard = table.flaps", new: "d.heard = now",
		pkg: "internal/term", run: "TooShort",
	},

	// Groups of shards.
	{
		name: "keys of the old number ignored", breaks: "no work of the next number begins beside one of the old",
		file: "internal/machine/assign.go", old: "if shard, held := s.heldShard(c.Group, g.shards); held {", new: "if shard, held := s.heldShard(c.Group, g.shards); held && g.next == 0 {",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "callers of the old number ignored", breaks: "no work of the next number begins beside one of the old",
		file: "internal/machine/assign.go", old: "if by := &g.callers[i]; !by.next {", new: "if by := &g.callers[i]; !by.next && g.next == 0 {",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "another number beside slow works", breaks: "a group changes its number only while no key of the former is held",
		file: "internal/machine/enlist.go", old: "	return !held\n", new: "	return !held || g.next == 0\n",
		and: [2]string{"	if g.resized || g.busy < g.shards && s.keys.isHeld(ShardKey(name, g.busy)) {", "	if g.resized {"},
		pkg: "internal/machine", run: "Scripts/group",
	},
	{
		name: "assignment of another version", breaks: "an Assign binds for the version that it was computed from",
		file: "internal/machine/assign.go", old: "	case g.version != c.Version:\n		return Outcome{Code: WrongVersion, Limit: g.version}\n	case g.next != 0:", new: "	case g.next != 0:",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "a caller comes back by a late copy", breaks: "a copy of an Enlist brings no caller back that has left",
		file: "internal/machine/enlist.go", old: "	if !owner.spent.has(seq) {", new: "	if !owner.spent.has(seq) || owner.index.enlisted[seq] == \"\" {",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "the former owner is not told", breaks: "each caller is told its part in the entry that changes it",
		file: "internal/machine/assign.go", old: "g.callers[callers.of(before)].part = s.commands", new: "_ = callers.of(before)",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "parts are not told again", breaks: "a caller on a new connection is told its part",
		file: "internal/machine/query.go", old: "return s.appendParts(events, o)", new: "return events",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "a Decline of an earlier part", breaks: "a late copy of a Decline changes nothing",
		file: "internal/machine/enlist.go", old: "	case by.part != c.Version:", new: "	case by.part < c.Version:",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "a Dismiss of an earlier absence", breaks: "a late copy of a Dismiss ends no later absence",
		file: "internal/machine/assign.go", old: "g.callers[i].absent != c.Since", new: "g.callers[i].absent == 0",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "successors wait for each other", breaks: "a caller stands by for one that leads",
		file: "internal/machine/enlist.go", old: "	if i := g.find(c.succeeds, func(o *caller) bool { return sameNumber(o) && o.leads() }); i >= 0 {", new: "	if i := g.find(c.succeeds, sameNumber); i >= 0 {",
		pkg: "internal/machine", run: "EveryCallerKnows|Scripts/group",
	},
	{
		name: "a plan for each caller", breaks: "callers that start together share one plan",
		file: "internal/term/planner_plan.go", old: "if balance = !now.Before(quiet); balance {", new: "if balance = !now.Before(quiet.Add(-time.Hour)); balance {",
		pkg: "internal/term", run: "StartTogether|FirstPlan",
	},
	{
		name: "orphans wait for the balance", breaks: "an orphan of a settled group is assigned at once",
		file: "internal/term/planner_plan.go", old: "!balance && (!st.Settled || st.Orphans == 0)", new: "!balance",
		pkg: "internal/term", run: "Orphan",
	},
	{
		name: "a declined shard comes back", breaks: "a declined shard is kept from its caller for a TTL",
		file: "internal/term/planner.go", old: "p.declined[by][c.Shard] = until", new: "_ = until",
		pkg: "internal/term", run: "Declined|Orphan",
	},
	{
		name: "balance all at once", breaks: "the moves that only restore the balance are bounded",
		file: "internal/term/planner_plan.go", old: "MaxMoves: int(st.MaxMoves)}", new: "MaxMoves: 64 * int(st.MaxMoves)}",
		pkg: "internal/term", run: "Balance",
	},
	{
		name: "a key's change is not heard", breaks: "the planner goes on when a shard has changed hands",
		file: "internal/term/planner.go", old: "	if g.waits {\n		p.dirty[g] = struct{}{}\n	}\n	return g.waits", new: "	return false",
		pkg: "internal/term", run: "Balance|NextNumber",
	},
	// Sticky keys.
	{
		name: "a kept key without trust", breaks: "a sticky lock is made only while the session is trusted",
		file: "locks/sticky.go", old: "	if s.trust.remaining(now) <= 0 {\n		return nil, nil\n	}\n", new: "",
		pkg: "locks", run: "Sticky",
	},
	{
		name: "a recall ignored", breaks: "a client gives a kept key back when another request comes",
		file: "locks/sticky.go", old: "	if k := s.forgetKept(e.Key, e.Seq); k != nil {", new: "	if k := s.forgetKept(e.Key, e.Seq); k != nil && e.Seq == 0 {",
		pkg: "locks", run: "LostRecall|OutlivesItsLeader",
	},
	{
		name: "a recalled key kept", breaks: "the release of a recalled lock gives the key back",
		file: "locks/sticky.go", old: "if g.kept == nil || g.contended || g.asked ||", new: "if g.kept == nil ||",
		pkg: "locks", run: "Sticky",
	},
	{
		name: "a block used twice", breaks: "each sticky lock has a token of its own",
		file: "locks/sticky.go", old: "	k.next++\n", new: "	k.next += k.next % 2\n",
		pkg: "locks", run: "Sticky|Block",
	},
	{
		name: "a token above the block", breaks: "no sticky lock has a token that was not reserved",
		file: "locks/sticky.go", old: "		last:  fence.Token(out.Token) + fence.Token(out.Block),\n", new: "		last:  fence.Token(out.Token) + 2*fence.Token(out.Block),\n",
		pkg: "locks", run: "Sticky|Block",
	},
	{
		name: "a next block too long", breaks: "no sticky lock has a token that was not reserved",
		file: "locks/sticky.go", old: "fence.Token(out.Token) + fence.Token(out.Block)}\n", new: "fence.Token(out.Token) + fence.Token(out.Block) + 1}\n",
		pkg: "locks", run: "Block",
	},
	{
		name: "a block never extended", breaks: "nobody waits for the next block",
		file: "locks/sticky.go", old: "	k.asked = true\n	return true\n", new: "	return false\n",
		pkg: "locks", run: "Block",
	},
	{
		name: "a recalled key extended", breaks: "a recalled grant gets no further tokens",
		file: "internal/machine/grant.go", old: "r.last != c.Last || g.is(markContended|markAsked|markBroken) ||", new: "r.last != c.Last ||",
		pkg: "internal/machine", run: "Scripts",
	},
	{
		name: "a copy extends again", breaks: "a second copy of an Extend changes nothing",
		file: "internal/machine/grant.go", old: "r.last != c.Last || g.is(markContended", new: "r.last == 0 || g.is(markContended",
		pkg: "internal/machine", run: "Scripts",
	},
	{
		name: "blocks without shares", breaks: "no session takes more tokens of a second than it leaves",
		file: "internal/machine/grant.go", old: "	if o.reserved+uint64(n) > MaxReserved-min(", new: "	if uint64(n) > MaxReserved-min(",
		pkg: "internal/machine", run: "Reserved",
	},
	{
		name: "a cycle is not recalled", breaks: "a refused cycle recalls the kept keys in it",
		file: "internal/machine/acquire.go", old: "		s.recallCycle(out)\n", new: "",
		pkg: "internal/machine", run: "Scripts",
	},
	{
		name: "own keys below a tree", breaks: "a tree takes the client's own kept keys along",
		file: "locks/sticky.go", old: "	if w.cmd.Tree {", new: "	if w.cmd.Tree && len(keys) > 1 {",
		pkg: "locks", run: "TreeTakes",
	},
	{
		name: "a sleep unseen", breaks: "the host's sleep is seen at the next look",
		file: "locks/sleep_linux.go", old: "	return boot-r.boot-now.Sub(r.at) < sleepNoise/2\n", new: "	return now.After(r.at) || boot < 0\n",
		pkg: "locks", run: "Sleep",
	},
	{
		name: "a release settled by a failure", breaks: "a lazy release that no request delivered is sent",
		file: "locks/lazy.go", old: "d.settled || d.carried > 0", new: "d.settled || d.carried >= 0",
		pkg: "locks", run: "Lazy",
	},
}
