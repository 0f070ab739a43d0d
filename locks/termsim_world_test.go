package locks

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

// A climate is what a round of the term simulation is drawn from.
type climate struct {
	ttl   time.Duration
	drift float64 // the rates of two clocks differ by twice as much at most
	full  bool    // a client with more keys than fit in a slice
}

// climates are the TTLs of rounds: the shortest ones expire often, and the longest outlive
// elections.
func drawClimate(rng *rand.Rand) climate {
	c := climate{ttl: []time.Duration{time.Second, 3 * time.Second, 9 * time.Second, 30 * time.Second}[rng.IntN(4)]}
	if rng.IntN(2) == 0 {
		c.drift = 0.0049
	}
	c.full = rng.IntN(12) == 0
	return c
}

// A simMember is a member whose acknowledged beats are watched.
type simMember struct {
	*member
	book  *book
	clock *host.Clock
	rate  float64
	cut   bool
	still bool // frozen
}

// Beat implements replica.Replica.
func (m *simMember) Beat(ctx context.Context, id machine.SessionID) error {
	sent, slept := time.Now(), m.Slept()
	err := m.member.Beat(ctx, id)
	if err == nil {
		m.book.acknowledged(id, m, sent, m.Slept()-slept)
	}
	return err
}

// NextLook implements replica.Replica. A host whose clocks have rates of their own does not
// sleep, so nobody needs to look for that.
func (m *simMember) NextLook(now time.Time, every time.Duration) time.Duration {
	if m.rate == 1 {
		return m.member.NextLook(now, every)
	}
	return time.Hour
}

// A sky is the world of a round, with its faults.
type sky struct {
	*world
	climate
	t       testing.TB
	rng     *rand.Rand // of the faults
	book    *book
	voters  [2]*host.Clock
	members []*simMember
	clients []*Client
	began   time.Time
	until   time.Time     // of the faults
	took    time.Duration // all of the round
	stop    chan struct{}
	turn    chan struct{} // size 1: full during a change of leaders, which takes time
	tasks   sync.WaitGroup

	resume func()      // of the paused leader; nil: not paused; in a turn
	paused atomic.Bool // resume is not nil: for a look out of turn
	past   *term.Term  // of a leader of the past that goes on; in a turn

	mu     sync.Mutex
	faults map[string]int

	sure, unsure atomic.Int64 // updates of the counter
}

func newSky(t testing.TB, seed uint64, c climate, length time.Duration) *sky {
	s := &sky{
		climate: c, t: t, rng: rand.New(rand.NewPCG(seed, 5)), book: newBook(c.ttl),
		began: time.Now(), until: time.Now().Add(length), stop: make(chan struct{}), turn: make(chan struct{}, 1), faults: make(map[string]int),
	}
	cfg := termtest.Config{TTL: c.ttl, Applied: s.book.applied, Forget: true}
	for i := range cfg.Clocks {
		cfg.Clocks[i] = s.newClock(s.rate())
	}
	s.voters = cfg.Clocks
	s.world = &world{termtest.New(t, cfg)}
	s.SetCheck(seed%16 == 0)
	s.Seed(seed)
	s.tasks.Go(s.reelect)
	for i := range 4 {
		s.join(t, string(rune('a'+i)))
	}
	return s
}

// rate draws the rate of a clock.
func (s *sky) rate() float64 { return 1 + s.drift*(2*s.rng.Float64()-1) }

func (s *sky) newClock(rate float64) *host.Clock {
	c := host.NewClock(time.Duration(s.rng.Int64N(int64(1000 * time.Hour))))
	c.Set(rate, 0)
	return c
}

func (s *sky) join(t testing.TB, name string) {
	rate := s.rate()
	m := &simMember{member: s.world.join("node-" + name), book: s.book, clock: s.newClock(rate), rate: rate}
	m.SetClock(m.clock)
	m.SetFaults(termtest.Faults{
		Latency:    s.upTo(min(s.ttl/8, 400*time.Millisecond)),
		Stale:      s.upTo(s.ttl / 2),
		LoseAsk:    s.rng.Float64() * 0.2,
		LoseAnswer: s.rng.Float64() * 0.2,
		Twice:      s.rng.Float64() * 0.2,
		LosePush:   s.rng.Float64() * 0.3,
	})
	c := newClient(m, Options{Name: name})
	c.slept = func(time.Time) time.Duration { return m.Slept() }
	s.members, s.clients = append(s.members, m), append(s.clients, c)
}

func (s *sky) upTo(d time.Duration) time.Duration { return time.Duration(s.rng.Int64N(int64(d))) }

// fault counts a fault.
func (s *sky) fault(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[kind]++
}

// reelect elects a leader whenever the one before cannot go on, as the seat of a voter
// does.
func (s *sky) reelect() {
	for {
		select {
		case <-s.Term().Doubt():
			s.inTurn(s.lead)
			s.book.see("a leader in doubt begins anew")
		case <-time.After(time.Second):
		case <-s.stop:
			return
		}
	}
}

// inTurn changes the leader while nobody else does.
func (s *sky) inTurn(change func()) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	change()
}

// lead elects a leader. The leader before hears of the election at once.
func (s *sky) lead() {
	s.bury()
	s.goOn()
	s.Lead()
}

// bury ends the leader of the past. The next leader but one is on the same voter, where no
// two can be.
func (s *sky) bury() {
	if s.past != nil {
		s.goOn()
		s.past.Stop()
		s.past = nil
	}
}

// goOn ends the pause of the leader.
func (s *sky) goOn() {
	if s.resume != nil {
		s.resume()
		s.resume = nil
		s.paused.Store(false)
	}
}

// rage plays random faults until the end of the round. A fault that lasts is over after a
// few more.
func (s *sky) rage() {
	s.storms()
	for time.Now().Before(s.until) {
		for _, m := range s.members {
			if m.cut && s.rng.IntN(3) == 0 {
				s.heal(m)
			}
			if m.still && s.rng.IntN(3) == 0 {
				s.thaw(m)
			}
		}
		if s.paused.Load() && s.rng.IntN(2) == 0 {
			s.inTurn(s.goOn)
		}
		s.strike()
		time.Sleep(s.upTo(2*s.ttl + 6*time.Second))
	}
}

// storms draws the faults of the log.
func (s *sky) storms() {
	var f termtest.LogFaults
	if s.rng.IntN(3) > 0 {
		f.Late = s.upTo(s.ttl / 8)
		f.LateRound = s.upTo(300 * time.Millisecond)
		f.LoseRound = s.rng.Float64() * 0.3
		f.Unheard = s.rng.Float64() * 0.004
		f.Dropped = s.rng.Float64() * 0.004
		f.Refused = s.rng.Float64() * 0.01
	}
	f.Inherited = s.rng.Float64()
	s.SetLogFaults(f, s.fault)
}

// strike causes a random fault.
func (s *sky) strike() {
	m := s.members[s.rng.IntN(len(s.members))]
	switch s.rng.IntN(12) {
	case 0, 1:
		if !m.cut {
			s.fault("member cut off")
			m.cut = true
			m.Isolate()
		}
	case 2, 3:
		if !m.still {
			s.fault("process frozen")
			s.book.freeze(m)
			m.Freeze()
			m.still = true
		}
	case 4:
		s.fault("leader replaced")
		s.inTurn(s.lead)
	case 5, 6:
		s.fault("leader deposed, and goes on")
		s.inTurn(s.depose)
	case 7, 8:
		s.inTurn(s.pause)
	case 9:
		if !m.cut && !m.still {
			s.fault("connection reset")
			m.Reconnect()
		}
	case 10:
		n := s.rng.IntN(3)
		if n > 0 {
			s.fault("voters cut off")
		}
		s.CutVoters(n)
		time.Sleep(s.upTo(s.ttl))
		s.CutVoters(0)
	case 11:
		s.storms()
		if s.drift == 0 {
			s.fault("host asleep")
			d := s.upTo(s.ttl)
			s.book.asleep(m, d)
			m.Sleep(d)
		}
	}
}

func (s *sky) heal(m *simMember) {
	m.cut = false
	m.Heal()
}

func (s *sky) thaw(m *simMember) {
	m.still = false
	m.Thaw()
	found := s.book.thawed(m)
	s.tasks.Go(func() {
		time.Sleep(100 * time.Millisecond)
		if !m.clock.Frozen() {
			found()
		}
	})
}

// pause freezes the leader. A leader that was replaced meanwhile wakes up as one of the past.
func (s *sky) pause() {
	if s.resume != nil {
		return
	}
	s.bury()
	s.fault("leader frozen")
	s.resume = s.Pause()
	s.paused.Store(true)
	if s.rng.IntN(2) == 0 {
		s.fault("leader frozen, and replaced")
		s.depose()
	}
}

// depose elects another leader, and has the leader before go on until the next election.
func (s *sky) depose() {
	s.bury()
	s.past = s.Depose()
}

// calm ends all faults.
func (s *sky) calm() {
	s.SetLogFaults(termtest.LogFaults{}, nil)
	s.inTurn(s.goOn)
	for _, m := range s.members {
		if m.still {
			s.thaw(m)
		}
		if m.cut {
			s.heal(m)
		}
		m.SetFaults(termtest.Faults{})
	}
	s.CutVoters(0)
	s.inTurn(s.lead) // every member reaches this leader
}

// end checks that everybody gets through, and that then nothing is left.
func (s *sky) end() {
	s.calm()
	for i, c := range s.clients {
		for _, key := range simKeys {
			ctx, cancel := context.WithTimeout(bg, 4*s.ttl+time.Minute)
			l, err := c.Acquire(ctx, key)
			if err == nil {
				err = l.Release(ctx)
			}
			if cancel(); err != nil {
				s.book.mu.Lock()
				s.book.violated("liveness: client %d after the last fault: %v", i, err)
				s.book.mu.Unlock()
			}
		}
	}
	s.book.counted(s)
	for _, c := range s.clients {
		shutdown(s.t.(*testing.T), c)
	}
	time.Sleep(4 * s.ttl)
	close(s.stop)
	s.tasks.Wait()
	s.took = time.Since(s.began)
	if n := s.Counts(); n.Sessions+n.Grants+n.Waiters != 0 {
		s.book.mu.Lock()
		s.book.violated("clean: the table keeps %+v", n)
		s.book.mu.Unlock()
	}
}
