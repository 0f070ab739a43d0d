package term

import (
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// However many shards a caller declines, few are remembered, and the shards of another
// caller are kept from that caller.
func TestDeclinedShardsAreBounded(t *testing.T) {
	p := newPlanner(nil)
	one, two := machine.SessionID{1}, machine.SessionID{2}
	until := time.Now().Add(time.Hour)
	count := func() (n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, list := range p.declined {
			n += len(list)
		}
		if p.declines != n {
			t.Errorf("%d declined shards count as %d", n, p.declines)
		}
		return n
	}
	p.noteDeclined(machine.Decline{Session: one, Seq: 1, Shard: 7}, until)
	for i := range uint32(4 * maxDeclined) {
		p.noteDeclined(machine.Decline{Session: two, Seq: uint64(1 + i%5), Shard: i / 5}, until)
	}
	if n := count(); n > maxDeclined || n < maxDeclined/4 {
		t.Errorf("%d are remembered", n)
	}
	if _, ok := p.declined[enlisted{one, 1}][7]; !ok {
		t.Error("the shard of another caller is forgotten")
	}
	p.addDeclined(&planned{}, until, nil)
	if n := count(); n != 0 {
		t.Errorf("%d are remembered after a TTL", n)
	}
}
