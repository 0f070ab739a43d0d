package machine

import (
	"cmp"
	"hash/maphash"
	"iter"
	"slices"
	"strings"
)

// recordTable is the records of all keys, in shards as a table is, each in several parts. Not a
// table: a map of a million keys takes 52 bytes each, and a record knows its key, so that 16
// bytes are enough here; and the first change after a snapshot copies a part of some 500 keys,
// which takes microseconds.
type recordTable struct {
	epoch  uint64
	n      int
	shards [shardCount][shardParts]*recordShard // nil: without records
	recent *recent                              // nil: empty
}

// recent is the records of long keys that were changed last, by their tags: a command for a
// thousand such keys looks each up a dozen times, and the hash that divides keys among shards
// takes a nanosecond for each byte. Reads do not change it, since many may read at once.
type recent [4096]struct {
	tag uint32
	r   *record
}

// longKey is the number of bytes of a key that is worth a place among the recent ones.
const longKey = 48

// find returns the record of a long key, nil if it is not among the recent ones.
func (m *recent) find(key string, tag uint32) *record {
	if m == nil || len(key) < longKey {
		return nil
	}
	if e := &m[tag%uint32(len(m))]; e.r != nil && e.tag == tag && e.r.key == key {
		return e.r
	}
	return nil
}

// note makes r, nil for none, the recent record of a tag.
func (t *recordTable) note(key string, tag uint32, r *record) {
	if len(key) < longKey {
		return
	}
	if t.recent == nil {
		t.recent = new(recent)
	}
	e := &t.recent[tag%uint32(len(t.recent))]
	e.tag, e.r = tag, r
}

// shardParts is the number of parts of a shard. It is not a part of the image's format.
const shardParts = 8

// recordShard is a part of a shard: a hash table of records. Collisions are resolved by the next
// place. The order of the places differs from process to process, and decides nothing.
type recordShard struct {
	epoch uint64
	n     int
	tags  []uint32  // a part of the hash of the key, for each place
	list  []*record // nil: an empty place
}

// smallShard is the number of places that an empty shard keeps.
const smallShard = 16

// freeze returns a copy for an image: see table.freeze.
func (t *recordTable) freeze() recordTable {
	frozen := *t
	frozen.recent = nil
	t.epoch++
	return frozen
}

// tagOf is a hash of a key, other than the one that divides keys among shards.
func tagOf(key string) uint32 { return uint32(maphash.String(seed, key) >> 32) }

// at returns where the part of a key with a tag is.
func (t *recordTable) at(key string, tag uint32) **recordShard {
	return &t.shards[hashKey(key)][tag%shardParts]
}

// get returns key's record, nil if there is none.
func (t *recordTable) get(key string) *record {
	tag := tagOf(key)
	if r := t.recent.find(key, tag); r != nil {
		look(1)
		return r
	}
	return t.getIn(hashKey(key), tag, key)
}

// getIn is get of a key whose shard and tag are known.
func (t *recordTable) getIn(shard uint8, tag uint32, key string) *record {
	look(1)
	sh := t.shards[shard][tag%shardParts]
	if sh == nil {
		return nil
	}
	if at := sh.find(key, tag); at >= 0 {
		return sh.list[at]
	}
	return nil
}

// set makes r the record of key.
func (t *recordTable) set(key string, r *record) {
	tag := tagOf(key)
	sh := t.writable(key, tag)
	if at := sh.find(key, tag); at >= 0 {
		r.key = sh.list[at].key // the same string, for one copy in memory
		sh.list[at] = r
		t.note(key, tag, r)
		return
	}
	r.key = key
	sh.add(r, tag)
	t.note(key, tag, r)
	t.n++
}

func (t *recordTable) del(key string) {
	tag := tagOf(key)
	sh := t.writable(key, tag)
	if at := sh.find(key, tag); at >= 0 {
		sh.remove(at)
		t.n--
	}
	if t.recent.find(key, tag) != nil {
		t.note(key, tag, nil)
	}
}

// writable returns the part of a key with a tag, for writing.
func (t *recordTable) writable(key string, tag uint32) *recordShard {
	at := t.at(key, tag)
	switch sh := *at; {
	case sh == nil:
		*at = &recordShard{epoch: t.epoch}
	case sh.epoch != t.epoch:
		*at = &recordShard{epoch: t.epoch, n: sh.n, tags: slices.Clone(sh.tags), list: slices.Clone(sh.list)}
	}
	return *at
}

// shard yields the records of a shard, in no order.
func (t *recordTable) shard(i int) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for _, sh := range &t.shards[i] {
			if sh == nil {
				continue
			}
			for _, r := range sh.list {
				if r != nil && !yield(r) {
					return
				}
			}
		}
	}
}

// all calls f for each key and its record, in no order, until f returns false.
func (t *recordTable) all(f func(string, *record) bool) {
	look(t.n)
	for i := range t.shards {
		for r := range t.shard(i) {
			if !f(r.key, r) {
				return
			}
		}
	}
}

// count counts the records, shard by shard.
func (t *recordTable) count() (n int) {
	for i := range t.shards {
		for range t.shard(i) {
			n++
		}
	}
	return n
}

// sorted appends the records of a shard in the order of their keys.
func (t *recordTable) sorted(i int, list []*record) []*record {
	list = slices.AppendSeq(list, t.shard(i))
	slices.SortFunc(list, func(a, b *record) int { return strings.Compare(a.key, b.key) })
	return list
}

func (sh *recordShard) home(tag uint32) int { return int(uint64(tag) * uint64(len(sh.list)) >> 32) }

func (sh *recordShard) next(at int) int {
	if at++; at == len(sh.list) {
		return 0
	}
	return at
}

// find returns the place of key's record, -1 if there is none.
func (sh *recordShard) find(key string, tag uint32) int {
	if sh.n == 0 {
		return -1
	}
	for at := sh.home(tag); sh.list[at] != nil; at = sh.next(at) {
		if sh.tags[at] == tag && sh.list[at].key == key {
			return at
		}
	}
	return -1
}

// add adds a record whose key has none.
func (sh *recordShard) add(r *record, tag uint32) {
	if fullDen*(sh.n+1) > fullNum*len(sh.list) {
		sh.resize(max(4, len(sh.list)+len(sh.list)/2))
	}
	sh.put(r, tag)
	sh.n++
}

func (sh *recordShard) put(r *record, tag uint32) {
	at := sh.home(tag)
	for sh.list[at] != nil {
		at = sh.next(at)
	}
	sh.tags[at], sh.list[at] = tag, r
}

func (sh *recordShard) resize(places int) {
	old := *sh
	sh.tags, sh.list = make([]uint32, places), make([]*record, places)
	for i, r := range old.list {
		if r != nil {
			sh.put(r, old.tags[i])
		}
	}
}

// remove removes the record at a place. The records behind move up, as far as their homes
// allow: no empty place stands between a record and its home.
func (sh *recordShard) remove(hole int) {
	for at := sh.next(hole); sh.list[at] != nil; at = sh.next(at) {
		if !within(hole, sh.home(sh.tags[at]), at) {
			sh.tags[hole], sh.list[hole] = sh.tags[at], sh.list[at]
			hole = at
		}
	}
	sh.tags[hole], sh.list[hole] = 0, nil
	if sh.n--; sh.n == 0 && len(sh.list) > smallShard {
		sh.tags, sh.list = nil, nil
	}
}

// within reports whether home is behind hole, and not behind at, in a table whose last place
// stands before its first.
func within(hole, home, at int) bool {
	if hole < at {
		return hole < home && home <= at
	}
	return hole < home || home <= at
}

// sortRecords sorts records by their keys. It compares eight bytes at once, kept beside the
// record, and looks into the keys only where these are equal: three times as fast as
// slices.SortFunc.
func sortRecords(list []*record) {
	keyed := make([]keyedRecord, len(list))
	for i, r := range list {
		keyed[i].r = r
	}
	sortFrom(keyed, 0)
	for i := range keyed {
		list[i] = keyed[i].r
	}
}

// keyedRecord is a record and eight bytes of its key.
type keyedRecord struct {
	part uint64
	r    *record
}

// sortFrom sorts records with the same first bytes of their keys, so many as from says.
func sortFrom(list []keyedRecord, from int) {
	for i := range list {
		list[i].part = partOf(list[i].r.key[from:])
	}
	slices.SortFunc(list, func(a, b keyedRecord) int { return cmp.Compare(a.part, b.part) })
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].part == list[0].part {
			n++
		}
		if same := list[:n]; n > 1 {
			// A key that ends within these bytes is a prefix of the others, or has zeros
			// where they end.
			long := slices.IndexFunc(same, func(k keyedRecord) bool { return len(k.r.key) < from+8 }) < 0
			if long {
				sortFrom(same, from+8)
			} else {
				slices.SortFunc(same, func(a, b keyedRecord) int { return strings.Compare(a.r.key, b.r.key) })
			}
		}
		list = list[n:]
	}
}

// partOf returns the first eight bytes of a string as a number, with zeros behind a shorter
// one.
func partOf(s string) (part uint64) {
	if len(s) >= 8 {
		return uint64(s[0])<<56 | uint64(s[1])<<48 | uint64(s[2])<<40 | uint64(s[3])<<32 |
			uint64(s[4])<<24 | uint64(s[5])<<16 | uint64(s[6])<<8 | uint64(s[7])
	}
	for i := range len(s) {
		part |= uint64(s[i]) << (56 - 8*i)
	}
	return part
}
