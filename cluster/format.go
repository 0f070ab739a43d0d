package cluster

import (
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// While a cluster is being upgraded some members read formats of log entries
// that others do not know yet. Each tells by gossip up to which it reads, and a
// leader proposes nothing that a server of the raft configuration may not
// understand: to that one it would be Unknown, and its table would part from the
// others' in silence.

// leastFormat is what every member reads, and those read that say nothing.
const leastFormat = 1

// formats keeps the last look at what all servers read.
type formats struct {
	mu    sync.Mutex
	least int
	at    time.Time
}

// format is the newest format that all servers of the raft configuration read,
// those that are only catching up too. It is up to a tick old, and a server takes
// longer than that to be added.
func (l *leader) format() int {
	if l.n == nil {
		return machine.MaxFormat
	}
	f := &l.formats
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.least > 0 && now.Sub(f.at) < tickInterval {
		return f.least
	}
	f.at, f.least = now, machine.MaxFormat
	servers := l.raft.servers()
	if len(servers) == 0 {
		f.least = leastFormat
	}
	for _, s := range servers {
		f.least = min(f.least, l.n.gossip.format(s.ID))
	}
	return f.least
}

// format is what the newest process with a raft ID says that it reads. A process
// that is dead may come back as it was.
func (g *gossip) format(id string) int {
	name, generation, err := splitRaftID(id)
	if err != nil {
		return leastFormat
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	said := uint8(0)
	if name == g.n.cfg.Name && generation == g.meta.Generation {
		said = g.meta.Format
	} else {
		var boot uint64
		for _, s := range g.members {
			if s.name == name && s.meta.Generation == generation && s.boot >= boot {
				boot, said = s.boot, s.meta.Format
			}
		}
	}
	return max(int(said), leastFormat)
}
