package consensus

import (
	"testing"
	"time"
)

// streams counts the streams that a raft keeps to a server.
func (p *pool) streams(id string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.all {
		if c.id == id {
			n++
		}
	}
	return n
}

// A server that has left the configuration costs no stream any more. In memory every
// restart of a member is another server, so the streams would only grow, and those that
// age would be dialled anew for ever.
func TestNoStreamIsKeptToAServerThatHasLeft(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		b.agree("a")
		r, gone := b.leader().raft(), b.followers()[0]
		id, stays := gone.raft().ID(), b.followers()[1].raft().ID()
		if r.trans.pool.streams(id) == 0 {
			t.Fatal("no stream to begin with")
		}
		if err := r.Remove(id, b.leader().tape().prev()); err != nil {
			t.Fatal(err)
		}
		if err := b.stop(gone.name); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if n := r.trans.pool.streams(id); n != 0 {
			t.Errorf("%d streams to the server that has left", n)
		}
		r.reach.mu.Lock()
		if _, known := r.reach.down[id]; known {
			t.Error("the reach of the server that has left is remembered")
		}
		r.reach.mu.Unlock()
		if r.trans.pool.streams(stays) == 0 {
			t.Error("no stream to the server that stays")
		}
	})
}
