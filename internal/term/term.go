package term

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/meter"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// A Log is the replicated log as seen by a voter.
type Log interface {
	// ID returns the raft ID of this voter.
	ID() string

	// Voters returns the raft IDs of the voters in the latest configuration, in
	// an order determined by the IDs.
	Voters() []string

	// Leads reports whether this voter's raft leads in term now.
	Leads(term uint64) bool

	// Commit commits an entry and blocks until the verdict. With CodeOK,
	// outcomes is the result of Table.Apply. CodeNotLeader means: the entry is
	// in no log; CodeUnknown: the entry may be committed, now or later.
	// The log hands the very slice to Table.Apply of this voter.
	Commit(entry []byte) (outcomes any, code wire.Code)

	// Stalled returns how long the store has not answered the write under way,
	// or 0.
	Stalled() time.Duration
}

// Config describes a leader's term. Every field is needed, unless the field's
// comment says otherwise.
type Config struct {
	Log    Log
	Table  *Table
	Term   uint64
	Logger *slog.Logger

	// Ask asks a voter whether the voter's term is not above term, for a round. Ask
	// does not block and calls answer at most once, from any goroutine. An
	// answer after ctx has ended counts for nothing.
	Ask func(ctx context.Context, voter string, term uint64, answer func(yes bool))

	// Format returns the format of log entries that a command needs. Nil means
	// machine.Format; tests make up a next format.
	Format func(machine.Command) int

	// MayLift is asked before the founding wait ends, at each tick until true.
	// Nil means yes.
	MayLift func() bool

	// Alone: the cluster can have no earlier holders, so there is no founding wait.
	Alone bool

	// Depart is called for a member with the wish to be replaced as a voter. done
	// is called once. Nil refuses every member with CodeBad.
	Depart func(name string, boot uint64, done func(wire.Code))

	// Deny is asked whether the process Boot of the member Node may carry out an Ask, a
	// Break, a Resize, a SetCapacity or an EndSession. Deny must not block. Nil denies nothing.
	Deny func(node string, boot uint64, cmd machine.Command) (reason string, denied bool)

	// Refused counts the requests for sessions of other processes. It may be nil.
	Refused *refused.Log

	// Meter counts rounds and entries. Nil: nobody reads the counts.
	Meter *meter.Node

	// Grid has the moments of the ticks. Nil: any moments.
	Grid *timing.Grid
}

// A Term is this node while leading in a term. A Term takes the commands, beats and
// reads of this node's own clients and of the other members, and tells both the
// events of their sessions. Each term of leadership has a Term for itself.
//
// Methods may be called from any goroutine, and none blocks except Stop. Every
// done is called once, by any goroutine, and must not block. After Stop, done is
// called with CodeNotLeader.
type Term struct {
	cfg      Config
	table    *Table
	created  time.Time
	proposer *proposer
	rounds   *rounds
	keeper   *keeper
	watches  *watches
	planner  *planner
	endings  *endings

	mu          sync.Mutex
	sessions    map[machine.SessionID]*Subscriber // gets the events of a session
	subscribers map[*Subscriber]*shown
	streams     map[member.Process]map[*Subscriber]*shown // the subscribers of each process
	joins       uint64                                    // so far
	voters      voterNews
	described   map[member.Process]member.Metadata // by name and boot; without an entry: attached in no stream, or silent about itself
	attachments wakeup.One                         // described has changed
	ready       map[*func(wire.Code)]struct{}      // wait for Lift
	closed      bool

	news    []news // of the entry that is being applied; raft's goroutine alone
	held    heldAnswers
	denied  atomic.Int64 // events of sessions that are not open, not on their way yet
	lifting atomic.Bool  // a Lift is in flight or done

	doubt  chan struct{} // closed when an entry's fate is unknown
	doubts sync.Once

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// New returns a Term, idle until Start.
func New(cfg Config) *Term {
	if cfg.Format == nil {
		cfg.Format = machine.Format
	}
	if cfg.Meter == nil {
		cfg.Meter = new(meter.Node)
	}
	t := &Term{
		cfg:         cfg,
		table:       cfg.Table,
		created:     time.Now(),
		sessions:    make(map[machine.SessionID]*Subscriber),
		subscribers: make(map[*Subscriber]*shown),
		streams:     make(map[member.Process]map[*Subscriber]*shown),
		described:   make(map[member.Process]member.Metadata),
		ready:       make(map[*func(wire.Code)]struct{}),
		attachments: wakeup.NewOne(),
		doubt:       make(chan struct{}),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.proposer = newProposer(cfg.Table, t.commit)
	t.proposer.over = t.noteOver
	t.proposer.full = func(member string) {
		cfg.Refused.Note(refused.Flood, member, "too many commands of a member wait for the log")
	}
	t.rounds = newRounds(t.round)
	t.keeper = newKeeper(t)
	t.watches = newWatches()
	t.planner = newPlanner(t)
	t.endings = newEndings(t)
	return t
}

// Start begins to lead. The table must have applied LeaderStart of the term. The
// order is part of the safety argument:
//
//  1. The table is watched, so no later Open escapes the keeper.
//  2. The keeper gives every session of the table a whole TTL from now. An earlier
//     leader acknowledged beats up to some moment before LeaderStart was
//     committed; the TTLs of these beats end before the new ones.
//  3. Only then can anybody reach the term, and the first beat arrive.
func (t *Term) Start() {
	t.table.setWatch(t.applied)
	t.keeper.begin()
	t.planner.begin()
	t.endings.begin()
	t.wg.Go(t.proposer.run)
	t.wg.Go(func() { t.rounds.run(t.ctx) })
	t.wg.Go(func() { t.watches.run(t.ctx) })
	t.wg.Go(func() { t.planner.run(t.ctx) })
	t.wg.Go(t.tick)
	t.endings.next()
}

// Stop ends the term on this node and joins the Term's goroutines. Every waiting request
// is answered, and every subscriber's Stop is called. Stop waits for the verdict
// on the entry in flight.
//
// The order is part of the safety argument: see the package's documentation.
func (t *Term) Stop() {
	t.mu.Lock()
	t.closed = true
	subscribers, ready := t.subscribers, t.ready
	t.subscribers, t.streams, t.ready = nil, nil, nil
	t.mu.Unlock()
	t.keeper.stop()
	t.cancel()
	t.proposer.stop()
	t.endings.stop()
	for s := range subscribers {
		if s.Stop != nil {
			s.Stop()
		}
	}
	for done := range ready {
		(*done)(wire.CodeNotLeader)
	}
	t.wg.Wait()
	t.table.setWatch(nil)
}

// Number returns the number of the term.
func (t *Term) Number() uint64 { return t.cfg.Term }

// Done is closed when Stop is called.
func (t *Term) Done() <-chan struct{} { return t.ctx.Done() }

// Doubt is closed when the fate of an entry is unknown, or when the store has not
// answered for timing.StoreStalled. The keeper no longer knows the standing
// promises then: stop this Term and establish another Term, behind a barrier.
func (t *Term) Doubt() <-chan struct{} { return t.doubt }

func (t *Term) doubtNow() { t.doubts.Do(func() { close(t.doubt) }) }

// commit commits an entry of the proposer.
func (t *Term) commit(entry []byte) ([]machine.Outcome, wire.Code) {
	begun, m := time.Now(), t.cfg.Meter
	result, code := t.cfg.Log.Commit(entry)
	if code == wire.CodeUnknown {
		t.doubtNow()
	}
	outcomes, _ := result.([]machine.Outcome)
	if code == wire.CodeOK {
		m.Commits.Observe(time.Since(begun))
		m.Commands.Add(uint64(len(outcomes)))
		m.EntryBytes.Add(uint64(len(entry)))
	} else {
		m.CommitsFailed.Inc()
	}
	return outcomes, code
}

// tick drives the keeper, watches the store and ends the founding wait.
func (t *Term) tick() {
	timer := t.table.Clock.NewTimer(t.cfg.Grid.Next(t.table.Clock.Now(), timing.KeeperTick))
	defer timer.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-timer.C:
			// Not the timer's own time, the moment when the timer fired: a
			// goroutine kept from running must see how late the tick is.
			now := t.table.Clock.Now()
			timer.Reset(t.cfg.Grid.Next(now, timing.KeeperTick))
			t.keeper.tick(now)
			t.sweepBeyond(now)
			t.endings.next()
			if t.cfg.Log.Stalled() > timing.StoreStalled {
				t.doubtNow()
			}
			if !t.lifting.Load() {
				t.lift(now)
			}
		}
	}
}

// lift proposes the end of the founding wait, if the wait is over.
func (t *Term) lift(now time.Time) {
	t.table.mu.RLock()
	founded := t.table.founded
	t.table.mu.RUnlock()
	bound := t.Bound()
	if t.Lifted() || !t.cfg.Alone && now.Sub(founded) < foundingWait(time.Duration(bound)*time.Millisecond) {
		return
	}
	if t.cfg.MayLift != nil && !t.cfg.MayLift() {
		return
	}
	t.lifting.Store(true)
	t.Decide(machine.Lift{Term: t.cfg.Term}, func(o machine.Outcome, c wire.Code) {
		if c != wire.CodeOK || o.Code != machine.OK {
			t.lifting.Store(false) // again, at the next tick
		}
	})
}

// applied takes note of each entry. Raft's goroutine calls applied in log order.
func (t *Term) applied(a applied) {
	t.planner.applied(a)
	for _, e := range a.events {
		switch e.Kind {
		case machine.EventChanged:
			t.watches.changed(e.Key)
			continue
		case machine.EventGroup:
			t.watches.groupChanged(e.Key)
			continue
		case machine.EventPutOff:
			t.endings.putOff()
			continue
		case machine.EventDelayed:
			t.keeper.delayed(e.Token, e.Delay)
		case machine.EventEnded:
			t.keeper.ended(e.Session)
			t.watches.sessionEnded(e.Session)
		case machine.EventEnding:
			t.keeper.ended(e.Session)
			t.endings.add(e.Session)
		case machine.EventRevoked:
			t.keeper.revoked(e.Session)
			t.endings.add(e.Session)
		}
		if e.Session != (machine.SessionID{}) {
			t.news = append(t.news, news{event: e})
		}
	}
	t.tellNews()
	for i, c := range a.commands {
		if a.outcomes[i].Code != machine.OK {
			continue
		}
		switch c := c.(type) {
		case machine.Open:
			// By the state after the entry: a late copy of the Open may stand behind
			// the session's end, or before the end.
			var st machine.SessionStatus
			open := false
			t.table.View(func(m *machine.State) { st, open = m.Session(c.Session) })
			if open && !st.Ending {
				t.keeper.opened(c.Session, st.Node, time.Duration(st.TTL)*time.Millisecond)
			}
		case machine.Lift:
			t.mu.Lock()
			ready := t.ready
			t.ready = nil
			t.mu.Unlock()
			for done := range ready {
				t.confirmThen(wire.CodeOK, *done)
			}
		}
	}
}

// Decide proposes a command of the leader itself, for example Expire or Bound.
// done gets the verdict as with Propose.
func (t *Term) Decide(cmd machine.Command, done func(machine.Outcome, wire.Code)) {
	t.proposer.decide(cmd, done)
}

// Confirm calls done with the verdict of a round beginning after now. True
// means: no other leader had been elected when Confirm was called.
func (t *Term) Confirm(done func(ok bool)) { t.rounds.add(done) }

// confirmThen calls done with code, or with CodeNotLeader, after a round beginning
// after now.
func (t *Term) confirmThen(code wire.Code, done func(wire.Code)) {
	t.Confirm(func(ok bool) {
		if ok {
			done(code)
		} else {
			done(wire.CodeNotLeader)
		}
	})
}

// Granting calls done with CodeOK once the founding wait is over and a round has
// confirmed the leader. cancel ends the wait, with CodeNotLeader.
func (t *Term) Granting(done func(wire.Code)) (cancel func()) {
	t.mu.Lock()
	lifted, closed := t.Lifted(), t.closed
	if !lifted && !closed {
		t.ready[&done] = struct{}{}
	}
	t.mu.Unlock()
	switch {
	case closed:
		done(wire.CodeNotLeader)
	case lifted:
		t.confirmThen(wire.CodeOK, done)
	}
	return func() {
		t.mu.Lock()
		_, waits := t.ready[&done]
		delete(t.ready, &done)
		t.mu.Unlock()
		if waits {
			done(wire.CodeNotLeader)
		}
	}
}

// Depart passes on a member's wish to be replaced as a voter.
func (t *Term) Depart(name string, boot uint64, done func(wire.Code)) {
	if t.cfg.Depart == nil {
		done(wire.CodeBad)
		return
	}
	t.cfg.Depart(name, boot, done)
}

// Bound returns the largest TTL allowed to a session, in milliseconds.
func (t *Term) Bound() uint64 { return t.table.latest.Load().bound }

// Lifted reports whether the founding wait is over.
func (t *Term) Lifted() bool { return t.table.latest.Load().lifted }

// Queue returns the number of commands that wait for the next entry, and their bytes.
func (t *Term) Queue() (commands, bytes int) {
	t.proposer.mu.Lock()
	defer t.proposer.mu.Unlock()
	return t.proposer.waiting, t.proposer.size
}

// noteOver counts the refusal of a command by a quota of its member.
func (t *Term) noteOver(cmd machine.Command, o machine.Outcome) {
	node := ""
	if c, ok := cmd.(machine.Open); ok {
		node = c.Node
	} else if st, open := t.session(SessionOf(cmd)); open {
		node = st.Node
	}
	t.cfg.Refused.Note(refused.Flood, node, "more "+o.Field+" than a member may have")
}

// Noisiest returns the member with most of the waiting commands, and their number. It is ""
// while no member has commands waiting. The clients on this node count as one member.
func (t *Term) Noisiest() (member string, commands int) {
	t.proposer.mu.Lock()
	defer t.proposer.mu.Unlock()
	for _, l := range t.proposer.turns.lanes() {
		if n := l.waiting(); n > commands {
			member, commands = l.member, n
		}
	}
	return member, commands
}

// Attached returns the number of members that this leader serves, this node included.
func (t *Term) Attached() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.subscribers)
}

// Format returns the table's format of log entries.
func (t *Term) Format() int { return t.table.Format() }

// ConfigIndex returns the log index of the last committed raft configuration.
func (t *Term) ConfigIndex() uint64 { return t.table.ConfigIndex() }
