package term

import (
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// Limits filled by the tests.
const (
	MaxViews      = maxViews
	MaxHeld       = maxHeld
	MaxHeldOfOne  = maxHeldOfMember
	MaxMetas      = metaRoom
	MaxProposals  = maxProposals
	MaxLane       = maxLane
	MaxLaneBytes  = maxLaneBytes
	MaxQueueBytes = maxQueueBytes
	MaxReads      = maxReads
	MaxRetold     = maxRetold
)

// OpeningCommands returns the commands of a term's first entry.
var OpeningCommands = openingCommands

// Proposer is a proposer without a log.
type Proposer struct{ *proposer }

// NewProposer returns a proposer without a log.
func NewProposer() Proposer { return Proposer{newProposer(NewTable(), nil)} }

// NoteApplied tells p that an entry of so many commands and such a cost was applied.
func (p Proposer) NoteApplied(cost, commands int, took time.Duration) {
	p.cost, p.entry = cost, make([]proposal, commands)
	p.noteApplied(took)
}

// Most returns the bound of the next entry's cost.
func (p Proposer) Most() int { return p.most }

// ReadFor is Read for a member.
func (t *Term) ReadFor(member string, q replica.Query, done func(replica.Answer, wire.Code)) {
	read(t, member, q, whole[replica.Answer], done)
}

// Held returns the bytes of answers waiting for a round.
func (t *Term) Held() int64 {
	t.held.mu.Lock()
	defer t.held.mu.Unlock()
	return int64(t.held.all)
}

// EndsAwaited returns how many calls wait for the end of a session.
func (t *Term) EndsAwaited() (n int) {
	t.endings.mu.Lock()
	defer t.endings.mu.Unlock()
	for _, waiting := range t.endings.known {
		n += len(waiting)
	}
	return n
}

// Watched returns how many keys and prefixes are watched.
func (t *Term) Watched() int {
	ws := t.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.keys) + len(ws.prefixes) + len(ws.lengths) + len(ws.dirty)
}

// Watching returns how many reads wait for a change of key.
func (t *Term) Watching(key string) int {
	ws := t.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n := 0
	for range ws.keys[key].all {
		n++
	}
	return n
}

// Routed returns how many sessions' events go to a subscriber.
func (t *Term) Routed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.sessions)
}

// Counted returns how many sessions and delays the keeper counts for.
func (t *Term) Counted() (sessions, delays int) {
	t.keeper.mu.Lock()
	defer t.keeper.mu.Unlock()
	return len(t.keeper.sessions), len(t.keeper.delays)
}

// Expected returns the expected entry and the commands decoded already, or nil.
func (t *Table) Expected() (bytes []byte, commands []any) {
	t.expecting.Lock()
	defer t.expecting.Unlock()
	for _, c := range t.expected.commands {
		commands = append(commands, c)
	}
	return t.expected.bytes, commands
}

// Forward proposes a command as a stream does.
func (t *Term) Forward(s *Subscriber, body []byte, done func(machine.Outcome, wire.Code)) {
	cmd, err := machine.DecodeCommand(body)
	if err != nil {
		panic(err)
	}
	t.propose(s, cmd, body, done)
}

// ScanEncoded scans as a stream does.
func (t *Term) ScanEncoded(q replica.Scan, done func([]byte, wire.Code)) {
	scan(t, "", q, encoded[replica.Scanned], done)
}

// ReadEncoded reads as a stream does.
func (t *Term) ReadEncoded(q replica.Query, done func([]byte, wire.Code)) {
	read(t, "", q, encoded[replica.Answer], done)
}

// FitAnswer cuts an answer to one frame and encodes it.
func FitAnswer(a *replica.Answer) ([]byte, int) { return fitAnswer(a, encoded[replica.Answer]) }

// Shown returns how many keys the subscribers of a member have shown: of open
// sessions, and of others.
func (t *Term) Shown(node string) (open, fresh int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s, k := range t.subscribers {
		if s.Node == node {
			open += k.open.len()
			fresh += k.fresh.len()
		}
	}
	return open, fresh
}

// Planned returns how many groups the planner looks after.
func (t *Term) Planned() int {
	t.planner.mu.Lock()
	defer t.planner.mu.Unlock()
	return len(t.planner.groups)
}

// Readying returns the number of questions that wait for the end of the founding wait.
func (t *Term) Readying() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.ready)
}

// MaxDenials bounds Denied.
const MaxDenials = maxDenials

// Denied returns the number of events of sessions that are not open, not on their way
// yet.
func (t *Term) Denied() int64 { return t.denied.Load() }

// ProposeOf proposes cmd as a command of the named member.
func (t *Term) ProposeOf(member string, cmd machine.Command, done func(machine.Outcome, wire.Code)) (place uint64) {
	return t.proposer.propose(member, cmd, nil, done)
}

// TakeBackOf takes a command of the named member back.
func (t *Term) TakeBackOf(member string, place uint64) { t.proposer.takeBack(member, place) }

// Lane returns how many commands of a member wait, and how many places their queue has.
func (t *Term) Lane(member string) (waiting, places int) {
	t.proposer.mu.Lock()
	defer t.proposer.mu.Unlock()
	l := t.proposer.lanes[member]
	if l == nil {
		return 0, 0
	}
	return l.waiting(), len(l.queue)
}

// OwnerOf returns the holder of a key.
func OwnerOf(t *Term, key string) (machine.SessionID, machine.Token) {
	t.table.mu.RLock()
	defer t.table.mu.RUnlock()
	return t.table.m.Owner(key)
}

// GroupOf returns the version of a group, and the number of its orphans.
func GroupOf(t *Term, name string) (version uint64, orphans uint32) {
	t.table.mu.RLock()
	defer t.table.mu.RUnlock()
	st, _ := t.table.m.Group(name)
	return st.Version, st.Orphans
}

// Expect tells the table an entry's commands, as the leader's proposer does.
func Expect(t *Table, entry []byte, commands []machine.Command) { t.expect(entry, commands) }

// KeysAtOnce is the number of keys that the planner reads at a time.
const KeysAtOnce = keysAtOnce

// Locked runs f while the table is being changed.
func (t *Table) Locked(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

// EncodedSummary returns the body of the answer to a beat.
func (t *Term) EncodedSummary(c wire.Code) []byte { return t.encodedSummary(c) }

// Views returns the number of groups that the readers of the table share, and of their
// callers.
func (t *Table) Views() (views, callers int) {
	t.groups.mu.Lock()
	defer t.groups.mu.Unlock()
	for _, v := range t.groups.views {
		callers += len(v.status.Callers)
	}
	if callers != t.groups.callers {
		return len(t.groups.views), -1
	}
	return len(t.groups.views), callers
}
