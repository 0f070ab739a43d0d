package consensus

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/host"
)

// FSM is the state that the log builds, the same on every voter. *term.Table
// implements FSM. Raft calls Apply, Configured, Snapshot and Restore from a single
// goroutine, in log order. Bound, Parted, and the function that Snapshot returned,
// are called from other goroutines too.
type FSM interface {
	// Apply applies a committed entry. at is the time at which the leader put
	// the entry in its log, by the leader's wall clock. On the leader, data is
	// the very slice that was passed to Commit.
	Apply(data []byte, at time.Time) any

	// Configured tells that a raft configuration was committed at index.
	Configured(index uint64)

	// Snapshot returns a function that writes the state of this moment. Snapshot
	// blocks Apply, the function does not.
	Snapshot() func(w io.Writer) error

	// Restore replaces the state by a snapshot, or fails and leaves the state
	// unchanged.
	Restore(r io.Reader) error

	// Check returns why Restore would refuse a snapshot, or nil. It does not touch
	// the state, and is called from other goroutines.
	Check(r io.Reader) error

	// Bound returns the bound of TTLs in this state, or 0 before the founding.
	Bound() time.Duration

	// Parted returns why this state may differ from the other voters' state from
	// now on, or nil.
	Parted() error
}

// fsm puts an FSM behind raft's interface, and keeps the two committed facts that
// elections depend on: the configuration and the bound of TTLs.
type fsm struct {
	table     FSM
	snapshots raft.SnapshotStore
	disk      *host.Disk // tells a test of the entries
	news      func()     // the bound has changed; must not block

	committed atomic.Pointer[placed] // nil: not known yet
	bound     atomic.Int64           // nanoseconds; 0: not founded
	applied   atomic.Uint64          // index of the newest entry in the table; 0 after a snapshot
}

// placed is a configuration and its index in the log.
type placed struct {
	raft.Configuration
	index uint64
}

var _ raft.BatchingFSM = (*fsm)(nil)

// newFSM returns an fsm that knows the configuration of the newest snapshot.
func newFSM(table FSM, snapshots raft.SnapshotStore, disk *host.Disk, news func()) *fsm {
	f := &fsm{table: table, snapshots: snapshots, disk: disk, news: news}
	f.fromSnapshot()
	return f
}

// fromSnapshot takes the configuration of the newest snapshot, which raft does
// not show to an FSM.
func (f *fsm) fromSnapshot() {
	if list, err := f.snapshots.List(); err == nil && len(list) > 0 {
		f.committed.Store(&placed{list[0].Configuration, list[0].ConfigurationIndex})
	}
}

// configuration returns the last committed configuration and its index in the log;
// zero if none is known.
func (f *fsm) configuration() (raft.Configuration, uint64) {
	if c := f.committed.Load(); c != nil {
		return c.Configuration, c.index
	}
	return raft.Configuration{}, 0
}

// note takes the bound of the table.
func (f *fsm) note() {
	if bound := int64(f.table.Bound()); f.bound.Swap(bound) != bound {
		f.news()
	}
}

// Apply implements raft.FSM.
func (f *fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. Not raft.FSM alone: only a BatchingFSM
// receives configuration entries, and raft could take no snapshot right behind a
// configuration entry.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	for i, l := range logs {
		switch l.Type {
		case raft.LogCommand:
			f.disk.Apply(l.Index, l.Data, l.AppendedAt)
			out[i] = f.table.Apply(l.Data, l.AppendedAt)
		case raft.LogConfiguration:
			f.committed.Store(&placed{raft.DecodeConfiguration(l.Data), l.Index})
			f.table.Configured(l.Index)
		}
	}
	f.applied.Store(logs[len(logs)-1].Index)
	f.note()
	return out
}

// Snapshot fails if the FSM has parted: no later start may begin with such a
// state.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if err := f.table.Parted(); err != nil {
		return nil, err
	}
	return image{f.table.Snapshot()}, nil
}

// Restore implements raft.FSM.
func (f *fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	if err := f.table.Restore(r); err != nil {
		return err
	}
	f.fromSnapshot()
	f.note()
	return nil
}

// image is the state of an FSM at the moment of a snapshot.
type image struct{ write func(io.Writer) error }

// Persist implements raft.FSMSnapshot.
func (i image) Persist(sink raft.SnapshotSink) error {
	if err := i.write(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (image) Release() {}
