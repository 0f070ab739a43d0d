package machine

// The quotas of a node. Every member of a cluster is equal, and the memory of every voter
// is shared by all: so the sessions of one node together, of all its processes, have
// bounds besides the bounds of each session.
//
// The table enforces the quotas, and not the leader: a quota on what is kept must hold
// through every change of leader, and the sums follow from the table itself. Opens under way
// make nobody exceed a quota. The leader bounds only what it alone has: the commands that
// wait for the log. A refused command takes a place in the log, and is paid for with the
// node's turn there.
//
// The quotas are constants: an honest node with a million keys stays below half of
// each, and a setting would have to be the same at every voter. They are far above any fair
// share, since the log is divided fairly, and memory is not scarce before a node fills it.
//
// Refusals are not remembered: the memory of refusals would be without a bound.

// nodeLoad is what the sessions of a node have together. It is derived from them, and from
// the ghosts of its expired sessions: a node that lets one session after another expire,
// each with keys of a long Delay, has no more keys than any other.
type nodeLoad struct {
	sessions int // ending ones included
	ghosts   int
	waits    int
	weight   weight // ghosts included
}

// nodeQuota is the bounds of a nodeLoad, and the same in each table: tests make it smaller.
type nodeQuota struct{ sessions, waits, keys, bytes int }

var defaultQuota = nodeQuota{MaxNodeSessions, MaxNodeWaits, MaxNodeHeld, MaxNodeHeldBytes}

// Fields of a TooMuchOfNode.
const (
	NodeSessions = "sessions"
	NodeWaits    = "waits"
	NodeKeys     = "keys"
	NodeBytes    = "bytes"
)

// overQuota returns the refusal of what would give a node n of a field, or the zero Outcome.
func overQuota(field string, n, limit int) Outcome {
	if n > limit {
		return Outcome{Code: TooMuchOfNode, Field: field, Limit: uint64(limit)}
	}
	return Outcome{}
}

// roomForSession returns the refusal of one more session of a node, or the zero Outcome.
func (s *State) roomForSession(node string) Outcome {
	if l := s.nodes[node]; l != nil {
		return overQuota(NodeSessions, l.sessions+1, s.quota.sessions)
	}
	return Outcome{}
}

// roomToWait returns the refusal of one more waiter of a session, or the zero Outcome.
func (s *State) roomToWait(owner *session) Outcome {
	return overQuota(NodeWaits, owner.index.load.waits+1, s.quota.waits)
}

// roomForRequest returns the refusal of a request that would make a session, or its node, too
// heavy, and the zero Outcome if there is room.
func (s *State) roomForRequest(owner *session, w weight) Outcome {
	if out := owner.index.roomFor(w); out.Code != 0 {
		return out
	}
	has := owner.index.load.weight
	if out := overQuota(NodeKeys, has.keys+w.keys, s.quota.keys); out.Code != 0 && w.keys > 0 {
		return out
	}
	return overQuota(NodeBytes, has.bytes+w.bytes, s.quota.bytes)
}

// loadOf returns the load of a node, for a change.
func (s *State) loadOf(node string) *nodeLoad {
	l := s.nodes[node]
	if l == nil {
		l = new(nodeLoad)
		s.nodes[node] = l
	}
	return l
}

// joinNode counts a session among those of its node.
func (s *State) joinNode(o *session) {
	o.index.load = s.loadOf(o.node)
	o.index.load.sessions++
}

// leaveNode is for a session with nothing left.
func (s *State) leaveNode(o *session) {
	o.index.load.sessions--
	s.forgetLoad(o.node)
}

// countGhost counts n more ghosts of g's node at key.
func (s *State) countGhost(key string, g *grant, n int) {
	l := s.loadOf(g.ghost.node)
	l.ghosts += n
	l.weight.add(weight{1, len(key) + len(g.Meta)}, n)
	s.forgetLoad(g.ghost.node)
}

// forgetLoad forgets the load of a node that has nothing.
func (s *State) forgetLoad(node string) {
	if l := s.nodes[node]; l.sessions == 0 && l.ghosts == 0 {
		delete(s.nodes, node)
	}
}

// checkNodes verifies the quotas and compares with the loads derived anew.
func (s checker) checkNodes(fresh map[string]*nodeLoad) error {
	if len(s.nodes) != len(fresh) {
		return broken(11, "loads of %d nodes, derived %d", len(s.nodes), len(fresh))
	}
	for node, l := range s.nodes {
		if want := fresh[node]; want == nil || *l != *want {
			return broken(11, "node %q has %+v, derived %+v", node, *l, want)
		}
		if l.sessions > s.quota.sessions || l.waits > s.quota.waits || l.weight.keys > s.quota.keys || l.weight.bytes > s.quota.bytes {
			return broken(10, "node %q has %+v", node, *l)
		}
	}
	return nil
}
