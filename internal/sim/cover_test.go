package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/locks"
)

// The coverage of a run: the triples of a leader's state, a session's state and the state of
// the network between the two that came about at one moment. A sample is taken ten times a
// second, or 40 times in a TTL, and at each entry that begins a short state. A sample counts
// only states of that moment: a moment at which they cannot be told is left out.

// leaderState is the leader's part of a triple.
type leaderState uint8

const (
	leadFounding leaderState = iota // nothing is granted yet
	leadFresh                       // for less than a TTL
	leadSettled
	leadGone  // leads no more, or not a majority, or stands still, and nobody has followed
	leadRival // an earlier leader does not know yet
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
	sessionTrustless              // open, while its living holder no longer trusts its locks
)

var sessionNames = []string{"idle", "holds", "waits", "recalled", "marked", "revoked", "ending", "trustless"}

var netNames = []string{netWhole: "whole", netSlow: "slow", netIn: "deaf", netOut: "mute", netCut: "cut", netPaused: "paused", netFrozen: "frozen", netDead: "dead"}

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
	distrust map[holder]time.Time // when the latest session lost its trust
}

// A holder is a client of a process.
type holder struct {
	p      *process
	client string
}

func newCoverage(w *town) *coverage {
	return &coverage{w: w, now: make(chan struct{}, 1), seen: make(map[triple]int), opened: make(map[machine.SessionID]time.Time), distrust: make(map[holder]time.Time)}
}

// lost notes that a client no longer trusts its session.
func (c *coverage) lost(h holder, why locks.Reason) {
	if why == locks.QuorumUnreachable || why == locks.ProcessPaused {
		c.mu.Lock()
		c.distrust[h] = time.Now()
		c.mu.Unlock()
		c.soon()
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
	w := c.w
	w.mu.Lock()
	now := w.leads
	var living []*process
	for p := range w.led {
		if p.ended {
			delete(w.led, p)
		} else if p.node != nil {
			living = append(living, p)
		}
	}
	w.mu.Unlock()
	var votes []string // by the newest leader's account
	leads, rival := false, false
	for _, p := range living {
		told, still := opinion(p)
		switch {
		case p == now.by:
			votes, leads = told, still
		case still:
			rival = true
		default:
			w.mu.Lock()
			delete(w.led, p)
			w.mu.Unlock()
		}
	}
	w.log.view(func(m *machine.State, begun term) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if now.by == nil || w.leads != now || begun.number != now.term {
			return // another leader follows at this moment
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		leader := w.leader(m, begun, leads && w.reaches(now.by, votes), rival)
		recalled := recalledSessions(m)
		m.Sessions(func(st machine.SessionStatus) bool {
			if c.opened[st.ID].IsZero() {
				c.opened[st.ID] = time.Now()
			}
			if p := w.boots[st.Boot]; p != nil {
				c.seen[triple{leader, c.session(st, p, recalled), w.netBetween(p, leader)}]++
			}
			return true
		})
	})
}

// opinion returns whether a process leads, and who votes, by its own account.
func opinion(p *process) (votes []string, leads bool) {
	for _, m := range p.node.Members() {
		if m.Voter {
			votes = append(votes, m.Name)
		}
		leads = leads || m.Leader && m.Self
	}
	return votes, leads
}

// reaches reports whether a leader runs, and hears a majority of the voters and is heard by
// them. The caller holds mu.
func (w *town) reaches(p *process, votes []string) bool {
	if p.ended || p.site.frozen || p.site.paused {
		return false
	}
	n := 0
	for _, s := range w.sites {
		if s.now == nil || !slices.Contains(votes, s.now.node.Name()) {
			continue
		}
		if s == p.site || !s.frozen && !s.paused && !w.cut(s, p.site) && !w.cut(p.site, s) {
			n++
		}
	}
	return n > len(votes)/2
}

// session returns the state of a session of p. The caller holds mu, and the town's.
func (c *coverage) session(st machine.SessionStatus, p *process, recalled map[machine.SessionID]bool) sessionState {
	switch {
	case st.Ending:
		return sessionEnding
	case st.Revoked:
		return sessionRevoked
	case !p.ended && c.opened[st.ID].Before(c.distrust[holder{p, st.Client}]):
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

// netBetween returns the state of a process, and of the network between that process and the
// leader; or most of the other members, if the leader is gone. The caller holds mu.
func (w *town) netBetween(p *process, l leaderState) netState {
	to := []*site{w.leads.by.site}
	if l == leadGone {
		to = w.others(p.site)
	}
	switch {
	case p.ended:
		return netDead
	case p.site.frozen:
		return netFrozen
	case to[0] == p.site:
		return netWhole
	}
	return w.between(p.site, to...)
}

// leader returns the state of the newest leader. leads says that the leader knows so and
// reaches a majority. The caller holds mu.
func (w *town) leader(m *machine.State, begun term, leads, rival bool) leaderState {
	switch {
	case !m.Lifted():
		return leadFounding
	case !leads:
		return leadGone
	case rival:
		return leadRival
	case time.Since(begun.at) < w.shape.ttl:
		return leadFresh
	}
	return leadSettled
}
