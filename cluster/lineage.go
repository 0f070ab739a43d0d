package cluster

import (
	"bytes"
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file decides what happens when members of two clusters of one name meet. The
// two members tell each other their clusters (LineageRequest): the only message
// besides the questions of founding that passes between two clusters. settle holds
// the rules.

// A verdictOn is the outcome of a meeting for this member.
type verdictOn uint8

const (
	unknown verdictOn = iota // not asked yet: no first grant
	pass                     // no concern of this member: the other one moves, or has no vote
	hold                     // no first grant while the other is near
	yield                    // this member moves, once a leader of the other cluster confirms it
	clash                    // both clusters have granted, and nobody may decide: an operator must
	follow                   // this member moves once the other cluster, a successor, has a leader; nothing is held
)

// settle decides by what the two members know of their clusters, without regard to
// leaders: a member that shall yield does so only to a confirmed leader, and holds
// until then. A cluster that has granted nothing holds its first grant while any
// unretired member of any other cluster is near.
//
//   - The other cluster succeeds this one: this member yields. Its seat agrees only
//     if the own cluster cannot answer (leaveCluster), or if the own cluster has
//     granted nothing and the other one has. A confirmed leader of the own cluster
//     makes a successor yield instead, by the next rule.
//   - This cluster succeeds the other one: this member yields, since a leader of the
//     predecessor that a majority confirms proves the successor wrong. Without such
//     a leader, a voter that has not retired holds back the first grant: the voter
//     may be part of a majority that lives elsewhere.
//   - Strangers, and siblings, which succeed the same cluster: the cluster that has
//     granted stays, and the other one yields. If neither has granted, the one with
//     the lower ID stays: any order does, if both sides know it. If both have
//     granted, moving either side would break what its clients were told, so nobody
//     moves.
//
// All of this is for clusters that can answer. The member of a cluster that cannot
// follows a confirmed leader of any other cluster, whatever the verdict: see follow.
func settle(own, other wire.LineageOf) verdictOn {
	switch founding.Kin(*own.Founding, *other.Founding) {
	case founding.Same:
		return pass
	case founding.Successor, founding.Predecessor:
		return yield
	}
	switch {
	case own.Granted && other.Granted:
		return clash
	case own.Granted:
		return pass
	case other.Granted:
		return yield
	case bytes.Compare(own.Founding.Cluster[:], other.Founding.Cluster[:]) < 0:
		return hold
	}
	return yield
}

// A meeting is a process of another cluster of this name that this node has met.
//
// A process is shown if it has told its cluster itself, on a stream that proves its
// name: in a preamble, a question or an answer. Gossip carries the word of any member
// about any other, so one member could name a process that does not exist, or a
// process that has gone, again and again. A word alone therefore holds the first
// grant back for a bounded time, as it does a founding: for timing.GhostPatience from
// the first one, and until each process named in that time has been asked. The time
// begins anew only after timing.GhostQuiet without any word. A true member of another
// cluster is dialled meanwhile, and dials by itself: see package founding.
type meeting struct {
	with    member.Process // Addr "": not known
	host    netip.Addr     // of the latest stream from it; zero: there was none
	shown   bool           // else the word of others is all
	first   time.Time      // the first sign of life
	contact time.Time      // the last sign of life
	asked   time.Time      // when the other was asked last
	tried   bool           // a question has ended
	verdict verdictOn
}

// settled reports whether the process holds nothing back.
func (at *meeting) settled() bool { return at.verdict == pass || at.verdict == follow }

// meetings remembers the processes of other clusters met lately. Its methods may
// be called from any goroutine.
type meetings struct {
	mu    sync.Mutex
	list  map[member.Process]*meeting // without addresses in the keys
	words time.Time                   // since when words of others hold the first grant back; zero: never
	word  time.Time                   // the last one
	news  wakeup.One
}

// maxMeetings bounds the memory. A cluster that meets more processes at a time
// grants nothing first; processes that only words name make room.
const maxMeetings = 256

func newMeetings() *meetings {
	return &meetings{list: make(map[member.Process]*meeting), news: wakeup.NewOne()}
}

// met notes a sign of life of a process, by itself if shown, else by a word of others.
// addr may be "". A word changes nothing of a process that has shown itself, but for
// an address that is not known.
func (m *meetings) met(p member.Process, addr string, shown bool) {
	key, now := member.Process{Name: p.Name, Boot: p.Boot}, time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !shown {
		if m.words.IsZero() || now.Sub(m.word) > timing.GhostQuiet {
			m.words = now
		}
		m.word = now
	}
	at := m.list[key]
	if at == nil {
		if !m.makeRoom(now, shown) {
			return
		}
		at = &meeting{with: key, first: now}
		m.list[key] = at
		m.news.Wake()
	}
	if addr != "" && at.with.Addr != addr && (shown || !at.shown || at.with.Addr == "") {
		at.with.Addr, at.asked = addr, time.Time{}
		m.news.Wake()
	}
	if shown || !at.shown {
		at.contact = now
	}
	at.shown = at.shown || shown
}

// makeRoom forgets processes, and reports false if there is no room for another one.
// The caller holds m.mu.
func (m *meetings) makeRoom(now time.Time, shown bool) bool {
	m.forget(now)
	if len(m.list) < maxMeetings {
		return true
	}
	for key, at := range m.list {
		if shown && !at.shown {
			delete(m.list, key)
			return true
		}
	}
	return false
}

// forget removes the processes not heard for long. The caller holds m.mu.
func (m *meetings) forget(now time.Time) {
	for key, at := range m.list {
		if now.Sub(at.contact) > timing.ConflictAtMost {
			delete(m.list, key)
		}
	}
}

// tried notes that a question has ended.
func (m *meetings) tried(p member.Process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := m.list[member.Process{Name: p.Name, Boot: p.Boot}]; at != nil {
		at.tried = true
	}
}

// over forgets a process that is in this node's cluster now.
func (m *meetings) over(p member.Process) {
	m.mu.Lock()
	delete(m.list, member.Process{Name: p.Name, Boot: p.Boot})
	m.mu.Unlock()
}

// judged notes the verdict of a question.
func (m *meetings) judged(p member.Process, v verdictOn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := m.list[member.Process{Name: p.Name, Boot: p.Boot}]; at != nil {
		at.verdict = v
	}
}

// due returns the processes to be asked now, the longest unasked first, at most
// maxMeetingsAsked, or how long nobody is to be asked; below 0: until news.
func (m *meetings) due(now time.Time) (list []member.Process, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(now)
	wait = -1
	var all []*meeting
	for _, at := range m.list {
		if at.with.Addr == "" {
			continue
		}
		pause := timing.LineageAgain
		if at.verdict == pass || at.verdict == clash {
			pause = timing.ConflictAgain
		}
		left := pause - now.Sub(at.asked)
		if left <= 0 {
			all = append(all, at)
		} else if wait < 0 || left < wait {
			wait = left
		}
	}
	slices.SortFunc(all, func(a, b *meeting) int { return cmp.Or(a.asked.Compare(b.asked), a.first.Compare(b.first)) })
	for _, at := range all[:min(len(all), maxMeetingsAsked)] {
		at.asked = now
		list = append(list, at.with)
	}
	return list, wait
}

// holds reports whether a process seen within the window keeps this cluster from
// its first grant. A successor keeps nobody from anything: its members yield to a
// leader of this cluster.
func (m *meetings) holds(window time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, end, shown := time.Now(), m.words.Add(timing.GhostPatience), 0
	for _, at := range m.list {
		if at.shown {
			shown++
		}
		if at.settled() || now.Sub(at.contact) >= window {
			continue
		}
		if at.shown || now.Before(end) || !at.tried && at.first.Before(end) {
			return true
		}
	}
	return shown >= maxMeetings
}

// reset forgets every meeting: this node is in another cluster.
func (m *meetings) reset() {
	m.mu.Lock()
	clear(m.list)
	m.words = time.Time{}
	m.mu.Unlock()
	m.news.Wake()
}

// lineage returns this member's side of a meeting.
func (n *Node) lineage() wire.LineageOf {
	l := wire.LineageOf{
		Name: n.self.Name, Boot: n.self.Boot, Addr: n.self.Addr, Founding: n.founding.Value(),
		Granted: n.granted.Load(),
	}
	if l.Founding != nil && n.resumed == l.Founding.Cluster {
		l.Granted = true // nobody knows what an earlier process saw
	}
	if r := n.seat.Current(); r != nil {
		l.Votes = true
		r.Table().(*term.Table).View(func(m *machine.State) { l.Granted = l.Granted || m.Lifted() })
	}
	return l
}

// answerLineage answers a member of another cluster, and notes the meeting. A process
// asks for itself alone: the preamble of the stream names it.
func (n *Node) answerLineage(c *port.Conn, q *stream.Request) {
	from := c.Hello.From
	var req wire.LineageRequest
	if wire.Unmarshal(q.Body, &req) != nil || req.From.Founding == nil || founding.Check(*req.From.Founding) != nil {
		q.Answer(wire.CodeBad, nil)
		return
	}
	if req.From.Name != from.Name || req.From.Boot != from.Boot {
		n.self.Refused.Note(refused.Claim, c.From(), "a question about clusters in the name of another process")
		q.Answer(wire.CodeBad, nil)
		return
	}
	q.Answer(wire.CodeOK, wire.Marshal(&wire.LineageAnswer{From: n.lineage()}))
	if own := n.founding.Value(); own != nil && own.Cluster != req.From.Founding.Cluster {
		n.meetings.met(member.Process{Name: from.Name, Boot: from.Boot}, req.From.Addr, true)
		n.meetings.cameFrom(from, c.Host())
	}
}

// foreign is called after a connection from or to a member of another cluster. The
// address of an accepted connection is not where the other one listens: the other
// one's question tells its address.
func (n *Node) foreign(h port.Hello, addr string, dialled bool) {
	p := member.Process{Name: h.From.Name, Boot: h.From.Boot, Addr: addr}
	switch {
	case h.Cluster != n.self.Cluster:
		n.conflict(p, "connection with a cluster of another name")
	case dialled:
		n.meetings.met(p, addr, true)
	default:
		n.meetings.met(p, "", true)
		if at, err := netip.ParseAddrPort(addr); err == nil {
			n.meetings.cameFrom(h.From, at.Addr())
		}
	}
}

// foreignGossip is called after gossip from a member of another cluster.
func (n *Node) foreignGossip(p member.Process) { n.meetings.met(p, p.Addr, false) }

// follow changes over to the other cluster, of whatever kin, if one of its leaders
// confirms it and the own cluster cannot answer: this member retires first, and that
// is refused while a majority can be reached. Retiring endangers nobody, so nothing
// needs to be proved of the two clusters.
//
// Suppose A learns late that its ballot chose the cluster {A,B,C}, whose voters B and C
// have restarted since, and founded another one with A's promise. Neither descends
// from the other. By IDs or by grants alone, A might stay in the cluster that never
// answers, and its mere life would hold back the first grant of the other for ever.
func (n *Node) follow(p member.Process, own, other wire.LineageOf) bool {
	if n.link.Alone() < timing.SuccessionPatience {
		return false
	}
	if !n.founding.Follow(n.ctx, p, other.Founding.Cluster) {
		return false
	}
	n.tellChangedOver(own, other)
	return true
}

func (n *Node) tellChangedOver(own, other wire.LineageOf) {
	n.self.Log.Info("changed over", "from", clusterText(own.Founding.Cluster), "to", clusterText(other.Founding.Cluster),
		"next", "nothing: clients open new sessions by themselves")
}

// yieldTo changes over to the other cluster if one of its leaders confirms it. If
// the member stays, yieldTo returns the verdict for now.
func (n *Node) yieldTo(p member.Process, own, other wire.LineageOf) verdictOn {
	kin := founding.Kin(*own.Founding, *other.Founding)
	ctx, cancel := context.WithTimeout(n.ctx, timing.StopWithoutDisk)
	defer cancel()
	v, confirmed := n.confirmed(ctx, p, kin, own, other)
	if confirmed {
		change := n.founding.Change
		if kin == founding.Stranger || !own.Granted && other.Granted {
			change, ctx = n.founding.Dissolve, unconditionally(ctx)
		}
		err := change(ctx, v)
		if err == nil {
			n.tellChangedOver(own, other)
			return pass
		}
		n.self.Log.Debug("not changed over", "to", clusterText(v.Cluster), "error", err)
	}
	switch {
	case kin == founding.Successor && own.Granted:
		return follow // the election may still be under way
	case kin == founding.Predecessor && !other.Votes:
		return pass
	}
	return hold
}
