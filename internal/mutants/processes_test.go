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
		file: "cluster/past.go", old: "case host == \"\" || r.Host != host:", new: "case host == \"\" && r.Host != host:",
		pkg: "cluster", run: "MayLive",
	},
	{
		name: "past freed while it answers", promise: oneHolder, breaks: "a past is freed only if nothing answers as that process",
		file: "cluster/past.go", old: "return p.Addr != n.self.Addr &&", new: "return p.Addr == n.self.Addr &&",
		pkg: "cluster", run: "WhoAnswers",
	},
	{
		name: "anybody forgets", promise: oneHolder, breaks: "a leader takes a Forget only from a later process of the very member",
		file: "internal/term/authority.go", old: "if s == nil || c.Node != s.Node || c.Boot >= s.Boot {", new: "if s == nil {",
		pkg: "cluster", run: "ItselfForgets",
	},
	{
		name: "a session without its key", promise: safe, breaks: "a stream acts for a session only after the session's key was shown on it",
		file: "internal/term/authority.go", old: "case !has || st.Node != s.Node", new: "case has != has || st.Node != s.Node",
		pkg: "internal/term", run: "Stolen|NobodyElse",
	},
	{
		name: "a stolen key", promise: safe, breaks: "a stream acts for the sessions of its own process alone",
		file: "internal/term/authority.go", old: "case !has || st.Node != s.Node || st.Boot != s.Boot:", new: "case !has || st.Node == \"\":",
		pkg: "internal/term", run: "Stolen",
	},
	{
		name: "a session in another's name", promise: safe, breaks: "a process opens sessions in its own name alone",
		file: "internal/term/authority.go", old: "if !has || c.Node != s.Node || c.Boot != s.Boot {", new: "if !has {",
		pkg: "internal/term", run: "AnothersName",
	},
	{
		name: "a living process forgotten", promise: oneHolder, breaks: "nobody ends the sessions of a process that is attached",
		file: "internal/term/authority.go", old: "if o.Node == c.Node && o.Boot == c.Boot {", new: "if false {",
		pkg: "internal/term", run: "Forgotten",
	},
	{
		name: "late Open of a dead process", promise: exactlyOnce, breaks: "no session opens for a process that has ended",
		file: "internal/machine/session.go", old: "	if s.hasEnded(c.Node, c.Boot) {", new: "	if s.hasEnded(c.Node, c.Boot) && c.Boot == 0 {",
		pkg: "internal/machine", run: "Script",
	},
	{
		name: "readiness by an old word", promise: noSilence, breaks: "a new member is ready once the leader counts with it, and no longer with the dead",
		file: "cluster/health.go", old: "whole(set) && rest <= 0", new: "whole(set)",
		pkg: "cluster", run: "RollingRestart/3_members,_Dir_false,_kill_false",
	},
}
