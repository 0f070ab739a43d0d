package consensus

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/refused"
)

// The replication of a deposed leader may read the next leader's entries from the log.
// Nothing of it is sent, so no voter warns of a sender that is honest.
func TestADeposedLeaderSendsNoEntriesOfALaterTerm(t *testing.T) {
	dir := t.TempDir()
	onBench(t, func(b *bench) {
		notes := refused.New(discard)
		b.found(inDirs(dir), func(c *Config) { c.Self.Refused = notes })
		b.commit("a")
		r := b.leader().seat.Current()
		term := r.Term()
		to := raft.ServerID(b.followers()[0].seat.Current().id)
		for _, m := range []*raft.AppendEntriesRequest{
			{Term: term, PrevLogEntry: 1, PrevLogTerm: term, Entries: []*raft.Log{{Index: 2, Term: term + 1, Type: raft.LogNoop}}},
			{Term: term, PrevLogEntry: 1, PrevLogTerm: term + 1},
		} {
			var answer raft.AppendEntriesResponse
			if err := r.trans.AppendEntries(to, raft.ServerAddress(to), m, &answer); !errors.Is(err, errLaterTerm) {
				t.Errorf("AppendEntries returned %v", err)
			}
		}
		var answer raft.InstallSnapshotResponse
		snapshot := &raft.InstallSnapshotRequest{Term: term, LastLogIndex: 2, LastLogTerm: term + 1}
		if err := r.trans.InstallSnapshot(to, raft.ServerAddress(to), snapshot, &answer, nil); !errors.Is(err, errLaterTerm) {
			t.Errorf("InstallSnapshot returned %v", err)
		}
		if c := notes.Counts()[refused.Raft]; c != 0 {
			t.Errorf("%d messages were refused by voters", c)
		}
	})
}
