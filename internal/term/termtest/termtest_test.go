package termtest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

func key(n byte) machine.SessionKey { return machine.SessionKey{n} }

func sid(n byte) machine.SessionID { return key(n).ID() }

// open claims a session of m, and returns its Open.
func open(m *termtest.Member, id byte, ttl time.Duration) machine.Open {
	m.Claim(key(id))
	return machine.Open{Session: sid(id), Client: fmt.Sprint("c", id), Node: m.Member(), Boot: m.Boot(), TTL: uint64(ttl / time.Millisecond)}
}

func TestAMemberReachesTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := termtest.New(t, termtest.Config{})
		a, b := c.Join("a"), c.Join("b")
		events := make(chan machine.Event, 10)
		must(t, a, open(a, 1, time.Minute))
		if o, err := a.Propose(t.Context(), open(a, 2, time.Hour)); err != nil || o.Code != machine.BadCommand {
			t.Errorf("a TTL over the bound: %+v, %v", o, err)
		}
		must(t, a, open(a, 1, termtest.DefaultTTL))
		must(t, b, open(b, 2, termtest.DefaultTTL))
		b.Attach(sid(2), func(e machine.Event) { events <- e })
		o := must(t, a, machine.Acquire{Session: sid(1), Seq: 1, Key: "k"})
		must(t, b, machine.Acquire{Session: sid(2), Seq: 1, Key: "k"})
		b.Isolate()
		if b.Reached() == nil || a.Reached() != nil {
			t.Errorf("isolated: %v, the other: %v", b.Reached(), a.Reached())
		}
		must(t, a, machine.Release{Session: sid(1), Token: o.Token})
		time.Sleep(time.Second)
		if len(events) > 0 {
			t.Error("an isolated member was told an event")
		}
		b.Heal()
		if e := <-events; e.Kind != machine.EventGranted || e.Token <= o.Token {
			t.Errorf("%+v", e)
		}
		if err := b.Beat(t.Context(), sid(2)); err != nil || b.Beats() != 1 {
			t.Errorf("%v, %d beats", err, b.Beats())
		}
		if err := b.Beat(t.Context(), sid(9)); err != replica.ErrNoSession {
			t.Errorf("beat of no session: %v", err)
		}
		if a, err := a.Read(t.Context(), replica.Query{Key: "k", Waiters: 1}); err != nil || a.Status.Held != 1 {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

func must(t *testing.T, m *termtest.Member, cmd machine.Command) machine.Outcome {
	t.Helper()
	o, err := m.Propose(t.Context(), cmd)
	if err != nil {
		t.Fatalf("%#v: %v", cmd, err)
	}
	return o
}

func TestAPausedLeaderHearsAndDecidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := termtest.New(t, termtest.Config{})
		m := c.Join("a")
		must(t, m, open(m, 1, termtest.DefaultTTL))
		resume := c.Pause()
		before := len(c.Applied())
		beat := make(chan error, 1)
		go func() { beat <- m.Beat(context.Background(), sid(1)) }()
		time.Sleep(time.Hour)
		if len(beat) > 0 || len(c.Applied()) != before {
			t.Errorf("%d beats answered, %d commands applied by a paused leader", len(beat), len(c.Applied())-before)
		}
		resume()
		if err := <-beat; err != nil {
			t.Error(err)
		}
	})
}

func TestALeaderTakesOverFromAPausedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := termtest.New(t, termtest.Config{})
		m := c.Join("a")
		must(t, m, open(m, 1, termtest.DefaultTTL))
		resume := c.Pause()
		time.Sleep(time.Second)
		c.Lead()
		if err := m.Beat(t.Context(), sid(1)); err != nil {
			t.Error(err)
		}
		resume() // and hears of the election
		time.Sleep(time.Minute)
		if c.TermNumber() != 2 || c.Alive(sid(1)) {
			t.Errorf("term %d, alive %t", c.TermNumber(), c.Alive(sid(1)))
		}
	})
}

func TestASleepingHostsSessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := termtest.New(t, termtest.Config{})
		m := c.Join("a")
		must(t, m, open(m, 1, termtest.DefaultTTL))
		m.Attach(sid(1), func(machine.Event) {})
		m.Sleep(termtest.DefaultTTL - time.Second)
		time.Sleep(time.Second - time.Millisecond)
		if !c.Alive(sid(1)) {
			t.Error("expired early")
		}
		time.Sleep(2 * time.Millisecond)
		if c.Alive(sid(1)) || m.Slept() != termtest.DefaultTTL-time.Second {
			t.Errorf("alive %t, slept %v", c.Alive(sid(1)), m.Slept())
		}
	})
}

// A holder trusts a grant until a TTL after sending the last acknowledged beat. At
// no time do two holders trust grants of the same key, under any fault of the
// network and any change of the leader: the argument of package locks, with the
// smallest possible client.
func TestTwoHoldersNeverTrustOneKey(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stormyRound(t, seed) })
		})
	}
}

const stormTTL = 2 * time.Second

func stormyRound(t *testing.T, seed uint64) {
	c := termtest.New(t, termtest.Config{TTL: stormTTL})
	c.Seed(seed)
	rng := rand.New(rand.NewPCG(seed, 9))
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	w := &watchman{t: t}
	var members []*termtest.Member
	for i := range 4 {
		m := c.Join(fmt.Sprint("m", i))
		members = append(members, m)
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := machine.SessionKey{byte(i + 1), byte(n), byte(n >> 8)}
				h := &holder{w: w, m: m, key: key, id: key.ID()}
				h.run(ctx)
			}
		})
	}
	for range 40 {
		m := members[rng.IntN(len(members))]
		switch rng.IntN(8) {
		case 0:
			c.Lead()
		case 1:
			c.Depose()
		case 2:
			resume := c.Pause()
			if time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond); rng.IntN(2) == 0 {
				c.Lead()
			}
			resume()
		case 3:
			m.Isolate()
			time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
			m.Heal()
		case 4:
			m.Reconnect()
		case 5:
			c.LeadFromSnapshot()
		default:
			m.SetFaults(termtest.Faults{
				Latency: time.Duration(rng.IntN(400)) * time.Millisecond, Stale: time.Duration(rng.IntN(6000)) * time.Millisecond,
				LoseAsk: rng.Float64() / 3, LoseAnswer: rng.Float64() / 3, Twice: rng.Float64() / 3, LosePush: rng.Float64() / 3,
			})
		}
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
	}
	for _, m := range members {
		m.SetFaults(termtest.Faults{})
	}
	time.Sleep(5 * stormTTL)
	before := w.count()
	time.Sleep(10 * stormTTL)
	if w.count() <= before {
		t.Error("no grant after the last fault")
	}
	stop()
	wg.Wait()
	for _, m := range members {
		m.Stop()
	}
}

// A watchman knows until when each grant is trusted.
type watchman struct {
	t      *testing.T
	mu     sync.Mutex
	holder *holder
	token  machine.Token
	grants int
}

func (w *watchman) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.grants
}

func (w *watchman) granted(h *holder, token machine.Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.holder; o != nil && o != h && o.trusts() {
		w.t.Errorf("%v: token %d was granted while token %d is trusted until %v", time.Now(), token, w.token, o.until())
	}
	if token < w.token {
		w.t.Errorf("token %d was granted after token %d", token, w.token)
	}
	w.grants++
	w.holder, w.token = h, token
}

func (w *watchman) released(h *holder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holder == h {
		w.holder = nil
	}
}

// A holder is a session acquiring, holding and releasing the key.
type holder struct {
	w *watchman
	m *termtest.Member

	key machine.SessionKey
	id  machine.SessionID

	mu    sync.Mutex
	sent  time.Time // of the last acknowledged beat
	ended bool
}

func (h *holder) until() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sent.Add(stormTTL)
}

func (h *holder) trusts() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.ended && time.Now().Before(h.sent.Add(stormTTL))
}

func (h *holder) run(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	granted := make(chan machine.Event, 100)
	h.m.Claim(h.key)
	defer h.m.Detach(h.id)
	began := time.Now()
	if o, err := h.m.Propose(ctx, machine.Open{Session: h.id, Client: fmt.Sprint(h.key[:3]), Node: h.m.Member(), Boot: h.m.Boot(), TTL: uint64(stormTTL / time.Millisecond)}); err != nil || o.Code != machine.OK {
		return
	}
	h.m.Attach(h.id, func(e machine.Event) {
		switch e.Kind {
		case machine.EventGranted:
			granted <- e
		case machine.EventEnded:
			h.mu.Lock()
			h.ended = true
			h.mu.Unlock()
			stop()
		}
	})
	h.sent = began
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			once, done := context.WithTimeout(ctx, stormTTL)
			if err := h.m.Beat(once, h.id); err == nil {
				h.mu.Lock()
				h.sent = began
				h.mu.Unlock()
			}
			done()
			select {
			case <-ctx.Done():
			case <-time.After(stormTTL / 3):
			}
		}
	})
	for seq := uint64(1); seq < 4; seq++ {
		o, err := h.m.Propose(ctx, machine.Acquire{Session: h.id, Seq: seq, Key: "k"})
		if err != nil {
			return
		}
		token := o.Token
		if o.Code != machine.Granted && o.Code != machine.Queued {
			return
		}
		for token == 0 {
			select {
			case e := <-granted: // perhaps of an earlier request, told again
				if e.Seq == seq {
					token = e.Token
				}
			case <-ctx.Done():
				return
			}
		}
		if !h.trusts() {
			return
		}
		h.w.granted(h, token)
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
			return
		}
		h.w.released(h)
		if _, err := h.m.Propose(ctx, machine.Release{Session: h.id, Token: token, Seen: []uint64{seq}}); err != nil {
			return
		}
	}
	h.m.Propose(ctx, machine.Close{Session: h.id})
}

// Each reconnection tells 40 events, of which 12 are lost: the number of reconnections does not
// grow with them.
func TestLostEventsAreToldAgainByOneReconnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := termtest.New(t, termtest.Config{})
		c.Seed(1)
		m := c.Join("a")
		must(t, m, open(m, 1, termtest.DefaultTTL))
		must(t, m, open(m, 2, termtest.DefaultTTL))
		const keys = 40
		var mu sync.Mutex
		heard, told := make(map[uint64]bool), 0
		m.Attach(sid(2), func(e machine.Event) {
			mu.Lock()
			defer mu.Unlock()
			heard[e.Seq] = true
			told++
		})
		m.SetFaults(termtest.Faults{LosePush: 0.3})
		for i := range uint64(keys) {
			o := must(t, m, machine.Acquire{Session: sid(1), Seq: i + 1, Key: fmt.Sprint("k", i)})
			must(t, m, machine.Acquire{Session: sid(2), Seq: i + 1, Key: fmt.Sprint("k", i)})
			must(t, m, machine.Release{Session: sid(1), Token: o.Token})
		}
		for range 4 {
			time.Sleep(termtest.DefaultTTL / 4)
			for id := range byte(2) {
				if err := m.Beat(t.Context(), sid(id+1)); err != nil {
					t.Fatal(err)
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(heard) != keys {
			t.Errorf("heard of %d of %d grants", len(heard), keys)
		}
		if told > 20*keys {
			t.Errorf("told of %d grants %d times", keys, told)
		}
	})
}
