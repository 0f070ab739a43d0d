package machine

import (
	"sort"
	"strings"
)

// changes is the latest changes of keys, oldest first, in a ring.
type changes struct {
	ring  []change
	next  int    // index at which the next change is stored
	start uint64 // versions up to this one have left the ring, or were never in it
}

type change struct {
	version uint64
	key     string
}

func (c *changes) add(version uint64, key string) {
	if len(c.ring) < MaxChanges {
		c.ring = append(c.ring, change{version, key})
		return
	}
	c.start = c.ring[c.next].version
	c.ring[c.next] = change{version, key}
	c.next = (c.next + 1) % MaxChanges
}

// at returns the i-th change, counted from the oldest.
func (c *changes) at(i int) change { return c.ring[(c.next+i)%len(c.ring)] }

// Changes returns at most n keys with prefix, changed after version, each once, and
// the version up to which the list is complete. Changes is not ok if the table does
// not remember back to version. Then list the keys anew; also if the same version
// comes back, since then a single command changed more than n keys.
func (s *State) Changes(prefix string, version uint64, n int) (keys []string, upTo uint64, ok bool) {
	c := &s.changes
	if version < c.start {
		return nil, 0, false
	}
	found := make(map[string]bool)
	i := sort.Search(len(c.ring), func(i int) bool { return c.at(i).version > version })
	for ; i < len(c.ring); i++ {
		e := c.at(i)
		if !strings.HasPrefix(e.key, prefix) || found[e.key] {
			continue
		}
		if len(keys) == n {
			// All keys of this command come next time, some of them again.
			return keys, e.version - 1, true
		}
		found[e.key] = true
		keys = append(keys, e.key)
	}
	return keys, s.commands, true
}
