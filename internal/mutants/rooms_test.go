//go:build mutants

package mutants

// roomMutants let one member, or a stranger, take the room of the others.
var roomMutants = []mutant{
	{
		name: "a question takes the read under its ID with it", promise: safe, breaks: "a read is cancelled with its stream, whatever was asked under its ID before",
		file: "internal/term/serve.go", old: "	if m.reads.m[id] == r {", new: "	if !m.over {",
		pkg: "internal/term", run: "CancelledID",
	},
	{
		name: "a claimed name moves a process", promise: safe, breaks: "a process that answers where it was is nowhere else",
		file: "internal/gossip/inquiry.go", old: "answers && !proved && asked.before != \"\" {", new: "answers && !proved && asked.before == \"nowhere\" {",
		pkg: "internal/gossip", run: "ClaimedName",
	},
	{
		name: "gossip takes a voter away", promise: hardToKill, breaks: "the address at which a voter has answered is dialled first",
		file: "cluster/locate.go", old: "s.Alive && s.Name == home.Name && s.Boot == home.Boot })", new: "s.Alive && s.Process == home })",
		pkg: "cluster", run: "GossipTakes",
	},
	{
		name: "a notice under way for ever", promise: safe, breaks: "whatever is counted is answered",
		file: "internal/stream/stream.go", old: "	if f.Type.Tells() {", new: "	if f.Type.Tells() && f.ID == 0 {",
		pkg: "internal/stream", run: "NoticeWithAnID",
	},
	{
		name: "raft's frames have no bound", promise: safe, breaks: "large frames of raft take a part of the node's budget",
		file: "internal/consensus/serve.go", old: "	in.held = held\n", new: "	held.Give()\n",
		pkg: "internal/consensus", run: "NeverEnd",
	},
	{
		name: "voters' frames wait for those of all", promise: hardToKill, breaks: "a frame of a voter waits for frames of voters alone",
		file: "internal/consensus/serve.go", old: "in.t.knows(in.from.Name)", new: "false",
		pkg: "internal/consensus", run: "NeverEnd",
	},
	{
		name: "a frame that waits outlives its raft", promise: safe, breaks: "a wait for room ends with the raft",
		file: "internal/consensus/serve.go", old: "context.WithTimeout(in.t.stream.open,", new: "context.WithTimeout(context.Background(),",
		pkg: "internal/consensus", run: "WaitForRoom",
	},
	{
		name: "a large frame is used again", promise: oneHolder, breaks: "the entries of a frame keep their bytes",
		file: "internal/judge/decode.go", old: "d.shares = len(frame) > Unasked", new: "d.shares = true",
		pkg: "internal/judge", run: "ArriveAsTheyWere|AsksForRoom",
	},
	{
		name: "shown keys are not counted", promise: safe, breaks: "session keys of many streams have a bound together",
		file: "internal/term/serve.go", old: "		Keep:   m.stream.Keep,\n", new: "",
		pkg: "internal/term", run: "ShownKeys|LeftSessions",
	},
	{
		name: "left sessions are not counted", promise: safe, breaks: "what a stream has the leader remember is counted",
		file: "internal/term/shown.go", old: "counted(&k.fresh) + counted(&k.left)", new: "counted(&k.fresh)",
		pkg: "internal/term", run: "LeftSessions",
	},
	{
		name: "answers by the order of arrival", promise: fair, breaks: "waiting reads of members are answered in turn",
		file: "internal/term/watch.go", old: "func (b *backlog) push(w *watch) {\n", new: "func (b *backlog) push(w *watch) {\n	w.from = \"\"\n",
		pkg: "internal/term", run: "InTurns",
	},
	{
		name: "open sessions wait for the room of others", promise: hardToKill, breaks: "a process acts for its open sessions, whatever others show",
		file: "internal/term/shown.go", old: "k.beyond, k.sweep = true, min(k.sweep, k.open.len())", new: "k.open.delete(id)",
		pkg: "internal/term", run: "OpenSessions",
	},
	{
		name: "a key without room is a theft", promise: safe, breaks: "an honest member is told to wait",
		file: "internal/term/shown.go", old: "return !k.lacked && k.fresh", new: "return k.fresh",
		pkg: "internal/term", run: "WithoutRoom",
	},
	{
		name: "keys of others' sessions are kept", promise: safe, breaks: "nobody keeps what is of no use",
		file: "internal/term/authority.go", old: "opened && node == s.Node && boot == s.Boot", new: "opened && (node != s.Node || boot != 0)",
		pkg: "internal/term", run: "OpenSessions",
	},
	{
		name: "memory of what was", promise: safe, breaks: "an emptied map gives its memory back",
		file: "internal/term/fitmap.go", old: "f.peak <= leastPeak ||", new: "f.peak > 0 ||",
		pkg: "internal/term", run: "FollowsItsSize",
	},
	{
		name: "cancelled reads stay in line", promise: safe, breaks: "nothing but waiting reads takes memory",
		file: "internal/term/watch.go", old: "	delete(ws.dirty, w)\n	ws.backlog.unlink(w)\n", new: "	delete(ws.dirty, w)\n",
		pkg: "internal/term", run: "IsForgotten",
	},
	{
		name: "large frames of raft never give way", promise: hardToKill, breaks: "a leader's frame comes in turn",
		file: "internal/budget/frames.go", old: "if p.few && p.taken", new: "if !p.few && p.taken",
		pkg: "internal/budget", run: "RaftComeInTurns",
	},
	{
		name: "the first to come is served", promise: fair, breaks: "the member whose turn was longest ago comes first",
		file: "internal/budget/frames.go", old: "own, int(p.latest[h.share.payer])}", new: "0, 0}",
		pkg: "internal/budget", run: "RaftComeInTurns",
	},
	{
		name: "streams without number keep open sessions", promise: safe, breaks: "a process keeps keys beyond the bound on few streams",
		file: "internal/term/shown.go", old: "	if n <= mostBeyond {", new: "	if n > 0 {",
		pkg: "internal/term", run: "OpenSessions",
	},
	{
		name: "a sweep gives nothing back", promise: safe, breaks: "what is forgotten is not counted",
		file: "internal/term/shown.go", old: "	if !k.count() {\n", new: "	if k.beyond && !k.count() {\n",
		pkg: "internal/term", run: "SweepIsCounted",
	},
	{
		name: "a namesake's events count", promise: hardToKill, breaks: "a process is refused for its own events alone",
		file: "internal/term/retell.go", old: "if own == nil || k.signer != own.signer {", new: "if own == nil {",
		pkg: "internal/term", run: "AnothersStreams",
	},
	{
		name: "an old stream inherits", promise: noSilence, breaks: "of several streams the newest gets the events",
		file: "internal/term/subscribe.go", old: "cmp.Compare(others[b].joined, others[a].joined)", new: "cmp.Compare(others[a].joined, others[b].joined)",
		pkg: "internal/term", run: "NewestStreamInherits",
	},
	{
		name: "refused keys are counted", promise: hardToKill, breaks: "what finds no room takes none from others",
		file: "internal/budget/budget.go", old: "			b.kept.add(s.payer, -more)\n", new: "",
		pkg: "internal/budget", run: "Kept",
	},
	{
		name: "goodbyes beside suspects", promise: hardToKill, breaks: "a forged goodbye is found out, whoever else may have ended",
		file: "internal/proof/prover.go", old: "if _, known := p.farewells[m.Process]; !known {", new: "if _, known := p.farewells[m.Process]; !known && len(p.suspects) < maxSuspects {",
		pkg: "internal/proof", run: "GoodbyeIsLookedAt",
	},
	{
		name: "held answers of all together", promise: fair, breaks: "one member's answers leave room for those of others",
		file: "internal/term/heldanswers.go", old: "	h.of[member] += n\n", new: "	h.of[member] += n / 1000\n",
		pkg: "internal/term", run: "AnswersThatWait",
	},
	{
		name: "ends by session alone", promise: fair, breaks: "one member's ends cost the others no more than their turn",
		file: "internal/term/ending.go", old: "	e.addLocked(id, node)\n", new: "	e.addLocked(id, node[:0])\n",
		pkg: "internal/term", run: "MembersTakeTurnsInEnding",
	},
	{
		name: "goodbyes pile up", promise: hardToKill, breaks: "the goodbyes of processes that nobody knows are forgotten",
		file: "internal/proof/prover.go", old: "			p.forgetFarewells(members)\n", new: "",
		pkg: "internal/proof", run: "PileUpNowhere",
	},
	{
		name: "goodbyes of the dead come first", promise: hardToKill, breaks: "a living process's goodbye is looked at first",
		file: "internal/proof/prover.go", old: "begin(p.farewells, alive(members), ", new: "begin(p.farewells, nil, ",
		pkg: "internal/proof", run: "PileUpNowhere",
	},
	{
		name: "founders behind namesakes", promise: hardToKill, breaks: "who takes part in a founding is asked first",
		file: "internal/founding/heard.go", old: "len(first) < maxAsked/2", new: "len(first) < 0*maxAsked/2",
		pkg: "internal/founding", run: "FoundersAreAsked",
	},
	{
		name: "an address is banned for a relay", promise: hardToKill, breaks: "a relay's lie has no honest leader banned",
		file: "internal/link/rival.go", old: "	return bannee{name, at}\n", new: "	return bannee{name, place{addr: at.addr}}\n",
		pkg: "internal/link", run: "LyingRelay",
	},
	{
		name: "a relay's word is a voice", promise: hardToKill, breaks: "the jury's voices come on their own streams",
		file: "internal/link/rival.go", old: "	if r.ask.at.direct() != \"\" {", new: "	if r.ask.at.addr != \"\" {",
		pkg: "internal/link", run: "LyingRelay",
	},
	{
		name: "each round dials a lost voter", promise: cheap, breaks: "a voter that cannot be dialled rests for a moment",
		file: "internal/stream/peers.go", old: "		p.noteFailed(to)\n", new: "",
		pkg: "cluster", run: "RoundsDial",
	},
	{
		name: "a stuck stream stays", promise: noSilence, breaks: "a stream that takes nothing gives way to the next of its process",
		file: "internal/term/retell.go", old: "			stuck = o\n", new: "			stuck = nil\n",
		pkg: "internal/term", run: "StuckStream",
	},
	{
		name: "a poser keeps a dead voter", promise: hardToKill, breaks: "a voter whose next store has told of itself is replaced at once",
		file: "internal/voters/view.go", old: "invited && !succeeded", new: "invited",
		pkg: "internal/voters", run: "ServersAreSeen",
	},
	{
		name: "no voice for the own raft", promise: hardToKill, breaks: "a voter counts its own raft's word",
		file: "internal/link/find.go", old: "	f.hearSelf()\n", new: "",
		pkg: "internal/link", run: "FalseLeadersOutlive",
	},
	{
		name: "anybody tells the voters", promise: hardToKill, breaks: "a stranger does not choose who is asked for the leader",
		file: "internal/link/link.go", old: "	if known && (", new: "	if true && (",
		pkg: "internal/link", run: "VotersAreLearned",
	},
	{
		name: "a jury that has gone stays", promise: hardToKill, breaks: "the voters of a leader that has served for an hour are the jury",
		file: "internal/link/jury.go", old: ">= timing.JuryGone", new: ">= 1000*timing.JuryGone",
		pkg: "internal/link", run: "JuryThatHasGone",
	},
	{
		name: "a jury is soon gone", promise: hardToKill, breaks: "a cut of a minute makes no false leader the judge of itself",
		file: "internal/link/jury.go", old: ">= timing.JuryGone", new: ">= timing.DirectMost",
		pkg: "internal/link", run: "ACutMakes",
	},
	{
		name: "voters that moved are forgotten", promise: hardToKill, breaks: "what a leader of voters that have moved told counts for the search",
		file: "internal/link/jury.go", old: "case !f.servedLong() || time.Since(f.jury.heard) < timing.DirectMost:", new: "default:",
		pkg: "internal/link", run: "AMemberKnows",
	},
	{
		name: "the jury is asked once", promise: hardToKill, breaks: "false leaders win no member before a late election",
		file: "internal/link/jury.go", old: "if !f.jury.doubts && !f.disputed", new: "if !(f.jury.doubts && time.Since(f.served) < timing.HoldFind(f.link.TTL())) && !f.disputed",
		pkg: "internal/link", run: "NoLateElection",
	},
	{
		name: "a voter's word is forgotten", promise: hardToKill, breaks: "a leader of whom a voter has told is in doubt no more",
		file: "internal/link/jury.go", old: "		f.jury.doubts = false\n	case", new: "	case",
		pkg: "internal/link", run: "HasToldOfTheLeaderOnce",
	},
	{
		name: "a voter that knew too little", promise: hardToKill, breaks: "a voter that told of an earlier leader is asked again",
		file: "internal/link/jury.go", old: "told && !f.outdated(v, up)", new: "told",
		pkg: "internal/link", run: "HasToldOfTheLeaderOnce",
	},
	{
		name: "voters learned beside a leader", promise: hardToKill, breaks: "while a leader serves, it alone tells the voters",
		file: "internal/link/link.go", old: "if up, _ := k.current(); up != nil {", new: "if up, _ := k.current(); up != nil && false {",
		pkg: "internal/link", run: "VotersAreLearned",
	},
	{
		name: "voices above the last term alone", promise: hardToKill, breaks: "a voice is given at once, whatever its term",
		file: "internal/link/ask.go", old: "		req.Above = 0\n", new: "",
		pkg: "internal/link", run: "FalseLeadersOutlive",
	},
	{
		name: "a busy leader is asked again", promise: hardToKill, breaks: "members move no sessions to a second stream of a leader that lives",
		file: "internal/link/find.go", old: "if addr != f.before.Addr || up == nil ||", new: "if addr != \"\" || up == nil ||",
		pkg: "internal/link", run: "LivesIsNever",
	},
	{
		name: "a question leaves a context", promise: cheap, breaks: "nothing is left of a question",
		file: "internal/link/find.go", old: "		defer a.cancel()\n", new: "",
		pkg: "internal/link", run: "NothingIsLeft",
	},
	{
		name: "a relay by raft's word", promise: hardToKill, breaks: "a relay's answer is a claim, whoever raft follows",
		file: "internal/link/rival.go", old: "	if r.ask.at.direct() != \"\" {\n		if p, term", new: "	{\n		if p, term",
		pkg: "internal/link", run: "ByRaftsWord",
	},
	{
		name: "a name is banned for a poser", promise: hardToKill, breaks: "a false leader keeps no member from an honest one",
		file: "internal/link/rival.go", old: "	if named {\n", new: "	if named || !named {\n",
		pkg: "internal/link", run: "HasNobodyElseBanned",
	},
	{
		name: "a namesake ends streams", promise: hardToKill, breaks: "a stream gives way to its own process's",
		file: "internal/term/shown.go", old: "k.signer != own.signer || ", new: "",
		pkg: "internal/term", run: "GiveWay",
	},
	{
		name: "a key is shown again once", promise: hardToKill, breaks: "a key is shown until there is room",
		file: "internal/link/call.go", old: "if shown <= mostShows && k.showAgain", new: "if shown <= 1 && k.showAgain",
		pkg: "internal/link", run: "UntilThereIsRoom",
	},
	{
		name: "keys to be opened keep all out", promise: hardToKill, breaks: "open sessions attach to a leader without room for more",
		file: "internal/link/ask.go", old: "if f.Code == wire.CodeBusy && i > 0 && len(requests[i].Keys) == 0 {", new: "if f.Code == wire.CodeBusy && i < 0 {",
		pkg: "internal/link", run: "KeepNoOthersOut",
	},
	{
		name: "a key that found no room is gone", promise: hardToKill, breaks: "a key is shown again once its session is open",
		file: "internal/term/authority.go", old: "	case !has:\n		return lost", new: "	case !has:\n		return gone",
		pkg: "internal/term", run: "IsShownAgain",
	},
	{
		name: "the emptiest address gives way", promise: hardToKill, breaks: "a frame gives way for one of an address with less",
		file: "internal/budget/frames.go", old: "cmp.Compare(ofB, ofA)", new: "cmp.Compare(ofA, ofB)",
		pkg: "internal/budget", run: "SlowLeader",
	},
	// Frames.
	{
		name: "known processes stay newcomers", promise: safe, breaks: "a connection gives its place for newcomers back once its process is known",
		file: "internal/port/accept.go", old: "			p.places.remove(c)\n			c.newcomer = false\n			p.places.add(c)\n", new: "",
		pkg: "internal/port", run: "TestNewcomers",
	},
	{
		name: "strangers to gossip take all places", promise: safe, breaks: "processes that gossip does not know take a quarter of the places at most",
		file: "internal/port/accept.go", old: "c.newcomer = p.isNewcomer(c)", new: "c.newcomer = false",
		pkg: "internal/port", run: "TestNewcomers",
	},
	{
		name: "slow frames keep the budget", promise: safe, breaks: "a slow frame gives way to a waiting one",
		file: "internal/budget/frames.go", old: "if held >= timing.FrameYields && rate", new: "if held >= time.Hour && rate",
		pkg: "internal/budget", run: "ASlowFrame",
	},
	{
		name: "complete frames give way", promise: safe, breaks: "a frame that has come whole gives way no more",
		file: "internal/budget/frames.go", old: "	h.stay()\n}\n\n// Give", new: "}\n\n// Give",
		pkg: "internal/budget", run: "ASlowFrame",
	},
	{
		name: "all slow frames give way", promise: safe, breaks: "as many frames give way as the waiting one needs",
		file: "internal/budget/frames.go", old: "if lacks <= 0 || !b.counts", new: "if !b.counts",
		pkg: "internal/budget", run: "TheSlowestFrames",
	},
	{
		name: "the fastest slow frame gives way", promise: safe, breaks: "of slow frames the slowest give way first",
		file: "internal/budget/frames.go", old: "cmp.Compare(rates[a], rates[b])", new: "cmp.Compare(rates[b], rates[a])",
		pkg: "internal/budget", run: "TheSlowestFrames",
	},
	{
		name: "leaving frames not counted", promise: safe, breaks: "no frame gives way for bytes that another one gives back already",
		file: "internal/budget/frames.go", old: "b.of(&p.taken) - b.of(&p.leaving) +", new: "b.of(&p.taken) +",
		pkg: "internal/budget", run: "TheSlowestFrames",
	},
	{
		name: "leaving frames counted twice", promise: safe, breaks: "the bytes of a leaving frame are room for one waiting frame",
		file: "internal/budget/frames.go", old: " + b.of(&p.promised) + h.n", new: " + h.n",
		pkg: "internal/budget", run: "TheSlowestFrames",
	},
	{
		name: "frames give way in vain", promise: safe, breaks: "no frame gives way to a frame that does not fit all the same",
		file: "internal/budget/frames.go", old: "		if lacks > 0 {\n			h.promise(false)\n			return\n		}\n", new: "",
		pkg: "internal/budget", run: "InVain",
	},
	{
		name: "slow by a standstill", promise: hardToKill, breaks: "a frame that this process could not read is not slow",
		file: "internal/budget/frames.go", old: "if now.Sub(p.looked) > 2*timing.FrameLook {", new: "if p.begun.IsZero() {",
		pkg: "internal/budget", run: "AStandstill",
	},
	{
		name: "many addresses before few", promise: fair, breaks: "the frame of the address with the fewest bytes is next",
		file: "internal/budget/frames.go", old: "[3]int{of, own,", new: "[3]int{0 * of, own,",
		pkg: "internal/budget", run: "AnAddressWithFewBytes",
	},
	{
		name: "small frames behind large ones", promise: fair, breaks: "a frame of usual size waits for no large one",
		file: "internal/budget/frames.go", old: "case n <= SmallFrame:", new: "case n <= 0:",
		pkg: "internal/stream", run: "AnHonestBeat",
	},
	{
		name: "bytes that nobody reads are not counted", promise: safe, breaks: "what peers do not read is bounded for a member and for all",
		file: "internal/stream/stream.go", old: "if !s.queue.Set(n) {", new: "if false {",
		pkg: "internal/stream", run: "AnswersThatNobodyReads",
	},
	{
		name: "bytes count until the end of the stream", promise: safe, breaks: "what a peer has read is not counted",
		file: "internal/stream/stream.go", old: "if s.err != nil || n == s.counted {", new: "if s.err != nil || n <= s.counted {",
		pkg: "internal/stream", run: "AQueueCounts",
	},
	{
		name: "who reads pays", promise: safe, breaks: "a member that reads keeps its stream beside others that do not",
		file: "internal/budget/queue.go", old: "if most == q {", new: "if true {",
		pkg: "internal/stream", run: "AMemberThatReadsPays",
	},
	{
		name: "large buffers are kept", promise: safe, breaks: "a stream that had much to write keeps no large buffer",
		file: "internal/stream/stream.go", old: "if cap(buf) > mostKept {", new: "if false {",
		pkg: "internal/stream", run: "ALongQueue",
	},
	{
		name: "delayed frames do not count", promise: safe, breaks: "frames that wait unencoded count in the budget",
		file: "internal/stream/stream.go", old: "out + s.writing + delayedCost*len(s.delayed)", new: "out + s.writing",
		pkg: "internal/stream", run: "DelayedFramesCount",
	},
	{
		name: "reads of all fill the budget", promise: hardToKill, breaks: "reads that wait leave room for commands",
		file: "internal/budget/budget.go", old: "count(&b.lasting, 2)", new: "count(&b.lasting, 1)",
		pkg: "internal/stream", run: "ReadsOfOthersLeaveRoom",
	},
	{
		name: "beats beside commands", promise: hardToKill, breaks: "beats have a part of the budget for themselves",
		file: "internal/budget/budget.go", old: "count(&b.beats, 2)\n		return fits\n", new: "count(&b.beats, 2)\n",
		pkg: "internal/budget", run: "WaitingRequestsLeaveRoom",
	},
	{
		name: "beats without a bound", promise: safe, breaks: "beats under way are bounded",
		file: "internal/budget/budget.go", old: "count(&b.beats, 2)", new: "count(&b.beats, 99)",
		pkg: "internal/budget", run: "RequestsAreBounded",
	},
	{
		name: "no least for a connection", promise: fair, breaks: "a connection with few requests is served beside a full budget",
		file: "internal/budget/budget.go", old: "more := max(0, now-RequestsLeast) - max(0, before-RequestsLeast)", new: "more := now - before",
		pkg: "internal/budget", run: "RequestsAreBounded",
	},
	{
		name: "beats are reads", promise: hardToKill, breaks: "a beat finds room beside many reads of its member that wait",
		file: "internal/stream/request.go", old: "return budget.Beats", new: "return budget.Lasting",
		pkg: "internal/stream", run: "OwnReadsLeaveRoom",
	},
	{
		name: "reads pass", promise: hardToKill, breaks: "requests that wait for a change take a part of the budget alone",
		file: "internal/stream/request.go", old: "return budget.Lasting", new: "return budget.Passing",
		pkg: "internal/term", run: "ReadsOfOthersLeaveASession",
	},
	{
		name: "refused for the bytes of others", promise: fair, breaks: "a member with little queued gets large answers",
		file: "internal/budget/queue.go", old: "return b.isFull(q, n, 2) && b.most(q, n, 2) == q", new: "return b.isFull(q, n, 2)",
		pkg: "internal/stream", run: "ALargeAnswer",
	},
	{
		name: "large answers up to the end", promise: hardToKill, breaks: "the stream with the most is refused large answers before it ends",
		file: "internal/budget/queue.go", old: "return b.isFull(q, n, 2) && b.most(q, n, 2) == q", new: "return b.isFull(q, n, 1) && b.most(q, n, 1) == q",
		pkg: "internal/stream", run: "ALargeAnswer",
	},
	{
		name: "the largest of all ends", promise: fair, breaks: "of the address and the member with the most a connection ends",
		file: "internal/budget/queue.go", old: "r[1], r[2] = b.queued.members[o.share.payer], bytes", new: "r[2] = bytes",
		pkg: "internal/budget", run: "TheFullestConnection",
	},
	{
		name: "a namesake fills the queues", promise: fair, breaks: "a member that reads gets large answers, whatever streams in its name or at its address do not read",
		file: "internal/budget/queue.go", old: "now.Sub(o.since) >= timing.Unread", new: "now.Sub(o.since) >= timing.Unread<<20",
		pkg: "internal/budget", run: "TheUnread",
	},
	{
		name: "delayed frames at half price", promise: safe, breaks: "a delayed frame counts what it takes",
		file: "internal/stream/stream.go", old: "delayedCost = 160 ", new: "delayedCost = 64 ",
		pkg: "internal/stream", run: "ADelayedFrameCounts",
	},
	{
		name: "all keys in one request", promise: hardToKill, breaks: "a request that shows keys is small enough to be served",
		file: "internal/link/ask.go", old: "f.Code == wire.CodeBusy && many {", new: "false {",
		pkg: "internal/link", run: "SessionsAreAttached",
	},
	{
		name: "a busy leader takes some sessions", promise: hardToKill, breaks: "a leader that is busy with the first sessions is shown the others again",
		file: "internal/link/ask.go", old: "err != nil || !again ||", new: "err != nil || true ||",
		pkg: "internal/link", run: "ABusyLeaderIsShown",
	},
	{
		name: "a refusal is silence", promise: hardToKill, breaks: "a leader that refuses a question for a sign of life has given one",
		file: "internal/link/remote.go", old: "f.Code != wire.CodeOK && f.Code != wire.CodeBusy {", new: "f.Code != wire.CodeOK {",
		pkg: "internal/link", run: "AFullLeader",
	},
	{
		name: "a snapshot's header unchecked", promise: safe, breaks: "an image with impossible tokens is refused before anything is derived",
		file: "internal/machine/restore.go", old: "return checker{r.s}.checkHeader() // before", new: "return nil // before",
		pkg: "internal/machine", run: "ImpossibleImages",
	},
	{
		name: "each Forget waits for itself", promise: safe, breaks: "however many ask for the end of a past, it is waited for once",
		file: "internal/term/ending.go", old: "	case !walking:\n", new: "	case !walking || walking:\n",
		pkg: "internal/term", run: "AForgetIsAnsweredAtTheEnd",
	},
	{
		name: "answers hold a buffer", promise: safe, breaks: "a read that waits takes what its request counts",
		file: "internal/term/answer.go", old: "return bytes.Clone(*buf), len(*buf)", new: "return append(bytes.Clone(*buf), make([]byte, 768)...)[:len(*buf)], len(*buf)",
		pkg: "internal/term", run: "ReadsThatWait",
	},
	// Handshakes.
	{
		name: "a stranger's authorities", promise: safe, breaks: "no signature is checked under a stranger's key",
		file: "internal/auth/certificates.go", old: "Intermediates: proven(roots, cs.PeerCertificates[1:], now(cfg)),",
		new: "Intermediates: func() *x509.CertPool {\n				p := x509.NewCertPool()\n				for _, c := range cs.PeerCertificates[1:] {\n					p.AddCert(c)\n				}\n				return p\n			}(),",
		pkg: "internal/auth", run: "NoSignature",
	},
	{
		name: "a crowd of certificates", promise: safe, breaks: "few certificates of a handshake are looked at",
		file: "internal/auth/certificates.go", old: "n > maxShown {", new: "n > 1000*maxShown {",
		pkg: "internal/auth", run: "ACrowd",
	},
	{
		name: "a chain in order alone", promise: hardToKill, breaks: "a chain of the user's passes in any order",
		file: "internal/auth/chain.go", old: "			passed = true\n", new: "",
		pkg: "internal/auth", run: "ALongChain",
	},
	{
		name: "names of all authorities", promise: hardToKill, breaks: "the names of authorities leave a handshake room",
		file: "internal/auth/certificates.go", old: "if nameBytes(hard.ClientCAs) > maxNames {", new: "if false {",
		pkg: "internal/auth", run: "ManyAuthorities",
	},
	{
		name: "names of no authority", promise: hardToKill, breaks: "the names of a usual pool are told",
		file: "internal/auth/certificates.go", old: "if nameBytes(hard.ClientCAs) > maxNames {", new: "if true {",
		pkg: "internal/auth", run: "ManyAuthorities",
	},
	// A leader's words.
	{
		name: "any number of voters", promise: safe, breaks: "a word about voters is bounded",
		file: "internal/link/bounds.go", old: "len(set.Voters) > maxSet ||", new: "",
		pkg: "internal/link", run: "AWordOnTheVoters",
	},
	{
		name: "a voter told twice", promise: safe, breaks: "a word about voters names each once",
		file: "internal/link/bounds.go", old: "|| seen[v.Raft] ||", new: "||",
		pkg: "internal/link", run: "AWordOnTheVoters",
	},
	{
		name: "voters at long addresses", promise: safe, breaks: "the addresses in a word about voters are bounded",
		file: "internal/link/bounds.go", old: "len(v.Addr) > maxAddr || v.Zone", new: "v.Zone",
		pkg: "internal/link", run: "AWordOnTheVoters",
	},
	{
		name: "a list of addresses kept", promise: safe, breaks: "as many addresses of a word are kept as are asked at a time",
		file: "internal/link/bounds.go", old: "if len(out) == maxVoters {", new: "if false {",
		pkg: "internal/link", run: "AListOfAddresses",
	},
	{
		name: "a second leader of the term believed", promise: oneHolder, breaks: "a leader is left if the voters tell of another leader of its term",
		file: "internal/link/jury.go", old: " || attached && v.term == term && v.leader != f.before.Name)", new: ")",
		pkg: "internal/link", run: "AFalseLeaderOfThePresentTerm",
	},
	{
		name: "a busy leader left", promise: hardToKill, breaks: "a leader that is too busy for one question is not left for a claim",
		file: "internal/link/rival.go", old: "if c == wire.CodeBusy && !elected {", new: "if c == wire.CodeBusy && elected {",
		pkg: "internal/link", run: "ABusyLeader",
	},
	// The voters.
	{
		name: "a format by gossip", promise: safe, breaks: "no word of gossip raises the table when a term begins",
		file: "cluster/lead.go", old: "[]member.Sighting{own}, newest)", new: "append(n.gossip.All(), own), newest)",
		pkg: "cluster", run: "ATermBegins",
	},
	{
		name: "servers removed by gossip", promise: safe, breaks: "a server reads no format but by its own word",
		file: "internal/voters/view.go", old: "if own, ok := sc.own(m); ok && own.Generation == generation && m.Boot", new: "if own := m.Meta; m.Boot",
		pkg: "internal/voters", run: "ServersAreSeen",
	},
	{
		name: "servers removed by a mere namesake", promise: safe, breaks: "a server reads no format but by the word of a process with its store",
		file: "internal/voters/view.go", old: "ok && own.Generation == generation && m.Boot", new: "ok && m.Boot",
		pkg: "internal/voters", run: "ServersAreSeen",
	},
	{
		name: "a mere namesake hides a candidate", promise: safe, breaks: "a later process without the voter role takes no candidate's place",
		file: "internal/voters/view.go", old: "		if m.Meta.Generation != 0 {\n", new: "		if m.Name != \"\" {\n",
		pkg: "internal/voters", run: "ServersAreSeen",
	},
	{
		name: "a mere namesake ends a departure", promise: safe, breaks: "a later process without the voter role ends no departure",
		file: "internal/voters/depart.go", old: "ok && own.Generation >= generation {", new: "ok && own.Generation >= 0*generation {",
		pkg: "internal/voters", run: "NamesakeEndsNoDeparture",
	},
	{
		name: "a mere namesake in a voter's place", promise: oneHolder, breaks: "a later process without the voter role takes no voter's place in a founding",
		file: "internal/founding/heard.go", old: "case r.cfg.Self.Is(s.Process), a.lately() && !a.mere:", new: "case r.cfg.Self.Is(s.Process), a.lately():",
		pkg: "internal/founding", run: "MereNamesakeTakesNo|MereNamesakeHoldsNo",
	},
	{
		name: "a guest stands for a voter", promise: oneHolder, breaks: "a voter that runs without the voter role is named as gone",
		file: "internal/founding/operator.go", old: "		case r.guest(group[at]):\n", new: "		case false:\n",
		pkg: "internal/founding", run: "RunsOnWithoutTheRole",
	},
	{
		name: "a mere namesake supersedes", promise: oneHolder, breaks: "a later process without the voter role hides no claim and ends no silence",
		file: "internal/founding/heard.go", old: "!a.heard.IsZero() && !a.mere || r.guest(earlier)\n", new: "!a.heard.IsZero() || r.guest(earlier)\n",
		pkg: "internal/founding", run: "MereNamesakeHidesNo",
	},
	{
		name: "a silence beside a namesake", promise: oneHolder, breaks: "a later process without the voter role in the group is no silence of the voter",
		file: "internal/founding/group.go", old: "q.Boot == p.Boot || r.supersedes(q, p)", new: "q.Boot >= p.Boot",
		pkg: "internal/founding", run: "MereNamesakeIsNoSilence",
	},
	{
		name: "a restart not asked", promise: hardToKill, breaks: "a restart during a silence begins no new wait",
		file: "internal/founding/heard.go", old: "if s.Alive || dead && s.Meta.InCluster() && !r.ended(s.Process) {", new: "if s.Alive {",
		pkg: "internal/founding", run: "ARestartBegins",
	},
	{
		name: "thin members ask no dead", promise: hardToKill, breaks: "a member that proposes nothing asks the dead before it believes their silence",
		file: "internal/founding/heard.go", old: "r.value.Load() == nil || r.cfg.AssumeGone > 0\n", new: "r.value.Load() == nil || r.word() == wire.WordSilence\n",
		pkg: "internal/founding", run: "AThinMemberHoldsNo",
	},
	{
		name: "claims are dialled for ever", promise: safe, breaks: "a later process that is never shown is not dialled again and again",
		file: "internal/proof/prover.go", old: "newer.Boot > s.Boot && p.shown(newer) ||", new: "newer.Boot > s.Boot ||",
		pkg: "internal/proof", run: "AClaimedSuccessor",
	},
	// Gossip.
	{
		name: "any version of gossip", promise: safe, breaks: "a process that speaks other versions of gossip is not listed",
		file: "internal/gossip/delegate.go", old: "m.PCur != protocol || m.DMin > delegate || m.DCur != delegate {", new: "m.PCur > 99 {",
		pkg: "internal/gossip", run: "AVersionStopsNoJoin",
	},
	{
		name: "the dead of a name for ever", promise: hardToKill, breaks: "a member that restarts often is listed",
		file: "internal/gossip/census.go", old: "	c.forgetDead()\n	return c.deadOf[name] < maxDeadOfName\n", new: "	return false\n",
		pkg: "internal/gossip", run: "AMemberRestartsOften",
	},
	{
		name: "two names fill the line", promise: fair, breaks: "the streams of a name take a part of the line alone",
		file: "internal/gossip/guard.go", old: " || g.names[name].waiting >= maxWaitingPerName\n", new: "\n",
		pkg: "internal/gossip", run: "NamesLeavePlaces",
	},
	{
		name: "a host reads all streams of gossip", promise: fair, breaks: "the streams of a host leave places free",
		file: "internal/gossip/guard.go", old: "g.hosts[host].active >= maxStreams-g.active", new: "g.active >= maxStreams",
		pkg: "internal/gossip", run: "AHostLeavesPlaces",
	},
	{
		name: "a host takes all relays", promise: hardToKill, breaks: "a member that is cut off from the leader finds a relay, whatever another host takes",
		file: "internal/port/places.go", old: "entry(l.relaysAt, at.ip), relaysPerIP,", new: "entry(l.relaysAt, at.ip), maxRelays,",
		pkg: "internal/port", run: "AHostLeavesRelays",
	},
	{
		name: "a host fills the line", promise: fair, breaks: "the streams of a host take a part of the line alone",
		file: "internal/gossip/guard.go", old: "g.hosts[host].waiting >= maxWaiting-g.waiting", new: "g.waiting >= maxWaiting",
		pkg: "internal/gossip", run: "AHostLeavesPlaces",
	},
	{
		name: "any number of members", promise: safe, breaks: "any number of members gives a period",
		file: "internal/timing/ttl.go", old: "max(1, min(members, int(most/time.Millisecond)))", new: "min(members, int(most/time.Millisecond))",
		pkg: "internal/timing", run: "SpreadOfAny",
	},
	{
		name: "one line for all questions", promise: fair, breaks: "words about one process delay no question about another",
		file: "internal/gossip/inquiry.go", old: "q.ask(subject{p.Name, p.Boot, false},", new: "q.ask(subject{end: false},",
		pkg: "internal/gossip", run: "WordsAboutOne",
	},
	{
		name: "ends behind addresses", promise: fair, breaks: "words about the address of a process do not delay the question of its end",
		file: "internal/gossip/inquiry.go", old: "q.ask(subject{p.Name, p.Boot, true},", new: "q.ask(subject{p.Name, p.Boot, false},",
		pkg: "internal/gossip", run: "WordsAboutOne|TakeTurns",
	},
	{
		name: "a write for each change", promise: cheap, breaks: "a member that comes and goes costs few writes",
		file: "internal/gossip/joining.go", old: "earliest.After(next) {", new: "earliest.After(next) && j.paid.IsZero() {",
		pkg: "internal/gossip", run: "AMemberThatFlaps",
	},
	{
		name: "changes during a try are missed", promise: hardToKill, breaks: "a member that is found during a round of tries is stored",
		file: "internal/gossip/joining.go", old: "	over := time.After(pause)\n", new: "	j.changed = j.members.changed.Wait()\n	over := time.After(pause)\n",
		pkg: "internal/gossip", run: "AChangeDuringATry",
	},
	// Streams, questions and groups.
	{
		name: "a deposed leader's streams", promise: cheap, breaks: "a message sent ahead holds no stream after its term",
		file: "internal/consensus/ahead.go", old: "now.Sub(m.began) >= timing.RaftIO || !serving(", new: "now.Sub(m.began) >= timing.RaftIO && !serving(",
		pkg: "internal/consensus", run: "Abandoned|FormerLeaderHolds",
	},
	{
		name: "namesakes one after the other", promise: hardToKill, breaks: "invented namesakes delay no answer",
		file: "cluster/conflict.go", old: "maxAsking    = 16", new: "maxAsking    = 1",
		pkg: "cluster", run: "ANamesakeIsAsked",
	},
	{
		name: "invented members asked first", promise: hardToKill, breaks: "a retired member asks the proved members first",
		file: "cluster/changeover.go", old: "range provedFirst(n.gossip.Alive(), n.gossip.Shown) {", new: "range n.gossip.Alive() {",
		pkg: "cluster", run: "ARetiredMemberGoesOn",
	},
	{
		name: "declined shards without a bound", promise: safe, breaks: "few declined shards are remembered",
		file: "internal/term/declined.go", old: "p.kept <= maxDeclined {", new: "p.kept <= 1000*maxDeclined {",
		pkg: "internal/term", run: "DeclinedShards",
	},
	{
		name: "the few pay for the many", promise: fair, breaks: "the callers that decline most fold their declined shards first",
		file: "internal/term/declined.go", old: "cmp.Compare(len(p.declined[b].until), len(p.declined[a].until))", new: "cmp.Compare(len(p.declined[a].until), len(p.declined[b].until))",
		pkg: "internal/term", run: "DeclinedShards",
	},
	{
		name: "folding prolongs", promise: fair, breaks: "a shard whose time is over may be assigned to the caller that declined it",
		file: "internal/term/declined.go", old: "	d.expire(now)\n	if d.folded == nil {", new: "	if d.folded == nil {",
		pkg: "internal/term", run: "FoldingProlongs",
	},
	{
		name: "questions above a term that counts no more", promise: hardToKill, breaks: "a voter that keeps such a question is asked anew",
		file: "internal/link/find.go", old: "	f.forgetAbove(above)\n", new: "",
		pkg: "internal/link", run: "ATermThatCountsNoMore",
	},
	{
		name: "a debtor waits for company", promise: fair, breaks: "a request behind a costly command of its member waits for no company",
		file: "internal/term/patience.go", old: "if l.credit < 0 && l.waiting() > 0 {", new: "if false {",
		pkg: "internal/term", run: "InDebt",
	},
	{
		name: "a poser's list", promise: hardToKill, breaks: "a process that serves a moment in the leader's name chooses no jury",
		file: "internal/link/jury.go", old: " && f.servedLong() && len(told) > 0", new: " && len(told) > 0",
		pkg: "internal/link", run: "APoserForTheLeader",
	},
	{
		name: "the hour begins anew", promise: hardToKill, breaks: "an hour of several leaders without an answer of the jury is an hour",
		file: "internal/link/jury.go", old: "	if f.jury.heard.IsZero() {\n		f.jury.heard = time.Now()\n	}\n", new: "	f.jury.heard = time.Now()\n",
		pkg: "internal/link", run: "AJuryThatHasGone",
	},
	{
		name: "voters without a leader are not heard", promise: hardToKill, breaks: "voters that answer stay the jury, though they have no leader",
		file: "internal/link/find.go", old: "		f.jury.heard = time.Now()\n", new: "",
		pkg: "internal/link", run: "VotersWithoutALeader",
	},
	{
		name: "a new voter's raft is not heard", promise: hardToKill, breaks: "the own raft of a member that has got a vote tells of the leader",
		file: "internal/link/jury.go", old: "		f.jury.doubts = false // this member may", new: "		// this member may",
		pkg: "internal/link", run: "TheOwnRaftTells",
	},
	{
		name: "a juror that is elected rests", promise: hardToKill, breaks: "a juror that is elected is asked again at once",
		file: "internal/link/find.go", old: "	a.juror = a.juror && f.up != nil && !a.news(r.hint)\n", new: "",
		pkg: "internal/link", run: "AJurorThatIsElected",
	},
	{
		name: "the jury is asked last", promise: hardToKill, breaks: "no other questions take the places of those to the jury",
		file: "internal/link/find.go", old: "	if up != nil {\n		f.askJury(ctx, up, later) // first: other questions could take its places\n	}\n	f.hear(above, lost)\n", new: "	f.hear(above, lost)\n	defer func() {\n		if up != nil && len(f.asks) < maxAsks {\n			f.askJury(ctx, up, later)\n		}\n	}()\n",
		pkg: "internal/link", run: "NoLateElection",
	},
	{
		name: "false leaders without a pause", promise: hardToKill, breaks: "a near false leader in ever higher terms outruns no voter",
		file: "internal/link/jury.go", old: "	if !time.Now().Before(f.jury.wait) || f.jury.back == (voice{r.up.term, r.name}) {\n", new: "	if true {\n",
		pkg: "internal/link", run: "RisingTerms",
	},
	{
		name: "a relay speaks for a voter", promise: hardToKill, breaks: "what comes through a relay is the relay's word",
		file: "internal/link/find.go", old: "cmp.Or(a.at.via, a.at.addr)", new: "cmp.Or(a.at.addr, a.at.via)",
		pkg: "internal/link", run: "LyingRelayVouches",
	},
	{
		name: "a word against a leader ends the pause", promise: hardToKill, breaks: "a false leader with another name on each stream outruns no voter",
		file: "internal/link/jury.go", old: "len(f.jury.members) == 0 || f.servedLong()", new: "len(f.jury.members) == 0 || f.jury.against || f.servedLong()",
		pkg: "internal/link", run: "AFickleFalseLeader",
	},
	{
		name: "the words against a leader are forgotten", promise: hardToKill, breaks: "the voters that tell against a leader name the next",
		file: "internal/link/jury.go", old: "if !f.jury.against { // else", new: "{ // else",
		pkg: "internal/link", run: "RisingTerms",
	},
	{
		name: "the first leader is in doubt", promise: hardToKill, breaks: "a leader at the address of the only known voter is in no doubt",
		file: "internal/link/link.go", old: "doubts && !r.f.agreedOn(won.up)", new: "doubts",
		pkg: "internal/link", run: "HasGrown",
	},
	{
		name: "a relay has the seat of a juror", promise: hardToKill, breaks: "a juror is asked although a relay has answered at its address",
		file: "internal/link/jury.go", old: "place{f.before.Addr, up.via}.direct()", new: "f.before.Addr",
		pkg: "internal/link", run: "TakesNoJurorsSeat",
	},
	{
		name: "a leader in doubt has others banned", promise: hardToKill, breaks: "a leader in doubt has no true leader banned",
		file: "internal/link/rival.go", old: "if !f.inDoubt() || f.inJury(place{f.before.Addr, f.up.(*remote).via}) {", new: "{",
		pkg: "internal/link", run: "HasNoTrueOneBanned",
	},
	{
		name: "the leader before is put off", promise: hardToKill, breaks: "a member that reaches its leader alone has it back at once",
		file: "internal/link/jury.go", old: " || f.jury.back == (voice{r.up.term, r.name})", new: "",
		pkg: "internal/link", run: "ReachesItsLeaderAlone",
	},
	{
		name: "a disputed leader comes back at once", promise: hardToKill, breaks: "a false leader that comes back outruns no voter",
		file: "internal/link/jury.go", old: "if ok && !f.disputed(up) && ", new: "if ok && ",
		pkg: "internal/link", run: "ComesBackOutruns",
	},
	{
		name: "a leader of a moment comes back at once", promise: hardToKill, breaks: "a false leader that comes back outruns no voter",
		file: "internal/link/jury.go", old: "&& time.Since(f.served) >= timing.Dial ", new: "",
		pkg: "internal/link", run: "ComesBackOutruns",
	},
	{
		name: "one false voter of four is in no doubt", promise: hardToKill, breaks: "the first leader of a member is in doubt, whatever gossip says of it",
		file: "internal/link/link.go", old: "!r.f.agreedOn(won.up)", new: "!r.f.inJury(won.ask.at)",
		pkg: "internal/link", run: "OneFalseVoterOfFour",
	},
	{
		name: "rivals erase the words", promise: hardToKill, breaks: "a false leader that offers others erases no word against it",
		file: "internal/link/rival.go", old: "f.jury.voices[addr].term < r.up.term && !f.inDoubt()", new: "f.jury.voices[addr].term < r.up.term",
		pkg: "internal/link", run: "ManyRivals",
	},
	{
		name: "many words erase the jury's", promise: hardToKill, breaks: "no number of words of others displaces those of the jury",
		file: "internal/link/jury.go", old: "return !slices.Contains(j.members, addr)", new: "return true",
		pkg: "internal/link", run: "ManyRivals",
	},
	{
		name: "others take the turn of the jury", promise: hardToKill, breaks: "places that keep questions keep no voter from being asked",
		file: "internal/link/find.go", old: "len(f.asks) >= maxAsks && !f.inJury(a.at)", new: "len(f.asks) >= maxAsks && !a.juror",
		pkg: "internal/link", run: "TakeNoTurn",
	},
	{
		name: "a word of before the election is the last", promise: hardToKill, breaks: "a voter whose word is of before the election is heard again",
		file: "internal/link/jury.go", old: "(v.term < up.term || v.term == up.term && !up.silent())", new: "v.term < up.term",
		pkg: "internal/link", run: "AWordOfBefore",
	},
	{
		name: "a further question above less", promise: hardToKill, breaks: "a voter is asked for its next word without haste",
		file: "internal/link/jury.go", old: "a.above = v.term", new: "a.above--",
		pkg: "internal/link", run: "AFurtherQuestion",
	},
	{
		name: "further questions beside a silent leader", promise: hardToKill, breaks: "a question for a further word keeps nobody from the leader while the present one is silent",
		file: "internal/link/find.go", old: "		f.endFurther(above)\n", new: "",
		pkg: "internal/link", run: "AFurtherQuestion",
	},
	{
		name: "a further word attaches", promise: hardToKill, breaks: "a leader of the present term is not attached to beside it",
		file: "internal/link/ask.go", old: " && (!a.further() || a.news(r.hint))", new: "",
		pkg: "internal/link", run: "AFurtherQuestion",
	},
	{
		name: "a claim of no worth", promise: hardToKill, breaks: "a voter that lies about leaders of lower terms is asked with pauses",
		file: "internal/link/claims.go", old: "t.term < up.term || t.term == up.term && !up.silent()", new: "up == nil",
		pkg: "internal/link", run: "VotersThatLie",
	},
	{
		name: "a claim without a pause", promise: hardToKill, breaks: "voters that lie about each other are asked with pauses",
		file: "internal/link/claims.go", old: "rest{time.Now().Add(jitter(timing.LeastBackoff)), r.pause}", new: "rest{time.Now(), r.pause}",
		pkg: "internal/link", run: "VotersThatLie",
	},
	{
		name: "further questions stay", promise: hardToKill, breaks: "a question for a further word keeps nobody from the leader",
		file: "internal/link/find.go", old: "	f.endFurther(0)\n", new: "",
		pkg: "internal/link", run: "AFurtherQuestion",
	},
	{
		name: "the leader that the jury names is not waited for", promise: hardToKill, breaks: "a near false leader is not taken before the leader that the jury names",
		file: "internal/link/jury.go", old: "f.jury.pause = timing.Dial // the jury", new: "// the jury",
		pkg: "internal/link", run: "LeaderThatTheJuryNames",
	},
}
