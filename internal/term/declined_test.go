package term

import (
	"slices"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/shards"
)

// However many shards a caller declines, few are remembered. None that a caller has declined is
// given to it before a TTL, and each that it has not declined is.
func TestDeclinedShardsAreBounded(t *testing.T) {
	p := newPlanner(nil)
	one, two := machine.SessionID{1}, machine.SessionID{2}
	until := time.Now().Add(time.Hour)
	count := func() (n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, d := range p.declined {
			n += d.size()
		}
		if p.kept != n {
			t.Errorf("%d entries count as %d", n, p.kept)
		}
		return n
	}
	p.noteDeclined(machine.Decline{Session: one, Seq: 1, Shard: 7}, until)
	const many, callers = machine.MaxShards - 1, 9 // of two: all shards but the last
	for i := range uint32(many * callers) {
		p.noteDeclined(machine.Decline{Session: two, Seq: uint64(1 + i%callers), Shard: i / callers}, until)
	}
	if n := count(); n > maxDeclined {
		t.Errorf("%d are remembered", n)
	}
	g := &planned{status: machine.GroupStatus{Callers: []machine.Caller{{Session: one, Seq: 1}, {Session: two, Seq: 1}, {Session: two, Seq: 99}}}}
	all := make([]shards.Shard, machine.MaxShards)
	p.addDeclined(g, time.Now(), all)
	for i := range all {
		want := []int{1}
		switch i {
		case 7:
			want = []int{0, 1}
		case many:
			want = nil
		}
		if !slices.Equal(all[i].Not, want) {
			t.Fatalf("shard %d is kept from %v, want %v", i, all[i].Not, want)
		}
	}
	if !g.again.Equal(until) {
		t.Errorf("looked at again at %v", g.again)
	}
	for seq := range uint64(2 * maxDeclined) {
		p.noteDeclined(machine.Decline{Session: two, Seq: 100 + seq, Shard: 1}, until)
	}
	if n := count(); n > maxDeclined {
		t.Errorf("%d are remembered of callers that come and go", n)
	}
	p.mu.Lock()
	if d := p.declined[enlisted{two, 1}]; d == nil || d.folded == nil {
		t.Error("callers that come and go displace one that has declined everything")
	}
	p.mu.Unlock()
	p.addDeclined(&planned{}, until, nil)
	if n := count(); n != 0 {
		t.Errorf("%d are remembered after a TTL", n)
	}
}

// A shard whose time is over does not get the time of those that are folded with it.
func TestFoldingProlongsNoTimeThatIsOver(t *testing.T) {
	p := newPlanner(nil)
	one := machine.SessionID{1}
	now := time.Now()
	over, until := now.Add(-time.Second), now.Add(time.Hour)
	const many = machine.MaxShards - 1
	for shard := range uint32(many) {
		if shard < 100 {
			p.noteDeclined(machine.Decline{Session: one, Seq: 1, Shard: shard}, over)
		} else {
			p.noteDeclined(machine.Decline{Session: one, Seq: 1, Shard: shard}, until)
		}
	}
	one1 := p.declined[enlisted{one, 1}]
	for i := uint32(0); one1.folded == nil && i < maxDeclined; i++ {
		p.noteDeclined(machine.Decline{Session: one, Seq: 2 + uint64(i%8), Shard: i / 8}, until)
	}
	if one1.folded == nil {
		t.Fatal("nothing was folded")
	}
	all := make([]shards.Shard, machine.MaxShards)
	p.addDeclined(&planned{status: machine.GroupStatus{Callers: []machine.Caller{{Session: one, Seq: 1}}}}, now, all)
	for i := range all {
		if kept := len(all[i].Not) > 0; kept != (i >= 100 && i < many) {
			t.Fatalf("shard %d is kept: %t", i, kept)
		}
	}
}
