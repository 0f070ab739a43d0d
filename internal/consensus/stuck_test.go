package consensus

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// A Raft that is stuck is begun anew: on its store, or in memory as a new
// generation. The other voters go on meanwhile.
func TestAStuckRaftIsRestarted(t *testing.T) {
	dir := t.TempDir()
	for _, durable := range []bool{false, true} {
		onBench(t, func(b *bench) {
			if durable {
				b.found(inDirs(dir))
			} else {
				b.found()
			}
			c := b.leader()
			b.commit("a")
			old := c.raft()
			old.refusedSince.Store(new(time.Now()))
			if old.Stuck() {
				t.Error("a transfer that has just begun counts as stuck")
			}
			time.Sleep(timing.TransferStuck + time.Second)
			if !old.Stuck() {
				t.Error("a transfer that does not end does not count as stuck")
			}
			c.seat.Restart(old)
			b.eventually("the old raft has ended", func() bool { return c.seat.Current() != old })
			if durable {
				b.eventually("raft runs again", func() bool { return c.seat.Current() != nil })
				if id := c.raft().ID(); id != old.ID() {
					t.Errorf("raft was %s, is %s", old.ID(), id)
				}
			} else if id := b.invite(c); id == old.ID() {
				t.Errorf("an empty raft votes as %s again", id)
			}
			b.commit("b")
			b.agree("a", "b")
			if _, failed, retired := c.looks(); failed != nil || retired != nil {
				t.Errorf("failed: %v, retired: %v", failed, retired)
			}
			c.seat.Restart(old) // a Raft that has ended already
			time.Sleep(5 * time.Second)
			c.raft()
		})
	}
}

// A committed entry ends the suspicion.
func TestARaftThatTakesEntriesIsNotStuck(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		r := b.leader().raft()
		r.refusedSince.Store(new(time.Now()))
		time.Sleep(timing.TransferStuck + time.Second)
		if _, code := r.Commit([]byte("a")); code != wire.CodeOK || r.Stuck() {
			t.Errorf("code %v, stuck: %t", code, r.Stuck())
		}
	})
}

// While raft hands leadership over, Commit refuses entries and notes since when.
func TestATransferRefusesEntries(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		leader := b.leader()
		r := leader.raft()
		b.lose(b.lostSends, leader.name, true) // the successor is never told
		var transfer sync.WaitGroup
		transfer.Go(func() { r.Transfer(context.Background()) })
		time.Sleep(time.Millisecond)
		if _, code := r.Commit([]byte("a")); code != wire.CodeNotLeader || r.refusedSince.Load() == nil {
			t.Errorf("during a transfer: %v, refused since %v", code, r.refusedSince.Load())
		}
		b.lose(b.lostSends, leader.name, false)
		transfer.Wait()
		b.commit("b")
		b.agree("b")
	})
}
