package cluster

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/consensus"
	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/internal/timing"
)

// A sickDisk is a member's store. A test can make its writes hang or fail.
type sickDisk struct {
	raftstore.Engine
	mu   sync.Mutex
	hang chan struct{} // writes wait until hang is closed; nil: no write waits
	err  error         // the result of writes
}

func (d *sickDisk) set(hang chan struct{}, err error) {
	d.mu.Lock()
	d.hang, d.err = hang, err
	d.mu.Unlock()
}

func (d *sickDisk) write(f func() error) error {
	d.mu.Lock()
	hang, err := d.hang, d.err
	d.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if err != nil {
		return err
	}
	return f()
}

func (d *sickDisk) StoreLogs(logs []*raft.Log) error {
	return d.write(func() error { return d.Engine.StoreLogs(logs) })
}

func (d *sickDisk) Set(key, value []byte) error {
	return d.write(func() error { return d.Engine.Set(key, value) })
}

// onSickDisks forms three members on sickDisks. At first every disk is well.
func onSickDisks(t *testing.T, f func(b *bubble, disks map[string]*sickDisk)) {
	inBubble(t, func(b *bubble) {
		disks := make(map[string]*sickDisk)
		b.form(func(c *Config) {
			disks[c.Name] = &sickDisk{Engine: raftstore.NewMemoryEngine()}
			c.engine = disks[c.Name]
		})
		f(b, disks)
	})
}

func TestALeaderWithAHungDiskStepsAside(t *testing.T) {
	onSickDisks(t, func(b *bubble, disks map[string]*sickDisk) {
		sick, other := b.leader(), b.followers()[0]
		b.hold(other, 1, "k")
		stop := b.beat(other, 1)
		hang := make(chan struct{})
		disks[sick.Name()].set(hang, nil)
		began := time.Now()
		// The disk hangs on the entry of this session. The session must open all
		// the same.
		b.hold(other, 2, "other")
		if took := time.Since(began); took > timing.StoreStalled+5*time.Second {
			t.Errorf("commits went on after %v", took)
		}
		if err := stop(); err != nil {
			t.Errorf("a lock was lost: %v", err)
		}
		time.Sleep(timing.StoreHung + 5*time.Second)
		if !b.wasTold(sick.Name() + ": node failed: raft store: cluster: the disk does not answer") {
			t.Error("nobody was told of the disk")
		}
		b.ready(sick) // thin, but able to lock
		close(hang)
		time.Sleep(5 * time.Second)
	})
}

func TestAVoterWithAFailedDiskVotesNoMore(t *testing.T) {
	onSickDisks(t, func(b *bubble, disks map[string]*sickDisk) {
		n := b.followers()[0]
		disks[n.Name()].set(nil, errors.New("input/output error"))
		b.hold(b.leader(), 1, "k")
		time.Sleep(5 * time.Second)
		if n.seat.Current() != nil || !b.wasTold(n.Name()+": node failed: raft store") {
			t.Errorf("%s still votes", n.Name())
		}
		b.hold(n, 2, "other") // as a thin member
	})
}

// The entry in flight never ends. The leader has doubted its term already, and
// raft is given up.
func TestStopIsBoundedOnAHungDisk(t *testing.T) {
	onSickDisks(t, func(b *bubble, disks map[string]*sickDisk) {
		n := b.leader()
		hang := make(chan struct{})
		disks[n.Name()].set(hang, nil)
		n.link.Claim(key(1))
		go n.link.Propose(b.within(time.Second), opening(n, 1))
		time.Sleep(timing.StoreStalled + 2*time.Second)
		delete(b.nodes, n.Name())
		began := time.Now()
		if err := n.Stop(); !errors.Is(err, consensus.ErrDiskStalled) {
			t.Errorf("Stop: %v", err)
		}
		if took := time.Since(began); took > timing.StopWithoutDisk+2*time.Second {
			t.Errorf("Stop took %v", took)
		}
		close(hang)
		time.Sleep(10 * time.Second)
	})
}

// A disk that hangs while the member stores its record keeps no Stop: the member's locks
// have ended, and its process must end too.
func TestStopIsBoundedWhileTheRecordHangs(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		b.form(inDir(dir))
		n := b.followers()[0]
		disk := new(host.Disk)
		synctest.Wait()
		n.record.Over(disk)
		disk.Hang()
		n.tasks.Go(func() { _ = n.record.RememberPeers([]string{"127.0.0.1:1"}) })
		synctest.Wait()
		delete(b.nodes, n.Name())
		began := time.Now()
		if err := n.Stop(); err == nil || !strings.Contains(err.Error(), "the disk does not answer") {
			t.Errorf("Stop: %v", err)
		}
		if took := time.Since(began); took > timing.StoreStalled+2*time.Second {
			t.Errorf("Stop took %v", took)
		}
		disk.Heal()
		synctest.Wait()
	})
}
