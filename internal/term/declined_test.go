package term

import (
	"slices"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/shards"
)

// However many shards a caller declines, few are remembered, and the shards of another
// caller are kept from that caller. A caller with too many gets none for a TTL, and keeps those
// that it has: it is not forgotten, which would give it all of them at once.
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
		p.noteDeclined(machine.Decline{Session: two, Seq: uint64(1 + i%5), Shard: i / 5 % 16384}, until)
	}
	if n := count(); n > maxDeclined {
		t.Errorf("%d are remembered", n)
	}
	g := &planned{status: machine.GroupStatus{Callers: []machine.Caller{{Session: one, Seq: 1}, {Session: two, Seq: 1}, {Session: two, Seq: 6}}}}
	callers, all := make([]shards.Caller, 3), make([]shards.Shard, 16)
	p.addDeclined(g, time.Now(), callers, all)
	if !slices.Equal(all[7].Not, []int{0}) || callers[0].Absent || !callers[1].Absent || callers[2].Absent {
		t.Errorf("%+v, %+v", all[7], callers)
	}
	if !g.again.Equal(until) {
		t.Errorf("looked at again at %v", g.again)
	}
	for seq := range uint64(2 * maxDeclined) {
		p.noteDeclined(machine.Decline{Session: two, Seq: 10 + seq, Shard: 1}, until)
	}
	if n := count(); n > maxDeclined {
		t.Errorf("%d are remembered of callers that come and go", n)
	}
	p.addDeclined(&planned{}, until, nil, nil)
	if n := count(); n != 0 {
		t.Errorf("%d are remembered after a TTL", n)
	}
}
