// Package model holds executable models of the protocols that keep two holders from one
// key. The tests look at every state within the bounds of the models, take each rule out
// alone, and print the shortest way to a broken promise:
//
//	go test -v ./internal/model
//	WARDMOTE_FULL=1 go test -v -timeout 60m ./internal/model
//
// The first takes seconds; the second has wider bounds and takes some minutes. The counts of
// states and all shortest traces are in testdata, and -rewrite writes them anew: read the
// difference as a change of the protocol. The package has no code besides the tests.
// internal/survival has the models of founding, repair and succession.
//
// # Sessions
//
// sessions_test.go has the state, and beside each rule the file and function for which the
// rule stands. Modelled are beats, rounds, elections, the start of a leader with the fates of
// its predecessor's entries, marks of silence, expiry, doubt, trust, and requests, grants
// and Releases of keys.
//
// Every message is delivered at any later time, or never, to any leader that serves; a beat
// also to several leaders. A process that takes no step is paused, with its clock going on.
// An answer of a voter may be used long after it was given. Leaders that were replaced go on
// until their own voter has heard. An entry in flight is committed by its leader, or by the
// next leader before its first entry, or never; the leader hears of it late or never.
//
// Clocks are countdowns: the trust left, the time to each deadline, and for each beat the
// trust that a confirmation would still give. So time needs no bound, and the number of states
// is finite. A clock advances by 4 or 5 units in a tick: clients by 4 and leaders by 5, the
// worst case, since a slower leader and a faster client can only do less; the full run also
// lets every clock choose in every tick.
//
// Why so small a world is enough:
//
//   - One client has a clock. Every promise is about two parties, and the other party takes
//     and gives back a key at any moment, which is all that a second client could do; the full
//     run has a second client with a clock.
//   - Two leaders in the plain run, three in the full run. Every rule is about a leader and
//     the next; the third brings back the voter of the first.
//   - One beat under way in the plain run, two in the full run. Confirmations only add to the
//     trust, so the beat with the most trust decides.
//   - A TTL of two ticks, in the full run also of three. No rule mentions a number of ticks:
//     the rules compare sums of TTLs and margins, and a tick is smaller than each of them.
//
// Not modelled: raft itself (an election takes a majority of three voters, and the winner has
// all committed entries), changes of the voters (internal/survival), queues, deadlocks and
// modes of locks (internal/machine tests them against a witness), delays, orders to end a
// session, and a leader's kindness after its own pause, which only puts deadlines off.
//
// # Sticky keys
//
// sticky_test.go models a client with a block of tokens, local locks, the recall and its loss
// with a connection, a recall that overtakes the answer to the request, the way back of a
// grant, and the end of trust, noticed or not. Checked are: two contexts of one key, tokens of
// the key in the order of its locks, locks of a key that is another's, and recalls that nobody
// will hear of again. The other party is a request that waits. The only bound is the number of
// tokens: the plain run has room for several blocks one after another.
//
// # Shards
//
// shards_test.go models callers of Spread that enlist, are assigned shards, hear of their parts
// late, wait for keys, work, hand over, leave and crash, while the number of shards changes,
// by an operator or because a group without callers begins anew. One shard becomes two or two
// become one, so works under different numbers always overlap. Checked is: no shard has two
// owners, and no two works run under different numbers. Nothing is counted, so the exploration
// is complete for two callers; the full run has three. Not modelled: which caller gets a shard,
// Grace, Succeeds and MaxMoves, which decide about moves and not about owners.
//
// # Founding and succession
//
// internal/survival explores them, with crashes with and without a Dir, lost and late messages
// and every rule taken out; the models of this package take a single cluster for granted.
//
// # What the models found
//
//   - A leader confirmed beats of a session after it had proposed to mark the session and
//     could not learn the fate of the mark: keeper.unknown.
//   - A caller of Spread could begin to work after it had left its group, under a number of
//     shards that was not the group's any more: shardRun.begin.
//   - Some rules stand in for one another: see TestRulesThatStandInForAnother.
//
// # Runs of the real thing
//
// conformance_test.go drives the real machine and the real term of internal/term on a log in
// memory, with elections, leaders that go on after an election, entries lost, unheard and
// refused, and late rounds. Everything visible from outside is written down: beats sent,
// received and confirmed, entries committed, terms begun, keys granted. The model must have
// the same run: the test follows all states in which the model may be, and takes unseen steps
// in between. A doctored run is refused.
package model
