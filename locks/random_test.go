package locks

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/term/termtest"
)

// ledger checks that loss is told first: when a grant returns, the context of every
// earlier grant of the key has ended.
type ledger struct {
	t     *testing.T
	mu    sync.Mutex
	locks map[string][]*Lock
	n     int
}

func (b *ledger) granted(l *Lock) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	ctx := l.Context()
	if ctx.Err() != nil {
		return // lost already, as the context shows
	}
	for _, old := range b.locks[l.Key()] {
		if old.Token() < l.Token() && old.ctx.Err() == nil {
			b.t.Errorf("%v: %q is granted under token %d while the context of token %d has not ended",
				time.Now().Format("15:04:05.000"), l.Key(), l.Token(), old.Token())
		}
		if old.Token() == l.Token() {
			b.t.Errorf("%q: token %d was granted twice", l.Key(), l.Token())
		}
		if old.Token() > l.Token() {
			b.t.Errorf("%q: token %d is held, but %d was granted since", l.Key(), l.Token(), old.Token())
		}
	}
	b.locks[l.Key()] = append(b.locks[l.Key()], l)
}

// weather is the random faults of a world: networks that lose and delay, members
// that are cut off, leaders that change and pause.
type weather struct {
	w       *world
	rng     *rand.Rand
	members []*member
	cut     map[*member]bool
}

func newWeather(w *world, seed uint64) *weather {
	w.Seed(seed)
	return &weather{w: w, rng: rand.New(rand.NewPCG(seed, 3)), cut: make(map[*member]bool)}
}

func (a *weather) upTo(d time.Duration) time.Duration { return time.Duration(a.rng.Int64N(int64(d))) }

// client returns a client on a member with a bad network.
func (a *weather) client(t *testing.T, name string) *Client {
	c, m := a.w.client(t, name)
	m.SetFaults(termtest.Faults{
		Latency:    a.upTo(400 * time.Millisecond),
		LoseAsk:    a.rng.Float64() * 0.2,
		LoseAnswer: a.rng.Float64() * 0.2,
		Twice:      a.rng.Float64() * 0.2,
		LosePush:   a.rng.Float64() * 0.3,
	})
	a.members = append(a.members, m)
	return c
}

// strike causes a random fault. strike blocks for two TTLs at most.
func (a *weather) strike() {
	m := a.members[a.rng.IntN(len(a.members))]
	switch a.rng.IntN(5) {
	case 0, 1:
		if a.cut[m] {
			m.Heal()
		} else {
			m.Isolate()
		}
		a.cut[m] = !a.cut[m]
	case 2:
		a.w.Lead()
	case 3:
		resume := a.w.Pause()
		time.Sleep(a.upTo(2 * testTTL))
		resume()
		if a.rng.IntN(2) == 0 {
			a.w.Lead()
		}
	case 4:
		m.Reconnect()
	}
}

// calm ends all faults.
func (a *weather) calm() {
	for _, m := range a.members {
		if a.cut[m] {
			m.Heal()
		}
		m.SetFaults(termtest.Faults{})
	}
	clear(a.cut)
}

// eachSeed runs f in a world for each seed, up to the first failure, and returns the
// number of runs. Each run is a subtest named by its seed. The order of goroutines
// is random all the same, so a failure is run again with: go test -run TestChaos/17$
// -count 20 ./locks
func eachSeed(t *testing.T, seeds int, f func(t *testing.T, w *world, seed uint64)) (ran int) {
	for seed := range uint64(seeds) {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ran++
			bubble(t, func(t *testing.T, w *world) { f(t, w, seed) })
		})
		if !ok {
			t.FailNow()
		}
	}
	return ran
}
