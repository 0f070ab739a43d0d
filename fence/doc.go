// Package fence lets a protected resource refuse a holder whose lock is over.
//
// A process can be paused at any point: by a debugger, a full swap, a frozen
// virtual machine. When it runs again its lock may be somebody else's, and its
// next instruction may be a write. No lock can prevent that. The resource can,
// because every grant of a lock carries a token larger than all before it: the
// resource remembers the highest token it has seen and refuses lower ones.
//
// There are three types:
//
//   - Token numbers a grant. It travels with each request, in process by
//     NewContext and FromContext, between processes as text.
//   - Guard protects a resource inside one process. Its zero value is ready.
//   - File is a guard whose mark is in a file, shared by the processes of one
//     host, and kept through restarts and power loss.
//
// The package imports nothing but the standard library, so a service that only
// protects something imports it alone.
//
// # Guarantees
//
// For a guard, all its calls taken together:
//
//   - No write of token t starts once a larger token has been shown, by Do,
//     DoOnce or Claim.
//   - No two writes overlap, and their tokens never fall in the order they ran.
//   - When a call with token t returns nil, or runs its write, the mark is at
//     least t, even if the write then fails or panics.
//   - Token zero is always refused with ErrUnfenced; a token below the mark with
//     a *StaleError, which matches ErrStale. Nothing has then been done.
//   - A File keeps all of this over any number of processes, kill -9 and power
//     loss, and refuses everything with a *CorruptError if its mark is damaged.
//
// Less formally: time at the resource runs forward through the holders. Once
// one of them has been seen, the ones before it are history.
//
// # Caveats
//
// A zombie passes until its successor has shown its token. A guard knows only
// what it was shown. If the new holder reads 100, the old one then writes 150
// and the new one writes 110, every token came in order and one update is lost.
// So Claim before the first read; or read inside the write of Do.
//
// A guard protects what all writers take through it. One resource has one guard
// and one lock key: under two keys, two holders have two valid tokens.
//
// Only exclusive grants have an order. Several shared or permit holders are
// entitled at the same time, and the guard would lock out all but the youngest:
// use their tokens to read, never to write.
//
// A write that ends in a timeout may have happened. It is not stale: read again,
// then try again with the same token, which Do admits.
//
// A resource that cannot compare tokens, such as a payment service, cannot be
// fenced. Give each operation an idempotency key instead, and check the lock's
// remaining time before each side effect, which makes accidents rarer but does
// not end them.
//
// # Testing your own
//
// Write with token 2, then with token 1: the second must be refused and leave
// the resource unchanged. Then claim 3 and write with 2: refused too, although
// nobody wrote with 3. A test of races needs a broken guard to be worth
// something: compare, let go, write, and see it fail.
package fence
