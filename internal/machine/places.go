package machine

import "slices"

// places finds the index of an ID in an ascending list of IDs. The IDs of a group's
// callers are nearly without gaps, and then places is a table. Sixteen thousand binary
// searches of a thousand IDs take milliseconds.
type places struct {
	ids   []uint32
	table []int32 // by ID less the first; nil if the gaps are large
}

func newPlaces(ids []uint32) places {
	p := places{ids: ids}
	if len(ids) == 0 {
		return p
	}
	if span := int64(ids[len(ids)-1]) - int64(ids[0]) + 1; span <= 4*int64(len(ids))+1024 {
		p.table = make([]int32, span)
		for i := range p.table {
			p.table[i] = -1
		}
		for i, id := range ids {
			p.table[id-ids[0]] = int32(i)
		}
	}
	return p
}

// of returns the index of an ID, -1 if the list does not have the ID.
func (p *places) of(id uint32) int32 {
	if p.table != nil {
		if at := id - p.ids[0]; at < uint32(len(p.table)) {
			return p.table[at]
		}
		return -1
	}
	if i, ok := slices.BinarySearch(p.ids, id); ok {
		return int32(i)
	}
	return -1
}

// places finds the group's callers by ID.
func (g *group) places() places {
	ids := make([]uint32, len(g.callers))
	for i := range g.callers {
		ids[i] = g.callers[i].id
	}
	return newPlaces(ids)
}

// shardsOf returns the shards of each of some callers, of ascending IDs.
func (g *group) shardsOf(ids []uint32) [][]uint32 {
	callers := newPlaces(ids)
	place := make([]int32, len(g.assigned)) // the index of each shard's caller; -1: none of these
	sizes := make([]int, len(ids))
	n := 0
	for shard, id := range g.assigned {
		i := callers.of(id)
		place[shard] = i
		if i >= 0 {
			sizes[i]++
			n++
		}
	}
	all := make([]uint32, n)
	lists := make([][]uint32, len(ids))
	for i, at := 0, 0; i < len(ids); i++ {
		lists[i] = all[at : at : at+sizes[i]]
		at += sizes[i]
	}
	for shard, i := range place {
		if i >= 0 {
			lists[i] = append(lists[i], uint32(shard))
		}
	}
	return lists
}
