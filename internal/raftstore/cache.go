package raftstore

import (
	"sync"

	"github.com/hashicorp/raft"
)

// cache keeps the newest entries of a log, without gaps, so that sending the
// entries to followers and applying them reads no disk. Its limits count
// entries and bytes. A compaction removes only compacted entries from the cache;
// raft.LogCache would lose all its entries.
type cache struct {
	limit int // bytes

	mu    sync.RWMutex
	ring  []raft.Log // the entry at index i is at i modulo the length
	first uint64     // the cache has the entries from first
	next  uint64     // to before next
	bytes int
}

func newCache(entries, bytes int) *cache {
	return &cache{ring: make([]raft.Log, entries), limit: bytes}
}

func (c *cache) slot(index uint64) *raft.Log { return &c.ring[index%uint64(len(c.ring))] }

// get fills log with the entry at index, if the entry is in the cache.
func (c *cache) get(index uint64, log *raft.Log) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if index < c.first || c.next <= index {
		return false
	}
	*log = *c.slot(index)
	return true
}

// add copies logs, the newest entries of the log. Not the pointers: raft's
// pointers lead into its futures, which the cache would keep alive with
// everything that the futures refer to.
func (c *cache) add(logs []*raft.Log) {
	if len(c.ring) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, log := range logs {
		c.cutFrom(log.Index)
		if c.next != log.Index {
			c.cutFrom(0) // after a gap
			c.first, c.next = log.Index, log.Index
		}
		if c.next-c.first == uint64(len(c.ring)) {
			c.cutOldest()
		}
		*c.slot(log.Index) = *log
		c.next++
		c.bytes += cost(log)
		for c.bytes > c.limit {
			c.cutOldest()
		}
	}
}

// dropFrom forgets the entries from index on.
func (c *cache) dropFrom(index uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cutFrom(index)
}

// dropTo forgets the entries up to and with index.
func (c *cache) dropTo(index uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.first < c.next && c.first <= index {
		c.cutOldest()
	}
}

func (c *cache) cutFrom(index uint64) {
	for c.first < c.next && index < c.next {
		c.next--
		c.cut(c.next)
	}
}

func (c *cache) cutOldest() {
	c.cut(c.first)
	c.first++
}

func (c *cache) cut(index uint64) {
	slot := c.slot(index)
	c.bytes -= cost(slot)
	*slot = raft.Log{}
}

// cost is the number of bytes that an entry counts for: its own, and about a
// header.
func cost(log *raft.Log) int { return len(log.Data) + len(log.Extensions) + 128 }
