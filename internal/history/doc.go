// Package history records what the callers of a cluster saw, as data, and judges whether
// a cluster that keeps its promises can have shown that.
//
// A [History] has the calls ([Op]), the grants as their holders saw them ([Hold]), the
// functions that ran ([Run]), the states that watches yielded ([Show]), the writes at a
// fenced resource ([Write]), the committed log as far as the recorder can read one ([Fact]),
// the faults ([Mark]) and the remains at the end ([Left]). A [Recorder] collects them, in memory or as lines of JSON, which [Read]
// reads back: lines of several processes may be joined in any order, as long as all stamps
// are of one clock. [Check] returns the [Violation] list, empty for a sound history.
//
// # Stamps
//
// Every time is in nanoseconds on one clock of the whole history, by which no fault of the
// test moves: the clock of a synctest bubble, or CLOCK_MONOTONIC of one host. A stamp of 0
// means "never", so the clock begins above 0.
//
// Stamps are taken on the side that can only weaken an accusation. Op.Call is taken before
// the call, Op.Return and Hold.From after the return, Hold.Valid before a call of Err that
// returned nil. Then a violation is real whatever the scheduler did: if Hold.Valid of one
// grant is later than Hold.From of the next one, the old holder was told "held" after the
// new holder was. No checker of exclusion has a tolerance.
//
// # Unknown outcomes
//
// A call without an answer took effect at any moment after Call, or never. Its Outcome is
// Unknown, and a Return of it bounds nothing. A session may expire once the holder's last
// Valid has passed. The models take both as steps that may happen; see model.go.
//
// # What is checked
//
//	exclusion    no two grants in conflict, by the holders' own eyes        overlap.go
//	model        some order of the calls explains all answers (Porcupine)   model.go, locking.go
//	cells        the same for values: no update is lost                     cells.go
//	tokens       rise by key, and by calls; none is given twice             tokens.go
//	order        no waiter is passed more often than it may be              order.go
//	sessions     nothing is granted to a session after its end              sessions.go
//	once         a function of Once ran once, and all callers agree         once.go
//	shards       a shard has one owner, and moves are few                   shards.go
//	resize       works of two numbers of shards never overlap               shards.go
//	waiters      MaxWaiters refuses, and admits, by the queue               waiters.go
//	watch        no watch goes back, or names a holder that is none         watches.go
//	fence        a write passes exactly when its token is high enough       fenced.go
//	loss         a context ends before the next grant, or soon after a stop loss.go
//	pause        who stood still too long is not told "held" again          loss.go
//	liveness     after the last fault each call returns in time, and in     liveness.go
//	             the calm each key is granted and each shard owned
//	clean        nothing is left at the end                                 liveness.go
//
// Each checker is tested on histories that are legal and on others that are not.
//
// # What is not known
//
// The package knows neither clusters nor processes; package locks is not imported, so that
// the same rules judge histories of any origin. Calls of unknown outcome excuse much: a
// history of nothing else passes. The recorder of a test must therefore count what it
// recorded, and fail a run with too few grants.
package history
