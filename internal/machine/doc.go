// Package machine is the lock table: the holders and the queue of every key, and
// the open sessions. It is a pure function of the commands applied to it, without
// a clock, a goroutine, randomness or I/O. So all voters that apply the same log
// have the same table.
//
// The types are:
//
//   - State, the table;
//   - Command, one step of the table: command.go lists everything that the log can
//     carry;
//   - Outcome, the answer to the proposer of a command;
//   - Event, the effect of a command on another session;
//   - Image, the table at one moment, written while the State goes on;
//   - Status and SessionStatus, for readers.
//
// # Guarantees
//
//   - Between any two commands the invariants on State hold, and Check verifies
//     them.
//   - The same commands give the same outcomes, events and Digest, on every
//     platform and in every process, also when a State was restored from an image
//     on the way.
//   - Apply neither panics on nor stops at any command from DecodeEntry.
//   - A refusal changes nothing, with four exceptions. Seen is noted if the session
//     is open, the list within its limits and the command in the table's format.
//     The seq of a refused Acquire, Upgrade or SetCapacity can be spent, and so is the Rev of a
//     SetValue refused as ValuesFull. The grants that an Acquire lists as Freed are
//     released before the Acquire is looked at, and so also if it is refused, unless the
//     list itself is bad. A Try refused as Held, and a request refused as Deadlock, recall the
//     keys in their way that are kept by blocks of tokens: the grants are marked and their
//     holders told.
//   - An Acquire or an Upgrade, known by session and seq, is granted at most once.
//     The answer to a second copy is the present truth about the first. After a
//     Withdraw of the request, after its outcome was marked as seen, and after the
//     Release of its grant, every copy is refused as Withdrawn.
//   - A SetCapacity, known by session and seq, is done at most once.
//   - A Release frees the named grant or nothing. The same command grants the keys
//     to their next waiters, if these are no more than MaxAdmitted.
//   - No step grants more than MaxAdmitted keys to waiters, and one grant and the plain readers of
//     one key more. The other waiters keep their places until a later step: see visit.go.
//   - A late copy of any other command about a grant changes nothing. A SetValue is
//     known by its Rev; a SetValue and a Downgrade name the present token, which an
//     upgrade replaces; a Break and an EndDelay name a token that is gone by then, and an
//     EndSession a session.
//     There are two exceptions. A Release refused as NoSuccessor is not remembered:
//     a late copy frees the grant if the grant is still held and the successor waits
//     by then. And an Ask asks the holders at its own arrival.
//   - No request is granted before a conflicting waiter that came first, unless by
//     priority, by delay, as a named successor or as an upgrade; and by the first
//     three at most MaxPassed times.
//   - A wait without end is refused, as far as Under names the grants. If the search for it
//     would take more than MaxSearch steps, the wait is refused too, as TooManyWaiters.
//   - No permits are granted beyond the capacity of the key, and no request for permits
//     waits for more of them than the capacity.
//   - A shard of a group is assigned to one caller at most, and each caller is told its
//     whole part in the entry that changes it. An assignment is no grant.
//   - After a Reshard no caller and no holder of the former number is left.
//   - The waiters of an ending session leave before its grants are freed, and are granted
//     nothing. From the entry on that ends a session, no command of the session is taken.
//   - No step of a session's end frees more than about MaxSlice keys: see ending.go.
//   - A key of an ended session is freed only after the entry that ends the session, so only
//     after its holder's trust has ended, however many slices the end takes.
//   - A revoked session is granted nothing, and its grants are freed when its client
//     closes it or when it expires, not before.
//   - The first token is the founding's floor, each next token is larger by one or by a
//     reserved block,
//     and no token exceeds MaxToken.
//   - A grant with a Block reserves that many tokens after its own, and an Extend further
//     ones. Every later grant of any key has a token above them. A second of the leaders' clock
//     has MaxReserved tokens in blocks, and no session takes more of them than it leaves.
//   - Snapshot takes the same few microseconds for a table of any size.
//
// Less formally: ask as often as you like, you hold the key once; release late and
// you harm nobody; come first and you are served first.
//
// # Exactly once
//
// The table remembers the outcome of each Acquire until the client lists the seq in
// the Seen list of a later command. The table does not remember the first answer but
// the truth: a queued request, granted since, answers Granted.
//
// Refusals for the moment are remembered too: Held, Founding, TooManyWaiters,
// Deadlock, WrongCapacity, TooManyCapacities, Changed, TooOld, NeverGranted, and WrongMode of a grant that is
// exclusive already or about to be. Otherwise a delayed copy of a Try could be
// granted to a client that has gone away with a refusal. Two kinds of refusals need
// no memory: a refusal for good (BadCommand, NotHeld, TokensSpent, and
// WrongMode of a permit or of several keys), and a refusal of a command that came
// too early (NotFounded, NoSession, WrongFormat). A third kind cannot be remembered,
// since the session has no room left (TooManyUnseen, TooManyKeys, TooMuchOfNode): a second copy is
// answered Withdrawn, and never granted.
//
// A Withdraw forgets the request: a second copy of a Withdraw that undid a granted
// upgrade may answer without the token in the first answer.
//
// While the session lives, the table never forgets that a seq was spent. This costs
// nearly nothing, since seqs are spent nearly in order: see spans.
//
// # Caveats
//
// The leader has the clock: it decides that a session has been silent for too long,
// and says so by a command that binds only in the leader's term.
//
// IDs of ended sessions are not remembered. A late copy of an Open opens the session
// again, for nobody; the session expires like any unheard session. Only the Open of
// a process named by Forget, with the directory that the Forget names, is refused.
//
// A token is a number of one table. Across foundings tokens rise only if the
// founders choose the floor well: internal/founding/floor.go says how.
//
// An Enlist and a Resize spend a seq too, and the table remembers no answer to them but
// the caller itself: the answer to a copy of a refused one is Withdrawn.
//
// The table remembers the last token, the value, the unclean mark and the set capacity of
// an idle key within the limits in limits.go, and no longer.
//
// Once MaxToken is granted, every new Acquire is refused as TokensSpent, and waiters
// wait until they withdraw. The remedy is to found anew.
//
// # How long a step is
//
// All commands wait while Apply works, so each command has a bound. Cost estimates the work
// for a leader that fills an entry, and tests count the elements looked at: see looks.go.
//
//	Acquire, Upgrade   its own keys, with MaxLevels keys above; Under, MaxUnder tokens once;
//	                   the search for a deadlock, MaxSearch steps; Freed, MaxFreedKeys keys
//	Acquire of trees   MaxKeys/TreeShare keys; besides, MaxSlice recalls in a step, and one
//	                   more for each tree
//	Seen of a command  MaxSeen outcomes, one record each, and MaxGaps spans
//	Release, Downgrade,
//	Withdraw, Break,
//	EndDelay           the keys of the grants: MaxKeys, or MaxWithdrawnKeys
//	Ask                the holders of a key: MaxHolders
//	SetCapacity        the queue of a key, MaxWaiters; one search for all waiters in it
//	SetValue           MaxValue bytes
//	Close, Expire,
//	EndSession, EndSlice  MaxSlice keys, and one grant more
//	what any of these frees  MaxAdmitted keys that are granted, and one grant and the plain
//	                   readers of one key more: MaxWaiters at most, in about 2 ms
//	AdmitSlice, Lift   the same
//	Forget             the same, of MaxSlice sessions; no look at sessions of other processes
//	Open, Silence, Hear, Raise, Bound, LeaderStart  nothing that grows
//	Enlist and the other commands about groups  MaxShards shards and MaxCallers callers of a
//	                   group, and a look at each group where a limit of all groups is near
//	Found of a successor  the whole table: the cluster serves nobody then
//
// Three parts are bounded by the table alone, where the quotas of a node (nodeload.go) bound the
// share of each member. They are long in a table made for that:
//
//   - A waiter for several keys is looked at with all of them, for each key that changes.
//   - A request above or below trees that wait passes over all of them.
//   - A waiter, and an Ask, marks each holder of the key at all keys of the holder's grant.
//
// # Where to look
//
//   - The next holder of a key: queue.go, conflict.go and tree.go decide, and
//     admit.go grants; visit.go when there are thousands.
//   - The number of permits of a key: capacity.go.
//   - A record and everything derived from records: record.go and keytable.go.
//   - Shards divided among callers: group.go, enlist.go and assign.go; what a caller is
//     told: part.go.
//   - The end of a session: ending.go, and rest.go for what is left of it; an operator's:
//     revoke.go. Lists for readers: revoke.go, for
//     sessions, and valuequery.go.
//   - A second copy of a request: once.go. A cycle of waits: deadlock.go.
//   - A new option of Acquire: spec.go. A new command: command.go,
//     codec_command.go, apply.go and format.go.
//
// # Tests
//
// Rules are scripts in testdata: commands, then their verdicts; rewrite these with
// -rewrite and read the diff. Properties, fuzz targets and golden files stand in the
// test files. Tests run Check after every change of a State. A plain run
// is quick; WARDMOTE_FULL=1 runs all rounds: see internal/testrounds.
package machine
