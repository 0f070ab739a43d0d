package consensus

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wakeup"
)

// contacts remembers how the exchanges with each other server went while this
// node leads. Gossip cannot tell: gossip may see a server that raft cannot reach,
// and may miss a server that raft reaches. Raft's own knowledge is not public.
//
// The methods may be called from any goroutine. Make it with newContacts.
type contacts struct {
	changed wakeup.One

	mu   sync.Mutex
	last map[string]member.Contact // by raft ID
}

func newContacts() *contacts {
	return &contacts{changed: wakeup.NewOne(), last: make(map[string]member.Contact)}
}

// answered notes a successful exchange. Matched is the index up to which the
// server's log surely equals the leader's, or 0 if the exchange told nothing about
// the log, as a heartbeat's; committed is the leader's commit index.
func (c *contacts) answered(id raft.ServerID, matched, committed uint64) {
	c.mu.Lock()
	was := c.last[string(id)]
	now := was
	now.Last, now.Failing = time.Now(), false
	if matched > 0 {
		lag := uint64(currentLag)
		if was.Current {
			lag = lostLag
		}
		now.Current = matched+lag >= committed
	}
	c.put(string(id), now)
	news := was.Last.IsZero() || was.Failing || was.Current != now.Current
	c.mu.Unlock()
	if news {
		c.changed.Wake()
	}
}

// currentLag is how many entries a server may be behind the commit index and
// still count as current: as many as raft sends in one exchange.
const currentLag = entriesPerAppend

// lostLag is how far a current server may fall behind before it counts as behind:
// far more than currentLag, so that the state does not change to and fro under load.
const lostLag = 16 * currentLag

// failed notes an exchange without an answer.
func (c *contacts) failed(id raft.ServerID) {
	c.mu.Lock()
	now := c.last[string(id)]
	news := !now.Failing
	now.Failing = true
	c.put(string(id), now)
	c.mu.Unlock()
	if news {
		c.changed.Wake()
	}
}

// put stores the contact of a server. At the limit, the server longest without an
// answer is forgotten, so that servers of the past take no memory. The caller
// holds c.mu.
func (c *contacts) put(id string, at member.Contact) {
	if _, known := c.last[id]; !known && len(c.last) >= maxContacts {
		oldest := ""
		for other, o := range c.last {
			if oldest == "" || o.Last.Before(c.last[oldest].Last) {
				oldest = other
			}
		}
		delete(c.last, oldest)
	}
	c.last[id] = at
}

// maxContacts is far above the number of servers in any configuration.
const maxContacts = 64

// Contact returns how this leader's latest exchanges with another server went. The
// zero Contact stands for a server without an exchange so far. The answer is about
// this node's own exchanges: a follower exchanges nothing with the others.
func (r *Raft) Contact(id string) member.Contact {
	r.contacts.mu.Lock()
	defer r.contacts.mu.Unlock()
	return r.contacts.last[id]
}

// missing reports whether the latest exchange with a server of the latest configuration
// had no answer.
func (r *Raft) missing() bool {
	return slices.ContainsFunc(r.Servers(), func(s member.Server) bool { return r.Contact(s.ID).Failing })
}

// ContactChanged receives when a server has answered for the first time or again,
// has stopped answering, or has caught up. One goroutine may receive; a news is
// kept until the next receive.
func (r *Raft) ContactChanged() <-chan struct{} { return r.contacts.changed }
