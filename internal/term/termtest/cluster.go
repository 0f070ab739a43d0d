package termtest

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// Config describes a Cluster. Most tests use the zero Config.
type Config struct {
	TTL      time.Duration             // bound of sessions' TTLs; 0: DefaultTTL
	Voters   int                       // 0: three
	Founding bool                      // leave the founding wait to the leader
	Format   func(machine.Command) int // like term.Config.Format
	Depart   func(name string, boot uint64, done func(wire.Code))
	MayLift  func() bool
	Deny     func(node string, boot uint64, cmd machine.Command) (reason string, denied bool)
	Refused  *refused.Log // nil: the test fails if anything is refused

	Clocks  [2]*host.Clock                             // of the two voters; nil: package time
	Applied func(c machine.Command, o machine.Outcome) // called for each applied command, in log order
	Forget  bool                                       // Cluster.Applied returns nothing: a long run keeps no list
}

// DefaultTTL is the bound of sessions' TTLs if Config says nothing.
const DefaultTTL = 9 * time.Second

// A Cluster is a lock table with a leader. Methods may be called from any
// goroutine.
type Cluster struct {
	t   testing.TB
	cfg Config

	honest bool // nobody acts for sessions of others

	id   machine.ClusterID
	next wakeup.All // another leader

	entries gate
	rounds  rounds
	log     logFaults

	applying sync.Mutex // an entry; locked before mu
	tables   [2]*term.Table

	mu       sync.Mutex
	rng      *rand.Rand
	applied  []machine.Command // all commands, in log order
	elected  uint64            // the highest term won
	promised map[string]uint64 // each voter's term
	cut      map[string]bool   // voters without an answer to rounds
	leader   *leadership       // nil: nobody leads
	leaders  []*leadership     // all so far; the deposed ones may be running still
	members  []*Member
	check    bool
	stalled  time.Duration

	proposals struct {
		kept bool
		list []Proposal
	}
}

var made atomic.Uint64 // clusters so far: every ID is another

// New founds a cluster and elects the first leader, in term 1. The Cluster stops at
// the end of the test.
func New(t testing.TB, cfg Config) *Cluster {
	t.Helper()
	if cfg.TTL == 0 {
		cfg.TTL = DefaultTTL
	}
	if cfg.Voters == 0 {
		cfg.Voters = 3
	}
	honest := cfg.Refused == nil
	if honest {
		cfg.Refused = refused.New(slog.New(slog.DiscardHandler))
	}
	c := &Cluster{
		t:        t,
		honest:   honest,
		cfg:      cfg,
		tables:   [2]*term.Table{term.NewTable(), term.NewTable()},
		promised: make(map[string]uint64),
		cut:      make(map[string]bool),
		check:    true,
	}
	for i, clock := range cfg.Clocks {
		c.tables[i].Clock = clock
	}
	c.Seed(0)
	binary.BigEndian.PutUint64(c.id[:], made.Add(1))
	t.Cleanup(c.stop)
	c.Lead()
	if !cfg.Founding {
		c.Must(machine.Lift{Term: c.TermNumber()})
	}
	return c
}

// stop ends every leadership and compares the tables.
func (c *Cluster) stop() {
	c.ReleaseEntries()
	c.ReleaseRounds()
	c.mu.Lock()
	c.leader = nil
	members, leaders := c.members, c.leaders
	c.mu.Unlock()
	for _, m := range members {
		m.leave()
	}
	for _, l := range leaders {
		l.resume()
		l.term.Stop()
	}
	if n := c.cfg.Refused.Counts()[refused.Session]; n > 0 && c.honest {
		c.t.Errorf("%d requests of honest members for their sessions were refused", n)
	}
	var digests [2][32]byte
	for i, table := range c.tables {
		table.View(func(m *machine.State) { digests[i] = m.Digest() })
	}
	if digests[0] != digests[1] {
		c.t.Error("the tables of the two voters differ")
	}
}

// Lead elects a leader in the next term. The leader before is stopped, or goes on
// frozen if paused. The new leader has the other voter's table.
func (c *Cluster) Lead() {
	c.t.Helper()
	if old := c.unseat(); old != nil && !old.paused() {
		old.term.Stop()
	}
	c.elect()
}

// Depose elects a leader in the next term, on the other voter's table, and
// leaves the leader before running: the old leader has not heard of the
// election, and the members go on with the old leader for their Faults.Stale.
// Depose returns the Term of the leader before.
func (c *Cluster) Depose() *term.Term {
	c.t.Helper()
	old := c.unseat()
	c.elect()
	return old.term
}

// LeadFromSnapshot is Lead, with a snapshot as the new leader's table.
func (c *Cluster) LeadFromSnapshot() {
	c.t.Helper()
	old := c.last()
	c.applying.Lock()
	var image bytes.Buffer
	if err := c.tables[old.place].Snapshot()(&image); err != nil {
		c.t.Errorf("snapshot: %v", err)
	}
	if err := c.tables[1-old.place].Restore(&image); err != nil {
		c.t.Errorf("restore: %v", err)
	}
	c.applying.Unlock()
	c.Lead()
}

// unseat takes the leader away. The next leader commits the entries that it has of the old
// term; from then on no entry of the old term is committed.
func (c *Cluster) unseat() *leadership {
	c.applying.Lock() // no entry is half applied
	defer c.applying.Unlock()
	c.mu.Lock()
	old := c.leader
	c.leader = nil
	c.elected++
	c.mu.Unlock()
	c.inheritLocked(old)
	return old
}

// elect has a majority of the voters vote for a leader in the term of c.elected,
// and starts the Term.
func (c *Cluster) elect() {
	c.t.Helper()
	c.mu.Lock()
	number := c.elected
	l := &leadership{c: c, number: number, place: int((number - 1) % 2)}
	for i := range c.cfg.Voters/2 + 1 {
		// Round the voters, the leader of the term first.
		c.promised[c.voter((l.place+i)%c.cfg.Voters)] = number
	}
	c.mu.Unlock()
	founding := &wire.Founding{Cluster: c.id, Floor: 1, TTL: uint64(c.cfg.TTL / time.Millisecond)}
	t, err := term.Establish(term.Config{
		Log: l, Table: c.tables[l.place], Term: number, Logger: slog.New(slog.DiscardHandler),
		Ask: c.ask, Depart: c.cfg.Depart, MayLift: c.cfg.MayLift, Format: c.cfg.Format,
		Deny: c.cfg.Deny, Refused: c.cfg.Refused,
	}, func() error { return nil }, founding, func() int { return machine.MaxFormat })
	if err != nil {
		c.t.Fatalf("term %d: %v", number, err)
	}
	l.term = t
	l.seated.Store(true)
	c.mu.Lock()
	c.leader, c.leaders = l, append(c.leaders, l)
	members := c.members
	c.mu.Unlock()
	for _, m := range members {
		faults, _ := m.network()
		m.after(faults.Stale, func() { m.awake(m.Reconnect) })
	}
	c.next.Wake()
}

func (c *Cluster) leading() *leadership {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader
}

func (c *Cluster) last() *leadership {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaders[len(c.leaders)-1]
}

// Term returns the Term of the leader. During an election, this and the other
// methods speak of the leader before.
func (c *Cluster) Term() *term.Term { return c.last().term }

// TermNumber returns the number of the leader's term.
func (c *Cluster) TermNumber() uint64 { return c.last().number }

// Table returns the leader's table.
func (c *Cluster) Table() *term.Table { return c.tables[c.last().place] }

// ID returns the cluster's ID.
func (c *Cluster) ID() machine.ClusterID { return c.id }

// Apply commits commands in entries of their own, beside the leader's proposer, and
// returns their outcomes. Apply does not wait for HoldEntries.
func (c *Cluster) Apply(commands ...machine.Command) (outcomes []machine.Outcome) {
	for part := range slices.Chunk(commands, machine.MaxCommands) {
		c.applying.Lock()
		outcomes = append(outcomes, c.applyLocked(c.last().place, machine.EncodeCommands(part))...)
		c.applying.Unlock()
	}
	return outcomes
}

// Must is Apply for commands accepted by the table; any other outcome fails the
// test. Must returns the last outcome.
func (c *Cluster) Must(commands ...machine.Command) (last machine.Outcome) {
	c.t.Helper()
	for i, o := range c.Apply(commands...) {
		if o.Code != machine.OK && o.Code != machine.Granted && o.Code != machine.Queued && o.Code != machine.Unfinished {
			c.t.Fatalf("%#v: %+v", commands[i], o)
		}
		last = o
	}
	return last
}

// applyLocked applies an entry to both tables, the leader's first. The caller holds
// c.applying.
func (c *Cluster) applyLocked(place int, entry []byte) []machine.Outcome {
	commands, err := machine.DecodeEntry(entry)
	if err != nil {
		c.t.Errorf("an entry cannot be decoded: %v", err)
	}
	c.mu.Lock()
	if !c.cfg.Forget {
		c.applied = append(c.applied, commands...)
	}
	check := c.check
	c.mu.Unlock()
	now := time.Now()
	outcomes := c.tables[place].Apply(entry, now).([]machine.Outcome)
	c.tables[1-place].Apply(bytes.Clone(entry), now)
	if c.cfg.Applied != nil {
		for i, cmd := range commands {
			c.cfg.Applied(cmd, outcomes[i])
		}
	}
	if check {
		c.tables[place].View(func(m *machine.State) {
			if err := m.Check(); err != nil {
				c.t.Errorf("after %+v: %v", commands, err)
			}
		})
	}
	return outcomes
}

// SetCheck says whether the table's invariants are checked after every entry. A
// test with a large table turns the check off and calls Check.
func (c *Cluster) SetCheck(check bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.check = check
}

// Check returns the first broken invariant of the table, or nil.
func (c *Cluster) Check() (err error) {
	c.View(func(m *machine.State) { err = m.Check() })
	return err
}

// Seed starts the chances of the network's faults anew.
func (c *Cluster) Seed(seed uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rng = rand.New(rand.NewPCG(seed, 2))
}

// View runs f on the leader's table.
func (c *Cluster) View(f func(*machine.State)) { c.Table().View(f) }

// Owner returns the first holder of a key.
func (c *Cluster) Owner(key string) (id machine.SessionID, token machine.Token) {
	c.View(func(m *machine.State) { id, token = m.Owner(key) })
	return id, token
}

// Status returns the state of a key.
func (c *Cluster) Status(key string) (st machine.Status) {
	c.View(func(m *machine.State) { st = m.Status(key, replica.MaxListed) })
	return st
}

// Counts counts the sessions, grants and waiters of the table.
func (c *Cluster) Counts() (n machine.Counts) {
	c.View(func(m *machine.State) { n = m.Counts() })
	return n
}

// Alive reports whether a session is open.
func (c *Cluster) Alive(id machine.SessionID) (open bool) {
	c.View(func(m *machine.State) { open = m.Opened(id) })
	return open
}

// Applied returns all commands so far, in log order.
func (c *Cluster) Applied() []machine.Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.applied)
}

// Sent counts the applied commands accepted by f.
func (c *Cluster) Sent(f func(machine.Command) bool) (n int) {
	for _, cmd := range c.Applied() {
		if f(cmd) {
			n++
		}
	}
	return n
}

// ExpireNow ends every session, as if the leader had heard none for a TTL.
func (c *Cluster) ExpireNow() {
	var expire []machine.Command
	number := c.TermNumber()
	c.View(func(m *machine.State) {
		m.Sessions(func(st machine.SessionStatus) bool {
			expire = append(expire, machine.Expire{Session: st.ID, Term: number})
			return true
		})
	})
	c.Apply(expire...)
}

// Pause stops the leader like SIGSTOP until resume is called: the leader hears,
// says and decides nothing. A leader elected meanwhile is not paused.
func (c *Cluster) Pause() (resume func()) {
	l := c.last()
	l.pause()
	return l.resume
}

func (c *Cluster) chance(p float64) bool {
	if p == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.Float64() < p
}

func (c *Cluster) upTo(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(c.rng.Int64N(int64(most)))
}
