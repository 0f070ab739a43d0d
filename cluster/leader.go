package cluster

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// leader is this node while it leads in one term: it takes commands, beats and
// reads, from its own clients directly and from other members over their
// streams, and tells them events. A new term makes a new leader.
type leader struct {
	n     *Node
	raft  *raftNode
	table *table
	term  uint64

	proposer *proposer
	rounds   *rounds
	keeper   *keeper
	watches  *watches

	mu       sync.Mutex
	sessions map[machine.SessionID]*member // whose stream carries a session's events
	ready    []func(wire.Code)             // wait for Lift
	members  map[*member]struct{}
	departs  map[string]func(wire.Code) // raft IDs that want to be replaced
	closed   bool

	departing chan struct{} // size 1: departs has grown
	started   time.Time
	changing  atomic.Bool  // the raft configuration, just now
	raising   atomic.Int64 // format that was proposed
	held      atomic.Int64 // bytes of answers that wait for their round

	doubt  chan struct{} // closed when an entry's fate is unknown
	doubts sync.Once

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// A member is one destination of events: a stream, or this node itself.
type member struct {
	push  func(machine.Event)
	bound func(wire.AttachAnswer)
	stop  func() // ends the stream; nil for this node itself
}

func newLeader(n *Node, r *raftNode, term uint64) *leader {
	l := &leader{
		n: n, raft: r, table: r.table, term: term,
		sessions:  make(map[machine.SessionID]*member),
		members:   make(map[*member]struct{}),
		departs:   make(map[string]func(wire.Code)),
		doubt:     make(chan struct{}),
		departing: make(chan struct{}, 1),
		started:   time.Now(),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.proposer = newProposer(l.commit)
	l.rounds = newRounds(l.confirmTerm)
	l.keeper = newKeeper(l)
	l.watches = newWatches(l)
	return l
}

// start runs the leader. LeaderStart of its term has been applied.
func (l *leader) start() {
	l.table.setWatch(l.applied)
	l.keeper.begin()
	l.wg.Go(l.proposer.run)
	l.wg.Go(func() { l.rounds.run(l.ctx) })
	l.wg.Go(func() { l.watches.run(l.ctx) })
	l.wg.Go(l.tick)
	l.wg.Go(func() { l.reconcile(l.ctx) })
}

// stop ends the leader's term here: everything that waits is answered, every
// member's stream is closed, every goroutine joined.
func (l *leader) stop() {
	l.table.setWatch(nil)
	l.mu.Lock()
	l.closed = true
	members, ready, departs := l.members, l.ready, l.departs
	l.members, l.ready, l.departs = nil, nil, nil
	l.mu.Unlock()
	l.cancel()
	l.proposer.stop()
	l.keeper.stop()
	for m := range members {
		if m.stop != nil {
			m.stop()
		}
	}
	for _, done := range ready {
		done(wire.CodeNotLeader)
	}
	for _, done := range departs {
		done(wire.CodeNotLeader)
	}
	l.wg.Wait()
	l.keeper.stop() // beats that came while the first stop ran
}

// commit commits an entry. If its fate is unknown, so is what the keeper may
// still promise: the leader doubts itself and is made anew, behind a barrier.
func (l *leader) commit(entry []byte) ([]machine.Outcome, wire.Code) {
	outcomes, code := l.raft.commit(entry)
	if code == wire.CodeUnknown {
		l.doubts.Do(func() { close(l.doubt) })
	}
	return outcomes, code
}

func (l *leader) failed() bool {
	select {
	case <-l.doubt:
		return true
	default:
		return false
	}
}

// tick drives the keeper, and ends the founding wait.
func (l *leader) tick() {
	t := time.NewTicker(tickInterval)
	defer t.Stop()
	var lifting atomic.Bool
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-t.C:
			// Not the ticker's own time, which is when it fired: a goroutine
			// that was kept from running must see how late it is.
			now := time.Now()
			l.keeper.tick(now)
			if l.raft.store.StalledFor() > stallLimit {
				l.doubts.Do(func() { close(l.doubt) })
			}
			if lifting.Load() {
				continue
			}
			l.table.mu.RLock()
			lifted, bound, founded := l.table.m.Lifted(), l.table.m.Bound(), l.table.founded
			l.table.mu.RUnlock()
			if lifted || now.Sub(founded) < max(time.Duration(bound)*time.Millisecond, leastFoundingWait) {
				continue
			}
			if l.n != nil && l.n.beside.Load() {
				// It lived before ours, for ours has granted nothing yet.
				l.n.fail(errBeside)
				return
			}
			lifting.Store(true)
			l.propose(machine.Lift{Term: l.term}, func(o machine.Outcome, c wire.Code) {
				if c != wire.CodeOK || o.Code != machine.OK {
					lifting.Store(false) // again, at the next tick
				}
			})
		}
	}
}

// applied is told of each entry, in log order, by raft's goroutine.
func (l *leader) applied(a applied) {
	var lifted bool
	var opened []machine.SessionID
	for i, c := range a.commands {
		if a.outcomes[i].Code != machine.OK {
			continue
		}
		switch c := c.(type) {
		case machine.Open:
			opened = append(opened, c.Session)
		case machine.Lift:
			lifted = true
		}
	}
	for _, e := range a.events {
		switch e.Kind {
		case machine.EventChanged:
			l.watches.changed(e.Key)
			continue
		case machine.EventDelayed:
			l.keeper.delay(e.Token, e.Delay)
		case machine.EventEnded:
			l.keeper.ended(e.Session)
		}
		if e.Session != (machine.SessionID{}) {
			l.push(e)
		}
	}
	for _, id := range opened {
		// As the entry left it: a late copy of its Open may stand behind a
		// session's end, or before it.
		var st machine.SessionStatus
		open := false
		l.table.view(func(t *machine.State) { st, open = t.Session(id) })
		if open {
			l.keeper.opened(id, time.Duration(st.TTL)*time.Millisecond)
		}
	}
	if lifted {
		l.mu.Lock()
		ready := l.ready
		l.ready = nil
		l.mu.Unlock()
		for _, done := range ready {
			l.confirmed(done)
		}
	}
}

// push tells the session's member an event. If it is not connected the event
// is told when it attaches.
func (l *leader) push(e machine.Event) {
	l.mu.Lock()
	m := l.sessions[e.Session]
	if e.Kind == machine.EventEnded {
		delete(l.sessions, e.Session)
	}
	l.mu.Unlock()
	if m != nil {
		m.push(e)
	}
}

// join adds a destination of events, unless the leader has stopped.
func (l *leader) join(m *member) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.members[m] = struct{}{}
	return true
}

// quit removes m and its sessions.
func (l *leader) quit(m *member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.members, m)
	maps.DeleteFunc(l.sessions, func(_ machine.SessionID, o *member) bool { return o == m })
}

// bind routes a session's events to m. Where they went elsewhere before, m is
// told what it may have missed: bound first and read then, nothing falls
// between, and what is told twice does no harm. It reports whether the session is
// open; if not, its Open is on its way, or nothing is to come.
func (l *leader) bind(m *member, id machine.SessionID) (open bool) {
	l.mu.Lock()
	bound := l.sessions[id] == m
	l.mu.Unlock()
	if bound {
		return true
	}
	l.table.view(func(t *machine.State) { _, open = t.Session(id) })
	if !open {
		return false
	}
	l.mu.Lock()
	_, here := l.members[m]
	if here {
		l.sessions[id] = m
	}
	l.mu.Unlock()
	if !here {
		return true
	}
	var missed []machine.Event
	l.table.view(func(t *machine.State) {
		_, open = t.Session(id)
		missed = t.Pending(id)
	})
	if !open {
		// It ended before its events came here, and nothing else forgets it.
		l.detach(id)
		return false
	}
	for _, e := range missed {
		m.push(e)
	}
	return true
}

// attach binds sessions that were open before to m, and tells it of those
// that have ended since.
func (l *leader) attach(m *member, ids []machine.SessionID) {
	for _, id := range ids {
		if l.bind(m, id) {
			continue
		}
		// A deposed leader may lack a newer session: only a confirmed one may
		// say that there is none.
		l.rounds.add(func(ok bool) {
			if ok {
				m.push(machine.Event{Kind: machine.EventEnded, Session: id, Reason: machine.Expired})
			}
		})
	}
}

func (l *leader) detach(id machine.SessionID) {
	l.mu.Lock()
	delete(l.sessions, id)
	l.mu.Unlock()
}

// propose has cmd committed; done gets its outcome. See proposer.propose. What
// the table's format does not have is refused.
func (l *leader) propose(cmd machine.Command, done func(machine.Outcome, wire.Code)) {
	if f := machine.Format(cmd); f > leastFormat && f > l.table.format() {
		done(machine.Outcome{}, wire.CodeVersion)
		return
	}
	l.proposer.propose(cmd, done)
}

// read answers q once a round after the reading has confirmed it, waiting
// before that for a change if q says so. The returned function gives up.
func (l *leader) read(q replica.Query, done func(replica.Answer, wire.Code)) (cancel func()) {
	if q.Version != 0 && l.table.version(q) == q.Version {
		return l.watches.read(q, done)
	}
	l.readNow(q, done)
	return func() {}
}

func (l *leader) readNow(q replica.Query, done func(replica.Answer, wire.Code)) {
	if l.held.Load() > heldRoom-wire.MaxFrame {
		done(replica.Answer{}, wire.CodeBusy) // before it costs anything
		return
	}
	a := l.table.answer(q)
	l.keeper.describe(a.Status.Holders)
	free, ok := l.hold([]machine.Status{a.Status}, len(a.Also))
	if !ok {
		done(replica.Answer{}, wire.CodeBusy)
		return
	}
	l.rounds.add(func(ok bool) {
		defer free()
		if ok {
			done(a, wire.CodeOK)
		} else {
			done(replica.Answer{}, wire.CodeNotLeader)
		}
	})
}

// scan is read for many keys.
func (l *leader) scan(q replica.Scan, done func(replica.Scanned, wire.Code)) (cancel func()) {
	a := l.table.scan(q)
	if q.Since != 0 && !tells(a) {
		return l.watches.scan(q, done)
	}
	l.scanned(a, done)
	return func() {}
}

// scanned answers with what was read just now.
func (l *leader) scanned(a replica.Scanned, done func(replica.Scanned, wire.Code)) {
	for i := range a.Keys {
		l.keeper.describe(a.Keys[i].Holders)
	}
	free, ok := l.hold(a.Keys, 0)
	if !ok {
		done(replica.Scanned{}, wire.CodeBusy)
		return
	}
	l.rounds.add(func(ok bool) {
		defer free()
		if ok {
			done(a, wire.CodeOK)
		} else {
			done(replica.Scanned{}, wire.CodeNotLeader)
		}
	})
}

// granting answers once the founding wait is over.
func (l *leader) granting(done func(wire.Code)) {
	lifted := false
	l.mu.Lock()
	l.table.view(func(t *machine.State) { lifted = t.Lifted() })
	switch {
	case l.closed:
		l.mu.Unlock()
		done(wire.CodeNotLeader)
		return
	case !lifted:
		l.ready = append(l.ready, done)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.confirmed(done)
}

func (l *leader) confirmed(done func(wire.Code)) {
	l.rounds.add(func(ok bool) { beat{done: done}.answer(ok, wire.CodeOK) })
}

// bound is the largest TTL a session may have.
func (l *leader) bound() (ttl uint64) {
	l.table.view(func(t *machine.State) { ttl = t.Bound() })
	return ttl
}
