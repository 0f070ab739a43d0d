package gossip

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
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

	mu   sync.Mutex
	meta member.Metadata            // this node's own, as of now
	seen map[string]member.Sighting // by gossip name; the dead too, for a while
	at   map[string]string          // the address of each of seen: the first listed, or where it has answered
}

func newMembers(self member.Self, meta member.Metadata, cluster func() machine.ClusterID) *members {
	return &members{self: self, cluster: cluster, proven: func(string) bool { return false }, meta: meta, seen: make(map[string]member.Sighting), at: make(map[string]string)}
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
	m.mu.Unlock()
	if !same {
		m.changed.Wake()
	}
	return !same
}

func (m *members) ownMeta() member.Metadata {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.meta
}

// record takes s into the list. News says that a process appeared, came back or
// died, and not only told more about itself. Newest is the boot of the newest
// living process of the name, or 0 if none lives. The caller wakes the waiters.
func (m *members) record(s member.Sighting) (news bool, newest uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := gossipName(s.Process)
	old, known := m.seen[key]
	if known && old.Alive == s.Alive {
		s.Since = old.Since
	}
	m.seen[key] = s
	if m.at[key] == "" {
		m.at[key] = s.Addr
	}
	m.prune()
	for _, o := range m.seen {
		if o.Name == s.Name && o.Alive {
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
	if len(m.seen) <= maxSeen {
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
	return m.list(func(s member.Sighting) bool { return s.Alive })
}

func (m *members) all() []member.Sighting {
	return m.list(func(member.Sighting) bool { return true })
}

// list returns the wanted sightings, sorted. Members of another cluster are left
// out: they were met before this member knew its own cluster.
func (m *members) list(wanted func(member.Sighting) bool) []member.Sighting {
	own := m.cluster()
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []member.Sighting
	for _, s := range m.seen {
		switch {
		case m.self.Is(s.Process):
			s.Meta = m.meta
		case foreign(s, own):
			continue
		}
		if wanted(s) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, member.Compare)
	return out
}

// foreign reports whether s is in another cluster than own. Without an own
// cluster no member is foreign.
func foreign(s member.Sighting, own machine.ClusterID) bool {
	return own != (machine.ClusterID{}) && s.Meta.InCluster() && s.Meta.Cluster != own
}
