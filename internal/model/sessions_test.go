package model

import (
	"fmt"
	"strings"
)

// The model of sessions: beats, the confirmation of the term, changes of the leader,
// marks of silence, expiry and trust, with the locks of the sessions. See doc.go.

const (
	mostClients = 2
	mostLeaders = 3
	mostBeats   = 2
	mostKeys    = 2
	voters      = 3
)

// sessions holds the rules and the bounds of an exploration.
type sessions struct {
	// Bounds.
	clients int // with a clock; beside them one other takes and releases keys as it likes
	leaders int // terms won
	beats   int // of a client under way at once
	keys    int
	grants  int  // of all keys together
	doubts  int  // a leader establishes its term anew so often
	holding bool // client A holds the first key at the start; else every session is still to be opened

	// Times, in the unit of a clock. A clock advances by slow or fast in a tick.
	ttl, margin uint8
	slow, fast  uint8
	anyRate     bool // each clock chooses its rate in each tick; else clients are slow and leaders fast

	// Rules. A false rule has been taken out.
	fromSending     bool // locks/keepalive.go extendTrust: trust counts from the sending of a beat, not from its answer
	openFromSending bool // locks/opening.go openSession: the first trust counts from the request for the session
	sleepCounts     bool // locks/trust.go since: the sleep of the host is added
	spentStays      bool // locks/keepalive.go extendTrust: a window that is over is not opened again
	aliveAtGrant    bool // locks/event.go handleGranted: a grant is taken only while the trust is open
	endsFirst       bool // locks/release.go: a context ends before the Release is sent
	fullTTL         bool // term/beat.go hear: a deadline is a TTL after the beat
	due             bool // term/keeper.go takeDue: an Expire is proposed at the deadline
	freshTTL        bool // term/keeper.go begin: a new leader gives a whole TTL
	confirms        bool // term/beat.go receive: a beat is acknowledged after a round
	asksAfter       bool // term/rounds.go run: a round begins after the beats that it confirms
	leads           bool // term/rounds.go confirmTerm: the leader looks again whether it leads
	expiryHolds     bool // term/beat.go confirmed: no acknowledgement while an Expire is in flight
	markHolds       bool // the same for a Silence
	silenceHolds    bool // no acknowledgement while the mark stands
	markFull        bool // term/table.go noteLocked: the TTL of a mark counts from its Apply
	termBound       bool // machine/ending.go: an Expire of another term is refused
	barrier         bool // term/establish.go: entries of an earlier Term of the same leader come before
	openOnly        bool // machine/admit.go: no grant to a session that is not open
	byToken         bool // machine/release.go: a Release names the grant
	exclusive       bool // machine/grant.go: a held key makes a request wait
	keepsCounter    bool // machine/snapshot.go: the counter of tokens is in a snapshot
	endsForGood     bool // machine/ending.go: a session whose keys are freed in slices is over at the first
}

func allSessionRules() sessions {
	return sessions{
		clients: 1, leaders: 2, beats: 1, keys: 1, grants: 2, doubts: 0,
		ttl: 10, margin: 2, slow: 4, fast: 5,
		fromSending: true, openFromSending: true, sleepCounts: true, spentStays: true, aliveAtGrant: true, endsFirst: true,
		fullTTL: true, due: true, freshTTL: true, confirms: true, asksAfter: true, leads: true,
		expiryHolds: true, markHolds: true, silenceHolds: true, markFull: true, termBound: true, barrier: true,
		openOnly: true, byToken: true, exclusive: true, keepsCounter: true, endsForGood: true,
	}
}

func (r sessions) trust() uint8 { return r.ttl - r.margin }

// sessionState is a state. Leaders are numbered by their terms, from 0; the first leads
// at the start.
type sessionState struct {
	term    uint8         // the last term with a LeaderStart in the table
	elected uint8         // the last term won
	voters  [voters]uint8 // the term that each voter has voted in, or has heard of
	doubts  uint8
	token   uint8 // of the last grant
	highest uint8 // token of all grants so far
	stray   uint8 // an entry about client strayOf whose fate is unknown, of the present term
	strayOf uint8
	bad     uint8 // a promise was broken

	keys    [mostKeys]keyState
	clients [mostClients]clientState
	leaders [mostLeaders]leaderState
}

type keyState struct {
	holders uint8 // bit of each client, and of the other
	token   uint8 // of the last grant
}

type clientState struct {
	life     uint8
	trust    uint8 // time left, on the client's clock
	table    uint8 // of the session, in the table
	markLeft uint8 // of the TTL of the mark
	beats    [mostBeats]beatState
	locks    [mostKeys]lockState
}

const (
	opening uint8 = iota // the first message is the request for the session
	living
	lost
)

const (
	unopened uint8 = iota
	open
	marked // as silent
	ending // its keys are freed in slices
	over
)

type lockState struct {
	asked   uint8 // a request: under way, or granted without the client's knowledge
	held    uint8 // the client's lock
	token   uint8
	release uint8 // token of a Release under way, or 0
}

const (
	underWay uint8 = 1
	granted  uint8 = 2

	trusted uint8 = 1 // as long as the session's trust is open
	blindly uint8 = 2 // taken when the trust was not open
	freed   uint8 = 3 // the Release is sent, and the context has not ended
)

// A beatState is a beat that the client still wants to hear of. Copies of the beat are
// with the leaders.
type beatState struct {
	trust uint8 // what is left of the trust that a confirmation gives; 0: no beat
	acked uint8 // the confirmation is under way
	at    [mostLeaders]uint8
	due   [mostLeaders]uint8 // of a waiting beat: what is left of the TTL since it came
}

const (
	received uint8 = 1 + iota
	inRound        // a round that began later asks the voters
	waits          // for an entry about the session
)

type leaderState struct {
	voter    uint8
	life     uint8
	round    uint8
	sessions [mostClients]deadlineState
}

const (
	elected uint8 = 1 + iota
	serving
	deposed // and knows
)

const (
	asking    uint8 = 1 + iota
	confirmed       // by a voter beside the leader's own
)

// A deadlineState is a session as seen by a leader.
type deadlineState struct {
	left   uint8 // until the deadline, on the leader's clock
	silent uint8 // marked, as far as the leader knows
	gone   uint8 // ended, or not opened here
	entry  uint8 // in flight
	phase  uint8 // of entry
}

const (
	silence uint8 = 1 + iota
	hear
	expire
)

const (
	proposed  uint8 = 1 + iota
	committed       // and the leader has not heard
)

// The other promises are read off a state.
const (
	twoHolders uint8 = 1 + iota
	tokenFell
	deadHolder
)

const other = mostClients // among the holders of a key

func (r sessions) model() model[sessionState] {
	var s sessionState
	for c := range r.clients {
		s.clients[c].beats[0].trust = r.trust()
	}
	s.leaders[0].life = serving
	for c := range r.clients {
		s.leaders[0].sessions[c].gone = 1
	}
	if r.holding {
		cl := &s.clients[0]
		cl.life, cl.trust, cl.table, cl.beats[0] = living, r.trust(), open, beatState{}
		cl.locks[0] = lockState{held: trusted, token: 1}
		s.leaders[0].sessions[0] = deadlineState{left: r.ttl}
		s.token, s.highest, s.keys[0] = 1, 1, keyState{holders: 1, token: 1}
	}
	return model[sessionState]{start: []sessionState{s}, steps: r.steps, wrong: r.wrong, show: r.show}
}

func (r sessions) wrong(s sessionState) string {
	switch s.bad {
	case twoHolders:
		return "P1: a key is granted while it is held"
	case tokenFell:
		return "P2: a token does not rise"
	case deadHolder:
		return "a dead session is granted a key"
	}
	for c := range r.clients {
		for k := range r.keys {
			cl := &s.clients[c]
			if l := cl.locks[k]; (l.held == blindly || l.held != 0 && cl.trust > 0) && s.keys[k].holders&^(1<<c) != 0 {
				return fmt.Sprintf("P3: client %s trusts its lock, and the key is granted to another", letter(c))
			}
		}
	}
	return ""
}

// show is a state in a few words.
func (r sessions) show(s sessionState) string {
	var b strings.Builder
	for c := range r.clients {
		cl := s.clients[c]
		switch cl.life {
		case opening:
			fmt.Fprintf(&b, "%s opens", letter(c))
		case living:
			fmt.Fprintf(&b, "%s trusts %d", letter(c), cl.trust)
		case lost:
			fmt.Fprintf(&b, "%s lost", letter(c))
		}
		for k := range r.keys {
			if cl.locks[k].held != 0 {
				fmt.Fprintf(&b, " lock %d", cl.locks[k].token)
			}
		}
		for _, beat := range cl.beats {
			if beat.trust > 0 {
				fmt.Fprintf(&b, " beat %d", beat.trust)
			}
		}
		b.WriteString(" | ")
	}
	for i := range r.leaders {
		l := s.leaders[i]
		if l.life == serving {
			fmt.Fprintf(&b, "leader %d:", i+1)
			for c := range r.clients {
				switch d := l.sessions[c]; {
				case d.gone != 0:
					fmt.Fprintf(&b, " %s none", letter(c))
				case d.silent != 0:
					fmt.Fprintf(&b, " %s silent %d", letter(c), d.left)
				default:
					fmt.Fprintf(&b, " %s %d", letter(c), d.left)
				}
			}
			b.WriteString(" | ")
		}
	}
	for k := range r.keys {
		b.WriteString("key:")
		for c := range mostClients + 1 {
			if s.keys[k].holders>>c&1 != 0 {
				b.WriteString(" " + who(c))
			}
		}
		if s.keys[k].holders == 0 {
			b.WriteString(" free")
		}
		b.WriteString(" ")
	}
	return strings.TrimSpace(b.String())
}

func who(c int) string {
	if c == other {
		return "other"
	}
	return letter(c)
}
