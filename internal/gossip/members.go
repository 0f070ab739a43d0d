package gossip

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
)

// maxSeen bounds the list: above this number of processes, the process that has
// been dead for longest is forgotten, one without a proof first. Living processes are never forgotten, and
// census bounds their number.
const maxSeen = 1024

// maxMeta is the largest description of a member, in bytes: see
// TestTheLargestDescriptionFits. memberlist would take 512.
const maxMeta = 384

// members is the list of sightings. Its methods may be called from any
// goroutine.
type members struct {
	self    member.Self
	cluster func() machine.ClusterID
	proven  func(key string) bool // by a handshake; must not block
	changed wakeup.All

	mu    sync.Mutex
	meta  member.Metadata            // this node's own, as of now
	seen  map[string]member.Sighting // by gossip name; the dead too, for a while
	names map[string][]string        // the gossip names of seen, by member name
	dead  int                        // of seen
	claim map[string]bool            // of seen: it lives, and says that it votes or leads
	at    map[string]string          // the address of each of seen: the first listed, or where it has answered
	lists lists

	telling *time.Timer // a change is told when the timer fires; nil: no change waits
	toldAt  time.Time   // when changes were told last
}

// lists are the sightings of this cluster as last sorted. Many rooms read a list after
// each change, and to sort a thousand sightings takes longer than to copy them.
type lists struct {
	all, alive []member.Sighting // nil: a change came since
	of         machine.ClusterID // the own cluster at that time
}

func newMembers(self member.Self, meta member.Metadata, cluster func() machine.ClusterID) *members {
	return &members{self: self, cluster: cluster, proven: func(string) bool { return false }, meta: meta, seen: make(map[string]member.Sighting), claim: make(map[string]bool), names: make(map[string][]string), at: make(map[string]string)}
}

// gossipName is the name of a process in gossip.
func gossipName(p member.Process) string { return p.Name + "." + strconv.FormatUint(p.Boot, 36) }

// parseGossipName returns the name and boot in a gossip name, which must be as
// gossipName writes it: else one process could be known by two names.
func parseGossipName(s string) (name string, boot uint64, err error) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 || len(s) > member.MaxName+14 {
		return "", 0, fmt.Errorf("cluster: %.80q is no gossip name", s)
	}
	name = s[:i]
	if boot, err = strconv.ParseUint(s[i+1:], 36, 64); err == nil {
		err = member.CheckName(name)
	}
	if err == nil && (boot == 0 || gossipName(member.Process{Name: name, Boot: boot}) != s) {
		err = errors.New("not in its shortest form")
	}
	if err != nil {
		return "", 0, fmt.Errorf("cluster: %.80q is no gossip name: %w", s, err)
	}
	return name, boot, nil
}

// update changes the own description and reports whether anything has changed.
func (m *members) update(change func(*member.Metadata)) bool {
	m.mu.Lock()
	before := m.meta
	change(&m.meta)
	same := before == m.meta
	if !same {
		m.lists = lists{}
	}
	m.mu.Unlock()
	if !same {
		m.changed.Wake()
	}
	return !same
}

// tell wakes the readers of the lists after a change. In a large cluster changes come
// by the thousand, and a reader looks at every process after each: so changes are told
// together, at most one time in timing.News. A change that comes alone is told at once.
func (m *members) tell() {
	m.mu.Lock()
	now := time.Now()
	rest := timing.News(len(m.seen)) - now.Sub(m.toldAt)
	switch {
	case m.telling != nil:
		m.mu.Unlock()
		return
	case rest > 0:
		m.telling = time.AfterFunc(rest, func() {
			m.mu.Lock()
			m.telling, m.toldAt = nil, time.Now()
			m.mu.Unlock()
			m.changed.Wake()
		})
		m.mu.Unlock()
		return
	}
	m.toldAt = now
	m.mu.Unlock()
	m.changed.Wake()
}

func (m *members) ownMeta() member.Metadata {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.meta
}

// stop ends the wait of a change that was not told.
func (m *members) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.telling != nil {
		m.telling.Stop()
	}
}

// record takes s into the list. News says that a process appeared, came back or
// died, and not only told more about itself. Newest is the boot of the newest
// living process of the name, or 0 if none lives. The caller calls tell.
func (m *members) record(s member.Sighting) (news bool, newest uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := gossipName(s.Process)
	old, known := m.seen[key]
	if known && old.Alive == s.Alive {
		s.Since = old.Since
	}
	if known && !old.Alive {
		m.dead--
	}
	if !s.Alive {
		m.dead++
	}
	if !known {
		m.names[s.Name] = append(m.names[s.Name], key)
	}
	m.seen[key] = s
	m.lists = lists{}
	if delete(m.claim, key); s.Alive && (s.Meta.Voter || s.Meta.Leads != 0) {
		m.claim[key] = true
	}
	if m.at[key] == "" {
		m.at[key] = s.Addr
	}
	m.prune()
	for _, key := range m.names[s.Name] {
		if o := m.seen[key]; o.Alive {
			newest = max(newest, o.Boot)
		}
	}
	return old.Alive != s.Alive, newest
}

// prune forgets the process that has been dead for longest, if the list is too
// long. The caller holds m.mu.
//
// Processes that no handshake has proved go first: any member can invent a thousand of them,
// and call a voter dead before. A leader that does not know the address of a voter can
// ask the voter nothing, and a leader without answers serves nobody.
func (m *members) prune() {
	if len(m.seen) <= maxSeen || m.dead == 0 {
		return
	}
	oldest, proven := "", false
	for key, s := range m.seen {
		if s.Alive {
			continue
		}
		p := m.proven(key)
		if oldest == "" || proven && !p || proven == p && s.Since.Before(m.seen[oldest].Since) {
			oldest, proven = key, p
		}
	}
	name := m.seen[oldest].Name
	if m.names[name] = slices.DeleteFunc(m.names[name], func(key string) bool { return key == oldest }); len(m.names[name]) == 0 {
		delete(m.names, name)
	}
	m.dead--
	delete(m.seen, oldest)
	delete(m.at, oldest)
}

// place returns the one address of a process: the first that it was listed at, unless
// it has answered elsewhere. It is "" for a process that is not known.
func (m *members) place(p member.Process) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at[gossipName(p)]
}

// setPlace notes that a known process has answered at addr; "" changes nothing. From
// then on gossip may list the process there, and nowhere else.
func (m *members) setPlace(p member.Process, addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if key := gossipName(p); addr != "" && m.at[key] != "" {
		m.at[key] = addr
	}
}

func (m *members) alive() []member.Sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.sorted().alive)
}

func (m *members) all() []member.Sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.sorted().all)
}

// of returns the sightings of a member's name, by boot.
func (m *members) of(name string) (out []member.Sighting) {
	own := m.cluster()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range m.names[name] {
		if s, ok := m.listed(key, own); ok {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, member.Compare)
	return out
}

func (m *members) claimants() (out []member.Sighting, living int) {
	own := m.cluster()
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.claim {
		if s, ok := m.listed(key, own); ok && !m.self.Is(s.Process) {
			out = append(out, s)
		}
	}
	return out, len(m.seen) - m.dead
}

// listed returns a known process as the lists have it. Ok is false for a member of another
// cluster, which was met before this member knew its own cluster. The caller holds m.mu.
func (m *members) listed(key string, own machine.ClusterID) (s member.Sighting, ok bool) {
	s = m.seen[key]
	if m.self.Is(s.Process) {
		s.Meta = m.meta
		return s, true
	}
	return s, !foreign(s, own)
}

// sorted returns the lists, which the caller must not change. The caller holds m.mu.
func (m *members) sorted() lists {
	own := m.cluster()
	if m.lists.all != nil && m.lists.of == own {
		return m.lists
	}
	l := lists{all: make([]member.Sighting, 0, len(m.seen)), of: own}
	for key := range m.seen {
		if s, ok := m.listed(key, own); ok {
			l.all = append(l.all, s)
		}
	}
	slices.SortFunc(l.all, member.Compare)
	for _, s := range l.all {
		if s.Alive {
			l.alive = append(l.alive, s)
		}
	}
	m.lists = l
	return l
}

// foreign reports whether s is in another cluster than own. Without an own
// cluster no member is foreign.
func foreign(s member.Sighting, own machine.ClusterID) bool {
	return own != (machine.ClusterID{}) && s.Meta.InCluster() && s.Meta.Cluster != own
}
