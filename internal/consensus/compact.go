package consensus

import (
	"context"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/wakeup"
)

// Raft counts entries, and one entry has up to 1,024 requests: a log of a few entries could
// fill the memory, and take long to apply after a restart. So compact counts bytes, beside
// raft. The log has at most trailingBytes in front of a snapshot and leastLog to mostLog
// behind it, and what is written while a snapshot is taken.
const (
	trailingBytes = 16 << 20
	leastLog      = 4 << 20 // bytes of entries since a snapshot that make a new one due
	mostLog       = 16 << 20
	snapshotShare = 4 // a snapshot that is so many times larger than leastLog comes later
)

// compact has raft take a snapshot whenever enough bytes of entries were written, until ctx
// ends.
func (r *Raft) compact(ctx context.Context) {
	due := wakeup.NewOne()
	r.store.Ring(r.logBytes(), due.Wake)
	for {
		select {
		case <-ctx.Done():
			return
		case <-due:
		}
		r.trail()
		// The snapshot covers the log up to now. Should it fail, as it does while the voters
		// change, then the next one is due soon.
		next := int64(leastLog / 4)
		if err := r.raft.Snapshot().Error(); err == nil {
			next = r.logBytes()
		}
		r.store.Ring(next, due.Wake)
	}
}

// trail tells raft how many entries to keep in front of a snapshot.
func (r *Raft) trail() {
	entries := min(uint64(r.store.Newest(trailingBytes)), r.cfg.Disk.Entries(trailingEntries))
	r.reload(func(c *raft.ReloadableConfig) { c.TrailingLogs = entries })
}

// logBytes returns how many bytes of entries make a snapshot due: more behind a large one,
// since each snapshot is written whole.
func (r *Raft) logBytes() int64 {
	list, err := r.snapshots.List()
	if err != nil || len(list) == 0 {
		return leastLog
	}
	return min(max(leastLog, list[0].Size/snapshotShare), mostLog)
}
