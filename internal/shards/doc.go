// Package shards plans which caller of a group each shard is assigned to. The plan is
// a pure function: the leader computes the plan, and the lock table decides whether the
// plan still applies. A plan cannot break exclusion, since an assignment is an intent:
// the lock of the shard's key has one holder, whatever is planned.
//
// The package knows no session, no clock and no log. The package decides:
//
//   - the quota of each caller: the shards by weight, rounded so that few move;
//   - the moves to these quotas, and their order when only some may begin now.
//
// # Rules
//
// Quotas. A caller's exact share is shards × weight / sum of weights. The quota is the
// share rounded down or up; a whole share is not rounded. Shares are rounded up for
// callers that hold more than the lower number already, then for the largest remainders,
// then for the earliest callers. So with equal weights the quotas differ by one at most,
// and no other choice of quotas needs fewer moves.
//
// Stickiness. A caller keeps the shards that it holds, up to its quota. A shard on its
// way keeps its way if the quota of its next caller allows. All other shards are dealt
// to the callers below their quotas, one to each in turn. A plan computed again in the
// middle of the moves therefore goes on with the same moves.
//
// Order. An orphan, a shard assigned to nobody, is assigned at once. A shard of a caller
// that shall own nothing comes next, and then the shards that only restore the balance.
// Both cost a gap in a shard's service, so Options.MaxMoves bounds the moves of both
// kinds that are under way.
//
// Absence. An absent caller keeps its shards and its share, and the quotas of the others
// are the quotas beside this share. So in a rolling restart, caller after caller absent
// and back, no quota changes and nothing moves, while a new caller gets its shards.
//
// No rule reads the shards' numbers or the callers' names, as rendezvous hashing and
// hash rings do. These need no memory, but divide less evenly or move more. The table
// remembers the owners, and only because the plan starts from the owners the moves are
// as few as possible.
package shards
