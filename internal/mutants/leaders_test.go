//go:build mutants

package mutants

// Leadership moves at once when the leader's process has ended, and for nothing less.
var leaderMutants = []mutant{
	{
		name: "stand on a reset alone", promise: hardToKill, breaks: "a reset is confirmed by a dial",
		file: "internal/consensus/stand.go", old: "lost := func() bool { return r.hasEnded(ctx, q.Leader, from.boot) }", new: "lost := func() bool { return true }",
		pkg: "internal/consensus", run: "Reset|Unreachable",
	},
	{
		name: "stand without a majority", promise: hardToKill, breaks: "a majority of the voters agrees first",
		file: "internal/consensus/stand.go", old: "if yes < len(voters)/2+1 {", new: "if yes < 1 {",
		pkg: "internal/consensus", run: "Majority|MayStand",
	},
	{
		name: "stand without a vote", promise: oneHolder, breaks: "only a voter of the committed configuration stands",
		file: "internal/consensus/stand.go", old: "!slices.Contains(voters, r.id) || !r.Votes() || !proved()", new: "!proved()",
		pkg: "internal/consensus", run: "NonVoter",
	},
	{
		name: "agree with an older log", promise: oneHolder, breaks: "a voter with a newer log refuses",
		file: "internal/consensus/stand.go", old: "if ahead || r.Term() > q.Term", new: "if r.Term() > q.Term",
		pkg: "internal/consensus", run: "MayStand",
	},
	{
		name: "no order of candidates", promise: hardToKill, breaks: "two voters never stand at one moment",
		file: "internal/consensus/stand.go", old: "time.Duration(better) * stagger", new: "0 * time.Duration(better) * stagger",
		pkg: "internal/consensus", run: "Best|AtOnce|Five",
	},
	{
		name: "a vote lost to a stale stream", promise: hardToKill, breaks: "a kept stream that is broken costs no call",
		file: "internal/consensus/transport.go", old: "if err == nil || kept == 0", new: "if true || kept == 0",
		pkg: "internal/consensus", run: "Stale",
	},
	{
		name: "replication backs off", promise: hardToKill, breaks: "a server that comes back is replicated to at once",
		file: "internal/consensus/transport.go", old: "return t.reach.keep(string(id), args.Term, send)", new: "return send()",
		pkg: "internal/consensus", run: "ComesBack",
	},
	{
		name: "a stranger leads", promise: safe, breaks: "a leader that nobody confirms is not followed",
		file: "internal/judge/judge.go", old: "if d := (Doubt{Sender: id, Term: term}); !r.Confirmed(d) {", new: "if d := (Doubt{Sender: id, Term: term}); false {",
		pkg: "internal/consensus", run: "KnowsNobody",
	},
	{
		name: "a stranger leads on its own word", promise: safe, breaks: "a majority of the configuration shown confirms its leader",
		file: "internal/judge/confirm.go", old: "	return yes+own > voters/2\n}\n\n// Near", new: "	return yes > 0\n}\n\n// Near",
		pkg: "internal/judge", run: "Confirm",
	},
	{
		name: "committed entries replaced", promise: oneHolder, breaks: "an entry at or below the commit index stays",
		file: "internal/judge/judge.go", old: "case ok && mine != l.Term:", new: "case ok && mine == 0:",
		pkg: "internal/judge", run: "Judge",
	},
	{
		name: "a leader without the committed entries answered", promise: safe, breaks: "a false vote stops no cluster",
		file: "internal/consensus/serve.go", old: "		t.without.note(m, err, t.voters)\n", new: "		_ = m\n",
		pkg: "internal/consensus", run: "LacksCommitted",
	},
	{
		name: "entries below a snapshot appended", promise: oneHolder, breaks: "no entry that a snapshot covers is appended behind the log",
		file: "internal/judge/judge.go", old: "if _, ok := r.TermAt(l.Index); !ok {", new: "if _, ok := r.TermAt(l.Index); !ok && l.Index == 0 {",
		pkg: "internal/judge", run: "Judge",
	},
	{
		name: "two leaders of a term", promise: oneHolder, breaks: "a term has one leader",
		file: "internal/judge/judge.go", old: "		if leader != string(sender) {", new: "		if leader == \"\" {",
		pkg: "internal/consensus", run: "Hostile",
	},
	{
		name: "configurations unread", promise: safe, breaks: "raft sees no configuration that it cannot decode",
		file: "internal/judge/judge.go", old: "			if _, err := Configuration(l.Data); err != nil {", new: "			if _, err := Configuration(l.Data); err != nil && len(l.Data) == 0 {",
		pkg: "internal/judge", run: "Judge",
	},
	{
		name: "snapshots unread", promise: safe, breaks: "raft stores no snapshot that it cannot restore",
		file: "internal/consensus/spool.go", old: "err := a.spool.check(l)", new: "err := error(nil)",
		pkg: "internal/consensus", run: "Drips",
	},
	{
		name: "streams renewed too early", promise: hardToKill, breaks: "a new stream is there before the old one closes",
		file: "internal/consensus/pool.go", old: "	var heir *dialled\n", new: "	p.drop(c)\n	var heir *dialled\n",
		pkg: "internal/consensus", run: "Ageing",
	},
	{
		name: "a leader's slow heartbeats", promise: hardToKill, breaks: "a leader is quick while a voter does not answer",
		file: "internal/consensus/attend.go", old: "state == raft.Leader && !r.missing():", new: "state == raft.Leader:",
		pkg: "internal/consensus", run: "ALeaderIsQuick",
	},
	{
		name: "a fixed lease", promise: hardToKill, breaks: "a leader bears a silence of most of an election timeout",
		file: "internal/timing/ttl.go", old: "return max(Election(ttl)-LeaderLease-Attend/2, 0)", new: "return 0",
		pkg: "internal/consensus", run: "ACutOffLeader",
	},
	{
		name: "a lease beyond the timeout", promise: lossFirst, breaks: "a leader that is cut off steps down before the next one is elected",
		file: "internal/timing/ttl.go", old: "return max(Election(ttl)-LeaderLease-Attend/2, 0)", new: "return Election(ttl) - LeaderLease/2",
		pkg: "internal/consensus", run: "ACutOffLeader",
	},
	{
		name: "a late heartbeat answered for ever", promise: lossFirst, breaks: "a leader that is cut off steps down before the next one is elected",
		file: "internal/consensus/heartbeat.go", old: "if late := h.take(id, args.Term); late != nil {", new: "if late := h.late[id]; late != nil {\n\t\treturn nil\n\t}\n\tif late := h.take(id, args.Term); late != nil {",
		pkg: "internal/consensus", run: "ACutOffLeader",
	},
	{
		name: "heartbeats beside the grid", promise: cheap, breaks: "an idle leader's messages leave at moments of the grid",
		file: "internal/consensus/attend.go", old: "if r.tune() && looks {", new: "if r.tune() && looks && r.stood.Load() == 1<<63 {",
		pkg: "internal/consensus", run: "AnIdleLeader",
	},
	{
		name: "a heartbeat at every moment", promise: cheap, breaks: "an idle leader sends no heartbeat that its followers do not need",
		file: "internal/consensus/heartbeat.go", old: "if t.told.heard(id, args, resp, timing.HeartbeatRest(ttl)) {", new: "if t.told.heard(id, args, resp, 0) {",
		pkg: "internal/consensus", run: "AnIdleLeader",
	},
	{
		name: "raft's own timers for repeated messages", promise: cheap, breaks: "an idle leader's messages leave at moments of the grid",
		file: "internal/consensus/told.go", old: "time.NewTimer(t.grid.Within(time.Now(), again, timing.Attend))", new: "time.NewTimer(again)",
		pkg: "internal/consensus", run: "AnIdleLeader",
	},
	{
		name: "silence forgotten by short leaders", promise: hardToKill, breaks: "leaders that flap hand the age of silence on",
		file: "internal/term/keeper.go", old: "d.heard = table.flaps", new: "d.heard = now",
		pkg: "internal/term", run: "TooShort",
	},
	{
		name: "any answer from ahead", promise: oneHolder, breaks: "an answer to a message sent ahead answers the same message alone",
		file: "internal/consensus/ahead.go", old: "args.PrevLogEntry == m.args.PrevLogEntry && ", new: "",
		pkg: "internal/consensus", run: "FromAhead",
	},
	{
		name: "sent ahead in any term", promise: oneHolder, breaks: "entries are sent ahead to servers that acknowledged the log in their term",
		file: "internal/consensus/ahead.go", old: "s.latest.term != first.Term || ", new: "",
		pkg: "internal/consensus", run: "EntriesAhead",
	},
	{
		name: "sent ahead after a refusal", promise: oneHolder, breaks: "entries are sent ahead to servers that acknowledged all before",
		file: "internal/consensus/ahead.go", old: "if err != nil || !resp.Success {\n		s.latest", new: "if err != nil {\n		s.latest",
		pkg: "internal/consensus", run: "EntriesAhead",
	},
}
