// Package locks acquires distributed locks in the cluster that this process is
// part of, and says in time when they are lost.
//
// There are a few types:
//
//   - Client has a session in the cluster, kept by beats in the background:
//     one for all its locks. Acquire and TryAcquire give locks; Do, Elect and
//     Spread run a function under one and are the front door.
//   - Lock is one grant of one key, with a fencing token and a context that ends
//     when the grant does. Acquired again, the key is another Lock with a larger
//     token; the old one never comes back. Options make it one of readers, one of
//     a number of permits, or one of a whole tree of keys.
//   - Set is one grant of several keys at once, by AcquireAll.
//   - Status is what Inspect and Watch tell of a key.
//
// # Guarantees
//
//   - One holder. No two grants of a key are in force in the cluster at once,
//     save such as share it: readers, and permits up to their number.
//   - Tokens rise. A grant's token is larger than that of every grant before it,
//     of any key.
//   - Loss is told first. While a process runs, the context of its grant has
//     ended before Acquire returns the key's next grant to anybody.
//   - Err does not lie. It is right at the moment it is called, also when the
//     process or its host has just been paused and no timer has fired yet. A
//     context ends within a tenth of a second of running again.
//   - A failed call leaves nothing. An Acquire that returned an error holds
//     nothing, and no grant comes late: what may have reached the cluster is
//     withdrawn. After Release, whatever it returned, this process does not hold.
//   - Waiters are served in the order in which the cluster heard of them, save
//     where they ask for a Priority, are named by HandOver, or upgrade.
//   - A wait that would never end is refused: see ErrDeadlock. This knows of the
//     locks that the waiter's context descends from, and of no others.
//   - Every loss has a Reason, as the cause of the lock's context and in Err.
//
// Less formally: believe in a lock as long as its context lives, ask Err or
// Require before anything that cannot be undone, and give the token to whatever
// the lock protects.
//
// # Two clocks
//
// That loss is told first rests on two parties that count time on their own:
//
//   - The holder trusts its locks until a TTL, less a margin, after it sent the
//     last beat that was confirmed. (Before the first beat, after it first asked
//     for its session.)
//   - The leader ends the session no earlier than a TTL after it received the
//     last beat that it confirmed. It confirms one only after a majority of
//     voters has said, later than the beat arrived, that there is no newer
//     leader. A new leader gives every session a whole TTL from its own start.
//
// A beat is sent before it is received, so the holder stops first:
//
//	holder  sent                                   trust ends
//	  ──────●────────────────────────────────────────────●────────────────────
//	         ╲           TTL − margin                    │← margin →│
//	          ╲                                                     │
//	           ╲                        TTL                         ↓
//	  ──────────●────────────────────────────────────────────────────────●────
//	leader      received                                     expire, grant next
//
// A slow confirmation changes nothing, since the holder counts from sending. If
// the leader is replaced after it confirmed the beat, its successor starts later
// than the beat was received, and so expires later still. If it had been
// replaced before, the beat is not confirmed, and the window stays as it was.
//
// The two clocks need not agree on the time, only on how fast it passes: the
// margin is 1 % of the TTL and 100 ms, but a quarter of the TTL at most. Of that
// the first part is for clocks at different rates, the second for timers and
// goroutines that run late. Wall clocks are not used. A host that sleeps stops
// its monotonic clock, so its sleep is added: on Linux it is read from the
// kernel; elsewhere a wall clock that ran ahead counts as sleep, and setting it
// forward may end locks early.
//
// # Before you lock
//
// A lock is the last resort: it costs a majority's agreement, and whoever holds it
// may stop. First make the work repeatable; then see whether one of these is enough:
//
//	a job that must run once        a record of its completion under a unique name, or Once
//	read, change, write             compare and set: Cell, or a version column
//	many writers of one thing       one writer: Spread makes the lock a matter of routing
//	one scheduler, one primary      Elect, whose token is the epoch
//	a periodic job, harmless twice  let it run twice
//	a counter that all add to       a number for each writer, added up by the reader
//	all writers share a database    its own locks and transactions
//
// And know which you want: efficiency, so that work is mostly not done twice, or
// correctness, so that it never is. For correctness the protected resource must
// compare tokens, before it is first read, too; one that cannot must be given an
// idempotency key.
//
// # Choosing a TTL
//
// The TTL is how long a dead holder's keys stay taken. It should be well above the
// longest pause of your processes (of garbage collection, of a starved host: take
// the worst of a thousand) and below the time in which you must recover:
//
//	below 1 s    locks are lost to ordinary pauses
//	1 to 5 s     quick recovery, and a lock lost now and then
//	10 to 30 s   the usual balance; 10 s is the default
//	60 s and up  nothing is lost, and recovery takes a minute
//
// There is no lock without one. Beats go out three times in a TTL, so that two may
// be lost. Work that takes longer than a TTL is no reason for a longer one: beats
// go on under it. What matters is that it asks Require before each side effect.
//
// # The four properties
//
//	mutual exclusion     yes, in committed order; and no two running holders trust
//	                     the same key at a time, as long as clocks run at one rate
//	deadlock freedom     yes: cycles that contexts tell of are refused when they close,
//	                     a failed holder is free after its TTL
//	starvation freedom   yes: served in commit order
//	bounded wait         yes: nobody who came later is granted before a waiter, save by
//	                     priority, delay or hand-over, and 16 of these at most
//
// In a partition the side without a majority of voters grants nothing, and its
// holders lose their locks: safety comes before liveness. Members are trusted to
// run this code.
//
// # What to watch
//
// Trace tells all of it. Waits (Acquired.Took), holds (Released.Took, Lost.Took),
// failed beats, losses by reason, clean-ups that failed, and at the guard the tokens
// it refused. Worth an alarm: refusals that rise, since each is a holder that wrote
// too late; and holds that come near the TTL where work should be short.
//
// # What no lock can do
//
//   - A process may be paused after it asked Err and before it acts. When it
//     runs again the lock may be another's. Only the protected resource can
//     refuse what it then does, by comparing tokens: see package fence.
//   - A guest whose hypervisor stops it may see no clock move. It then trusts its
//     locks for longer than it should, by as much as it was stopped.
//   - To end a context takes time where hundreds of thousands descend from it, and
//     the margin has room for some hundred milliseconds. Err is right meanwhile.
//   - Work that ignores the end of its context goes on, without the lock. Do,
//     Elect and Spread wait for it; where the session still lives, the key stays
//     taken until it returns.
//   - A crashed holder's key is free after the TTL, not before. If the leader
//     crashed with it, that is an election more, and a TTL from there.
//
// # How to test
//
// Package lockstest gives a test a whole cluster, in a testing/synctest bubble
// or outside of one, always in memory, whose members it can kill, pause and isolate.
package locks
