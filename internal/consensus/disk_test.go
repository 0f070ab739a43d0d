package consensus

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// A sickDisk is an engine with writes that a test can make hang or fail.
type sickDisk struct {
	raftstore.Engine
	mu   sync.Mutex
	hang chan struct{} // writes wait until hang is closed; nil: no write waits
	err  error         // the result of writes
	slow time.Duration // a write takes so long
}

func (d *sickDisk) set(hang chan struct{}, err error) {
	d.mu.Lock()
	d.hang, d.err = hang, err
	d.mu.Unlock()
}

func (d *sickDisk) write(f func() error) error {
	d.mu.Lock()
	hang, err, slow := d.hang, d.err, d.slow
	d.mu.Unlock()
	time.Sleep(slow)
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

// onSickDisks founds three members on disks that can be made sick.
func onSickDisks(t *testing.T, f func(b *bench, disks map[string]*sickDisk)) {
	onBench(t, func(b *bench) {
		disks := make(map[string]*sickDisk)
		b.found(func(c *Config) {
			disks[c.Self.Name] = &sickDisk{Engine: raftstore.NewMemoryEngine()}
			c.Engine = disks[c.Self.Name]
		})
		f(b, disks)
	})
}

func TestALeaderWithAHungDiskStepsAsideAndRetires(t *testing.T) {
	onSickDisks(t, func(b *bench, disks map[string]*sickDisk) {
		sick := b.leader()
		hang := make(chan struct{})
		disks[sick.name].set(hang, nil)
		lost := make(chan wire.Code, 1)
		r := sick.raft()
		go func() {
			_, code := r.Commit([]byte("on the hung disk"))
			lost <- code
		}()
		began := time.Now()
		b.eventually("another member leads", func() bool {
			for _, c := range b.all {
				if c != sick {
					if _, leads := c.raft().Leadership(); leads {
						return true
					}
				}
			}
			return false
		})
		if took := time.Since(began); took > timing.StoreStalled+5*time.Second {
			t.Errorf("another leader after %v", took)
		}
		if r.Stalled() < timing.StoreStalled {
			t.Errorf("the store shows a stall of %v", r.Stalled())
		}
		b.eventually("the member retires", func() bool { return sick.seat.Current() == nil })
		if meta, _, why := sick.looks(); !errors.Is(why, ErrDiskStalled) || meta.Generation != 0 || meta.Voter {
			t.Errorf("retired because of %v, advertises %+v", why, meta)
		}
		if took := time.Since(began); took < timing.StoreHung || took > timing.StoreHung+5*time.Second {
			t.Errorf("retired after %v", took)
		}
		if _, err := sick.seat.Invited(context.Background()); err == nil {
			t.Error("a retired member follows an invitation")
		}
		close(hang)
		if code := <-lost; code == wire.CodeOK {
			t.Error("the entry on the hung disk was acknowledged")
		}
		time.Sleep(10 * time.Second)
		if rec := sick.record.Get(); rec.Generation == 1 || rec.Stored {
			t.Errorf("the next start votes under the same ID: %+v", rec)
		}
		if meta, _, _ := sick.looks(); meta.Generation != 0 {
			t.Errorf("a retired member advertises %+v", meta)
		}
	})
}

func TestAVoterWhoseDiskFailsVotesNoMore(t *testing.T) {
	onSickDisks(t, func(b *bench, disks map[string]*sickDisk) {
		sick := b.followers()[0]
		r := sick.raft()
		disk := errors.New("input/output error")
		disks[sick.name].set(nil, disk)
		b.commit("a")
		b.eventually("its store has failed", func() bool { return r.store.Failed() != nil })
		if r.Vouches(r.ID(), r.Term()) {
			t.Error("a voter whose store has failed vouches for its term")
		}
		b.eventually("the member retires", func() bool { return sick.seat.Current() == nil })
		meta, failed, why := sick.looks()
		if !errors.Is(why, disk) || !strings.HasPrefix(why.Error(), "raft store: ") || failed != nil || meta.Generation != 0 || meta.Voter {
			t.Errorf("retired because of %v, failed with %v, advertises %+v", why, failed, meta)
		}
		b.commit("b")
	})
}

func TestStopIsBoundedOnAHungDisk(t *testing.T) {
	onSickDisks(t, func(b *bench, disks map[string]*sickDisk) {
		sick := b.leader()
		hang := make(chan struct{})
		disks[sick.name].set(hang, nil)
		go sick.raft().Commit([]byte("on the hung disk"))
		time.Sleep(2 * time.Second)
		began := time.Now()
		if err := b.stop(sick.name); !errors.Is(err, ErrDiskStalled) {
			t.Errorf("Stop: %v", err)
		}
		if took := time.Since(began); took > timing.StopWithoutDisk {
			t.Errorf("Stop took %v", took)
		}
		close(hang)
		time.Sleep(10 * time.Second)
	})
}

// A table that has parted from the other voters' tables is never saved, and the
// member votes no more.
func TestAPartedTableEndsTheVoting(t *testing.T) {
	for _, leads := range []bool{false, true} {
		onBench(t, func(b *bench) {
			b.found()
			c := b.leader()
			if !leads {
				c = b.followers()[0]
			}
			b.commit("a")
			b.agree("a")
			parted := errors.New("parted")
			r := c.raft()
			c.tape().mu.Lock()
			c.tape().parted = parted
			c.tape().mu.Unlock()
			if err := r.raft.Snapshot().Error(); err == nil || !strings.Contains(err.Error(), parted.Error()) {
				t.Errorf("snapshot: %v", err)
			}
			b.eventually("the member retires", func() bool { return c.seat.Current() == nil })
			if _, _, why := c.looks(); !errors.Is(why, parted) {
				t.Errorf("retired because of %v", why)
			}
			b.commit("b") // the others go on
		})
	}
}
