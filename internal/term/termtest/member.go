package termtest

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// Faults are the faults of a member's network: two durations, then probabilities.
type Faults struct {
	Latency    time.Duration // of one way: up to this much
	Stale      time.Duration // until the member hears of an election: up to this much
	LoseAsk    float64
	LoseAnswer float64
	Twice      float64 // a late second copy of a command or a beat arrives
	LosePush   float64 // an event is lost, and told again after a reconnection
}

// Hooks are functions of a test between a client and the network. A nil function
// does nothing.
type Hooks struct {
	Proposed func(machine.Command)                   // sees every command
	Refuse   func(machine.Command) *replica.Error    // answers in place of the leader, unless nil
	Beat     func(ctx context.Context) (bool, error) // answers in place of the leader, if true
}

// A Member reaches a Cluster's leader over a faulty network.
type Member struct {
	c      *Cluster
	name   string
	guests *replica.Guests
	done   chan struct{} // closed by Stop

	beats atomic.Int64
	slept atomic.Int64
	log   atomic.Pointer[slog.Logger]
	voter atomic.Bool

	mu         sync.Mutex
	faults     Faults
	hooks      Hooks
	cut        chan struct{} // not nil while isolated; closed when healed
	sinks      map[machine.SessionID]*sink
	claimed    []machine.SessionKey            // of all claims
	heard      map[machine.SessionID]time.Time // when the leader last heard a session
	connection *connection                     // nil while isolated
	clock      *host.Clock                     // nil: package time
	arrivals   []func()                        // of messages received while frozen
	lost       bool                            // a push, and a reconnection is to come
}

// A sink is a session's receiver of events on the member.
type sink struct {
	key  machine.SessionKey
	to   func(machine.Event) // nil: the session is being opened
	last time.Time           // when the latest event arrives; no later event arrives before
}

var _ replica.Replica = (*Member)(nil)

// NextLook implements replica.Replica.
func (m *Member) NextLook(_ time.Time, every time.Duration) time.Duration { return every }

// Log implements replica.Replica.
func (m *Member) Log() *slog.Logger {
	if l := m.log.Load(); l != nil {
		return l
	}
	return slog.New(slog.DiscardHandler)
}

// SetLog sets the result of Log.
func (m *Member) SetLog(l *slog.Logger) { m.log.Store(l) }

// Join adds a member.
func (c *Cluster) Join(name string) *Member {
	m := &Member{
		c: c, name: name, guests: replica.NewGuests(), done: make(chan struct{}),
		sinks: make(map[machine.SessionID]*sink),
		heard: make(map[machine.SessionID]time.Time),
	}
	c.mu.Lock()
	c.members = append(c.members, m)
	c.mu.Unlock()
	m.Reconnect()
	return m
}

// SetFaults replaces the faults of the member's network.
func (m *Member) SetFaults(f Faults) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = f
}

// SetHooks replaces the member's hooks.
func (m *Member) SetHooks(h Hooks) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hooks = h
}

// Beats returns the number of acknowledged beats.
func (m *Member) Beats() int64 { return m.beats.Load() }

// Slept returns how long the member's host was suspended.
func (m *Member) Slept() time.Duration { return time.Duration(m.slept.Load()) }

// BeginStop ends the member's sessions, as the first step of a node's Stop does.
// The returned function waits until the sessions have told the cluster.
func (m *Member) BeginStop() (await func(context.Context)) {
	m.guests.Close()
	m.guests.AwaitEnded()
	return m.guests.AwaitLeft
}

// Stop ends the member at once, without telling the cluster.
func (m *Member) Stop() {
	close(m.done)
	m.guests.Close()
}

// Isolate cuts the member off until Heal.
func (m *Member) Isolate() {
	m.mu.Lock()
	m.cut = make(chan struct{})
	m.mu.Unlock()
	m.leave()
}

// Heal ends Isolate. The member's sessions are told the missed events.
func (m *Member) Heal() {
	m.mu.Lock()
	close(m.cut)
	m.cut = nil
	m.mu.Unlock()
	m.Reconnect()
}

// Sleep suspends the member's host for d: the host's clock stands still while the
// leader's goes on. A bubble has a single clock, so the leader's verdict comes early
// instead: a session whose deadline is closer than d expires then.
func (m *Member) Sleep(d time.Duration) {
	m.slept.Add(int64(d))
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, heard := range m.heard {
		if m.sinks[id] == nil {
			delete(m.heard, id)
			continue
		}
		m.heard[id] = heard.Add(-d)
		m.expireUnheard(id, heard.Add(-d))
	}
}

// expireUnheard has the session expire a TTL after heard, unless the leader hears
// the session before.
func (m *Member) expireUnheard(id machine.SessionID, heard time.Time) {
	var st machine.SessionStatus
	m.c.View(func(s *machine.State) { st, _ = s.Session(id) })
	time.AfterFunc(time.Until(heard.Add(time.Duration(st.TTL)*time.Millisecond)), func() {
		m.mu.Lock()
		silent := m.heard[id].Equal(heard)
		m.mu.Unlock()
		if l := m.c.leading(); silent && l != nil {
			m.c.Apply(machine.Expire{Session: id, Term: l.number})
		}
	})
}

// hear notes the moment when the leader hears a session.
func (m *Member) hear(id machine.SessionID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard[id] = time.Now()
}

func (m *Member) network() (Faults, chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.faults, m.cut
}

func (m *Member) hooked() Hooks {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hooks
}

// Member returns the member's name.
func (m *Member) Member() string { return m.name }

// Boot returns the number of the member's process.
func (m *Member) Boot() uint64 { return 1 }

// Dir implements replica.Replica.
func (m *Member) Dir() machine.DirID { return machine.DirID{} }

// Cluster returns the cluster's ID.
func (m *Member) Cluster() machine.ClusterID { return m.c.id }

// TTL returns the bound of sessions' TTLs.
func (m *Member) TTL() time.Duration { return m.c.cfg.TTL }

// Done is closed by BeginStop and Stop.
func (m *Member) Done() <-chan struct{} { return m.guests.Done() }

// Enter implements replica.Replica.
func (m *Member) Enter() *replica.Guest { return m.guests.Enter() }

// Local implements replica.Replica. The member has no copy of the table, unless SetVoter
// has given one.
func (m *Member) Local(f func(*machine.State)) (replica.Copy, bool) {
	if !m.voter.Load() {
		return replica.Copy{}, false
	}
	c := replica.Copy{Index: 1, Current: time.Now()}
	if l := m.c.leading(); l != nil {
		c.Times = l.term
	}
	m.c.View(f)
	return c, true
}

// SetVoter gives the member the table of the cluster as its own copy.
func (m *Member) SetVoter() { m.voter.Store(true) }

// Reached returns ErrNoQuorum while the member is isolated or nobody leads.
func (m *Member) Reached() error {
	if _, cut := m.network(); cut != nil || m.c.leading() == nil {
		return replica.ErrNoQuorum
	}
	return nil
}

// NewKey implements replica.Replica.
func (m *Member) NewKey() (key machine.SessionKey) {
	_, _ = rand.Read(key[:]) // never fails
	return key
}

// Claim implements replica.Replica.
func (m *Member) Claim(key machine.SessionKey) {
	m.mu.Lock()
	m.sinks[key.ID()] = &sink{key: key}
	m.claimed = append(m.claimed, key)
	n := m.connection
	m.mu.Unlock()
	if n != nil {
		n.leader.term.Show(n.subscriber, key)
	}
}

// Attach implements replica.Replica.
func (m *Member) Attach(id machine.SessionID, to func(machine.Event)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sinks[id]; s != nil {
		m.sinks[id] = &sink{key: s.key, to: to}
	}
}

// Detach implements replica.Replica. The Detach follows every request sent before on
// the same connection.
func (m *Member) Detach(id machine.SessionID) {
	m.mu.Lock()
	delete(m.sinks, id)
	delete(m.heard, id)
	n, latency := m.connection, m.faults.Latency
	m.mu.Unlock()
	if n != nil {
		n.send(latency, func(t *term.Term, s *term.Subscriber) { t.Detach(s, id) })
	}
}

// Propose implements replica.Replica.
func (m *Member) Propose(ctx context.Context, cmd machine.Command) (machine.Outcome, error) {
	h := m.hooked()
	if h.Proposed != nil {
		h.Proposed(cmd)
	}
	if h.Refuse != nil {
		if err := h.Refuse(cmd); err != nil {
			return machine.Outcome{}, err
		}
	}
	return ask(ctx, m, request[machine.Outcome]{
		command: true,
		twice:   true,
		session: term.SessionOf(cmd),
		over:    func(done func(machine.Outcome)) { done(machine.Outcome{Code: machine.NoSession}) },
		send: func(t *term.Term, s *term.Subscriber, done func(machine.Outcome, wire.Code)) func() {
			if o, ok := cmd.(machine.Open); ok {
				m.hear(o.Session)
			}
			place := t.Propose(s, cmd, done)
			switch cmd.(type) {
			case machine.Acquire, machine.Upgrade:
				return func() { t.TakeBack(s, place) }
			}
			return nil
		},
	})
}

// Beat implements replica.Replica.
func (m *Member) Beat(ctx context.Context, id machine.SessionID) error {
	if h := m.hooked(); h.Beat != nil {
		if ok, err := h.Beat(ctx); ok {
			return err
		}
	}
	code, err := ask(ctx, m, request[wire.Code]{
		session: id,
		twice:   true,
		over:    func(done func(wire.Code)) { done(wire.CodeNoSession) },
		send: func(t *term.Term, s *term.Subscriber, done func(wire.Code, wire.Code)) func() {
			m.hear(id)
			t.Beat(s, id, func(c wire.Code) { done(c, c) })
			return nil
		},
	})
	switch {
	case err != nil:
		return err
	case code != wire.CodeOK:
		return replica.ErrNoSession
	}
	m.beats.Add(1)
	return nil
}

// Read implements replica.Replica.
func (m *Member) Read(ctx context.Context, q replica.Query) (replica.Answer, error) {
	if err := q.Check(); err != nil {
		return replica.Answer{}, err
	}
	return ask(ctx, m, request[replica.Answer]{
		waits: q.Version != 0,
		send: func(t *term.Term, _ *term.Subscriber, done func(replica.Answer, wire.Code)) func() {
			return t.Read(q, done)
		},
	})
}

// Scan implements replica.Replica.
func (m *Member) Scan(ctx context.Context, q replica.Scan) (replica.Scanned, error) {
	if err := q.Check(); err != nil {
		return replica.Scanned{}, err
	}
	return ask(ctx, m, request[replica.Scanned]{
		waits: q.Since != 0,
		send: func(t *term.Term, _ *term.Subscriber, done func(replica.Scanned, wire.Code)) func() {
			return t.Scan(q, done)
		},
	})
}
