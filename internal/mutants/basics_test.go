//go:build mutants

package mutants

// The mistakes of other lock services, as far as the other lists lack them.
var basicMutants = []mutant{
	{
		name: "expired after half a TTL", promise: lossFirst, breaks: "a session ends no earlier than a TTL after its last beat arrived",
		file: "internal/term/beat.go", old: "if end := at.Add(d.ttl); end.After(d.end)", new: "if end := at.Add(d.ttl / 2); end.After(d.end)",
		and: [2]string{"	d.schedule()\n}\n\n// confirmed", "	d.end = at.Add(d.ttl / 2)\n	d.schedule()\n}\n\n// confirmed"},
		pkg: "internal/term", run: "Beat|TTL|Trust|Expire|Session|Deadline", also: []string{"model", "term"},
	},
	{
		name: "tokens of the wall clock", promise: risingTokens, breaks: "a token is counted, the same on every voter",
		file: "internal/machine/grant.go", old: "	s.last++\n	token := s.last\n	spec", new: "	s.last = Token(time.Now().UnixNano() >> 11)\n	token := s.last\n	spec",
		and: [2]string{"import \"slices\"", "import (\n\t\"slices\"\n\t\"time\"\n)"},
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "an idle key takes its token along", promise: risingTokens, breaks: "tokens rise whatever becomes of keys",
		file: "internal/machine/idle.go", old: "	s.idles++\n", new: "	s.idles++\n	s.last = r.last - 1\n",
		pkg: "internal/machine", run: "Script|Commands", also: []string{"term"},
	},
	{
		name: "the last comes first", promise: fair, breaks: "waiters are granted in the order of their entries",
		file: "internal/machine/queue.go", old: "!lowTail {\n		return i, w.order", new: "!lowTail {\n		if i > 1 && !w.set && !w.Tree {\n			return i - 1, r.queue[i-1].order\n		}\n		return i, w.order",
		pkg: "internal/machine", run: "Script|Commands", also: []string{"storm"},
	},
	{
		name: "loss told late", promise: lossFirst, breaks: "contexts end with the session",
		file: "locks/session.go", old: "	s.c.trace.sessionLost(reason)\n	s.unlockAndCancel(cancels)\n", new: "	s.c.trace.sessionLost(reason)\n	s.mu.Unlock()\n	time.AfterFunc(s.ttl, func() {\n		s.mu.Lock()\n		s.unlockAndCancel(cancels)\n	})\n",
		pkg: "locks", run: "Lost|Trust|Session", also: []string{"term"},
	},
	{
		name: "trust from the answer", promise: lossFirst, breaks: "the window of trust is counted from the sending",
		file: "locks/keepalive.go", old: "		s.trust.sent = sent\n", new: "		s.trust.sent = s.c.now()\n",
		pkg: "locks", run: "Trust|Beat|Promise", also: []string{"term"},
	},
	{
		name: "release by owner", promise: exactlyOnce, breaks: "a Release frees the grant of its token alone",
		file: "internal/machine/release.go", old: "	seq, at, g := s.grantOf(owner, c.Token)\n	if g == nil {\n		return Outcome{Code: NotHeld}\n	}\n	if c.To",
		new: "	seq, at, g := s.grantOf(owner, c.Token)\n	if list := owner.index.requests.list; g == nil && len(list) > 0 {\n		seq = list[len(list)-1].seq\n		if at = owner.index.requests.at(seq); at.phase == granted {\n			g = s.keys.get(at.key).grant(at.token)\n		}\n	}\n	if g == nil {\n		return Outcome{Code: NotHeld}\n	}\n	if c.To",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "a voter's own time in the table", promise: oneHolder, breaks: "the table is a function of the log",
		file: "internal/machine/grant.go", old: "momentOf(s.at)", new: "momentOf(uint64(time.Now().UnixMilli()))",
		and: [2]string{"import \"slices\"", "import (\n\t\"slices\"\n\t\"time\"\n)"},
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "acknowledged before the flush", promise: oneHolder, breaks: "no entry is acknowledged that a crash can lose",
		file: "internal/raftstore/segmentlog.go", old: "	if l.sync {\n		if err := file.Sync(); err != nil {", new: "	if l.sync && at < 0 {\n		if err := file.Sync(); err != nil {",
		pkg: "internal/raftstore", run: "ACrash|Fault|Flush",
	},
	{
		name: "an emptied directory keeps its raft ID", promise: oneHolder, breaks: "a voter that has lost its votes votes under another ID",
		file: "internal/consensus/begin.go", old: "	case empty:\n		// The store was in use", new: "	case empty && id == \"\":\n		// The store was in use",
		pkg: "internal/consensus", run: "ALostStore",
	},
	{
		name: "waiters are passed for ever", promise: fair, breaks: "with priorities no waiter is passed more than a fixed number of times",
		file: "internal/machine/queue.go", old: "len(v.under) == 0 && v.passed < MaxPassed &&", new: "len(v.under) == 0 &&",
		pkg: "internal/machine", run: "Script|Commands",
	},
}

// guardMutants open the doors: to strangers, to foundings that nobody allowed, and of the
// fences.
var guardMutants = []mutant{
	{
		name: "anybody's certificate", promise: safe, breaks: "a certificate rests on the secret",
		file: "internal/auth/key.go", old: "leaf.Signature); err != nil {", new: "leaf.Signature); err != nil && cluster == \"\" {",
		pkg: "internal/auth", run: "Stranger|Secret|Common",
	},
	{
		name: "any cluster's certificate", promise: safe, breaks: "a certificate is bound to its cluster",
		file: "internal/auth/key.go", old: "text, err := k.names.Open(nil, sealed[:n], sealed[n:], []byte(cluster))", new: "text, err := k.names.Open(nil, sealed[:n], sealed[n:], []byte(k.self.cluster))",
		pkg: "internal/auth", run: "Cluster",
	},
	{
		name: "certificates never end", promise: safe, breaks: "an expired certificate proves nothing",
		file: "internal/auth/certificates.go", old: "	case at.After(leaf.NotAfter):", new: "	case at.After(leaf.NotAfter.AddDate(100, 0, 0)):",
		pkg: "internal/auth", run: "ProveNothing|Ends|Verification|Judged|UsersVerification",
	},
	{
		name: "any name under a proof", promise: safe, breaks: "a process is what its certificate proves",
		file: "internal/port/prove.go", old: "(proved.Name == \"\" || proved.Name == claimed.Name) &&", new: "(true || proved.Name == claimed.Name) &&",
		pkg: "internal/port", run: "Proof|Proved|Prove|Certificate",
	},
	{
		name: "plain text anywhere", promise: safe, breaks: "plain text beyond loopback is refused",
		file: "cluster/security.go", old: "	if !isLoopback(host) {\n		return badConfig(\"Bind\", refusal, host)\n	}\n	if cfg.Advertise", new: "	if cfg.Advertise",
		pkg: "cluster", run: "BadConfig|PlainText",
	},
	{
		name: "retired without a promise", promise: safe, breaks: "a member retires for a ballot that it has promised to take part in",
		file: "internal/founding/step.go", old: "	case req.Word == wire.WordNone || pledged != pledge{from.Name, from.Boot, req.Word}:", new: "	case req.Word == wire.WordNone:",
		pkg: "internal/founding", run: "Retires",
	},
	{
		name: "retired beside a leader", promise: oneHolder, breaks: "a member does not retire while a leader answers",
		file: "internal/founding/step.go", old: "	case !r.leaderless():\n		answer", new: "	case false:\n		answer",
		pkg: "internal/founding", run: "Retire|Word|Minority|Recover|Succe",
	},
	{
		name: "accepted without retiring", promise: oneHolder, breaks: "a member of a cluster accepts a successor once it has retired",
		file: "internal/founding/step.go", old: "	if own != nil && (!r.hasRetired() || votes(r.cfg.Record.Get()) ||", new: "	if own != nil && (false ||",
		pkg: "internal/founding", run: "Retire|Word|Claims|Accept|Cluster|Succe|Forged",
	},
	{
		name: "a successor below its predecessor's tokens", promise: risingTokens, breaks: "a successor's tokens are above all that retired members saw",
		file: "internal/founding/succession.go", old: "		floor = max(floor, seenToken(a))\n", new: "		floor = max(floor, seenToken(a)*0)\n",
		pkg: "internal/founding", run: "Token|Floor|Clock|Succe|Dead",
	},
	{
		name: "a guard's token not heeded", promise: risingTokens, breaks: "a founder refuses tokens that its guard has seen",
		file: "internal/founding/succession.go", old: "	case guarded > 0 && v.Floor <= guarded:", new: "	case guarded > 0 && v.Floor <= 0:",
		pkg: "internal/founding", run: "Token|Floor",
	},
	{
		name: "an old token changes an object", promise: stoppedFinds, breaks: "an object refuses a token lower than its mark",
		file: "fence/objectfence/objectfence.go", old: "			case t < doc.Token:", new: "			case t < 0*doc.Token:",
		pkg: "fence/objectfence", run: "Manifest",
	},
	{
		name: "an old token claims a row", promise: stoppedFinds, breaks: "a row's mark never falls",
		file: "fence/sqlfence/sqlfence.go", old: "DO UPDATE SET {token} = excluded.{token} WHERE {token} <= excluded.{token}", new: "DO UPDATE SET {token} = excluded.{token}",
		pkg: "fence/sqlfence", run: "NoClaim",
	},
	{
		name: "a request without a token", promise: stoppedFinds, breaks: "a fenced handler admits no request without a token",
		file: "fence/httpfence/httpfence.go", old: "http.Error(w, \"this request needs the header \"+HeaderToken, http.StatusPreconditionRequired)\n", new: "next.ServeHTTP(w, r)\n",
		pkg: "fence/httpfence", run: "Refused|Requests",
	},
}
