package cluster

import (
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
)

// gossipWatcher turns gossip's news into events.
type gossipWatcher struct {
	event    func(Event)
	namesake func(member.Sighting)
	foreign  func(member.Process)
}

func (w gossipWatcher) Joined(s member.Sighting, earlier bool) { w.tell(MemberJoined, s, earlier) }
func (w gossipWatcher) Left(s member.Sighting, earlier bool)   { w.tell(MemberLeft, s, earlier) }
func (w gossipWatcher) Namesake(s member.Sighting)             { w.namesake(s) }
func (w gossipWatcher) Foreign(p member.Process)               { w.foreign(p) }

func (w gossipWatcher) tell(kind EventKind, s member.Sighting, earlier bool) {
	e := Event{Kind: kind, Member: memberOf(s.Process)}
	if earlier {
		e.Detail = "an earlier start of it" // not the present holder of the name
	}
	w.event(e)
}

// maxNews is the number of changes of members that are told at once: a cluster that
// restarts all of the processes that gossip may know.
const maxNews = 4096

// memberNews bounds the events that gossip's words make. Any member can call another one
// dead and living, or invent one, as often as packets fit a link: the lines would fill a
// disk, and the events would displace all others in the user's queue.
type memberNews struct {
	mu   sync.Mutex
	used int
	from time.Time // used is counted since then, less one for each timing.GossipNews gone by
}

// pass reports whether one more change is told at the time now.
func (m *memberNews) pass(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	back := int(now.Sub(m.from) / timing.GossipNews)
	if back >= m.used {
		m.used, m.from = 0, now
	} else {
		m.used -= back
		m.from = m.from.Add(time.Duration(back) * timing.GossipNews)
	}
	if m.used >= maxNews {
		return false
	}
	m.used++
	return true
}

// memberEvent is event for a change of a member, as far as such changes are told.
func (n *Node) memberEvent(e Event) {
	n.newsEvent(&n.news, e, "gossip tells of more changes of members than are told")
}

// voterEvent is event for a change of a voter, as far as such changes are told: a false
// leader can tell of changes as often as gossip can.
func (n *Node) voterEvent(e Event) {
	n.newsEvent(&n.voters.news, e, "a leader tells of more changes of voters than are told")
}

func (n *Node) newsEvent(news *memberNews, e Event, beyond string) {
	if !news.pass(time.Now()) {
		n.self.Refused.Note(refused.Flood, e.Member.Name, beyond)
		return
	}
	n.event(e)
}
