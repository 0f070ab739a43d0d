// Package raftstore keeps everything that raft must not forget: the log, the
// current term, the last vote, and the snapshots.
//
// A [Store] is the log and the stable store of a single raft. [OpenDurable]
// keeps the log in segments, and terms and votes in a bolt file beside them, or
// everything in the bolt file; [NewInMemory] keeps a Store in memory, and [New] on
// any other [Engine], which tests use to play a bad disk. [OpenSnapshots] and
// [NewMemorySnapshots] keep the snapshots beside a Store.
//
// Guarantees:
//
//   - A write that returns nil is on the disk, if the Store is durable, and outlives
//     the process alone if the Store is unflushed.
//   - Bytes of an earlier process that no flush has confirmed are written again and flushed
//     before a Store counts them as stored.
//   - After a write has failed, every later write fails, and Failed tells why.
//   - A vote is stored whole, term and candidate together, or not at all.
//   - A log never has a gap that a compaction or a crash made.
//   - A damaged file is refused when it is opened: raft never reads a changed
//     entry, term or vote.
//   - A snapshot exists from the moment its sink is closed, and never before.
//
// A Store does not give up a write that hangs, because the write may still
// reach the disk. StalledFor shows the hang, and internal/consensus, the only
// caller of this package, then ends raft.
//
// The package does not know the meaning of an entry, and decides nothing about
// terms, votes or members. It owns no goroutine.
package raftstore
