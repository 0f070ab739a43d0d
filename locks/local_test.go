package locks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// A world is a cluster for tests: the real lock table, and a leader that keeps
// sessions as cluster does, reached over a network that may misbehave. It makes
// no goroutines, only timers, so that a bubble's goroutines are all locks' own.
type world struct {
	t     testing.TB
	ttl   time.Duration
	id    machine.ClusterID
	check bool // the table's invariants after every command

	mu        sync.Mutex
	rng       *rand.Rand
	table     *machine.State
	term      uint64
	paused    bool          // the leader does nothing
	resumed   []func()      // what arrived meanwhile
	changed   chan struct{} // closed at the next command
	deadlines map[machine.SessionID]*deadline
	delays    []*time.Timer
	members   []*member
	applied   []machine.Command // all commands, in order, without keepalives
}

type deadline struct {
	at    time.Time
	timer *time.Timer
}

// faults are the network's, each a probability.
type faults struct {
	latency    time.Duration // of one way: up to this much
	loseAsk    float64
	loseAnswer float64
	twice      float64 // a late second copy of a command arrives
	losePush   float64 // a push is lost, and told again a while later
}

// member is a replica.Replica in a world.
type member struct {
	w    *world
	name string
	done chan struct{}

	slept atomic.Int64 // what the host's sleep counter says

	mu     sync.Mutex
	faults faults
	cut    chan struct{} // not nil while isolated; closed when healed
	sinks  map[machine.SessionID]*sink

	beats atomic.Int64 // confirmed
	hooks hooks
}

// hooks are what a test puts between a client and the world.
type hooks struct {
	proposed func(machine.Command)                   // sees what is sent
	refuse   func(machine.Command) *replica.Error    // answers instead, unless nil
	beat     func(ctx context.Context) (bool, error) // true: this is the answer
}

func (m *member) hook(h hooks) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hooks = h
}

func (m *member) hooked() hooks {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hooks
}

type sink struct {
	mu   sync.Mutex
	to   func(machine.Event)
	next time.Time // no later event is told before
	gone bool
}

const testTTL = 9 * time.Second

var worlds atomic.Uint64 // made so far: each has an ID of its own

func newWorld(t testing.TB) *world {
	w := &world{
		t:         t,
		ttl:       testTTL,
		check:     true,
		rng:       rand.New(rand.NewPCG(1, 2)),
		table:     machine.New(),
		changed:   make(chan struct{}),
		deadlines: make(map[machine.SessionID]*deadline),
	}
	binary.BigEndian.PutUint64(w.id[:], worlds.Add(1))
	w.apply(machine.Found{Cluster: w.id, Floor: 1, TTL: uint64(w.ttl / time.Millisecond)})
	w.lead()
	w.apply(machine.Raise{Term: w.term, Format: machine.MaxFormat})
	w.apply(machine.Lift{Term: w.term})
	return w
}

func (w *world) seed(seed uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rng = rand.New(rand.NewPCG(seed, 2))
}

// lead makes a new leader, which gives every session a whole TTL.
func (w *world) lead() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.term++
	w.applyLocked(machine.LeaderStart{Term: w.term})
	for id := range w.deadlines {
		w.deadlineLocked(id)
	}
}

// pause has the leader do nothing until resume; its clock stands still, too.
func (w *world) pause() (resume func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = true
	began := time.Now()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.paused = false
		gap := time.Since(began)
		for _, d := range w.deadlines {
			d.at = d.at.Add(gap)
			d.timer.Reset(time.Until(d.at))
		}
		for _, arrive := range w.resumed {
			time.AfterFunc(0, arrive)
		}
		w.resumed = nil
	}
}

func (w *world) apply(cmd machine.Command) machine.Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.applyLocked(cmd)
}

func (w *world) applyLocked(cmd machine.Command) machine.Outcome {
	w.table.Clock(uint64(time.Now().UnixMilli()))
	out, events := w.table.Apply(cmd)
	w.applied = append(w.applied, cmd)
	if w.check {
		if err := w.table.Check(); err != nil {
			w.t.Errorf("after %+v: %v", cmd, err)
		}
	}
	if c, ok := cmd.(machine.Open); ok && out.Code == machine.OK && w.deadlines[c.Session] == nil {
		w.deadlineLocked(c.Session)
	}
	for _, e := range events {
		switch e.Kind {
		case machine.EventEnded:
			if d := w.deadlines[e.Session]; d != nil {
				d.timer.Stop()
				delete(w.deadlines, e.Session)
			}
			fallthrough
		case machine.EventGranted, machine.EventLost, machine.EventRefused, machine.EventAsked, machine.EventContended:
			for _, m := range w.members {
				m.push(e, w.rng)
			}
		case machine.EventDelayed:
			w.delays = append(w.delays, time.AfterFunc(time.Duration(e.Delay)*time.Millisecond, func() { w.endDelay(e.Token) }))
		}
	}
	close(w.changed)
	w.changed = make(chan struct{})
	return out
}

// endDelay is what the leader does when a grant's delay is over. Its clock does not
// stand still for that while it is paused: a delay is not a promise to anybody.
func (w *world) endDelay(token machine.Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.applyLocked(machine.EndDelay{Token: token, Term: w.term})
}

// deadlineLocked counts a whole TTL of a session from now.
func (w *world) deadlineLocked(id machine.SessionID) {
	st, ok := w.table.Session(id)
	if !ok {
		return
	}
	ttl := time.Duration(st.TTL) * time.Millisecond
	d := w.deadlines[id]
	if d == nil {
		d = &deadline{}
		d.timer = time.AfterFunc(ttl, func() { w.expire(id) })
		w.deadlines[id] = d
	}
	d.at = time.Now().Add(ttl)
	d.timer.Reset(ttl)
}

func (w *world) expire(id machine.SessionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.deadlines[id]
	if d == nil || w.paused {
		return // resume sets the timer anew
	}
	if left := time.Until(d.at); left > 0 {
		d.timer.Reset(left)
		return
	}
	w.applyLocked(machine.Expire{Session: id, Term: w.term})
}

// expire is the leader's verdict on one client.
func expire(w *world, c *Client) machine.Command {
	return machine.Expire{Session: c.currentSession().id, Term: w.term}
}

// expireNow has the leader believe that all sessions are silent.
func (w *world) expireNow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []machine.SessionID
	for id := range w.deadlines {
		ids = append(ids, id)
	}
	for _, id := range ids {
		w.applyLocked(machine.Expire{Session: id, Term: w.term})
	}
}

func (w *world) owner(key string) (machine.SessionID, machine.Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.table.Owner(key)
}

// checkNow checks the table's invariants, for worlds too large to do so always.
func (w *world) checkNow() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.table.Check()
}

func (w *world) counts() machine.Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.table.Counts()
}

// busy counts what is held and waited for.
func (w *world) busy() int {
	n := w.counts()
	return n.Grants + n.Waiters
}

func (w *world) status(key string) machine.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.table.Status(key, replica.MaxListed)
}

// sent counts the commands applied that f says yes to.
func (w *world) sent(f func(machine.Command) bool) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.applied {
		if f(c) {
			n++
		}
	}
	return n
}

func (w *world) chance(p float64) bool {
	if p == 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Float64() < p
}

func (w *world) delay(most time.Duration) time.Duration {
	if most == 0 {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.rng.Int64N(int64(most)))
}

func (w *world) join(name string) *member {
	m := &member{w: w, name: name, done: make(chan struct{}), sinks: make(map[machine.SessionID]*sink)}
	w.mu.Lock()
	w.members = append(w.members, m)
	w.mu.Unlock()
	return m
}

func (m *member) client(opts Options) *Client {
	c := newClient(m, opts)
	c.slept = func() time.Duration { return time.Duration(m.slept.Load()) }
	return c
}

// sleep is a suspended host: its clock stands still while the leader's goes on.
func (m *member) sleep(d time.Duration) {
	m.slept.Add(int64(d))
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, dl := range m.w.deadlines {
		if m.sinks[id] != nil {
			dl.at = dl.at.Add(-d)
			dl.timer.Reset(time.Until(dl.at))
		}
	}
}

func (m *member) isolate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = make(chan struct{})
}

func (m *member) heal() {
	m.mu.Lock()
	close(m.cut)
	m.cut = nil
	m.mu.Unlock()
	m.resync()
}

func (m *member) set(f faults) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = f
}

func (m *member) network() (faults, chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.faults, m.cut
}

func (m *member) Member() string             { return m.name }
func (m *member) Cluster() machine.ClusterID { return m.w.id }
func (m *member) TTL() time.Duration         { return m.w.ttl }
func (m *member) Done() <-chan struct{}      { return m.done }

func (m *member) Reached() error {
	if _, cut := m.network(); cut != nil {
		return cluster.ErrNoQuorum
	}
	return nil
}

// retryAfter is when a command is sent again whose answer did not come.
const retryAfter = 300 * time.Millisecond

// ask has the leader do f, again and again until an answer comes or ctx ends. It
// returns whether f may have been done without that.
func (m *member) ask(ctx context.Context, again bool, f func() any) (any, bool, error) {
	sent := false
	answers := make(chan any, 1) // of any attempt
	for {
		select {
		case <-m.done:
			return nil, sent, cluster.ErrStopped
		default:
		}
		if ctx.Err() != nil {
			return nil, sent, ctx.Err()
		}
		fl, cut := m.network()
		if cut != nil {
			select {
			case <-cut:
				continue
			case <-m.done:
				continue
			case <-ctx.Done():
				return nil, sent, errors.Join(cluster.ErrNoQuorum, ctx.Err())
			}
		}
		lost := m.w.chance(fl.loseAnswer)
		var arrive func()
		arrive = func() {
			m.w.mu.Lock()
			if m.w.paused {
				m.w.resumed = append(m.w.resumed, arrive)
				m.w.mu.Unlock()
				return
			}
			m.w.mu.Unlock()
			a := f()
			if _, cut := m.network(); lost || cut != nil {
				return
			}
			time.AfterFunc(m.w.delay(fl.latency), func() {
				select {
				case answers <- a:
				default:
				}
			})
		}
		sent = true
		if !m.w.chance(fl.loseAsk) {
			if d := m.w.delay(fl.latency); d > 0 {
				time.AfterFunc(d, arrive)
			} else {
				arrive()
			}
			if again && m.w.chance(fl.twice) {
				time.AfterFunc(m.w.delay(3*time.Second), arrive)
			}
		}
		timer := time.NewTimer(retryAfter)
		select {
		case a := <-answers:
			timer.Stop()
			return a, true, nil
		case <-timer.C:
		case <-m.done:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (m *member) Propose(ctx context.Context, cmd machine.Command) (machine.Outcome, error) {
	h := m.hooked()
	if h.proposed != nil {
		h.proposed(cmd)
	}
	if h.refuse != nil {
		if err := h.refuse(cmd); err != nil {
			return machine.Outcome{}, err
		}
	}
	a, unknown, err := m.ask(ctx, true, func() any { return m.w.apply(cmd) })
	if err != nil {
		return machine.Outcome{}, &replica.Error{Unknown: unknown, Err: err}
	}
	return a.(machine.Outcome), nil
}

func (m *member) Beat(ctx context.Context, id machine.SessionID) error {
	if h := m.hooked(); h.beat != nil {
		if ok, err := h.beat(ctx); ok {
			return err
		}
	}
	a, _, err := m.ask(ctx, false, func() any {
		m.w.mu.Lock()
		defer m.w.mu.Unlock()
		if m.w.deadlines[id] == nil {
			return replica.ErrNoSession
		}
		m.w.deadlineLocked(id)
		return nil
	})
	if err != nil {
		return &replica.Error{Err: err}
	}
	if a != nil {
		return a.(error)
	}
	m.beats.Add(1)
	return nil
}

func (m *member) Attach(id machine.SessionID, to func(machine.Event)) {
	m.mu.Lock()
	m.sinks[id] = &sink{to: to}
	m.mu.Unlock()
}

func (m *member) Detach(id machine.SessionID) {
	m.mu.Lock()
	s := m.sinks[id]
	delete(m.sinks, id)
	m.mu.Unlock()
	if s != nil {
		s.mu.Lock()
		s.gone = true
		s.mu.Unlock()
	}
}

// push tells an attached session of an event. The caller holds w.mu, whose rng
// this is.
func (m *member) push(e machine.Event, rng *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sinks[e.Session]
	if s == nil || m.cut != nil {
		return
	}
	if rng.Float64() < m.faults.losePush {
		time.AfterFunc(time.Duration(rng.Int64N(int64(2*time.Second))), m.resync)
		return
	}
	d := time.Duration(0)
	if m.faults.latency > 0 {
		d = time.Duration(rng.Int64N(int64(m.faults.latency)))
	}
	s.tell(e, d)
}

// tell calls the sink after d, but not before it was told what came earlier.
func (s *sink) tell(e machine.Event, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Now().Add(d)
	if !at.After(s.next) {
		at = s.next.Add(1)
	}
	s.next = at
	time.AfterFunc(time.Until(at), func() {
		s.mu.Lock()
		gone := s.gone
		s.mu.Unlock()
		if !gone {
			s.to(e)
		}
	})
}

// resync is a reconnection: all that the sessions have not seen is told again.
func (m *member) resync() {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cut != nil {
		return
	}
	for id, s := range m.sinks {
		if _, ok := m.w.table.Session(id); !ok {
			s.tell(machine.Event{Kind: machine.EventEnded, Session: id, Reason: machine.Expired}, 0)
			continue
		}
		for _, e := range m.w.table.Pending(id) {
			s.tell(e, 0)
		}
	}
}

func (m *member) Read(ctx context.Context, q replica.Query) (replica.Answer, error) {
	for {
		type view struct {
			replica.Answer
			changed chan struct{}
		}
		a, _, err := m.ask(ctx, false, func() any {
			m.w.mu.Lock()
			defer m.w.mu.Unlock()
			return view{m.w.answer(q), m.w.changed}
		})
		if err != nil {
			return replica.Answer{}, &replica.Error{Err: err}
		}
		v := a.(view)
		if v.Version != q.Version {
			return v.Answer, nil
		}
		select {
		case <-v.changed:
		case <-m.done:
		case <-ctx.Done():
		}
	}
}

func (w *world) answer(q replica.Query) replica.Answer {
	a := replica.Answer{Status: w.table.Status(q.Key, q.Waiters)}
	if q.Value {
		a.Status.Value = w.table.Value(q.Key)
	}
	if q.Seq != 0 {
		a.Behind, a.Waits = w.table.Behind(q.Session, q.Seq)
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", q.Key, w.table.Version(q.Key))
	for _, key := range q.Also {
		id, token := w.table.Owner(key)
		a.Also = append(a.Also, replica.Owner{Session: id, Token: token})
		fmt.Fprintf(h, " %d", token)
	}
	a.Version = h.Sum64() | 1
	return a
}

func (m *member) Scan(ctx context.Context, q replica.Scan) (replica.Scanned, error) {
	for {
		type view struct {
			replica.Scanned
			changed chan struct{}
		}
		asked := q // a late attempt reads it after q has moved on
		a, _, err := m.ask(ctx, false, func() any {
			m.w.mu.Lock()
			defer m.w.mu.Unlock()
			return view{m.w.scan(asked), m.w.changed}
		})
		if err != nil {
			return replica.Scanned{}, &replica.Error{Err: err}
		}
		v := a.(view)
		if q.Since == 0 || len(v.Keys) > 0 || v.Lost {
			return v.Scanned, nil
		}
		q.Since = v.Version
		select {
		case <-v.changed:
		case <-m.done:
		case <-ctx.Done():
		}
	}
}

func (w *world) scan(q replica.Scan) replica.Scanned {
	limit := q.Limit
	if limit <= 0 || limit > replica.MaxScanned {
		limit = replica.MaxScanned
	}
	r := replica.Scanned{Version: w.table.Commands()}
	var keys []string
	if q.Since == 0 {
		keys = w.table.Keys(q.Prefix, q.From, limit+1)
		if r.More = len(keys) > limit; r.More {
			keys = keys[:limit]
		}
	} else {
		upTo, ok := uint64(0), false
		keys, upTo, ok = w.table.Changes(q.Prefix, q.Since, limit)
		if !ok {
			r.Lost = true
			return r
		}
		r.More, r.Version = upTo < r.Version, upTo
	}
	for _, key := range keys {
		r.Keys = append(r.Keys, w.table.Status(key, replica.MaxScannedEach))
	}
	return r
}

func (m *member) stop() { close(m.done) }

var _ replica.Replica = (*member)(nil)

// sizes returns how many waiters and locks a session keeps.
func (s *session) sizes() (waiters, locks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiters), len(s.grants)
}
