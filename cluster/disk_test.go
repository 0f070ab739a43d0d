package cluster

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// A sickDisk is a member's store whose writes hang, or fail, when told to.
type sickDisk struct {
	memoryEngine
	mu   sync.Mutex
	hang chan struct{} // writes wait for its end; nil: none does
	err  error         // what writes fail with
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

func (d *sickDisk) StoreLogs(logs []*raftLog) error {
	return d.write(func() error { return d.memoryEngine.StoreLogs(logs) })
}

func (d *sickDisk) Set(key, value []byte) error {
	return d.write(func() error { return d.memoryEngine.Set(key, value) })
}

// withDisks forms three members on disks that can be made sick.
func withDisks(t *testing.T, f func(b *bubble, disks map[string]*sickDisk)) {
	inBubble(t, func(b *bubble) {
		disks := make(map[string]*sickDisk)
		var nodes []*Node
		for _, name := range []string{"n1", "n2", "n3"} {
			disks[name] = &sickDisk{}
			nodes = append(nodes, b.start(name, func(c *Config) { c.engine = disks[name] }))
		}
		b.ready(nodes...)
		f(b, disks)
	})
}

func (b *bubble) told(what string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(strings.Join(b.events, "\n"), what)
}

func TestALeaderWithAHungDiskStepsAside(t *testing.T) {
	withDisks(t, func(b *bubble, disks map[string]*sickDisk) {
		sick := b.leader()
		var other *Node
		for _, n := range b.nodes {
			if n != sick {
				other = n
			}
		}
		b.holder(other, 1, "k")
		stop := b.beating(other, 1)
		hang := make(chan struct{})
		disks[sick.Name()].set(hang, nil)
		start := time.Now()
		// This command's entry is what the disk hangs on; it must get through.
		b.holder(other, 2, "other")
		took := time.Since(start)
		if took > stallLimit+5*time.Second {
			t.Errorf("commits went on after %v", took)
		}
		t.Logf("commits went on after %v", took)
		if err := stop(); err != nil {
			t.Errorf("a lock was lost: %v", err)
		}
		time.Sleep(hungAfter + 5*time.Second)
		if !b.told(sick.Name() + ": node failed") {
			t.Error("nobody was told of the disk")
		}
		b.ready(sick) // thin, but able to lock
		close(hang)
		time.Sleep(5 * time.Second)
	})
}

func TestAVoterWhoseDiskFailsVotesNoMore(t *testing.T) {
	withDisks(t, func(b *bubble, disks map[string]*sickDisk) {
		for _, n := range b.nodes {
			if n.leader.Load() != nil {
				continue
			}
			disks[n.Name()].set(nil, errors.New("input/output error"))
			b.holder(b.leader(), 1, "k")
			time.Sleep(5 * time.Second)
			if n.roles.current() != nil || !b.told(n.Name()+": node failed: raft store") {
				t.Errorf("%s goes on voting", n.Name())
			}
			b.holder(n, 2, "other") // as a thin member
			return
		}
	})
}
