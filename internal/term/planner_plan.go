package term

import (
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/shards"
	"github.com/wardmote/wardmote/internal/timing"
)

// keysAtOnce bounds the keys that are read while the table stands still.
const keysAtOnce = 1024

// refresh reads the parts of a group that have changed. It reports false if the group is
// gone from the table, and from the planner too, or is only remembered.
func (p *planner) refresh(g *planned, now time.Time) bool {
	p.mu.Lock()
	gone := p.groups[g.name] != g
	news, all, changed := g.news, g.all, g.changed
	g.news, g.all, g.changed = false, false, nil
	p.mu.Unlock()
	if gone {
		return false
	}
	if news {
		number := g.status.Shards
		p.t.table.View(func(m *machine.State) {
			g.status, _ = m.Group(g.name)
			g.assigned = m.Assignment(g.name, g.assigned[:0])
		})
		if len(g.status.Callers) == 0 && g.status.Next == 0 {
			return p.forget(g)
		}
		all = all || number != g.status.Shards
		g.stale = true
		g.noteCallers(now)
	}
	if all || len(changed) > 0 {
		g.stale = true
		p.readHolders(g, all, changed)
	}
	if g.status.Next != 0 {
		p.setWaits(g, true)
	}
	return true
}

// setWaits says whether the change of a key makes the group dirty. A key that has
// changed since the group was read counts.
func (p *planner) setWaits(g *planned, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.waits = waits
	if waits && (g.all || len(g.changed) > 0) {
		p.dirty[g] = struct{}{}
		p.wake.Wake()
	}
}

// forget drops a group, unless there is news by now. It reports false.
func (p *planner) forget(g *planned) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !g.news && p.groups[g.name] == g {
		delete(p.groups, g.name)
		p.known.Store(int64(len(p.groups)))
		delete(p.dirty, g)
	}
	g.status, g.holders, g.lastID, g.all = machine.GroupStatus{}, nil, 0, true
	g.first, g.last = time.Time{}, time.Time{}
	clear(g.left)
	return false
}

// noteCallers notes the callers that came and the callers that left.
func (g *planned) noteCallers(now time.Time) {
	absent := make(map[uint32]departure)
	for i := range g.status.Callers {
		c := &g.status.Callers[i]
		if c.ID > g.lastID && !c.Next {
			g.lastID, g.last = c.ID, now
			if g.first.IsZero() {
				g.first = now
			}
		}
		if c.Absent == 0 {
			continue
		}
		d, ok := g.left[c.ID]
		if !ok || d.since != c.Absent {
			d = departure{c.Absent, now}
		}
		absent[c.ID] = d
	}
	g.left = absent
}

// readHolders reads the holders of all shards, or of some.
func (p *planner) readHolders(g *planned, all bool, some []uint32) {
	number := g.status.Shards
	if all || len(g.holders) != int(number) {
		g.holders = make([]holder, number)
		some = make([]uint32, number)
		for i := range some {
			some[i] = uint32(i)
		}
	}
	for len(some) > 0 {
		n := min(len(some), keysAtOnce)
		p.t.table.View(func(m *machine.State) {
			for _, shard := range some[:n] {
				if shard < number {
					session, token := m.Owner(machine.ShardKey(g.name, shard))
					g.holders[shard] = holder{session, token != 0}
				}
			}
		})
		some = some[n:]
	}
}

// assignment returns the moves that are due, and nil without any.
func (p *planner) assignment(g *planned, now time.Time) machine.Command {
	st := &g.status
	if st.Next != 0 || len(st.Callers) == 0 {
		return nil
	}
	// Callers that start together come within PlanQuiet of each other.
	balance := true
	if !g.first.IsZero() {
		quiet := g.last.Add(timing.PlanQuiet)
		if most := g.first.Add(timing.PlanMost); most.Before(quiet) {
			quiet = most
		}
		if balance = !now.Before(quiet); balance {
			g.first, g.stale = time.Time{}, true
		} else {
			g.sooner(quiet)
		}
	}
	if !g.again.IsZero() && !g.again.After(now) {
		g.again, g.stale = time.Time{}, true
	}
	if !g.stale || !balance && (!st.Settled || st.Orphans == 0) {
		g.sooner(g.again)
		return nil
	}
	if now.Before(g.rest) && st.Orphans == 0 {
		g.sooner(g.rest)
		return nil
	}
	callers, all := p.describe(g, now)
	began := time.Now()
	moves := shards.Plan(callers, all, shards.Options{Balance: balance, MaxMoves: int(st.MaxMoves)})
	g.stale, g.rest = false, now.Add(max(timing.PlanRest, 9*time.Since(began)))
	g.sooner(g.again)
	p.setWaits(g, underWay(all, moves))
	if len(moves) == 0 {
		return nil
	}
	cmd := machine.Assign{Term: p.t.Number(), Group: g.name, Version: st.Version, Moves: make([]machine.Move, len(moves))}
	for i, m := range moves {
		cmd.Moves[i] = machine.Move{Shard: uint32(m.Shard), Caller: st.Callers[m.To].ID}
	}
	return cmd
}

// underWay reports whether a shard has, after the moves, another owner than the caller
// that it is assigned to. Only then may a plan have held moves back.
func underWay(all []shards.Shard, moves []shards.Move) bool {
	for _, m := range moves {
		all[m.Shard].To = m.To
	}
	for i := range all {
		if all[i].Held >= 0 && all[i].Held != all[i].To {
			return true
		}
	}
	return false
}

// describe returns a group as package shards takes it.
func (p *planner) describe(g *planned, now time.Time) ([]shards.Caller, []shards.Shard) {
	st := &g.status
	callers := make([]shards.Caller, len(st.Callers))
	byID := make(map[uint32]int, len(callers))
	bySession := make(map[machine.SessionID]int, len(callers))
	for i := range st.Callers {
		c := &st.Callers[i]
		callers[i] = shards.Caller{Weight: int(c.Weight), Standby: c.Succeeds != "", Absent: c.Absent != 0}
		byID[c.ID] = i
		if _, ok := bySession[c.Session]; !ok && c.Absent == 0 {
			bySession[c.Session] = i
		}
	}
	all := make([]shards.Shard, len(g.assigned))
	for i := range all {
		s := &all[i]
		s.To, s.Held = -1, -1
		if id := g.assigned[i]; id != 0 {
			s.To = byID[id]
		}
		switch by := g.holders[i].session; {
		case by == machine.SessionID{}:
		case s.To >= 0 && st.Callers[s.To].Session == by: // one of two callers of a session
			s.Held = s.To
		default:
			if caller, ok := bySession[by]; ok {
				s.Held = caller
			}
		}
	}
	p.addDeclined(g, now, all)
	return callers, all
}
