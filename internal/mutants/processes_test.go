//go:build mutants

package mutants

// The end of a process, and its past.
var processMutants = []mutant{
	{
		name: "directory before the locks", promise: oneHolder, breaks: "the directory is given back after all locks have ended",
		file: "cluster/leave.go", old: "	n.guests.AwaitEnded()\n", new: "",
		pkg: "cluster", run: "GivenBack",
	},
	{
		name: "everybody waits for everybody", promise: hardToKill, breaks: "a member that ends is nobody's successor",
		file: "cluster/leave.go", old: " && (!s.Meta.Leaving && !s.Meta.Ending || n.staying.insists(s.Process))", new: "",
		pkg: "cluster", run: "NobodyWaits",
	},
	{
		name: "nobody left but waited for", promise: noSilence, breaks: "a command that only frees keys is given up once every other member ends",
		file: "internal/link/freeing.go", old: "if k.cfg.AllEnd() {", new: "if k.cfg.AllEnd() && again == nil {",
		pkg: "cluster", run: "ToBeTold",
	},
	{
		name: "silent is gone", promise: noSilence, breaks: "a member that went silent has not said that it ends",
		file: "cluster/leave.go", old: "case n.stays(s):", new: "case s.Alive && n.stays(s):",
		pkg: "cluster", run: "ToBeTold",
	},
	{
		name: "keys freed under work", promise: oneHolder, breaks: "a stopping node frees keys after the work under them",
		file: "locks/keepalive.go", old: "if s.awaitWork() {", new: "if s.ttl > 0 || s.awaitWork() {",
		pkg: "locks", run: "StoppingNode",
	},
	{
		name: "past freed on another host", promise: oneHolder, breaks: "a past is freed only if the host was not booted in between",
		file: "cluster/past.go", old: "case r.Host != host || r.Key.Key() == nil:", new: "case r.Key.Key() == nil:",
		pkg: "cluster", run: "MayLive",
	},
	{
		name: "past freed while it answers", promise: oneHolder, breaks: "a past is freed only if nothing answers as that process",
		file: "cluster/past.go", old: "return p.Addr != n.self.Addr &&", new: "return p.Addr == n.self.Addr &&",
		pkg: "cluster", run: "WhoAnswers",
	},
	{
		name: "anybody forgets", promise: oneHolder, breaks: "a leader takes a Forget only from a later process of the very member",
		file: "internal/term/authority.go", old: "if s == nil || c.Node != s.Node || c.Boot >= s.Boot || c.Dir == (machine.DirID{}) || c.Dir != s.Dir {", new: "if s == nil {",
		pkg: "cluster", run: "ItselfForgets",
	},
	{
		name: "a past by its name", promise: safe, breaks: "a leader takes a Forget only on a stream that has shown the directory's key",
		file: "internal/term/authority.go", old: " || c.Dir != s.Dir {", new: " {",
		pkg: "internal/term", run: "OnlyTheDirectory",
	},
	{
		name: "a past by the ID of nothing", promise: safe, breaks: "a process without a directory forgets no process",
		file: "internal/machine/forget.go", old: "case c.Dir == (DirID{}):", new: "case c.Boot == 0:",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "a past by another's proof", promise: safe, breaks: "a proof of a directory counts on the stream for which it was made",
		file: "internal/term/serve.go", old: "if !req.Dir.Holds(m.guide.Bound) {", new: "if !req.Dir.Holds(nil) {",
		pkg: "internal/term", run: "OnlyTheDirectory",
	},
	{
		name: "a proof without a signature", promise: safe, breaks: "under TLS a directory's key is proved by a signature",
		file: "internal/wire/dirkey.go", old: "(binding == nil || ed25519", new: "(len(p.Signature) == 0 || ed25519",
		pkg: "internal/wire", run: "ADirProof",
	},
	{
		name: "sessions of another directory", promise: oneHolder, breaks: "a Forget ends the sessions of its own directory alone",
		file: "internal/machine/forget.go", old: "b = append(append(b, node...), dir[:]...)", new: "b = append(b, node...)",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "a living process shut out", promise: oneHolder, breaks: "a Forget keeps no process of another directory from opening sessions",
		file: "internal/machine/forget.go", old: "return cmp.Or(strings.Compare(e.node, node), bytes.Compare(e.dir[:], dir[:]))", new: "return cmp.Or(strings.Compare(e.node, node), 0*bytes.Compare(e.dir[:], dir[:]))",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "an old copy's key", promise: safe, breaks: "the key of a directory ends with the boot of its host",
		file: "cluster/past.go", old: "			r.Past, r.Key = nil, wire.NewDirSeed()", new: "			if r.Past = nil; r.Key == nil {\n				r.Key = wire.NewDirSeed()\n			}",
		pkg: "cluster", run: "TheKeyOfADirectory",
	},
	{
		name: "a Forget without its proof", promise: hardToKill, breaks: "a process shows the proof of its directory ahead of a Forget",
		file: "internal/link/remote.go", old: "		u.showDir()\n", new: "",
		pkg: "cluster", run: "OwnPast",
	},
	{
		name: "a piece as long as it claims", promise: safe, breaks: "noise in a snapshot is found before much of it is in memory",
		file: "internal/machine/restore.go", old: "size <= 0 || size > maxPiece ||", new: "size <= 0 || size > 129<<20 ||",
		pkg: "internal/machine", run: "Noise",
	},
	{
		name: "pieces of two chunks", promise: safe, breaks: "all pieces of a chunk have its kind",
		file: "internal/machine/restore.go", old: "if r.piece&^pieceFollows != kind {", new: "if kind == 0 {",
		pkg: "internal/machine", run: "SeveralPieces",
	},
	{
		name: "a chunk with a rest", promise: safe, breaks: "no bytes of a chunk are passed over",
		file: "internal/machine/restore.go", old: "	if r.follows() {\n		return errTrailing", new: "	if r.follows() && c == nil {\n		return errTrailing",
		pkg: "internal/machine", run: "SeveralPieces",
	},
	{
		name: "a later process by a claim", promise: safe, breaks: "a process that proves neither a name nor the voter role shows no later process of a name",
		file: "cluster/proof.go", old: "err == nil && c.Claimed(); !claimed {", new: "err == nil && c.Claimed(); err != nil || c != nil || !claimed {",
		pkg: "cluster", run: "ALaterProcess",
	},
	{
		name: "a session without its key", promise: safe, breaks: "a stream acts for a session only after the session's key was shown on it",
		file: "internal/term/authority.go", old: "|| !has && !lacked:", new: "|| lacked && !has:",
		pkg: "internal/term", run: "Stolen|NobodyElse",
	},
	{
		name: "a stolen key", promise: safe, breaks: "a stream acts for the sessions of its own process alone",
		file: "internal/term/authority.go", old: "case st.Node != s.Node || st.Boot != s.Boot || !has && !lacked:", new: "case st.Boot == 0 || !has && !lacked:",
		pkg: "internal/term", run: "Stolen",
	},
	{
		name: "a session in another's name", promise: safe, breaks: "a process opens sessions in its own name alone",
		file: "internal/term/authority.go", old: "case c.Node != s.Node || c.Boot != s.Boot || open && (", new: "case open && (",
		pkg: "internal/term", run: "AnothersName",
	},
	{
		name: "a living process forgotten", promise: oneHolder, breaks: "nobody ends the sessions of a process that is attached",
		file: "internal/term/authority.go", old: "if len(t.streams[member.Process{Name: c.Node, Boot: c.Boot}]) > 0 {", new: "if len(t.streams[member.Process{Name: c.Node, Boot: c.Boot}]) < 0 {",
		pkg: "internal/term", run: "Forgotten",
	},
	{
		name: "late Open of a dead process", promise: exactlyOnce, breaks: "no session opens for a process that has ended",
		file: "internal/machine/session.go", old: "	if s.hasEnded(c.Node, c.Dir, c.Boot) {", new: "	if s.hasEnded(c.Node, c.Dir, c.Boot) && c.Boot == 0 {",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "readiness by an old word", promise: noSilence, breaks: "a new member is ready once the leader counts with it, and no longer with the dead",
		file: "cluster/health.go", old: "whole(set) && rest <= 0", new: "whole(set)",
		pkg: "cluster", run: "RollingRestart/3_members,_Dir_false,_kill_false",
	},
}
