package cluster

import (
	"time"

	"github.com/wardmote/wardmote/internal/meter"
	"github.com/wardmote/wardmote/internal/refused"
)

func init() {
	meter.OfNode = func(node any) *meter.Node { return node.(*Node).self.Meter }
	meter.ReadNode = func(node any) meter.Figures { return node.(*Node).figures() }
}

// figures reads the figures for the metrics: as this member knows them, without a
// question to anybody.
func (n *Node) figures() meter.Figures {
	f := meter.Figures{Version: programVersion().Module, Granting: n.granted.Load(), Connections: make(map[string]int), Refused: make(map[string]uint64)}
	f.Quorum, f.QuorumFor = n.link.Led()
	f.Members = len(n.gossip.Alive())
	f.Conflicts = len(n.conflictsSeen())
	for kind, count := range n.port.Connections() {
		f.Connections[kind.String()] = count
	}
	f.BudgetBytes = n.port.Held()
	counts := n.self.Refused.Counts()
	for _, kind := range refused.Kinds() {
		f.Refused[string(kind)] = counts[kind]
	}
	n.voterFigures(&f)
	n.raftFigures(&f)
	if s := n.summary(time.Now(), n.link.Report()); s != nil {
		f.Table, f.TableAge = true, time.Duration(s.Age)
		f.Keys, f.Grants, f.Waits, f.Sessions, f.Groups, f.Shards = s.Keys, s.Grants, s.Waits, s.Sessions, s.Groups, s.Shards
	}
	return f
}

// voterFigures reads the figures of the voters: by the leader's last word while a leader
// serves this member, and else as Health tells them.
func (n *Node) voterFigures(f *meter.Figures) {
	set, told := n.voterSet()
	if told {
		n.voters.mu.Lock()
		f.ToldFor = time.Since(n.voters.at)
		n.voters.mu.Unlock()
	}
	f.Told = told
	if told && f.Quorum {
		h := countVoters(set)
		f.Wanted, f.Present, f.Reached, f.Working, f.Bears = h.Wanted, h.Present, h.Reachable, h.working, h.Bears
		return
	}
	seen, _ := n.votersSeen()
	f.Wanted = max(set.Wanted, len(seen))
	for _, v := range seen {
		if v.alive {
			f.Present++
		}
	}
}

// raftFigures reads the figures of this member's raft, if it has one.
func (n *Node) raftFigures(f *meter.Figures) {
	r := n.seat.Current()
	if r == nil {
		return
	}
	f.Raft, f.Votes = true, r.Votes()
	f.Term, f.LastIndex, f.AppliedIndex = r.Term(), r.LastIndex(), r.AppliedIndex()
	f.Stalled = r.Stalled()
	if t := n.currentTerm(); t != nil {
		f.Leads = true
		f.QueueCommands, f.QueueBytes = t.Queue()
		f.Noisiest, f.NoisiestCommands = t.Noisiest()
		f.Attached = t.Attached()
	} else if heard := r.Heard(); !heard.IsZero() {
		f.LeaderSilence = time.Since(heard)
	}
}
