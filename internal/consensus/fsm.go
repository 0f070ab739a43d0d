package consensus

import (
	"errors"
	"io"
	"time"

	"github.com/hashicorp/raft"
)

// FSM is the state that the log builds, the same on every voter. *term.Table
// implements FSM. Raft calls Apply, Configured, Snapshot and Restore from a single
// goroutine, in log order. Parted, and the function that Snapshot returned, are
// called from other goroutines.
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

	// Parted returns why this state may differ from the other voters' state from
	// now on, or nil.
	Parted() error
}

// fsm puts an FSM behind raft's interface.
type fsm struct{ table FSM }

var _ raft.BatchingFSM = fsm{}

// Apply implements raft.FSM.
func (f fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. Not raft.FSM alone: only a BatchingFSM
// receives configuration entries, and raft could take no snapshot right behind a
// configuration entry.
func (f fsm) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	for i, l := range logs {
		switch l.Type {
		case raft.LogCommand:
			out[i] = f.table.Apply(l.Data, l.AppendedAt)
		case raft.LogConfiguration:
			f.table.Configured(l.Index)
		}
	}
	return out
}

// Snapshot fails if the FSM has parted: no later start may begin with such a
// state.
func (f fsm) Snapshot() (raft.FSMSnapshot, error) {
	if err := f.table.Parted(); err != nil {
		return nil, err
	}
	return image{f.table.Snapshot()}, nil
}

// Restore implements raft.FSM.
func (f fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	return f.table.Restore(r)
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
