// Package machine is the lock table: who holds which key, who waits for it in
// which order, and which sessions are open. It is a pure function of the
// commands applied to it, with no clock, goroutine, randomness or I/O, so
// every voter that applies one log has one table.
//
// The types are State, the table; Command, one step of it, with the kinds in
// command.go being all that the log can carry; Outcome, the answer to who
// proposed a command; Event, its effect on somebody else; Image, the table at
// one moment, to be written while the State goes on; and Status and
// SessionStatus, what a reader sees.
//
// # Guarantees
//
//   - Between any two commands the invariants on State hold; Check says so.
//   - The same commands give the same outcomes, events and Digest, on every
//     platform and in every process, also when a State was restored from an
//     image on the way.
//   - Apply does not panic on, nor stop for, anything that DecodeEntry returns.
//   - A refusal changes nothing but this: Seen is taken note of when the session
//     is open, the list within its limits and the command one of the format; the
//     seq of a refused Acquire or Upgrade can be spent, and the Rev of a SetValue
//     refused as ValuesFull is.
//   - An Acquire or an Upgrade, known by session and seq, is granted at most once.
//     A second copy is answered with what is now true of the first; after a
//     Withdraw of it, after its outcome was marked as seen, and after the grant's
//     Release, every copy is refused as Withdrawn.
//   - A Release frees the grant it names or nothing. Who waited for its keys is
//     granted by the same command.
//   - A late copy of any other command about a grant changes nothing: a SetValue is
//     known by its Rev, and like a Downgrade by the token that an upgrade has
//     replaced since, a Break and an EndDelay by the token that is gone. But that a
//     Release was refused as NoSuccessor is not remembered: a late copy of it frees
//     the grant if that is still held, and has the successor by then. And an Ask
//     asks whoever holds when it comes.
//   - Nobody is granted before a waiter that came first and is in conflict with
//     him, save by priority, delay, a named successor or an upgrade; and by the
//     first three at most MaxPassed times.
//   - A wait that would never end is refused, as far as Under tells.
//   - A session that ends takes its waiters with it before its grants are freed.
//   - The first token is the founding's floor, each next one is larger by one,
//     and none exceeds MaxToken.
//   - Snapshot takes the same few microseconds whatever the table's size.
//
// Less formally: ask as often as you like, you hold it once; let go late and
// you harm nobody; come first and you are served first.
//
// # Exactly once
//
// The table remembers the outcome of each Acquire until the client says, in
// the Seen list of a later command, that it knows it. What is remembered is not
// the first answer but the truth: a queued request that has been granted since
// answers Granted. Refusals of the moment (Held, Founding, TooManyWaiters, Deadlock,
// WrongCapacity, Changed, TooOld, and WrongMode of what is exclusive already, or
// about to be) are remembered too, or a delayed copy of a Try could be granted to a
// client that has gone away with a refusal. Refusals that would be the same at any
// time (BadCommand, NotHeld, TokensSpent, and WrongMode of a permit or of several
// keys) are not, nor those that say that a command came too early (NotFounded,
// NoSession, WrongFormat).
//
// A Withdraw forgets what it undoes: a second copy of one that undid a granted
// upgrade may answer without the token that the first one told.
//
// That a seq was spent is never forgotten while the session lives. It costs
// nearly nothing, since seqs are spent nearly in order: see spans.
//
// # Caveats
//
// Time is somebody else's: the leader decides that a session has been silent
// for too long and says so by a command that binds only in its term.
//
// Session IDs of sessions that ended are not remembered. A late copy of an Open
// opens the session again, for nobody; it expires like any that is not heard.
//
// A token is a number of one table. Across foundings tokens rise only if the
// founders choose the floor well.
//
// Of keys that are free the last tokens, values and whether the last holder let go
// are remembered within the limits in command.go, and no longer.
//
// In format 1, until Raise, only exclusive locks are known, and nothing of free keys.
//
// Once MaxToken is granted, every new Acquire is refused as TokensSpent, and who
// waits then waits until it withdraws. The remedy is to found anew.
//
// # Tests
//
// Rules are scripts in testdata: commands, then what came of them; rewrite them
// with -rewrite and read the diff. Properties, fuzz targets and golden files
// stand in the test files; whatever a test does to a State, Check follows.
package machine
