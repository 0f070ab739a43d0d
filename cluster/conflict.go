package cluster

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// conflictLog remembers the conflicts that last. Each is told again and again, at
// growing intervals, since an operator may look at the logs of the last minutes
// only. Strangers can neither fill the memory, nor the log, nor silence a conflict
// that lasts:
//
//   - A full memory forgets the conflict with the fewest signs, so one with many
//     stays among any number of forged ones, which each have a sign.
//   - The first tellings of all conflicts are limited. A conflict left untold is told
//     at a later sign, once it has lasted for timing.ConflictAgain; conflicts that
//     last have a limit of their own.
type conflictLog struct {
	mu      sync.Mutex
	told    map[string]*toldConflict
	fresh   allowance // tellings of conflicts seen for the first time
	lasting allowance // tellings of conflicts that last

	namesake atomic.Bool // a namesake is being asked
}

// toldConflict is one lasting conflict.
type toldConflict struct {
	with   member.Process
	detail string
	next   string        // an operator's next action; "" for the action of every conflict
	signs  int           // seen so often
	first  time.Time     // the first sign
	seen   time.Time     // the last sign
	told   time.Time     // the last event; zero: none
	pause  time.Duration // until the next event
}

const (
	maxConflicts = 256
	maxFresh     = 32 // tellings of fresh conflicts at once, and one each timing.ConflictAgain
	maxLasting   = 64 // the same for lasting ones
	maxAsking    = 16 // namesakes asked at a time
)

// allowance lets a number of events pass at once, and one after each pause.
type allowance struct {
	used int
	from time.Time // used is counted since then, less one for each pause gone by
}

func (a *allowance) pass(most int, now time.Time) bool {
	back := int(now.Sub(a.from) / timing.ConflictAgain)
	if back >= a.used {
		a.used, a.from = 0, now
	} else {
		a.used -= back
		a.from = a.from.Add(time.Duration(back) * timing.ConflictAgain)
	}
	if a.used >= most {
		return false
	}
	a.used++
	return true
}

// due notes a sign of a conflict, and reports whether the conflict is to be told
// now.
func (c *conflictLog) due(with member.Process, detail, next string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprintf("%s.%d %s", with.Name, with.Boot, detail)
	at := c.told[key]
	if at == nil {
		if c.forget(now); len(c.told) >= maxConflicts {
			c.forgetLeast()
		}
		if c.told == nil {
			c.told = make(map[string]*toldConflict)
		}
		at = &toldConflict{with: with, detail: detail, next: next, first: now, pause: timing.ConflictAgain}
		c.told[key] = at
	}
	at.signs++
	at.seen = now
	at.with.Addr = cmp.Or(with.Addr, at.with.Addr)
	switch {
	case !at.told.IsZero() && now.Sub(at.told) < at.pause:
		return false
	case now.Sub(at.first) >= timing.ConflictAgain:
		if !c.lasting.pass(maxLasting, now) {
			return false
		}
	case !c.fresh.pass(maxFresh, now):
		return false
	}
	if !at.told.IsZero() {
		at.pause = min(2*at.pause, timing.ConflictAtMost)
	}
	at.told = now
	return true
}

// settled forgets the conflicts with a process.
func (c *conflictLog) settled(with member.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, at := range c.told {
		if at.with.Name == with.Name && at.with.Boot == with.Boot {
			delete(c.told, key)
		}
	}
}

// forget removes the conflicts without a sign for long. The caller holds c.mu.
func (c *conflictLog) forget(now time.Time) {
	for key, at := range c.told {
		if now.Sub(at.seen) > 2*timing.ConflictAtMost {
			delete(c.told, key)
		}
	}
}

// forgetLeast removes the conflict with the fewest signs, the longest silent one of
// several. The caller holds c.mu.
func (c *conflictLog) forgetLeast() {
	var least string
	for key, at := range c.told {
		l := c.told[least]
		if l == nil || cmp.Or(cmp.Compare(at.signs, l.signs), at.seen.Compare(l.seen)) < 0 {
			least = key
		}
	}
	delete(c.told, least)
}

// conflictSeen is a conflict that lasts.
type conflictSeen struct {
	With   Member
	Detail string
	Next   string // an operator's next action
}

// conflictsSeen lists the conflicts with a sign in the last two minutes, by member
// name and detail.
func (n *Node) conflictsSeen() []conflictSeen {
	c := &n.conflicts
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(time.Now())
	var out []conflictSeen
	for _, at := range c.told {
		out = append(out, conflictSeen{memberOf(at.with), at.detail, cmp.Or(at.next, Conflict.next())})
	}
	slices.SortFunc(out, func(a, b conflictSeen) int {
		return cmp.Or(cmp.Compare(a.With.Name, b.With.Name), cmp.Compare(a.Detail, b.Detail))
	})
	return out
}

// conflict reports members that exclude each other: by their configurations, or as
// members of two clusters. An empty detail takes back the earlier ones about the
// process.
func (n *Node) conflict(p member.Process, detail string) {
	if detail == "" {
		n.conflicts.settled(p)
		return
	}
	n.tellConflict(p, detail, "")
}

// tellConflict is conflict with the next action; "" is the action of every conflict.
func (n *Node) tellConflict(p member.Process, detail, next string) {
	if n.conflicts.due(p, detail, next, time.Now()) {
		n.event(Event{Kind: Conflict, Member: memberOf(p), Detail: detail, Next: next})
	}
}

func clusterText(id [16]byte) string { return hex.EncodeToString(id[:4]) }

// tellMeeting tells a meeting of two clusters that does not settle itself, on both
// sides alike.
func (n *Node) tellMeeting(p member.Process, own, other wire.LineageOf, verdict verdictOn) {
	ids := fmt.Sprintf("two clusters of one name: %s here, %s at %s", clusterText(own.Founding.Cluster), clusterText(other.Founding.Cluster), p.Addr)
	switch {
	case verdict == clash:
		n.tellConflict(p, ids+"; both have granted locks",
			"stop all members of the cluster that must not live, and start them again, without its Dirs, with a Join that names members of the other")
	case verdict == hold && founding.Kin(*own.Founding, *other.Founding) == founding.Stranger && !own.Granted && other.Granted:
		n.tellConflict(p, ids+"; the other has no leader, and this one waits with its first grant",
			"restart the members of the other cluster, or give it its majority back")
	case verdict == hold: // see tellHeld
	default:
		n.conflicts.settled(p)
	}
}

// namesake looks into another process with this member's name: an earlier
// process of this member, still believed alive by gossip, or a second process by
// mistake. Of two running processes the member of the cluster stays, or else the
// older process.
//
// Both sides ask, and go on until the other one has answered or gossip does not list it
// any more: a single question can be lost, and gossip's word comes once. While both run,
// both tell the conflict again and again.
func (n *Node) namesake(member.Sighting) {
	if !n.conflicts.namesake.CompareAndSwap(false, true) {
		return // the look under way finds this process too
	}
	n.spawn(func() {
		for {
			n.askNamesakes()
			n.conflicts.namesake.Store(false)
			// A process may have come just before: gossip has found the look under way.
			if n.ctx.Err() != nil || len(n.namesakes()) == 0 || !n.conflicts.namesake.CompareAndSwap(false, true) {
				return
			}
		}
	})
}

// namesakes lists the other processes of this member's name that gossip takes for alive,
// but for those that have ended for certain.
func (n *Node) namesakes() (out []member.Sighting) {
	for _, s := range n.gossip.Of(n.self.Name) {
		if s.Alive && !n.self.Is(s.Process) && !n.proof.Ended(s.Name, s.Boot) {
			out = append(out, s)
		}
	}
	return out
}

// inParallel calls f for each of the list, at most so many calls at a time, and returns when
// all have returned.
func inParallel[T any](most int, list []T, f func(T)) {
	places := make(chan struct{}, most)
	var calls sync.WaitGroup
	for _, one := range list {
		places <- struct{}{}
		calls.Go(func() {
			defer func() { <-places }()
			f(one)
		})
	}
	calls.Wait()
}

// askNamesakes asks all namesakes, again and again until there are none. They are asked in
// parallel: an invented one answers nothing for timing.Dial.
func (n *Node) askNamesakes() {
	pause := timing.LeastBackoff
	early := make(map[uint64]bool) // boots: known before this member was ready?
	for {
		all := n.namesakes()
		if len(all) == 0 {
			return
		}
		for _, s := range all {
			if _, known := early[s.Boot]; !known && len(early) < maxConflicts {
				early[s.Boot] = !n.granted.Load()
			}
		}
		inParallel(maxAsking, all, func(s member.Sighting) { n.askNamesake(s, early[s.Boot]) })
		// More often than a lasting conflict is told, so that it is not forgotten.
		pause = min(2*pause, timing.ConflictAgain)
		select {
		case <-n.ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// askNamesake asks one namesake, and notes the conflict if it answers. The younger one
// fails if it has known of the other since before it was ready, however long the answer
// took: early. A member that has served does not give way to a process that comes later
// and says that it is older, nor does a member with the voter role give way to a process
// without, nor any member whose certificate has no name.
func (n *Node) askNamesake(s member.Sighting, early bool) {
	ctx, cancel := context.WithTimeout(n.ctx, timing.Dial)
	defer cancel()
	var who wire.WhoAnswer
	f, err := n.peers.Ask(ctx, s.Process, wire.Who, nil)
	if err != nil || f.Code != wire.CodeOK || wire.Unmarshal(f.Body, &who) != nil || who.Name != n.self.Name || who.Boot == n.self.Boot {
		return
	}
	n.conflict(s.Process, "two running members of one name")
	if f.Mere && (n.provesVoter() || n.sharesCertificate()) {
		return // under a certificate without a name: each name would be anybody's to stop
	}
	if early && who.Boot < n.self.Boot {
		n.fail(&ConfigError{"Config.Name", fmt.Sprintf("%q is the name of a running member at %s", n.self.Name, s.Addr)})
	}
}

// fail stops a node that can take no part in the cluster. Calls return err from then on.
// A later Stop waits for the end of this one.
func (n *Node) fail(err error) {
	if n.ctx.Err() != nil {
		return
	}
	n.event(Event{Kind: NodeFailed, Detail: err.Error(), Next: afterFailure(err)})
	n.cancel(err)
	go n.Stop()
}
