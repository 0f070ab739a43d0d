//go:build mutants

package mutants

// Loss is told first, and one holder.
var sessionMutants = []mutant{
	{
		name: "no confirmation", promise: lossFirst, breaks: "a beat counts only after a majority confirmed the term",
		file: "internal/term/rounds.go", old: "ok := r.ask(ctx)", new: "ok := true || r.ask(ctx)",
		pkg: "internal/term", run: "Deposed|Round|Beat|Trust", also: []string{"model", "term", "sim, the old leader wakes", "storm, an old leader wakes"},
	},
	{
		name: "own vote not asked", promise: lossFirst, breaks: "a leader counts its own voter only while raft leads in the term",
		file: "internal/term/rounds.go", old: "return yes >= need && t.cfg.Log.Leads(t.cfg.Term) && slices.Equal(before, after)", new: "return yes >= need && slices.Equal(before, after)",
		and: [2]string{"	if !t.cfg.Log.Leads(t.cfg.Term) {\n		return false\n	}\n", ""},
		pkg: "internal/term", run: "Own|Deposed|Round|Trust|Lead",
	},
	{
		name: "no fresh TTL", promise: lossFirst, breaks: "a new leader gives every session a whole TTL",
		file: "internal/term/keeper.go",
		old:  "d := newDeadline(st.ID, st.Node, time.Duration(st.TTL)*time.Millisecond, now)",
		new:  "d := newDeadline(st.ID, st.Node, time.Duration(st.TTL)*time.Millisecond, now.Add(-time.Duration(st.TTL)*time.Millisecond/2))",
		pkg:  "internal/term", run: "Leader|TTL|Trust", also: []string{"storm, the next leader waits"},
	},
	{
		name: "the dead keep their keys", promise: noSilence, breaks: "a new leader gives every session one TTL, and no more",
		file: "internal/term/keeper.go",
		old:  "d := newDeadline(st.ID, st.Node, time.Duration(st.TTL)*time.Millisecond, now)",
		new:  "d := newDeadline(st.ID, st.Node, 100*time.Duration(st.TTL)*time.Millisecond, now)",
		pkg:  "internal/term", run: "Leader|TTL|Trust", also: []string{"storm"},
	},
	{
		name: "watch after begin", promise: oneHolder, breaks: "no session escapes the keeper while a term starts",
		file: "internal/term/term.go", old: "	t.table.setWatch(t.applied)\n	t.keeper.begin()", new: "	t.keeper.begin()\n	t.table.setWatch(t.applied)",
		pkg: "internal/term", run: "Keeper|Start|Session",
	},
	{
		name: "beats answered during an expiry", promise: lossFirst, breaks: "no beat is acknowledged while an Expire or a mark is in flight",
		file: "internal/term/beat.go",
		old:  "	case d.busy || d.orders > 0:\n		d.waiting = append(d.waiting, b)\n		k.mu.Unlock()\n		return\n	case d.silent:\n		k.mu.Unlock()\n		k.receive(id, b)",
		new:  "	case d.silent && !d.busy:\n		k.mu.Unlock()\n		k.receive(id, b)",
		pkg:  "internal/term", run: "Beat|Expire|Mark|Silent|Trust",
	},
	{
		name: "beats answered behind an order", promise: lossFirst, breaks: "no beat is acknowledged while an EndSession is in flight",
		file: "internal/term/revoke.go", old: "	k.sessions[st.ID].orders++\n", new: "",
		pkg: "internal/term", run: "Order",
	},
	{
		name: "revoked sessions end at once", promise: oneHolder, breaks: "a key is free only when its holder has answered, or its trust has ended",
		file: "internal/machine/revoke.go", old: "	s.takeSlice([]*session{o}, workPerKey*s.slice)\n", new: "	s.endSessions([]*session{o}, Closed, allWork)\n",
		pkg: "locks", run: "EndSession",
	},
	{
		name: "waiters of an ending session granted", promise: oneHolder, breaks: "from the first slice on a session is granted nothing",
		file: "internal/machine/admit.go", old: "case owner.dead() || held ||", new: "case held ||",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "readers granted together pass a tree", promise: oneHolder, breaks: "a shared waiter waits for a tree that came before it",
		file: "internal/machine/admit.go", old: "p.shutFor(w).order < w.order", new: "p.shutFor(w).order > w.order",
		pkg: "internal/machine", run: "ReadersGrantedTogether",
	},
	{
		name: "readers granted together pass an upgrade", promise: fair, breaks: "a shared waiter waits for an upgrade above or below",
		file: "internal/machine/admit.go", old: "p.shutFor(w).order < w.order", new: "p.shutFor(w).order != 0 && p.shutFor(w).order < w.order",
		pkg: "internal/machine", run: "ReadersGrantedTogether",
	},
	{
		name: "readers granted together under a held tree", promise: oneHolder, breaks: "a shared waiter waits for a holder above or below",
		file: "internal/machine/admit.go", old: "return p.shutFor(w).held", new: "return false",
		pkg: "internal/machine", run: "ReadersGrantedTogether",
	},
	{
		name: "a condition that failed meanwhile granted", promise: oneHolder, breaks: "a conditional request is granted under no later token than it names",
		file: "internal/machine/admit.go", old: "case w.Conditional && (p.granted || len(p.readers) > 0):", new: "case false:",
		pkg: "internal/machine", run: "ReadersGrantedTogether",
	},
	{
		name: "more readers than may hold", promise: oneHolder, breaks: "readers about to be granted count as holders",
		file: "internal/machine/admit.go", old: "n := len(p.r.holders) + len(p.readers) -", new: "n := len(p.r.holders) -",
		pkg: "internal/machine", run: "ReadersGrantedTogether",
	},
	{
		name: "the wrong readers leave the queue", promise: oneHolder, breaks: "those that were granted leave the queue, and no others",
		file: "internal/machine/record.go", old: "	clear(list[:n])\n	return list[n:]", new: "	return list[:len(list)-n]",
		pkg: "internal/machine", run: "Script|Commands|Property|Readers",
	},
	{
		name: "queues that were looked at are not noted again", promise: fair, breaks: "a queue noted in a later step is looked at again",
		file: "internal/machine/admit.go", old: "	clear(p.noted)\n", new: "",
		pkg: "internal/machine", run: "Script|Commands|Property",
	},
	{
		name: "a queue that changes in the step is not looked at again", promise: fair, breaks: "a grant that frees a waiter has the queue looked at once more",
		file: "internal/machine/admit.go", old: "	if p.admitting {\n		return true\n	}\n	_, noted", new: "	_, noted",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "queues that are left are forgotten", promise: fair, breaks: "what a step does not look at is put off",
		file: "internal/machine/visit.go", old: "	s.later = append(s.later, v)\n", new: "",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "the queues behind a slice are forgotten", promise: fair, breaks: "a slice leaves what it does not look at",
		file: "internal/machine/visit.go", old: "if s.later = s.later[n:]; len", new: "if s.later = s.later[:0]; len",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "a visit ends with its slice", promise: fair, breaks: "a visit to a tree goes on behind the last key",
		file: "internal/machine/visit.go", old: "	return v, false, work\n", new: "	return v, true, work\n",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "every visit put off again", promise: fair, breaks: "queues that are put off already are not put off again",
		file: "internal/machine/visit.go", old: "		if after <= v.after {", new: "		if after >= v.after {",
		pkg: "internal/machine", run: "PutOff",
	},
	{
		name: "a free key behind what was put off stays in use", promise: fair, breaks: "a key without holders and waiters is idle, whatever is put off",
		file: "internal/machine/visit.go", old: "	if v.reach == itself {\n		s.tidy(v.key)\n	}\n", new: "",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "an image without what was put off", promise: fair, breaks: "a restored table goes on with the slices",
		file: "internal/machine/codec_table.go", old: "	codeVisits(c, &h.later)\n", new: "",
		pkg: "internal/machine", run: "Image",
	},
	{
		name: "grants without a measure", promise: fair, breaks: "no step grants more than MaxAdmitted waiters, and those of one queue more",
		file: "internal/machine/admit.go", old: "return done, work - spent()", new: "return done, work - looks",
		pkg: "internal/machine", run: "MuchIsGranted",
	},
	{
		name: "a queue of sets granted whole", promise: fair, breaks: "a step ends with the grant that uses up its work",
		file: "internal/machine/admit.go", old: "done = spent() < work", new: "done = spent() >= 0",
		pkg: "internal/machine", run: "MuchIsGranted",
	},
	{
		name: "waiters that were put off wait for the ends of sessions", promise: fair, breaks: "every second slice is for waiters that were put off",
		file: "internal/term/ending.go", old: "case e.late && !(wasLate && len(e.turns) > 0):", new: "case e.late && (len(e.turns) == 0 || wasLate && false):",
		pkg: "internal/term", run: "Freed|TakeTurns",
	},
	{
		name: "sessions wait for waiters that were put off", promise: fair, breaks: "every second slice is for the ends of sessions",
		file: "internal/term/ending.go", old: "case e.late && !(wasLate && len(e.turns) > 0):", new: "case e.late && (wasLate || true):",
		pkg: "internal/term", run: "Freed|TakeTurns",
	},
	{
		name: "a long visit before all others", promise: fair, breaks: "visits that were put off take turns",
		file: "internal/machine/admit.go", old: "slices.Concat(p.revisit[next:], begun)", new: "slices.Concat(begun, p.revisit[next:])",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "a list without a bound", promise: fair, breaks: "above MaxPutOff visits, all queues are looked at",
		file: "internal/machine/visit.go", old: "len(s.later) >= MaxPutOff", new: "len(s.later) > 1<<30",
		pkg: "internal/machine", run: "ListIsBounded",
	},
	{
		name: "a new leader grants no slices", promise: fair, breaks: "a leader finds what was put off in its table",
		file: "internal/term/ending.go", old: "e.late || late\n", new: "e.late || late && e.ended\n",
		pkg: "internal/term", run: "Freed",
	},
	{
		name: "the end of a client is a failure of work", promise: fair, breaks: "an error that only tells of the end of the client is not warned of",
		file: "locks/do.go", old: "ok && lost.Reason.endsCalls(err)", new: "ok && lost.Reason.endsCalls(nil)",
		pkg: "locks", run: "EndOfTheClient",
	},
	{
		name: "an ending session acts", promise: oneHolder, breaks: "no command of an ending session is taken",
		file: "internal/machine/ending.go", old: "o != nil && o.ending == 0 {\n		return o", new: "o != nil {\n		return o",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "an ending session is opened", promise: oneHolder, breaks: "an Open is refused until the last slice",
		file: "internal/machine/session.go", old: "		if o.ending != 0 {", new: "		if o.ending > Revoked {",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "a slice without a measure", promise: fair, breaks: "no step of a session's end takes long",
		file: "internal/machine/ending.go", old: "			work -= workPerKey + (len(r.holders)", new: "			work -= 0*workPerKey + (len(r.holders)",
		pkg: "internal/machine", run: "LongStep",
	},
	{
		name: "waits leave without a measure", promise: fair, breaks: "no step of a session's end takes long",
		file: "internal/machine/ending.go", old: "			work -= workPerKey\n			if _, known", new: "			work -= 0 * workPerKey\n			if _, known",
		pkg: "internal/machine", run: "Script|LongStep",
	},
	{
		name: "slices begun anew in a restored table", promise: oneHolder, breaks: "every voter takes the same slices",
		file: "internal/machine/index.go", old: "		if o.begun {", new: "		if o.begun = false; o.begun {",
		pkg: "internal/machine", run: "Commands|Restored",
	},
	{
		name: "dead waiters in deadlocks", promise: noCircle, breaks: "a wait of a session that ends by itself closes no cycle",
		file: "internal/machine/deadlock_needs.go", old: "	if owner.dead() {\n		return 0 // a slice", new: "	if owner == nil {\n		return 0 // a slice",
		pkg: "internal/machine", run: "Deadlock|Commands",
	},
	{
		name: "a broken key of a closed session unclean", promise: noSilence, breaks: "a closed session leaves its keys as its client left them",
		file: "internal/machine/grant.go", old: "	if owner.ending == Closed {", new: "	if owner.ending > Revoked {",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "a dead successor", promise: fair, breaks: "a waiter of an ending session is nobody's successor",
		file: "internal/machine/queue.go", old: "o.client == client && !o.dead()", new: "o.client == client",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "endings forgotten by the next leader", promise: exactlyOnce, breaks: "a new leader goes on with the slices",
		file: "internal/term/term.go", old: "	t.endings.begin()\n", new: "",
		pkg: "internal/term", run: "NextLeader",
	},
	{
		name: "a slice proposed once", promise: fair, breaks: "a slice that found no room is proposed again",
		file: "internal/term/term.go", old: "			t.endings.next()\n", new: "",
		pkg: "internal/term", run: "Again",
	},
	{
		name: "closed too early", promise: noSilence, breaks: "a Close is answered when the last key is free",
		file: "internal/term/ending.go", old: "		if c != wire.CodeOK || o.Code != machine.Unfinished && o.Code != machine.NoSession {", new: "		if o.Code = machine.OK; o.Code == machine.OK {",
		pkg: "internal/term", run: "Slices",
	},
	{
		name: "beats of an ending session", promise: lossFirst, breaks: "no beat of an ending session is acknowledged",
		file: "internal/term/term.go", old: "		case machine.EventEnding:\n			t.keeper.ended(e.Session)\n", new: "		case machine.EventEnding:\n",
		pkg: "internal/term", run: "Ending|Slices",
	},
	{
		name: "a closed revoked session forgotten", promise: exactlyOnce, breaks: "a session that ends behind its last waits is sliced too",
		file: "internal/term/ending.go", old: "e.passLocked(o.Code == machine.Unfinished || e.isUnfinished(end.Session))", new: "e.passLocked(o.Code == machine.Unfinished || e.isUnfinished(end.Session) && false)",
		pkg: "internal/term", run: "ClosedWithASlice",
	},
	{
		name: "beats answered behind a mark", promise: lossFirst, breaks: "a marked session's beats wait for Hear",
		file: "internal/term/beat.go", old: "	case d.silent:\n		d.waiting", new: "	case false:\n		d.waiting",
		and: [2]string{"	case d.silent:\n		k.mu.Unlock()\n		k.receive(id, b)\n		return\n", ""},
		pkg: "internal/term", run: "Silent|Mark|Beat",
	},
	{
		name: "mark ignored by the next leader", promise: hardToKill, breaks: "a mark counts one TTL, whichever voter leads",
		file: "internal/term/keeper.go", old: "d.silent, d.end = true, mark.Add(d.ttl)", new: "d.silent, d.end = true, now.Add(d.ttl+0*time.Since(mark))",
		pkg: "internal/term", run: "Mark|Flapping|Silent",
	},
	{
		name: "stall ignored", promise: lossFirst, breaks: "a leader that stood still cannot say that nobody beat",
		file: "internal/term/keeper.go", old: "gap > timing.ProcessStalled", new: "gap > 1000*timing.ProcessStalled",
		pkg: "internal/term", run: "Still|Stall|Trust",
	},
	{
		name: "verdict of a deposed leader", promise: oneHolder, breaks: "Expire, marks, Lift and ends of delays act in their leader's term only",
		file: "internal/machine/apply.go", old: "	if term != s.term {", new: "	if term > s.term {",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "trust counted half as long again", promise: lossFirst, breaks: "a holder trusts for less than a TTL since the send time",
		file: "locks/trust.go", old: "return t.ttl - margin(t.ttl) - now.since(t.sent)", new: "return t.ttl*3/2 - margin(t.ttl) - now.since(t.sent)",
		pkg: "locks", run: "Trust|Promise|Window|Beat", also: []string{"storm, a holder is cut off"},
	},
	{
		name: "trust without a margin", promise: lossFirst, breaks: "the margin covers the rates of clocks",
		file: "locks/trust.go", old: "return min(ttl/100+100*time.Millisecond, ttl/4)", new: "return min(ttl/100+100*time.Millisecond, ttl/4) * 0",
		pkg: "locks", run: "Trust|Margin|Window",
	},
	{
		name: "host sleep ignored", promise: stoppedFinds, breaks: "the time that a host slept counts",
		file: "locks/trust.go", old: "		j.slept += max(0, d)", new: "		j.slept += 0 * max(0, d)",
		pkg: "locks", run: "Jump|Sleep|Slept",
	},
	{
		name: "Err reads no clock", promise: stoppedFinds, breaks: "Err is right at once after a stop, before any timer has fired",
		file: "locks/lock.go", old: "left := l.g.s.trustLeft(l.g.s.c.now())", new: "left := time.Second",
		pkg: "locks", run: "Err|Pause|Remaining", also: []string{"sim"},
	},
	{
		name: "observers keep the first leader", promise: noSilence, breaks: "Observe yields each new leader",
		file: "locks/observe.go", old: "return e.Client == o.Client && e.Node == o.Node && e.Self == o.Self && e.Token == o.Token &&", new: "return o.Token != 0 &&",
		pkg: "locks", run: "Observe", also: []string{"sim"},
	},
}
