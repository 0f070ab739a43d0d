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
		old:  "d := newDeadline(st.ID, time.Duration(st.TTL)*time.Millisecond, now)",
		new:  "d := newDeadline(st.ID, time.Duration(st.TTL)*time.Millisecond, now.Add(-time.Duration(st.TTL)*time.Millisecond/2))",
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
		old:  "	case d.busy:\n		d.waiting = append(d.waiting, b)\n		k.mu.Unlock()\n		return\n	case d.silent:\n		k.mu.Unlock()\n		k.receive(id, b)",
		new:  "	case d.silent && !d.busy:\n		k.mu.Unlock()\n		k.receive(id, b)",
		pkg:  "internal/term", run: "Beat|Expire|Mark|Silent|Trust",
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
		file: "internal/machine/conflict.go", old: "		return n >= int(w.Of)", new: "		return n > int(w.Of)",
		pkg: "internal/machine", run: "Script|Commands",
	},

	// The log, the cluster, the fence.
	{
		name: "commands applied as made", breaks: "the leader applies the commands that the other voters decode",
		file: "internal/term/propose.go", old: "frame, cmd = b.arena[start:len(b.arena):len(b.arena)], nil", new: "frame = b.arena[start:len(b.arena):len(b.arena)]",
		pkg: "internal/term", run: "Leader",
	},
	{
		name: "founding by half", breaks: "two foundings share a member",
		file: "internal/founding/kernel.go", old: "return max(voters, m/2+1, m-majority+1)", new: "return max(1, m/2, 0*majority)",
		pkg: "internal/founding", run: "Quorum|Founding|Chosen",
	},
	{
		name: "accepted value not repeated", breaks: "a later ballot repeats the value of an earlier one",
		file: "internal/founding/kernel.go", old: "if best.Value != nil && !superseded(best.Value.Voters, promises) {", new: "if best.Value == nil && best.Durable {",
		pkg: "internal/founding", run: "Propose|Founding|Chosen",
	},
	{
		name: "store goes on after a failed write", breaks: "no write succeeds after a failed one",
		file: "internal/raftstore/store.go", old: "s.failure.Store(newFailure(err))", new: "_ = newFailure(err)",
		pkg: "internal/raftstore", run: "Fail|Fault|Write|Disk",
	},
	{
		name: "leader not left when silent", breaks: "a leader that answers nothing is left",
		file: "internal/link/remote.go", old: "> timing.AnswerLimit", new: "> 1000*timing.AnswerLimit",
		pkg: "internal/link", run: "Leader|Answer|Silent|Stall|Hung",
	},
	{
		name: "fence admits a lower token", breaks: "a guard refuses a token lower than one it has seen",
		file: "fence/guard.go", old: "	case t < mark, once && t == mark:", new: "	case once && t == mark:",
		pkg: "fence", run: "Guard|Token|Mark",
	},
}
