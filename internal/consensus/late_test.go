package consensus

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"
)

// Entries that the network delivers late, after a snapshot that covers them, are not
// appended behind the end of a log that ends below the snapshot. One of them may be a
// configuration of the past: the voter would vote by it, alone perhaps.
func TestLateEntriesStayBelowASnapshot(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		b.agree("a")
		leader, c := b.leader(), b.followers()[0]
		r, h := leader.raft(), hostile{b, leader.name}
		now := r.raft.GetConfiguration().Configuration()
		var image bytes.Buffer
		if err := r.Table().Snapshot()(&image); err != nil {
			t.Fatal(err)
		}
		term, end, endTerm := r.Term()+100, r.LastIndex(), r.Term()
		alone := raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{
			{ID: raft.ServerID(c.raft().ID()), Address: raft.ServerAddress(c.raft().ID())}}})
		late := h.frame(&raft.AppendEntriesRequest{RPCHeader: headerOf(r.ID()), Term: term, PrevLogEntry: end, PrevLogTerm: endTerm,
			Entries: []*raft.Log{{Index: end + 1, Term: term, Type: raft.LogConfiguration, Data: alone}}})
		snapshot := h.frame(&raft.InstallSnapshotRequest{RPCHeader: headerOf(r.ID()), SnapshotVersion: 1, Term: term,
			LastLogIndex: end + 50, LastLogTerm: term, ConfigurationIndex: 1, Size: int64(image.Len()), Configuration: raft.EncodeConfiguration(now)})
		for _, name := range []string{"n1", "n2", "n3"} {
			if name != c.name {
				if err := b.stop(name); err != nil {
					t.Fatal(err)
				}
			}
		}
		var installed raft.InstallSnapshotResponse
		if err := h.send(c, append(snapshot, image.Bytes()...), &installed); err != nil || !installed.Success {
			t.Fatalf("the snapshot: %+v, %v", installed, err)
		}
		var a raft.AppendEntriesResponse
		if err := h.send(c, late, &a); err == nil {
			t.Errorf("late entries: %+v", a)
		}
		if got := c.raft().raft.GetConfiguration().Configuration(); len(got.Servers) != len(now.Servers) {
			t.Errorf("the configuration is %v", got)
		}
	})
}
