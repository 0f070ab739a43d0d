// Package host is the seam at which a test replaces two things of a member's host: the
// clock that the promise of one holder rests on, and the disk under raft's store and the
// member's record.
//
// A test can also read the committed log through a replaced disk: see Disk.Applied.
//
// The package decides how a replaced clock runs, and when a write to a replaced disk
// hangs or fails. It knows nothing of members, sessions and logs. Without a replacement
// a [Clock] and a [Disk] are nil, and a nil one is the host's own: package time, and a
// disk that does as the engine of the store says.
//
// The replacement comes with the network of a member's configuration, since a test
// names the network anyway, and since no user can name the types of this package: see
// [Of]. locks/lockstest replaces; member.Self, internal/term and locks read the clock,
// internal/consensus hands the disk to the store, and cluster to the record.
//
// # Which clock is read where
//
// These readings decide whether two clients can hold one key at a time, or whether a
// token can come twice. All of them take a Clock:
//
//   - the trust of a session, and its beats (locks);
//   - the leader's deadlines of sessions and delays, the marks of silent sessions, and
//     the wait of a new cluster before its first grant (internal/term);
//   - the age of the last token of a member that retires (internal/link, cluster);
//   - by [Clock.Wall]: the numbers of processes and of raft IDs, and the first token of a
//     cluster (cluster, internal/consensus, internal/founding), and the bound on the
//     numbers of processes to be forgotten (internal/term).
//
// All other durations are patience: a bound on a call, a pause, a wait before something
// counts as gone. They decide when something happens, never whether two may hold, and
// they run by package time, as do the timers of raft and of memberlist, which nobody can
// replace.
//
// # Goroutines
//
// The package starts none. Timers run their functions for moments only.
package host

// Host is the replaced part of a host.
type Host struct {
	Clock *Clock
	Disk  *Disk
}

// Of returns the host that a member's network stands for: the result of the network's
// method Host, or the zero Host if the network has no such method.
func Of(network any) Host {
	if n, ok := network.(interface{ Host() Host }); ok {
		return n.Host()
	}
	return Host{}
}
