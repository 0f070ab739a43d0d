//go:build mutants

package mutants

// Sticky keys.
var stickyMutants = []mutant{
	{
		name: "a kept key without trust", promise: lossFirst, breaks: "a sticky lock is made only while the session is trusted",
		file: "locks/sticky.go", old: "	if s.trust.remaining(now) <= 0 {\n		return nil, nil\n	}\n", new: "",
		pkg: "locks", run: "Sticky",
	},
	{
		name: "a recall ignored", promise: oneHolder, breaks: "a client gives a kept key back when another request comes",
		file: "locks/sticky.go", old: "	if k := s.forgetKept(e.Key, e.Seq); k != nil {", new: "	if k := s.forgetKept(e.Key, e.Seq); k != nil && e.Seq == 0 {",
		pkg: "locks", run: "LostRecall|OutlivesItsLeader",
	},
	{
		name: "a recalled key kept", promise: oneHolder, breaks: "the release of a recalled lock gives the key back",
		file: "locks/sticky.go", old: "if g.kept == nil || g.contended || g.asked ||", new: "if g.kept == nil ||",
		pkg: "locks", run: "Sticky",
	},
	{
		name: "a block used twice", promise: risingTokens, breaks: "each sticky lock has a token of its own",
		file: "locks/sticky.go", old: "	k.next++\n", new: "	k.next += k.next % 2\n",
		pkg: "locks", run: "Sticky|Block",
	},
	{
		name: "a token above the block", promise: risingTokens, breaks: "no sticky lock has a token that was not reserved",
		file: "locks/sticky.go", old: "		last:  fence.Token(out.Token) + fence.Token(out.Block),\n", new: "		last:  fence.Token(out.Token) + 2*fence.Token(out.Block),\n",
		pkg: "locks", run: "Sticky|Block",
	},
	{
		name: "a next block too long", promise: risingTokens, breaks: "no sticky lock has a token that was not reserved",
		file: "locks/sticky.go", old: "fence.Token(out.Token) + fence.Token(out.Block)}\n", new: "fence.Token(out.Token) + fence.Token(out.Block) + 1}\n",
		pkg: "locks", run: "Block",
	},
	{
		name: "a block never extended", promise: cheap, breaks: "nobody waits for the next block",
		file: "locks/sticky.go", old: "	k.asked = true\n	return true\n", new: "	return false\n",
		pkg: "locks", run: "Block",
	},
	{
		name: "a recalled key extended", promise: risingTokens, breaks: "a recalled grant gets no further tokens",
		file: "internal/machine/grant.go", old: "r.last != c.Last || g.is(markContended|markAsked|markBroken) ||", new: "r.last != c.Last ||",
		pkg: "internal/machine", run: "Scripts",
	},
	{
		name: "a copy extends again", promise: risingTokens, breaks: "a second copy of an Extend changes nothing",
		file: "internal/machine/grant.go", old: "r.last != c.Last || g.is(markContended", new: "r.last == 0 || g.is(markContended",
		pkg: "internal/machine", run: "Scripts",
	},
	{
		name: "blocks without shares", promise: risingTokens, breaks: "no session takes more tokens of a second than it leaves",
		file: "internal/machine/grant.go", old: "	if o.reserved+uint64(n) > MaxReserved-min(", new: "	if uint64(n) > MaxReserved-min(",
		pkg: "internal/machine", run: "Reserved",
	},
	{
		name: "a cycle is not recalled", promise: noSilence, breaks: "a refused cycle recalls the kept keys in it",
		file: "internal/machine/acquire.go", old: "		s.recallCycle(out)\n", new: "",
		pkg: "internal/machine", run: "Scripts",
	},
	{
		name: "own keys below a tree", promise: oneHolder, breaks: "a tree takes the client's own kept keys along",
		file: "locks/sticky.go", old: "	if w.cmd.Tree {", new: "	if w.cmd.Tree && len(keys) > 1 {",
		pkg: "locks", run: "TreeTakes",
	},
	{
		name: "a sleep unseen", promise: stoppedFinds, breaks: "the host's sleep is seen at the next look",
		file: "locks/sleep_linux.go", old: "	return boot-r.boot-now.Sub(r.at) < sleepNoise/2\n", new: "	return now.After(r.at) || boot < 0\n",
		pkg: "locks", run: "Sleep",
	},
	{
		name: "a release settled by a failure", promise: exactlyOnce, breaks: "a lazy release that no request delivered is sent",
		file: "locks/lazy.go", old: "d.settled || d.carried > 0", new: "d.settled || d.carried >= 0",
		pkg: "locks", run: "Lazy",
	},
}
