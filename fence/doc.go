// Package fence lets a protected resource refuse writes of a former lock holder.
//
// A process can be paused at any point: by a debugger, a full swap, a frozen
// virtual machine. When the process runs again, another process may hold its
// lock, and its next instruction may be a write. No lock can prevent that write.
// The resource can, because every grant of a lock carries a token larger than
// every token granted before: the resource remembers the highest token shown to
// it and refuses lower ones. Tokens rise across clusters too, with one condition: see
// "When everything is lost".
//
// There are three types:
//
//   - Token numbers a grant. A token travels with each request: inside a process
//     by NewContext and FromContext, between processes as text.
//   - Guard protects a resource inside one process. The zero Guard is ready.
//   - File is a guard with its mark in a file. All processes of one host share
//     the mark, and the mark survives restarts and power loss.
//
// A guard's mark is the highest token that was shown to the guard.
//
// The package imports only the standard library, so that a service which only
// protects a resource carries no other dependency.
//
// # Guarantees
//
// For one guard and all calls to it taken together:
//
//   - No write of token t starts after Do, DoOnce or Claim has shown the guard a
//     token larger than t.
//   - No two writes overlap, and the tokens of the writes, in the order in which
//     the writes ran, never fall.
//   - When a call with token t returns nil, or runs its write, the mark is at
//     least t, even if the write then fails or panics.
//   - Token zero is always refused with ErrUnfenced. A token below the mark is
//     refused with a *StaleError, which matches ErrStale. A refused call has
//     changed nothing.
//   - A File gives all these guarantees across any number of processes, kill -9
//     and power loss. A File with a damaged mark refuses every call with a
//     *CorruptError.
//
// Less formally: time at the resource runs forward through the holders. Once the
// guard has seen a holder, all earlier holders are history.
//
// # Caveats
//
// A former holder can still write until its successor has shown its token: a
// guard knows only the tokens shown to it. If the new holder reads 100, the old
// holder then writes 150 and the new holder writes 110, every token came in order
// and one update is lost. So call Claim before the first read, or read inside the
// write of Do.
//
// A guard protects a resource only if all writers use the guard. Give one
// resource one guard and one lock key: under two keys, two holders have two valid
// tokens.
//
// Only exclusive grants have an order. Several holders of shared grants or
// permits are entitled at the same time, and a guard would refuse all of them
// except the youngest: use such tokens to read, never to write.
//
// A write that ends in a timeout may have happened. Such a write is not stale:
// read again, then try again with the same token, which Do admits.
//
// A resource that cannot compare tokens, such as a payment service, cannot be
// fenced. Give each operation an idempotency key instead, and check the lock's
// remaining time before each side effect. The check makes accidents rarer and
// does not exclude them.
//
// # When everything is lost
//
// After the loss of every member of a cluster, and of every Dir, the next cluster's
// tokens begin at its founders' clocks. If these are behind the former founders' clocks,
// the guard refuses the rightful holders. The guard itself can tell the next cluster how
// high the tokens were:
//
//	cfg.Recovery.TokenFloor = file.Highest
//
// The next cluster then begins above every token that the guard has seen. See
// docs/fencing.md.
//
// # Testing your own
//
// Write with token 2, then with token 1: the guard must refuse the second write
// and leave the resource unchanged. Then claim 3 and write with 2: the guard must
// refuse this write too, although nobody wrote with 3. A test of races proves
// something only if the test fails on a broken guard: build a guard that
// compares, unlocks and then writes, and see the test fail.
package fence
