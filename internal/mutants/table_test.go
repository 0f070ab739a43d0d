//go:build mutants

package mutants

// The lock table.
var tableMutants = []mutant{
	{
		name: "second queue entry on a resend", promise: exactlyOnce, breaks: "a request is in one place at most",
		file: "internal/machine/once.go", old: "	case waiting:\n		out := Outcome{Code: Queued}", new: "	case waiting:\n		if len(s.sets.shards) > 0 {\n			return Outcome{}, false\n		}\n		out := Outcome{Code: Queued}",
		pkg: "internal/machine", run: "Script|Commands|Copy",
	},
	{
		name: "token counter not restored", promise: risingTokens, breaks: "tokens rise over a restore",
		file: "internal/machine/codec_table.go", old: "(*uint64)(&h.last), &h.commands", new: "new(uint64), &h.commands",
		pkg: "internal/machine", run: "Image|Snapshot|Commands|Restore",
	},
	{
		name: "reader beside a writer", promise: oneHolder, breaks: "no two holders of a key conflict",
		file: "internal/machine/conflict.go", old: "	case mode == Shared && w.Mode == Shared:", new: "	case w.Mode == Shared:",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "reader passes a waiting writer", promise: fair, breaks: "nobody is granted before an earlier waiter in conflict",
		file: "internal/machine/conflict.go", old: "		if r.queue[j].Mode != Shared {\n			return true", new: "		if r.queue[j].Mode != Shared {\n			return false",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "one permit too many", promise: oneHolder, breaks: "a key has at most as many permits as its capacity",
		file: "internal/machine/conflict.go", old: "		return permits+int(w.N) > int(r.capacity)", new: "		return permits+int(w.N) > int(r.capacity)+1",
		pkg: "internal/machine", run: "Script|Commands",
	},
	{
		name: "a lower capacity forgets its waiters", promise: noSilence, breaks: "a waiter for more permits than a lowered capacity fails at once",
		file: "internal/machine/capacity.go", old: "	lower := c.Of > 0 && c.Of < uint32(r.capacity)", new: "	lower := false",
		pkg: "internal/machine", run: "Script|Permits",
	},
	{
		name: "waits that close a circle", promise: noCircle, breaks: "a request that would wait for ever is refused",
		file: "internal/machine/acquire.go", old: "keys, p.index); out.Code != 0 {", new: "keys, p.index); out.Code == TooManyWaiters {",
		pkg: "internal/machine", run: "Script|Deadlock",
	},
	{
		name: "one holder of permits is enough", promise: noCircle, breaks: "a request that would wait for ever for permits of its own caller is refused",
		file: "internal/machine/deadlock_needs.go", old: "	return int(r.permits) + int(w.N) - int(r.capacity)", new: "	return 1",
		pkg: "internal/machine", run: "Script|Deadlocks",
	},
	{
		name: "one waiter too many", promise: fair, breaks: "a request with MaxWaiters does not wait behind so many",
		file: "internal/machine/queue.go", old: "len(r.queue) >= limit", new: "len(r.queue) > limit",
		pkg: "internal/machine", run: "Scripts", also: []string{"sim"},
	},
}
