package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/internal/wire"
)

// A leader without a Dir restarts three times in a row. Each time its new raft ID
// votes some seconds after memberlist gave up the earlier process: after 4 s, or
// 11.4 s if a single other member confirms the suspicion.
func TestARestartedMemberVotesAgain(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		for range 3 {
			old := b.leader()
			name, oldID := old.Name(), old.seat.Current().ID()
			b.crash(name)
			b.join(name)
			b.eventually(name+" votes, under another ID", 20*time.Second, func() bool {
				return b.servers() == 3 && slices.Contains(b.voters(), name) &&
					!slices.Contains(b.leader().seat.Current().Voters(), oldID)
			})
		}
	})
}

// All members of a durable cluster stop and start, each time at other ports. The
// cluster stays the same, keys are free once the sessions have expired, and
// tokens rise above all earlier tokens.
func TestAllMembersWithDirsRestart(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		var last machine.Token
		var cluster machine.ClusterID
		for round := range 4 {
			var nodes []*Node
			var addrs []string
			for i := range 3 {
				addrs = append(addrs, fmt.Sprintf("%s:%d", b.host(fmt.Sprint("n", i+1)), 7000+round))
			}
			for i := range 3 {
				nodes = append(nodes, b.start(fmt.Sprint("n", i+1), inDir(dir), joins(addrs...), func(c *Config) { c.Bind = addrs[i] }))
			}
			b.ready(nodes...)
			if round > 0 && nodes[0].founding.Cluster() != cluster {
				t.Fatal("another cluster was founded")
			}
			cluster = nodes[0].founding.Cluster()
			for i, n := range nodes {
				token, events := b.hold(n, byte(10*round+i+1), fmt.Sprint("k", i))
				if token == 0 { // the session of the run before has not expired yet
					token = b.next(events, 6*time.Second).Token
				}
				if token <= last {
					t.Fatalf("round %d: token %d after %d", round, token, last)
				}
				last = token
			}
			time.Sleep(200 * time.Millisecond) // followers learn of a commit with the next heartbeat
			for _, n := range nodes {
				if err := n.Stop(); err != nil {
					t.Fatal(err)
				}
				delete(b.nodes, n.Name())
				if token := n.record.Get().Token; token < uint64(last) {
					t.Errorf("%s remembers token %d for a founding anew, after %d", n.Name(), token, last)
				}
			}
		}
	})
}

// Members lose identity, and keep the raft store. The members join the cluster
// anew, or found another cluster if all have lost their identity.
func TestALostIdentityJoinsAnew(t *testing.T) {
	t.Parallel() // waits for the disk
	names := []string{"n1", "n2", "n3"}
	for _, lost := range [][]string{names[:1], names} {
		dir := t.TempDir()
		inBubble(t, func(b *bubble) {
			b.form(inDir(dir))
			time.Sleep(5 * time.Second)
			for _, name := range names {
				b.crash(name)
			}
			for _, name := range lost {
				if err := os.Remove(filepath.Join(dir, name, "identity")); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			b.form(inDir(dir))
		})
	}
}

// The process died while writing the first entries of a founding.
func TestAFoundingCutShortIsFinished(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		own := filepath.Join(dir, "n1")
		record, err := identity.Open(own, "n1", "test", true)
		if err != nil {
			t.Fatal(err)
		}
		record.Update(func(r *identity.Record) {
			r.Generation = 7
			r.Founding = &wire.Founding{Cluster: machine.ClusterID{1}, Voters: []string{"n1#7"}, Floor: 1, TTL: 1000}
		})
		record.Close()
		os.Mkdir(filepath.Join(own, "raft"), 0o700)
		store, err := raftstore.OpenDurable(filepath.Join(own, "raft"), raftstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		store.SetUint64([]byte("CurrentTerm"), 1)
		store.Close()
		n := b.join("n1", alone, inDir(dir))
		if n.founding.Cluster() != (machine.ClusterID{1}) {
			t.Errorf("in cluster %v", n.founding.Cluster())
		}
	})
}

// A raft begins anew under a running member: on the same store, or in memory as a
// new generation. No lock is lost meanwhile.
func TestRaftIsRestartedAndNoLockIsLost(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	for _, durable := range []bool{false, true} {
		inBubble(t, func(b *bubble) {
			if durable {
				b.form(inDir(dir))
			} else {
				b.form()
			}
			n := b.leader()
			old := n.seat.Current()
			b.hold(n, 1, "k")
			stop := b.beat(n, 1)
			n.seat.Restart(old)
			b.eventually("another raft runs and all vote", 20*time.Second, func() bool {
				now := n.seat.Current()
				return now != nil && now != old && durable == (now.ID() == old.ID()) && len(b.voters()) == 3
			})
			time.Sleep(5 * time.Second)
			if err := stop(); err != nil {
				t.Errorf("a lock was lost: %v", err)
			}
		})
	}
}
