package sim

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/locks"
)

// The coverage of a run: the triples of a leader's state, a session's state and the state of
// the network to the session's member that came about at one moment. A sample is taken ten
// times a second, or 40 times in a TTL, and at each entry that begins a short state.

// leaderState is the leader's part of a triple.
type leaderState uint8

const (
	leadFounding leaderState = iota // nothing is granted yet
	leadFresh                       // for less than a TTL
	leadSettled
	leadGone  // dead, frozen or cut off, and nobody has followed
	leadRival // an earlier leader that does not know is at large
)

var leaderNames = []string{"founding", "fresh", "settled", "gone", "rival"}

// sessionState is the session's part.
type sessionState uint8

const (
	sessionIdle      sessionState = iota
	sessionHolds                  // and waits for nothing
	sessionWaits                  //
	sessionRecalled               // keeps a key without a lock, or with one, and another request has come
	sessionMarked                 // silent
	sessionRevoked                // by an operator
	sessionEnding                 // in slices
	sessionTrustless              // open, while its holder no longer trusts its locks
)

var sessionNames = []string{"idle", "holds", "waits", "recalled", "marked", "revoked", "ending", "trustless"}

var netNames = []string{netWhole: "whole", netSlow: "slow", netIn: "deaf", netOut: "mute", netCut: "cut", netPaused: "paused", netFrozen: "frozen", netDead: "dead"}

const (
	netFrozen netState = 6
	netDead   netState = 7
)

// A triple is a state of the protocol.
type triple struct {
	leader  leaderState
	session sessionState
	net     netState
}

func (t triple) String() string {
	return leaderNames[t.leader] + "/" + sessionNames[t.session] + "/" + netNames[t.net]
}

func parseTriple(text string) (t triple, err error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return t, fmt.Errorf("%q is no triple", text)
	}
	find := func(names []string, name string) uint8 {
		for i, n := range names {
			if n == name {
				return uint8(i)
			}
		}
		err = fmt.Errorf("%q is no state", name)
		return 0
	}
	return triple{leaderState(find(leaderNames, parts[0])), sessionState(find(sessionNames, parts[1])), netState(find(netNames, parts[2]))}, err
}

// coverage collects triples.
type coverage struct {
	w   *town
	now chan struct{}

	mu       sync.Mutex
	seen     map[triple]int
	opened   map[machine.SessionID]time.Time
	distrust map[string]time.Time // by member and client: when its latest session lost its trust
}

func newCoverage(w *town) *coverage {
	return &coverage{w: w, now: make(chan struct{}, 1), seen: make(map[triple]int), opened: make(map[machine.SessionID]time.Time), distrust: make(map[string]time.Time)}
}

// lost notes that a client no longer trusts its session.
func (c *coverage) lost(member, client string, why locks.Reason) {
	if why == locks.QuorumUnreachable || why == locks.ProcessPaused {
		c.mu.Lock()
		c.distrust[member+client] = time.Now()
		c.mu.Unlock()
	}
}

// watch samples until ctx ends.
func (c *coverage) watch(ctx context.Context) {
	tick := time.NewTicker(max(100*time.Millisecond, c.w.shape.ttl/40))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-c.now:
		}
		c.sample()
	}
}

// soon has a sample taken now: a state that lasts for moments has begun.
func (c *coverage) soon() {
	select {
	case c.now <- struct{}{}:
	default:
	}
}

func (c *coverage) sample() {
	nets := make(map[string]netState)
	for _, s := range c.w.sites {
		nets[fmt.Sprint("member-", s.i)] = c.w.netOf(s)
	}
	c.w.log.view(func(m *machine.State, started time.Time) {
		leader := c.w.leader(m, started)
		recalled := recalledSessions(m)
		c.mu.Lock()
		defer c.mu.Unlock()
		m.Sessions(func(st machine.SessionStatus) bool {
			if c.opened[st.ID].IsZero() {
				c.opened[st.ID] = time.Now()
			}
			c.seen[triple{leader, c.session(st, recalled), nets[st.Node]}]++
			return true
		})
	})
}

// session returns the state of a session. The caller holds mu.
func (c *coverage) session(st machine.SessionStatus, recalled map[machine.SessionID]bool) sessionState {
	switch {
	case st.Ending:
		return sessionEnding
	case st.Revoked:
		return sessionRevoked
	case c.opened[st.ID].Before(c.distrust[st.Node+st.Client]):
		return sessionTrustless
	case st.Silent:
		return sessionMarked
	case recalled[st.ID]:
		return sessionRecalled
	case st.Waits > 0:
		return sessionWaits
	case st.Grants > 0:
		return sessionHolds
	}
	return sessionIdle
}

// recalledSessions returns the sessions with a kept key that others wait for.
func recalledSessions(m *machine.State) map[machine.SessionID]bool {
	list := make(map[machine.SessionID]bool)
	for _, key := range m.Keys("st", "", 8) {
		if st := m.Status(key, 2); st.Queue > 0 {
			for _, g := range st.Holders {
				list[g.Session] = list[g.Session] || g.Block > 0
			}
		}
	}
	return list
}

// netOf returns the state of a site's network and process.
func (w *town) netOf(s *site) netState {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.now == nil:
		return netDead
	case s.frozen:
		return netFrozen
	}
	return s.net
}

// leader returns the leader's state by the newest committed term and the faults.
func (w *town) leader(m *machine.State, started time.Time) leaderState {
	if !m.Lifted() {
		return leadFounding
	}
	w.mu.Lock()
	now, rivals := w.leads, w.rivals
	var rival bool
	for term, p := range rivals {
		if term < now.term && p.site.now == p && p != now.by && (p.site.frozen || p.site.net == netCut || p.site.net == netPaused || time.Since(now.at) < time.Second) {
			rival = true
		}
	}
	w.mu.Unlock()
	if now.by == nil {
		return leadGone
	}
	switch n := w.netOf(now.by.site); {
	case w.running(now.by.site) != now.by, n == netFrozen, n == netCut, n == netPaused, n == netDead:
		return leadGone
	case rival:
		return leadRival
	case time.Since(started) < w.shape.ttl:
		return leadFresh
	}
	return leadSettled
}
