package term

import (
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// pace decides how much the members put into one entry.
//
// A command waits for the entry in flight and for its own entry. A member alone may fill
// entries: a long entry keeps nobody waiting, and the cost of an entry is shared by many
// commands. But a member with ten thousand requests must not make each of another member's
// take as long as a thousand: a turn at every entry is of little use where the entries are
// long. So while two members are about, entries are short: each member with waiting commands
// adds to an entry a part of at most so many commands as take half of the time of an entry
// without work. That time is the replication and the flush of the disks, which no command
// shortens. Where it is long, parts are large, and little of the throughput is lost.
//
// Bytes and cost count as commands do in lane.go: as shares of an entry. Of commands above its
// part a member adds one.
//
// A member is about for a second after its last command: with a shorter memory, a caller that
// asks now and then would find a long entry in flight each time.
type pace struct {
	about [2]seen // the members whose commands came last
	empty [8]time.Duration
	next  int // of empty
}

type seen struct {
	member string
	at     time.Time
}

const (
	aboutFor  = time.Second
	leastPart = 32                    // commands that a member may add to an entry, however short entries are
	perPart   = 20 * time.Microsecond // CPU time of all members for a command, with its answer
	emptyMost = 4                     // commands of an entry that counts as without work
	emptyCost = 16
)

// note notes a command of a member.
func (c *pace) note(member string, now time.Time) {
	if c.about[0].member != member || c.about[0].at.IsZero() {
		if c.about[1].member != member || c.about[1].at.IsZero() {
			c.about[1] = seen{member, now}
		}
		c.about[0], c.about[1] = c.about[1], c.about[0]
	}
	c.about[0].at = now
}

// shared reports whether two members are about.
func (c *pace) shared(now time.Time) bool {
	return !c.about[1].at.IsZero() && now.Sub(c.about[1].at) <= aboutFor
}

// decided notes how long an entry was in flight.
func (c *pace) decided(commands, cost int, took time.Duration) {
	if commands <= emptyMost && cost <= emptyCost {
		c.empty[c.next] = took
		c.next = (c.next + 1) % len(c.empty)
	}
}

// part returns how many commands a member may add to an entry.
func (c *pace) part() int {
	return min(max(leastPart, int(c.least()/2/perPart)), machine.MaxCommands)
}

// least returns the time of an entry without work; 0: not known yet. The least of a few
// measurements counts: a host with other work makes some entries long.
func (c *pace) least() time.Duration { return slices.Min(c.empty[:]) }

// quota returns the share of an entry that one member may take. The caller holds p.mu.
func (p *proposer) quota() int {
	if p.turns.len() < 2 && !p.pace.shared(p.table.Clock.Now()) {
		return wholeEntry
	}
	return p.pace.part() * leastShare
}
