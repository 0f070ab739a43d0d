package term

import (
	"sync"
	"sync/atomic"

	"github.com/wardmote/wardmote/internal/machine"
)

// maxChanged is the number of changed keys, groups and sessions that are remembered one by one. After
// more changes every watch is looked at.
const maxChanged = 16 << 10

// changes are the keys, groups and sessions that have changed since the watches were looked
// at. Raft's goroutine does no more than to note them here: a member can have hundreds of
// thousands of reads wait for one key, and change the key a thousand times in an entry. The
// watches of a key are found later, and once for all changes.
type changes struct {
	watched atomic.Int64 // watches; without any, nothing is noted: a new watch is looked at once

	mu    sync.Mutex
	noted int // changes of keys since every scan was last looked at
	batch changed
}

// changed are changes between two looks.
type changed struct {
	keys     map[string]struct{}
	groups   map[string]struct{}
	sessions map[machine.SessionRef]struct{} // ended
	scans    bool                            // every scan is to be looked at
	all      bool                            // every watch is to be looked at
}

// key notes the change of a key, and reports whether nothing was noted before.
//
// The table remembers a number of changes of all keys together. A scan of a quiet prefix
// would fall behind and have to list anew, so every scan is moved on in time.
func (c *changes) key(key string) (first bool) {
	return c.note(func(b *changed) {
		if c.noted++; c.noted >= machine.MaxChanges/4 {
			c.noted, b.scans = 0, true
		}
		put(&b.keys, key)
	})
}

// group is key for a group.
func (c *changes) group(name string) (first bool) {
	return c.note(func(b *changed) { put(&b.groups, name) })
}

// session is key for the end of a session.
func (c *changes) session(id machine.SessionID) (first bool) {
	return c.note(func(b *changed) { put(&b.sessions, id.Ref()) })
}

func (c *changes) note(put func(*changed)) (first bool) {
	if c.watched.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &c.batch
	if first = !b.all && b.size() == 0; b.all {
		return false
	}
	if put(b); b.size() > maxChanged {
		*b = changed{all: true}
	}
	return first
}

func (b *changed) size() int { return len(b.keys) + len(b.groups) + len(b.sessions) }

func put[K comparable](names *map[K]struct{}, name K) {
	if *names == nil {
		*names = make(map[K]struct{})
	}
	(*names)[name] = struct{}{}
}

// take returns the changes, and forgets them.
func (c *changes) take() (b changed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, c.batch = c.batch, changed{}
	return b
}
