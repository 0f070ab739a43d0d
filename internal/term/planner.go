package term

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// A planner has the leader's part in the groups of the table: it assigns shards to
// callers, ends the Grace of absent callers, and completes a Resize. Package shards
// computes the assignment; the planner decides when:
//
//   - The first assignment of a group waits until no caller has come for
//     timing.PlanQuiet, and at most timing.PlanMost, so that callers that start together
//     share one plan. So do the moves that only restore the balance after a caller came.
//   - An orphan of a settled group is assigned at once.
//   - An absent caller keeps its shards for the Grace, counted from the Apply of its
//     absence here, or from the start of the term: never too short.
//   - A shard that its caller has declined is kept from the caller for a TTL.
//
// The planner has no state that matters: a new leader's planner reads the table, and
// begins all waits anew. A command of the planner carries the term and the version of
// the group that it was computed from, so a stale leader's plan changes nothing. Nor can
// a wrong plan break exclusion: an assignment is an intent, and the key of a shard has
// one holder whatever is assigned.
//
// The planner computes on its own goroutine and on copies. Raft's goroutine only notes
// the groups that have changed, and the keys that a group waits for.
type planner struct {
	t     *Term
	wake  wakeup.One
	known atomic.Int64 // length of groups, read without mu for each changed key

	mu       sync.Mutex
	groups   map[string]*planned // groups of the table with callers, or being resized
	dirty    map[*planned]struct{}
	declined map[enlisted]*declines // by caller
	kept     int                    // in declined, in entries

	next time.Time // earliest time at which a group is due; zero: none. Used by run only
}

// enlisted names a caller by its Enlist.
type enlisted struct {
	session machine.SessionID
	seq     uint64
}

// planned is a group as the planner knows it.
type planned struct {
	name string

	// Guarded by planner.mu.
	news    bool     // the group has changed since it was read
	changed []uint32 // shards with keys that have changed since they were read
	all     bool     // all keys may have changed
	waits   bool     // a change of a key matters now
	busy    bool     // a command about the group is in flight
	failed  bool     // the last command was not decided

	// Used by run only.
	status   machine.GroupStatus
	assigned []uint32
	holders  []holder
	lastID   uint32               // of the callers seen so far
	first    time.Time            // when the first of the callers came that no plan has balanced; zero: none
	last     time.Time            // when the last of them came
	left     map[uint32]departure // absent callers, by ID
	stale    bool                 // something has changed since the last plan
	rest     time.Time            // no plan before, unless there are orphans
	again    time.Time            // when a declined shard may be assigned to its caller again; zero: none is declined
	due      time.Time            // when to look again without news; zero: never
}

// holder is the holder of a shard's key.
type holder struct {
	session machine.SessionID // zero: nobody, or the session has expired
	held    bool
}

// departure is an absence: the version of its beginning, and when it was noticed.
type departure struct {
	since uint64
	at    time.Time
}

func newPlanner(t *Term) *planner {
	return &planner{
		t:        t,
		wake:     wakeup.NewOne(),
		groups:   make(map[string]*planned),
		dirty:    make(map[*planned]struct{}),
		declined: make(map[enlisted]*declines),
	}
}

// begin notes the groups of the table. A group that has changed since the table is
// watched is known already.
func (p *planner) begin() {
	var names []string
	p.t.table.View(func(m *machine.State) {
		m.Groups(func(name string) bool {
			names = append(names, name)
			return true
		})
	})
	p.mu.Lock()
	for _, name := range names {
		p.noteLocked(name)
	}
	p.mu.Unlock()
	p.wake.Wake()
}

// applied notes the changes of an entry that concern groups. Raft's goroutine does no
// more.
func (p *planner) applied(a applied) {
	wake := false
	for _, e := range a.events {
		switch {
		case e.Kind == machine.EventGroup:
			p.mu.Lock()
			p.noteLocked(e.Key)
			p.mu.Unlock()
			wake = true
		case e.Kind == machine.EventChanged && p.known.Load() > 0:
			wake = p.keyChanged(e.Key) || wake
		}
	}
	for i, c := range a.commands {
		if c, ok := c.(machine.Decline); ok && a.outcomes[i].Code == machine.OK {
			p.noteDeclined(c, time.Now().Add(time.Duration(p.t.Bound())*time.Millisecond))
		}
	}
	if wake {
		p.wake.Wake()
	}
}

// noteLocked notes that a group has changed.
func (p *planner) noteLocked(name string) {
	g := p.groups[name]
	if g == nil {
		g = &planned{name: name, all: true, left: make(map[uint32]departure)}
		p.groups[name] = g
		p.known.Store(int64(len(p.groups)))
	}
	g.news = true
	p.dirty[g] = struct{}{}
}

// keyChanged notes that a key has changed, and reports whether a group waits for that.
func (p *planner) keyChanged(key string) bool {
	name, shard, ok := machine.ShardOf(key)
	if !ok {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[name]
	if g == nil {
		return false
	}
	if !g.all {
		g.changed = append(g.changed, shard)
	}
	if len(g.changed) > keysAtOnce { // there may be thousands of groups
		g.changed, g.all = nil, true
	}
	if g.waits {
		p.dirty[g] = struct{}{}
	}
	return g.waits
}

// run looks after the groups until ctx ends.
func (p *planner) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		switch {
		case p.next.IsZero():
			timer.Stop()
		default:
			timer.Reset(p.next.Sub(now))
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
		now = time.Now()
		for _, g := range p.take(now) {
			p.look(g, now)
			if !g.due.IsZero() && (p.next.IsZero() || g.due.Before(p.next)) {
				p.next = g.due
			}
		}
	}
}

// take returns the groups to be looked at: those with news, and the due ones.
func (p *planner) take(now time.Time) (list []*planned) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.next.IsZero() && !p.next.After(now) {
		p.next = time.Time{}
		for _, g := range p.groups {
			switch {
			case g.due.IsZero():
			case !g.due.After(now):
				p.dirty[g] = struct{}{}
			case p.next.IsZero() || g.due.Before(p.next):
				p.next = g.due
			}
		}
	}
	for g := range p.dirty {
		list = append(list, g)
	}
	clear(p.dirty)
	return list
}

// look reads the news of a group, and proposes the commands that are due.
func (p *planner) look(g *planned, now time.Time) {
	g.due = time.Time{}
	if !p.refresh(g, now) {
		return
	}
	p.mu.Lock()
	busy, failed := g.busy, g.failed
	g.failed = false
	p.mu.Unlock()
	switch {
	case busy:
		return // the verdict makes the group dirty
	case failed:
		g.stale = true
		g.sooner(now.Add(timing.KeeperTick))
		return
	}
	for _, decide := range []func(*planned, time.Time) machine.Command{p.dismissal, p.resharding, p.assignment} {
		if cmd := decide(g, now); cmd != nil {
			p.propose(g, cmd)
			return
		}
	}
}

// sooner has the group looked at no later than at a time, unless that is zero.
func (g *planned) sooner(at time.Time) {
	if at.IsZero() {
		return
	}
	if g.due.IsZero() || at.Before(g.due) {
		g.due = at
	}
}

// propose proposes a command about a group, one at a time.
func (p *planner) propose(g *planned, cmd machine.Command) {
	p.mu.Lock()
	g.busy = true
	p.mu.Unlock()
	p.t.Decide(cmd, func(_ machine.Outcome, c wire.Code) {
		// A refusal by the table means that the group has changed: there is news.
		p.mu.Lock()
		g.busy, g.failed = false, c != wire.CodeOK
		p.dirty[g] = struct{}{}
		p.mu.Unlock()
		p.wake.Wake()
	})
}

// dismissal returns the end of an absence that is due, and nil without one.
func (p *planner) dismissal(g *planned, now time.Time) machine.Command {
	for i := range g.status.Callers {
		c := &g.status.Callers[i]
		if c.Absent == 0 {
			continue
		}
		end := g.left[c.ID].at.Add(time.Duration(g.status.Grace) * time.Millisecond)
		if !end.After(now) {
			return machine.Dismiss{Term: p.t.Number(), Group: g.name, Caller: c.ID, Since: c.Absent}
		}
		g.sooner(end)
	}
	return nil
}

// resharding returns the completion of a Resize, and nil while there is a caller of the
// old number or a holder.
func (p *planner) resharding(g *planned, _ time.Time) machine.Command {
	if g.status.Next == 0 {
		return nil
	}
	for i := range g.status.Callers {
		if !g.status.Callers[i].Next {
			return nil
		}
	}
	for i := range g.holders {
		if g.holders[i].held {
			return nil
		}
	}
	return machine.Reshard{Term: p.t.Number(), Group: g.name, Version: g.status.Version}
}
