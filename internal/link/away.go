package link

import (
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
)

// This file has the Link's part of leaving a cluster. Everything that a Link knows
// belongs to one cluster: the upstream, the highest term served, the bound of TTLs,
// and the sessions. A term of the former cluster, taken over, would keep the member
// from every leader of the next cluster until that leader's term is as high.

// awayState is a Link's state between two clusters, and the Link's memory across
// clusters. Link.mu guards the state.
type awayState struct {
	away   bool      // no leader is looked for
	leaves uint64    // calls of Leave
	lost   time.Time // when this member lost its leader last

	told  uint64        // the largest TTL bound ever told, in milliseconds
	token machine.Token // the largest token ever seen
	at    time.Time     // when token was first seen, by clock
	clock *member.Clock
}

// seen returns how often the member has left its cluster, and whether it is between
// two clusters now.
func (a *awayState) seen(mu *sync.Mutex) (leaves uint64, away bool) {
	mu.Lock()
	defer mu.Unlock()
	return a.leaves, a.away
}

func (a *awayState) noteTTL(ms uint64) { a.told = max(a.told, ms) }

// mostToken bounds the tokens believed: a founding with a higher first token is
// refused.
const mostToken = machine.Token(1) << 62

func (a *awayState) noteToken(t machine.Token) {
	if t > a.token && t < mostToken {
		a.token, a.at = t, a.clock.Now()
	}
}

// Leave ends this member's trust in the cluster: the upstream is dropped, and each
// attached session is told EventEnded with the reason Moved. When Leave returns,
// every sink has returned, so the contexts of all locks of this process have ended.
// Until Return no leader is looked for, and calls wait.
//
// A session opened meanwhile attaches after Leave. Such a session holds nothing,
// because a client attaches before its first request, and the request finds the
// next cluster, where the session is unknown. Its claim stays: the Open may still be on
// its way, and then opens the session in the next cluster.
func (k *Link) Leave() {
	k.mu.Lock()
	k.away.away = true
	k.away.leaves++
	up := k.up
	if up != nil {
		k.away.lost = time.Now()
	}
	k.up, k.leader = nil, member.Process{}
	k.term, k.ttl, k.members, k.voters = 0, 0, 0, nil
	sessions := k.takeAttachedLocked()
	k.mu.Unlock()
	k.changed.Wake()
	for id, a := range sessions {
		a.tell(machine.Event{Kind: machine.EventEnded, Session: id, Reason: machine.Moved})
	}
	k.Wake() // Run quits the upstream
}

// Return looks for a leader again after Leave.
func (k *Link) Return() {
	k.mu.Lock()
	k.away.away = false
	k.mu.Unlock()
	k.Wake()
}

// Led reports whether a leader serves this member, and for how long that has been so.
func (k *Link) Led() (led bool, since time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.up != nil {
		return true, time.Since(k.reached)
	}
	return false, time.Since(k.away.lost)
}

// Away reports whether Leave was called last, and not Return.
func (k *Link) Away() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.away.away
}

// Alone returns for how long no leader has served this member, or 0 while a leader
// does.
func (k *Link) Alone() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.up != nil {
		return 0
	}
	return max(time.Since(k.away.lost), 1)
}

// Seen returns what this process has seen in all of its clusters: the largest
// token with the time of the first sight, and the largest bound of TTLs ever told,
// zero if none was. The time is by the clock of Config.Self.
func (k *Link) Seen() (token machine.Token, at time.Time, ttl time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.away.token, k.away.at, time.Duration(k.away.told) * time.Millisecond
}
