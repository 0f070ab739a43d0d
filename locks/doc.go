// Package locks acquires distributed locks in the cluster of this process, and
// reports the loss of a lock in time.
//
// There are a few types:
//
//   - Client has one session in the cluster for all of its locks, kept alive by
//     beats in the background. Acquire and TryAcquire return locks. Do, Elect
//     and Spread run a function under a lock, and are the front door.
//   - Lock is one grant of one key, with a fencing token and a context that ends
//     when the grant ends. Acquiring the key again returns another Lock with a
//     larger token; the old Lock never comes back. With options, a Lock is a
//     reader's lock, some of the permits of a key, or a lock of a whole tree of
//     keys.
//   - Set is one grant of several keys at once, by AcquireAll.
//   - Status is a key's state, as returned by Inspect and Watch.
//
// # Guarantees
//
//   - One holder. No two grants of a key are in force in the cluster at once,
//     except shared grants, and permits up to the capacity of the key.
//   - Tokens rise. A grant's token is larger than the token of every earlier
//     grant, of any key (with Sticky: of its key), in a successor of a lost cluster too. After the loss of
//     every process and every Dir this rests on the wall clock of the process that
//     founds the next cluster: if that clock is behind the earlier founder's, tokens
//     may fall, and a fence then refuses the rightful holder until they have caught
//     up. cluster.Recovery.TokenFloor takes the clock out of it: the founders ask the
//     protected resource for the largest token it has seen.
//   - Loss is told first. While a process runs, the context of its grant ends
//     before Acquire returns the key's next grant to anybody.
//   - Err is right at the moment of the call, even if the process or its host has
//     just been paused and no timer has fired yet. A context ends within a tenth
//     of a second of running again.
//   - A failed call leaves nothing. If Acquire returned an error, nothing is held
//     and no grant comes late: a request that may have reached the cluster is
//     withdrawn. After Release, with or without an error, this process does not
//     hold the lock.
//   - Waiters are served in the order in which the cluster heard of them, except
//     for the option Priority, for HandOver, and for upgrades.
//   - A wait that would never end is refused: see ErrDeadlock. Only locks from
//     whose contexts a waiter's context descends are taken into account. If too many
//     waiters would have to be searched for that, the wait is refused too: see
//     ErrTooManyWaiters.
//   - Every loss has a Reason, as the cause of the lock's context and in Err.
//   - Nobody else's lock. Only the process that took a lock can release it, and only
//     its own beats keep it: each session has a random key, known to its client and
//     shown to leaders alone. An operator's Break asks the holder, and so does
//     EndSession; a client that does not answer EndSession loses its keys a TTL later.
//   - Nobody waits in silence: a call without a leader reports the missing members
//     through Trace.Blocked, and in its error when its ctx ends.
//
// Less formally: trust a lock as long as its context lives, call Err or Require
// before any step that cannot be undone, and send the token with each access to
// the protected resource.
//
// # Two clocks
//
// Loss is told first because of two rules for two parties, each with a clock of
// its own:
//
//   - The holder trusts its locks until a TTL, less a margin, after it sent the
//     last beat that was confirmed. (Before the first confirmed beat: after it
//     first asked for its session.)
//   - The leader ends the session no earlier than a TTL after it received the
//     last beat that it confirmed. It confirms a beat only after a majority of
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
// than the beat was received, and so expires later still. If the leader had been
// replaced before, the beat is not confirmed, and the window stays as it was.
//
// The two clocks need not agree on the time, only on how fast it passes. The
// margin is 1 % of the TTL plus 100 ms, but a quarter of the TTL at most: the
// first part is for clocks at different rates, the second for timers and
// goroutines that run late. Wall clocks are not used. A host that sleeps stops
// its monotonic clock, so the sleep is added: on Linux the kernel reports it;
// elsewhere a wall clock that ran ahead counts as sleep, and setting the clock
// forward may end locks early.
//
// # Sticky keys
//
// With the option Sticky the cluster grants the key once, and the client makes one lock
// after another from that grant, without asking. Why the guarantees hold:
//
//   - One holder. In the cluster the client's session holds the key all the time, so nobody
//     else does. In the client at most one lock of the grant exists: the session hands the
//     grant from a released lock to the next under a mutex, and only after the context of
//     the released lock has ended.
//   - Tokens rise for each key. The entry that grants the key also takes a block of tokens
//     out of the cluster's one counter, and the locks get the tokens of the block in order.
//     Every later grant, by anybody, after a leader change, from a snapshot too, is counted
//     on from the end of the block. When half of the block is used up, the client asks for
//     another one, twice as long, while the locks go on: an entry that the cluster refuses as
//     soon as another request has come for the key. Without a further block the client asks for
//     the key anew, in the same message that gives the key back, and stands behind the waiters.
//     Between keys there is no order: another key may have been granted, with a token above
//     the block, before a lock of the block is made.
//   - A successor of a lost cluster begins above all tokens as long as a cluster grants less
//     than 2^21 in a second. All blocks of a second have half of that together, 2^20. The
//     budget is shared among clients: none takes more in a second than it leaves for the
//     others, so alone half a million, and a modest client finds a block however many greedy
//     ones there are. Beyond, grants come without a block, and Sticky is Lazy.
//   - Loss is told first. A lock is made only while the session's trust is open, by a reading
//     of both clocks at that moment. So a process that was paused, or whose host slept, makes
//     no lock of a key that may be another's by then, and its earlier locks are as dead as
//     any. A lock of the block ends with the session, by Break and by EndSession like any
//     other, and the key is free for others after that.
//   - A recall cannot be starved. The cluster tells the client once that another request
//     came, and again with each new connection until the grant has ended. From that moment
//     on no lock is made of the grant: if none exists, the client releases the grant, and
//     otherwise the Release of the lock does. If the message crosses a local Acquire, that
//     one lock comes before the other request, as if it had been asked for earlier. The
//     client's own next request stands in the queue behind the other.
//   - A recall asks every kind of request: a waiter in any mode, a TryAcquire, a set, a tree
//     above the key, Ask. For an operator a stuck key looks like a held one: Inspect names
//     the client, and Break takes the key away, by the token of the grant or of any lock.
//   - A cycle of waits is found: the locks of a block appear under the token of the grant. The
//     cluster cannot know that a key in a cycle is kept without a lock, so a *DeadlockError may
//     come too early; but the refusal recalls the key, and the next request finds no cycle.
//
// # Before you lock
//
// A lock is the last resort: it costs a majority's agreement, and its holder may
// stop. First make the work repeatable; then see whether one of these is enough:
//
//	a job that must run once        a record of its completion under a unique name, or Once
//	read, change, write             compare and set: Cell, or a version column
//	many writers of one thing       one writer: Spread makes the lock a matter of routing
//	one scheduler, one primary      Elect, with the token as the epoch
//	a periodic job, harmless twice  let the job run twice
//	a counter that all add to       a number for each writer, added up by the reader
//	all writers share a database    the database's locks and transactions
//
// Decide between two goals: efficiency, so that work is rarely done twice, and
// correctness, so that work is never done twice. For correctness the protected
// resource must compare tokens, before the first read too. If the resource
// cannot do that, give it an idempotency key.
//
// # Choosing a TTL
//
// The TTL is how long a dead holder's keys stay taken. The TTL should be well
// above the longest pause of your processes (garbage collection, a starved host:
// take the worst of a thousand) and below the time in which you must recover:
//
//	below 1 s    locks are lost to ordinary pauses, and to a crash of the leader
//	1 to 3 s     quick recovery; a leader that falls silent may cost locks
//	3 to 10 s    quick recovery, and a lock lost to a long pause now and then
//	10 to 30 s   the usual balance; 10 s is the default
//	60 s and up  nothing is lost, and recovery takes a minute
//
// Every lock has a TTL. A session sends three beats in a TTL, so that two may be
// lost. Work that takes longer than a TTL is no reason for a longer TTL, since
// beats continue during the work. Such work should call Require before each side
// effect.
//
// # The four properties
//
//	mutual exclusion     yes, in committed order; and no two running holders trust
//	                     the same key at a time, as long as clocks run at one rate
//	deadlock freedom     yes: a wait that would close a cycle, as shown by contexts,
//	                     is refused; a failed holder's keys are free after its TTL
//	starvation freedom   yes: served in commit order
//	bounded wait         yes: no later request is granted before a waiter, except by
//	                     priority, delay or hand-over, and 16 of these at most
//
// In a partition the side without a majority of voters grants nothing, and its
// holders lose their locks: safety comes before liveness. A member cannot act for
// the sessions of another member; but voters keep the table, and are trusted to run
// this code.
//
// # Signals to watch
//
// Trace reports everything: waits (Acquired.Took), holds (Released.Took,
// Lost.Took), failed requests and beats, losses by reason, and failed cleanups. The
// guard reports the tokens that it refused, by Refused. In profiles, the goroutines of
// works have labels. docs/hooks.md has all of these, with their costs. Two signals deserve an alarm: refusals that
// rise, since each is a holder that wrote too late; and holds that come near the
// TTL where work should be short.
//
// # Limits of every lock
//
//   - A process may be paused between a call of Err and its next action. When
//     the process runs again, another may hold the lock. Only the protected
//     resource can refuse that action, by comparing tokens: see package fence.
//   - A guest that is stopped by its hypervisor may see no clock move. The guest
//     then trusts its locks for too long, by the time for which it was stopped.
//   - Ending a context takes time if hundreds of thousands of contexts descend
//     from it, and the margin has room for some hundred milliseconds. Err is
//     right meanwhile.
//   - A client holds and waits for at most 50,000 keys, and 32 MiB of keys and metas:
//     further requests fail with ErrTooManyKeys. Each key takes memory at every voter. A
//     process with more keys makes several clients.
//   - Work that ignores the end of its context goes on, without the lock. Do,
//     Elect and Spread wait for such work; if the session still lives, the key
//     stays taken until the work returns.
//   - A crashed holder's key is free after the TTL, unless the next process of the
//     member frees the key: with the same Dir, on the same host and kernel boot. If
//     the leader crashed at the same time, the key is free a TTL after the next
//     leader's election.
//   - A cluster can be lost with the majority of its voters, and be succeeded (see
//     package cluster). All locks of the lost cluster end then, for the reason
//     ClusterReplaced, before the successor grants. If the word behind the
//     successor was false, two clusters may grant a key.
//
// # How to test
//
// Package lockstest gives a test a whole cluster in memory, inside or outside a
// testing/synctest bubble. The test can kill, freeze and isolate the members, make their
// disks hang and their clocks run fast, and wait for the next holder of a key.
package locks
