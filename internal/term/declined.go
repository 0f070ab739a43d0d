package term

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/shards"
)

// declines are the shards that a caller has declined, each kept from the caller for a TTL. Those
// of a caller with too many are folded: one bit for each, and the latest time for all. They are
// not forgotten: where every caller declines everything, as while a database is down, a plan
// would assign the forgotten ones again at once, and again.
type declines struct {
	until  map[uint32]time.Time // by shard: when a plan may assign it again
	folded []uint64             // a bit for each shard
	end    time.Time            // of folded
}

// Bounds of the memory: a TTL may be a day.
const (
	maxDeclined = 1 << 16                // entries
	foldedSize  = machine.MaxShards / 64 // of a bit for each shard: a word counts as an entry, which takes more
)

func (d *declines) size() int {
	if d.folded != nil {
		return len(d.until) + foldedSize
	}
	return len(d.until)
}

// fold folds the entries that count still: the latest time is for no others.
func (d *declines) fold(now time.Time) {
	d.expire(now)
	if d.folded == nil {
		d.folded = make([]uint64, machine.MaxShards/64)
	}
	for shard, until := range d.until {
		if until.After(d.end) {
			d.end = until
		}
		d.folded[shard/64] |= 1 << (shard % 64)
	}
	clear(d.until)
}

// expire forgets the shards that a plan may assign now.
func (d *declines) expire(now time.Time) {
	maps.DeleteFunc(d.until, func(_ uint32, until time.Time) bool { return !until.After(now) })
	if !d.end.After(now) {
		d.folded = nil
	}
}

// all yields the shards, and when a plan may assign each.
func (d *declines) all(yield func(shard uint32, until time.Time) bool) {
	for shard, until := range d.until {
		if !yield(shard, until) {
			return
		}
	}
	for i, word := range d.folded {
		for ; word != 0; word &= word - 1 {
			if !yield(uint32(64*i+bits.TrailingZeros64(word)), d.end) {
				return
			}
		}
	}
}

// noteDeclined keeps a declined shard from its caller until a time, for a TTL. If too many are
// remembered, the callers with the most fold theirs, until half of the room is left.
func (p *planner) noteDeclined(c machine.Decline, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Shard >= machine.MaxShards {
		return // no table has it
	}
	by := enlisted{c.Session, c.Seq}
	d := p.declined[by]
	if d == nil {
		d = &declines{until: make(map[uint32]time.Time)}
		p.declined[by] = d
	}
	p.kept -= d.size()
	d.until[c.Shard] = until
	if p.kept += d.size(); p.kept <= maxDeclined {
		return
	}
	callers := slices.SortedFunc(maps.Keys(p.declined), func(a, b enlisted) int {
		return cmp.Compare(len(p.declined[b].until), len(p.declined[a].until))
	})
	for _, by := range callers {
		d := p.declined[by]
		if p.kept <= maxDeclined/2 || len(d.until) <= foldedSize {
			break
		}
		p.kept -= d.size()
		d.fold(time.Now())
		p.kept += d.size()
	}
	slices.SortFunc(callers, func(a, b enlisted) int { return cmp.Compare(p.declined[a].size(), p.declined[b].size()) })
	for _, by := range callers { // more callers than all groups have: most have left
		if p.kept <= maxDeclined/2 {
			return
		}
		p.kept -= p.declined[by].size()
		delete(p.declined, by)
	}
}

// addDeclined adds to the shards the callers that have declined them, and has the group
// looked at again when the first of these may be tried once more.
func (p *planner) addDeclined(g *planned, now time.Time, all []shards.Shard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for by, d := range p.declined {
		p.kept -= d.size()
		d.expire(now)
		if p.kept += d.size(); d.size() == 0 {
			delete(p.declined, by)
		}
	}
	g.again = time.Time{}
	for i := range g.status.Callers {
		c := &g.status.Callers[i]
		d := p.declined[enlisted{c.Session, c.Seq}]
		if d == nil {
			continue
		}
		for shard, until := range d.all {
			if int(shard) < len(all) {
				all[shard].Not = append(all[shard].Not, i)
				if g.again.IsZero() || until.Before(g.again) {
					g.again = until
				}
			}
		}
	}
}
