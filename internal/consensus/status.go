package consensus

import (
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/timing"
)

// Status is the state of a Raft at a moment, for people to read. The fields are read one
// after the other.
type Status struct {
	State    string // "leader", "follower", "candidate" or "shutdown"
	Term     uint64
	Leader   string // the raft ID that is followed, or ""
	Last     uint64 // index of the newest entry in the log
	Commit   uint64 // index of the newest entry known to be committed
	Applied  uint64 // index of the newest entry in the FSM
	Snapshot uint64 // index of the newest snapshot

	// Contact is when a follower last heard a leader; zero on the leader, and if there was
	// none yet.
	Contact time.Time

	Writes  timing.Quantiles // how long the store's latest writes took
	Commits timing.Quantiles // how long the latest commits took, while this node led
	Stalled time.Duration    // of the running write of the store
	Failed  error            // of the store
}

// Status asks nobody, and waits for no disk.
func (r *Raft) Status() Status {
	state := r.raft.State()
	st := Status{
		State:    strings.ToLower(state.String()),
		Term:     r.raft.CurrentTerm(),
		Leader:   r.LeaderID(),
		Snapshot: r.snapshotIndex(),
		Applied:  r.Applied(),
		Commit:   r.raft.CommitIndex(),
		Last:     r.raft.LastIndex(),
		Writes:   r.store.Writes(),
		Commits:  r.commits.Quantiles(),
		Stalled:  r.store.StalledFor(),
		Failed:   r.store.Failed(),
	}
	if state != raft.Leader {
		st.Contact = r.raft.LastContact()
	}
	return st
}

// Applied returns the index of the newest entry in the FSM, of which more may be in the
// FSM by now. Raft's own index is of entries on the way to the FSM.
func (r *Raft) Applied() uint64 { return max(r.fsm.applied.Load(), r.snapshotIndex()) }

// Current returns when the FSM was last current, but for the entries of the last moments:
// on the leader now, and elsewhere when the leader was last heard.
func (r *Raft) Current() time.Time {
	if r.raft.State() == raft.Leader {
		return time.Now()
	}
	return r.raft.LastContact()
}

// snapshotIndex returns the index of the newest snapshot, whose entries are in the FSM.
// Raft tells it only as text.
func (r *Raft) snapshotIndex() uint64 {
	index, _ := strconv.ParseUint(r.raft.Stats()["last_snapshot_index"], 10, 64)
	return index
}
