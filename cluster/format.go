package cluster

import (
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// While a cluster is being upgraded some members read formats of log entries
// that others do not know yet. Each tells by gossip up to which it reads. Once
// all voters read a later format the leader has the table raised to it, by an
// entry, so that every voter's table changes at one point of the log; from then
// on nobody becomes a voter who reads less. Before that, commands of the later
// format are refused: to some voter they would be Unknown, and its table would
// part from the others' in silence. A voter that finds the table raised beyond what
// it reads, since it was put back to an earlier version, votes no more.

// leastFormat is what every member reads, and those read that say nothing.
const leastFormat = 1

// readable is the newest format that all servers of the raft configuration read,
// those that are only catching up too.
func (n *Node) readable(r *raftNode) int {
	servers := r.servers()
	if len(servers) == 0 {
		return leastFormat
	}
	least := machine.MaxFormat
	for _, s := range servers {
		least = min(least, n.gossip.format(s.ID))
	}
	return least
}

// reconcileFormat raises the table's format to what all voters read.
func (l *leader) reconcileFormat() {
	f := l.n.readable(l.raft)
	if f <= l.table.format() {
		return
	}
	l.raising.Store(int64(f)) // from now on, and not from its commit on
	l.proposer.propose(machine.Raise{Term: l.term, Format: uint64(f)}, func(o machine.Outcome, c wire.Code) {
		if c == wire.CodeOK && o.Code == machine.OK {
			l.n.log.Info("table format raised", "format", f)
		}
	})
}

// required is what a member must read to become a voter, or to stay on the way to
// it: the table's format, or the one that it is being raised to.
func (l *leader) required() int { return max(l.table.format(), int(l.raising.Load())) }

// format is what the table does.
func (t *table) format() (f int) {
	t.view(func(m *machine.State) { f = m.Format() })
	return f
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
