package raftstore

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// countFSM is a state machine that counts its entries.
type countFSM struct{ applied atomic.Uint64 }

func (f *countFSM) Apply(*raft.Log) any { return f.applied.Add(1) }

func (f *countFSM) Snapshot() (raft.FSMSnapshot, error) {
	return countSnapshot(f.applied.Load()), nil
}

func (f *countFSM) Restore(r io.ReadCloser) error {
	var n uint64
	_, err := fmt.Fscan(r, &n)
	f.applied.Store(n)
	return err
}

type countSnapshot uint64

func (s countSnapshot) Release() {}

func (s countSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := fmt.Fprintln(sink, uint64(s)); err != nil {
		return err
	}
	return sink.Close()
}

func raftConfig() *raft.Config {
	config := raft.DefaultConfig()
	config.LocalID = "n1#1"
	config.HeartbeatTimeout, config.ElectionTimeout, config.LeaderLeaseTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	config.CommitTimeout = 5 * time.Millisecond
	config.TrailingLogs = 10
	config.NoLegacyTelemetry = true
	config.LogOutput = io.Discard
	return config
}

// runRaft starts a single voter, waits until this voter leads, and applies n
// commands.
func runRaft(t *testing.T, s *Store, snapshots raft.SnapshotStore, bootstrap bool, n int) (*raft.Raft, *countFSM) {
	t.Helper()
	address, transport := raft.NewInmemTransport("n1#1")
	t.Cleanup(func() { transport.Close() })
	config, fsm := raftConfig(), &countFSM{}
	if bootstrap {
		must(t, raft.BootstrapCluster(config, s, s, snapshots, transport, raft.Configuration{
			Servers: []raft.Server{{ID: "n1#1", Address: address}},
		}))
	}
	r, err := raft.NewRaft(config, fsm, s, s, snapshots, transport)
	must(t, err)
	t.Cleanup(func() { r.Shutdown().Error() })
	if !<-r.LeaderCh() {
		t.Fatal("not elected")
	}
	for range n {
		must(t, r.Apply([]byte("one"), time.Minute).Error())
	}
	must(t, r.Barrier(time.Minute).Error())
	return r, fsm
}

func TestRaftRunsAndRestartsOnAStore(t *testing.T) {
	t.Parallel() // waits for the disk
	run := func(t *testing.T, s *Store, snapshots raft.SnapshotStore, reopen func() (*Store, raft.SnapshotStore)) {
		r, fsm := runRaft(t, s, snapshots, true, 60)
		if n := fsm.applied.Load(); n != 60 {
			t.Errorf("applied %d", n)
		}
		must(t, r.Snapshot().Error())
		if first, err := s.FirstIndex(); first < 50 || err != nil {
			t.Errorf("not compacted: first index %d, %v", first, err)
		}
		must(t, r.Apply([]byte("one"), time.Minute).Error())
		term := r.CurrentTerm()
		if vote := readVote(t, s); vote != fmt.Sprintf("%d n1#1", term) {
			t.Errorf("vote %q in term %d", vote, term)
		}
		must(t, r.Shutdown().Error())
		must(t, s.Failed())

		s, snapshots = reopen()
		r, fsm = runRaft(t, s, snapshots, false, 5)
		if n := fsm.applied.Load(); n != 66 {
			t.Errorf("applied %d after a restart", n)
		}
		if r.CurrentTerm() <= term {
			t.Errorf("term %d, and %d after a restart", term, r.CurrentTerm())
		}
		must(t, r.Shutdown().Error())
		must(t, s.Close())
	}
	t.Run("memory", func(t *testing.T) {
		s, snapshots := NewInMemory(), NewMemorySnapshots()
		run(t, s, snapshots, func() (*Store, raft.SnapshotStore) { return s, snapshots })
	})
	for name, o := range durable {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			open := func() (*Store, raft.SnapshotStore) {
				s := openWith(t, dir, o)
				snapshots, err := OpenSnapshots(dir, nil)
				must(t, err)
				return s, snapshots
			}
			s, snapshots := open()
			run(t, s, snapshots, func() (*Store, raft.SnapshotStore) {
				must(t, s.Close())
				return open()
			})
		})
	}
}

// A disk that fails under a leader ends the leadership. Raft goes on trying, but
// neither panics nor leads again.
func TestAFailedStoreEndsLeadershipWithoutPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &faultyEngine{Engine: NewMemoryEngine()}
		s := newStore(t, engine, 8, 1<<20)
		r, _ := runRaft(t, s, NewMemorySnapshots(), true, 3)
		engine.fail.Store(true)
		if err := r.Apply([]byte("one"), time.Minute).Error(); !errors.Is(err, errDisk) {
			t.Errorf("applied: %v", err)
		}
		engine.fail.Store(false)
		time.Sleep(time.Minute)
		if r.State() == raft.Leader {
			t.Error("leads with a failed store")
		}
		if err := s.Failed(); !errors.Is(err, errDisk) {
			t.Errorf("Failed says %v", err)
		}
		must(t, r.Shutdown().Error())
		time.Sleep(time.Minute)
	})
}
