package consensus

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/judge"
	"github.com/wardmote/wardmote/internal/timing"
)

// almost sends a largest frame but for its last byte, as far as the other side reads, and
// keeps the stream.
func (h hostile) almost(to *chair) net.Conn {
	c := h.open(to)
	h.b.wg.Go(func() {
		c.Write(binary.BigEndian.AppendUint32(nil, judge.MaxFrame))
		c.Write(make([]byte, judge.MaxFrame-1))
	})
	return c
}

// However many processes, and streams of a voter, send large frames that never end, they take a
// bounded memory, and the leader's large entries find room.
func TestFramesThatNeverEndTakeLittle(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		b.commit("a")
		b.agree("a")
		leader, f := b.leader(), b.followers()
		held := budget.New(nil)
		b.mu.Lock()
		b.budgets = map[string]*budget.Budget{f[0].name: held}
		b.mu.Unlock()
		b.separate(f[0].name, true) // the streams so far have no share
		b.separate(f[0].name, false)
		b.commit("b")
		b.agree("a", "b")

		var open []net.Conn
		for i := range 40 {
			for range 2 {
				open = append(open, hostile{b, fmt.Sprint("x", i)}.almost(f[0]))
			}
			open = append(open, hostile{b, f[1].name}.almost(f[0]))
		}
		synctest.Wait()
		if n := held.Held(); n != budget.EntriesOfAddress/2+budget.EntriesOfMember {
			t.Errorf("%d bytes are under way", n)
		}
		began, large := time.Now(), strings.Repeat("c", 1<<20)
		b.commit(large)
		b.agree("a", "b", large)
		if took := time.Since(began); took > timing.RaftIO/2 {
			t.Errorf("a large entry took %v", took)
		}
		if b.leader() != leader {
			t.Error("another leader was elected")
		}
		for _, c := range open {
			c.Close()
		}
		synctest.Wait()
		if n := held.Held(); n != 0 {
			t.Errorf("%d bytes are left", n)
		}
	})
}

// A frame that waits for its part ends with its raft.
func TestARaftDoesNotWaitForRoom(t *testing.T) {
	onBench(t, func(b *bench) {
		b.found()
		f := b.followers()[0]
		b.mu.Lock()
		all := budget.New(nil)
		b.budgets = map[string]*budget.Budget{f.name: all}
		b.mu.Unlock()
		if _, ok := all.Share("x", address).TakeEntries(budget.EntriesOfMember, false, nil, func() {}); !ok {
			t.Fatal("no room in an empty budget")
		}
		defer hostile{b, "x"}.almost(f).Close()
		synctest.Wait()
		began := time.Now()
		b.stop(f.name)
		if took := time.Since(began); took >= timing.RaftIO/2 {
			t.Errorf("the end took %v", took)
		}
	})
}
