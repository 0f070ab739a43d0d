package machine

import (
	"encoding/binary"
	"maps"
)

// shardCount is the number of shards of a table. The first change after a snapshot
// copies the map of a single shard, a fraction of a millisecond at a million keys,
// and not the whole table. The number is part of the image's format.
const shardCount = 256

// table is a map in shards, frozen in constant time. A shard with an epoch older
// than the table's belongs to an image, and is cloned before a change. The same
// holds for records and sessions, with epochs of their own because they change in
// place.
type table[K comparable, V any] struct {
	hash   func(K) uint8
	epoch  uint64
	n      int
	shards [shardCount]shard[K, V]
}

type shard[K comparable, V any] struct {
	epoch uint64
	m     map[K]V
}

// freeze returns a copy for an image: neither the maps nor the values in them change
// any more.
func (t *table[K, V]) freeze() table[K, V] {
	frozen := *t
	t.epoch++
	return frozen
}

// get returns the value of k, the zero value if there is none. No value in a table is
// zero.
func (t *table[K, V]) get(k K) V {
	look(1)
	return t.shards[t.hash(k)].m[k]
}

func (t *table[K, V]) set(k K, v V) {
	m := t.shard(k)
	before := len(m)
	m[k] = v
	t.n += len(m) - before
}

func (t *table[K, V]) del(k K) {
	m := t.shard(k)
	before := len(m)
	delete(m, k)
	t.n += len(m) - before
}

// shard returns the map of k's shard for writing.
func (t *table[K, V]) shard(k K) map[K]V {
	sh := &t.shards[t.hash(k)]
	switch {
	case sh.m == nil:
		sh.m = make(map[K]V)
	case sh.epoch != t.epoch:
		sh.m = maps.Clone(sh.m)
	}
	sh.epoch = t.epoch
	return sh.m
}

// all calls f for each element, in no order, until it returns false.
func (t *table[K, V]) all(f func(K, V) bool) {
	look(t.n)
	for i := range t.shards {
		for k, v := range t.shards[i].m {
			if !f(k, v) {
				return
			}
		}
	}
}

// count counts the elements of the table, shard by shard.
func (t *table[K, V]) count() (n int) {
	for i := range t.shards {
		n += len(t.shards[i].m)
	}
	return n
}

// FNV-1a, written out because the hash must never change: every voter puts a key
// in the same shard of its image.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func fnv[T string | []byte](h uint64, v T) uint64 {
	for i := range len(v) {
		h = (h ^ uint64(v[i])) * fnvPrime
	}
	return h
}

func fold(h uint64) uint8 {
	h ^= h >> 32
	h ^= h >> 16
	return uint8(h ^ h>>8)
}

func hashKey(k string) uint8 { return fold(fnv(fnvOffset, k)) }

func hashSession(id SessionID) uint8 { return fold(fnv(fnvOffset, id[:])) }

func hashRequest(q requestID) uint8 {
	var seq [8]byte
	binary.LittleEndian.PutUint64(seq[:], q.seq)
	return fold(fnv(uint64(hashSession(q.session)), seq[:]))
}
