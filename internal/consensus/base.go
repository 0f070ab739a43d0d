package consensus

import (
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/raftstore"
)

// base is the last entry of the snapshot from which this raft has started, or which
// this raft has installed last. The log need not have the entry: a snapshot may end
// behind the log, and an earlier leader may have left another entry in its place.
type base struct {
	store *raftstore.Store
	last  atomic.Pointer[raft.Log] // with index and term alone; nil: no snapshot
}

func (b *base) get() (index, term uint64) {
	if l := b.last.Load(); l != nil {
		return l.Index, l.Term
	}
	return 0, 0
}

// start takes the newest snapshot, if raft has started from it: the entries up to
// applied are in the table.
func (b *base) start(snapshots raft.SnapshotStore, applied uint64) {
	if list, err := snapshots.List(); err == nil && len(list) > 0 && list[0].Index <= applied {
		b.set(list[0].Index, list[0].Term)
	}
}

// set takes a snapshot that raft has installed.
//
// If the log does not have the snapshot's last entry, the entries in front of it go.
// An earlier leader may have left them, never committed, and raft keeps them: this
// voter would send them, as leader, to a voter that lacks entries. Raft itself reads
// no entry that a snapshot covers but to send it, and knows the loss from the
// compaction of a log. The entries behind stay, since they may be acknowledged.
//
// If the deletion fails, the store has failed, and the Seat retires this raft.
func (b *base) set(index, term uint64) {
	var mine raft.Log
	if err := b.store.GetLog(index, &mine); err != nil || mine.Term != term {
		_ = b.store.DeleteRange(1, index)
	}
	b.last.Store(&raft.Log{Index: index, Term: term})
}
