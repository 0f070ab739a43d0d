package termtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// A leadership is a voter's lead in a term, and the term.Log of the Term.
type leadership struct {
	c      *Cluster
	number uint64
	place  int // of the table in c.tables
	term   *term.Term
	seated atomic.Bool // the term is established

	mu       sync.Mutex
	frozen   chan struct{} // closed by resume; nil: not paused
	arrivals []func()      // of messages received while paused
}

func (c *Cluster) voter(i int) string { return fmt.Sprintf("v%d#1", i+1) }

func (l *leadership) ID() string { return l.c.voter(l.place % l.c.cfg.Voters) }

func (l *leadership) Voters() (ids []string) {
	for i := range l.c.cfg.Voters {
		ids = append(ids, l.c.voter(i))
	}
	return ids
}

// Leads says yes even after an election, unless this very voter has voted in it:
// only then has the loser heard of the election.
func (l *leadership) Leads(number uint64) bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return number == l.number && l.c.promised[l.ID()] <= number
}

// Commit applies the entry to both tables, unless the test decides otherwise or
// another leader has been elected.
func (l *leadership) Commit(entry []byte) (any, wire.Code) {
	l.wait()
	l.c.note(l.number, entry)
	fate := l.c.entries.wait()
	l.wait()
	if fate == Committed {
		fate = l.c.draw(l, entry)
		l.wait()
	}
	switch fate {
	case Dropped:
		return nil, wire.CodeUnknown
	case Refused:
		return nil, wire.CodeNotLeader
	}
	l.c.applying.Lock()
	defer l.c.applying.Unlock()
	l.c.mu.Lock()
	deposed := l.c.elected != l.number
	l.c.mu.Unlock()
	if deposed {
		return nil, wire.CodeUnknown
	}
	l.c.leave(l)
	outcomes := l.c.applyLocked(l.place, entry)
	if fate == Unheard {
		return nil, wire.CodeUnknown
	}
	return outcomes, wire.CodeOK
}

// A Proposal is a command that a leader has handed to the log, in any entry.
type Proposal struct {
	Leader  uint64 // its term
	Command machine.Command
}

// note keeps the commands of an entry for Proposals.
func (c *Cluster) note(leader uint64, entry []byte) {
	commands, err := machine.DecodeEntry(entry)
	if err != nil {
		return // applyLocked tells
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.proposals.kept {
		return
	}
	for _, cmd := range commands {
		c.proposals.list = append(c.proposals.list, Proposal{leader, cmd})
	}
}

// Proposals returns the commands handed to the log since the call before, held and lost ones
// included. The first call begins to keep them.
func (c *Cluster) Proposals() []Proposal {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proposals.kept = true
	list := c.proposals.list
	c.proposals.list = nil
	return list
}

func (l *leadership) Stalled() time.Duration {
	l.wait()
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.stalled
}

// SetStalled has the leader's store not answer for d.
func (c *Cluster) SetStalled(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalled = d
}

func (l *leadership) pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen == nil {
		l.frozen = make(chan struct{})
	}
}

func (l *leadership) paused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.frozen != nil
}

// resume lets a paused leader go on, with the messages received meanwhile.
func (l *leadership) resume() {
	l.mu.Lock()
	frozen, arrivals := l.frozen, l.arrivals
	l.frozen, l.arrivals = nil, nil
	l.mu.Unlock()
	if frozen == nil {
		return
	}
	close(frozen)
	for _, arrive := range arrivals {
		time.AfterFunc(0, arrive)
	}
}

// wait waits while the leader is paused. The Term's goroutines come here at every
// tick and every entry, so a paused Term stands still and sees the lost time later.
func (l *leadership) wait() {
	l.mu.Lock()
	frozen := l.frozen
	l.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

// later keeps a message for resume, and reports whether the leader is paused.
func (l *leadership) later(arrive func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen == nil {
		return false
	}
	l.arrivals = append(l.arrivals, arrive)
	return true
}

// A Fate is the end of a held entry.
type Fate int

const (
	Committed Fate = iota // the zero Fate: committed, and the leader hears of it
	Unheard               // committed, and the leader does not know
	Dropped               // in no log, and the leader does not know
	Refused               // in no log, and the leader knows
)

// HoldEntries has every entry of the leader wait, from now on, until the test
// decides with Decide or ReleaseEntries.
func (c *Cluster) HoldEntries() { c.entries.hold() }

// patient is how long the test waits for the leader to make an entry or a round.
const patient = time.Minute

// Decide waits for a held entry and decides the entry's fate. The test fails if
// the leader commits no entry.
func (c *Cluster) Decide(f Fate) {
	c.t.Helper()
	select {
	case c.entries.held() <- f:
	case <-time.After(patient):
		c.t.Fatal("the leader commits no entry")
	}
}

// Undecided returns the number of held entries. An entry that is about to be made counts
// after synctest.Wait.
func (c *Cluster) Undecided() int {
	c.entries.mu.Lock()
	defer c.entries.mu.Unlock()
	return c.entries.waiting
}

// ReleaseEntries commits the held entry and ends HoldEntries.
func (c *Cluster) ReleaseEntries() { c.entries.release() }

// A held gate makes every entry wait for a decision.
type gate struct {
	mu        sync.Mutex
	decisions chan Fate // nil: not held
	waiting   int       // entries without a decision
}

func (g *gate) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.decisions == nil {
		g.decisions = make(chan Fate)
	}
}

func (g *gate) held() chan Fate {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.decisions
}

// wait returns the decision, or Committed if the gate is not held any more.
func (g *gate) wait() Fate {
	g.mu.Lock()
	ch := g.decisions
	if ch == nil {
		g.mu.Unlock()
		return Committed
	}
	g.waiting++
	g.mu.Unlock()
	fate := <-ch
	g.mu.Lock()
	g.waiting--
	g.mu.Unlock()
	return fate
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.decisions != nil {
		close(g.decisions)
		g.decisions = nil
	}
}

// rounds holds the questions of rounds until the test answers them.
type rounds struct {
	mu       sync.Mutex
	held     bool
	waiting  []question
	arrived  wakeup.All
	answered context.Context // of the last round answered by AnswerRound
	yes      bool            // the answer
	asked    int             // rounds begun
	last     context.Context // of the last round begun
}

type question struct {
	ctx    context.Context // the same for all questions of a round
	yes    bool            // the honest answer, when the question came
	answer func(bool)
}

// HoldRounds has every round wait, from now on, for AnswerRound or ReleaseRounds.
func (c *Cluster) HoldRounds() {
	c.rounds.mu.Lock()
	defer c.rounds.mu.Unlock()
	c.rounds.held = true
}

// AnswerRound waits for a held round and has every voter answer alike. The test
// fails if the leader asks nobody.
func (c *Cluster) AnswerRound(yes bool) {
	c.t.Helper()
	r := &c.rounds
	late := time.After(patient)
	for {
		arrived := r.arrived.Wait()
		r.mu.Lock()
		var now []question
		r.waiting = slices.DeleteFunc(r.waiting, func(q question) bool {
			if q.ctx.Err() != nil {
				return true // nobody waits any more
			}
			if len(now) > 0 && q.ctx != now[0].ctx {
				return false
			}
			now = append(now, q)
			r.answered, r.yes = q.ctx, yes
			return true
		})
		r.mu.Unlock()
		for _, q := range now {
			q.answer(yes)
		}
		if len(now) > 0 {
			return
		}
		select {
		case <-arrived:
		case <-late:
			c.t.Fatal("the leader begins no round")
		}
	}
}

// AnswerHonestly answers the questions of all held rounds, if there are any: each voter has
// compared terms when it was asked, and its answer was slow. Later rounds are held as before.
func (c *Cluster) AnswerHonestly() (any bool) {
	r := &c.rounds
	r.mu.Lock()
	waiting := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	for _, q := range waiting {
		if q.ctx.Err() != nil {
			continue // nobody waits any more
		}
		any = true
		q.answer(q.yes)
	}
	return any
}

// ReleaseRounds answers yes to the held round and ends HoldRounds.
func (c *Cluster) ReleaseRounds() {
	r := &c.rounds
	r.mu.Lock()
	waiting := r.waiting
	r.held, r.waiting = false, nil
	r.mu.Unlock()
	for _, q := range waiting {
		q.answer(true)
	}
}

// Rounds counts the rounds with a question to a voter.
func (c *Cluster) Rounds() int {
	c.rounds.mu.Lock()
	defer c.rounds.mu.Unlock()
	return c.rounds.asked
}

// CutVoters has n of the voters answer no round from now on, the leader's own
// voter last.
func (c *Cluster) CutVoters(n int) {
	place := c.last().place
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.cut)
	for i := range n {
		c.cut[c.voter((place+1+i)%c.cfg.Voters)] = true
	}
}

// ask is term.Config.Ask: a voter compares terms with the leader.
func (c *Cluster) ask(ctx context.Context, voter string, number uint64, answer func(bool)) {
	c.mu.Lock()
	honest := c.promised[voter] <= number
	c.mu.Unlock()
	r := &c.rounds
	r.mu.Lock()
	if r.last != ctx {
		r.last = ctx
		r.asked++
	}
	switch {
	case r.held && r.answered == ctx:
		yes := r.yes
		r.mu.Unlock()
		answer(yes)
		return
	case r.held:
		r.waiting = append(r.waiting, question{ctx, honest, answer})
		r.mu.Unlock()
		r.arrived.Wake()
		return
	}
	r.mu.Unlock()
	c.mu.Lock()
	cut := c.cut[voter]
	c.mu.Unlock()
	if !cut {
		c.late(honest, answer)
	}
}
