package locks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/testrounds"
)

// Clients call every method in bad weather, and close while a node stops. Afterwards
// nothing is left in the clients, in the table or as a goroutine of the bubble, and
// every call has failed only as documented. Mutual exclusion is the subject of
// TestTermSimulation and TestRandomFaultsInAllModes.
func TestChaos(t *testing.T) {
	sum := make(map[string]int)
	rounds := eachSeed(t, testrounds.Rounds(10, 60), func(t *testing.T, w *world, seed uint64) { chaosRound(t, w, seed, sum) })
	for name := range documented {
		if sum[name] < rounds/2 {
			t.Errorf("of %s only %d calls in %d rounds", name, sum[name], rounds)
		}
	}
}

func chaosRound(t *testing.T, w *world, seed uint64, sum map[string]int) {
	w.SetCheck(seed%5 == 0)
	a := newWeather(w, seed)
	stop, cancel := context.WithCancel(bg)
	var wg sync.WaitGroup
	var clients []*Client
	b := &tally{t: t, calls: sum}
	for i := range 3 {
		c := a.client(t, fmt.Sprint("c", i))
		clients = append(clients, c)
		for j := range 4 {
			v := &visitor{b: b, c: c, rng: rand.New(rand.NewPCG(seed, uint64(10*i+j)))}
			wg.Go(func() {
				for stop.Err() == nil {
					v.visit()
					time.Sleep(v.upTo(300 * time.Millisecond))
				}
			})
		}
	}
	sessions := make(map[*session]bool)
	for range 12 {
		switch a.rng.IntN(7) {
		case 0:
			w.ExpireNow()
		case 1:
			a.members[a.rng.IntN(len(a.members))].Sleep(a.upTo(testTTL))
		default:
			a.strike()
		}
		for _, c := range clients {
			if s := c.currentSession(); s != nil {
				sessions[s] = true
			}
		}
		time.Sleep(a.upTo(3 * time.Second))
	}
	// Some members are still cut off. Some clients close before the node stops, others
	// after.
	m, after := a.members[a.rng.IntN(len(a.members))], a.upTo(300*time.Millisecond)
	wg.Go(func() { time.Sleep(after); m.Stop() })
	for _, c := range clients {
		after, bound := a.upTo(300*time.Millisecond), a.upTo(3*time.Second)
		wg.Go(func() { time.Sleep(after); _ = c.Close(within(bound)) })
	}
	time.Sleep(time.Second)
	cancel()
	wg.Wait()
	for _, c := range clients {
		shutdown(t, c)
		if left := leftInClient(c); left != "" {
			t.Errorf("client %s has %s", c.name(), left)
		}
		if s := c.currentSession(); s != nil {
			sessions[s] = true
		}
	}
	for s := range sessions {
		if left := leftInSession(s); left != "" {
			t.Errorf("a session of %s (%v) has %s", s.c.name(), s.endReason(), left)
		}
	}
	time.Sleep(4 * testTTL)
	if n := w.Counts(); n.Sessions+n.Grants+n.Waiters != 0 {
		t.Errorf("the table keeps %+v", n)
	}
}

// leftInClient lists the remains in a closed client.
func leftInClient(c *Client) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var left []string
	if c.opening != nil {
		left = append(left, "an opening")
	}
	for name := range c.spreads.Range {
		left = append(left, fmt.Sprint("a spread for ", name))
	}
	return strings.Join(left, ", ")
}

// leftInSession lists the remains in an ended session.
func leftInSession(s *session) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []string
	for _, x := range []struct {
		what string
		n    int
	}{
		{"waiters", len(s.waiters)},
		{"grants", len(s.grants)},
		{"entries", len(s.entries)},
		{"debts", len(s.cleanups.queue) + len(s.cleanups.withdrawals)},
		{"keys with debts", len(s.cleanups.byKey)},
		{"cleaners", s.cleanups.workers},
		{"who cancel contexts", s.cancelling},
		{"beats", len(s.beats)},
	} {
		if x.n > 0 {
			left = append(left, fmt.Sprint(x.n, " ", x.what))
		}
	}
	return strings.Join(left, ", ")
}

// Documented errors that several calls share.
var (
	ofAnyCall = []error{context.Canceled, ErrClosed, cluster.ErrStopped}
	ofAcquire = []error{ErrSessionLost, ErrLost, ErrDeadlock, ErrCapacity}
	ofChange  = []error{ErrLost, ErrReleased, ErrWrongMode}
	ofRelease = []error{ErrLost, ErrReleased, ErrSessionLost}
)

// documented has the errors in the doc of each call. Every call may also fail by the
// end of ctx, of the client and of the node. A *cluster.ConfigError matches every
// other.
var documented = map[string][]error{
	"Acquire":     ofAcquire,
	"TryAcquire":  append([]error{ErrHeld}, ofAcquire...),
	"AcquireAll":  ofAcquire,
	"Do":          ofAcquire,
	"Elect":       {ErrDeadlock, ErrCapacity},
	"Spread":      {ErrDeadlock, &cluster.ConfigError{}}, // this client runs the work already
	"Once":        {ErrSessionLost, ErrLost, ErrDeadlock, ErrOnce},
	"Update":      append([]error{ErrUncertain}, ofAcquire...),
	"Get":         nil,
	"Inspect":     nil,
	"List":        nil,
	"Watch":       nil,
	"WatchPrefix": nil,
	"Observe":     nil,
	"Ask":         nil,
	"Break":       {ErrHeld, ErrNotHeld},
	"Values":      nil,
	"Sessions":    nil,
	"EndSession":  {ErrNoSuchSession},
	"Release":     ofRelease,
	"HandOver":    append([]error{ErrNoSuccessor, ErrWrongMode}, ofRelease...),
	"SetValue":    ofChange,
	"Downgrade":   ofChange,
	"Upgrade":     append([]error{ErrDeadlock}, ofChange...),
	"Renew":       {ErrLost, ErrReleased},
	"Require":     {ErrLost, ErrReleased},
}

// tally counts calls and checks their errors.
type tally struct {
	t     *testing.T
	mu    sync.Mutex
	calls map[string]int
}

// ended counts a call under ctx and checks its error.
func (b *tally) ended(ctx context.Context, name string, err error) {
	b.mu.Lock()
	b.calls[name]++
	b.mu.Unlock()
	kinds, known := documented[name]
	is := func(kind error) bool {
		var config *cluster.ConfigError
		if errors.As(kind, &config) {
			return errors.As(err, &config)
		}
		return errors.Is(err, kind)
	}
	switch {
	case !known:
		b.t.Errorf("%s is not in the list", name)
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		b.t.Errorf("%s tells a bound that is not the caller's: %v", name, err) // no test sets a cause
	case errors.Is(err, context.Canceled) && ctx.Err() == nil:
		b.t.Errorf("%s tells the end of a context that lives: %v", name, err)
	case !slices.ContainsFunc(kinds, is) && !slices.ContainsFunc(ofAnyCall, is):
		b.t.Errorf("%s: undocumented: %v", name, err)
	}
	if err == nil {
		return
	}
	for _, sign := range []string{"%!", "reason 0", "mode 0", ": code ", "refused by the cluster"} {
		if strings.Contains(err.Error(), sign) {
			b.t.Errorf("%s: %q in %q", name, sign, err)
		}
	}
}

// visitor is a goroutine of a program that makes call after call.
type visitor struct {
	b   *tally
	c   *Client
	rng *rand.Rand
}

func (v *visitor) upTo(d time.Duration) time.Duration { return time.Duration(v.rng.Int64N(int64(d))) }

func (v *visitor) nap() { time.Sleep(v.upTo(500 * time.Millisecond)) }

func (v *visitor) key() string { return fmt.Sprint("k", v.rng.IntN(3)) }

// fork is a visitor for another goroutine.
func (v *visitor) fork() *visitor {
	return &visitor{b: v.b, c: v.c, rng: rand.New(rand.NewPCG(v.rng.Uint64(), 0))}
}

// visit makes a call and gives up after a while.
func (v *visitor) visit() {
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	patience := 10 * time.Second
	if v.rng.IntN(2) == 0 {
		patience = v.upTo(3 * time.Second)
	}
	defer time.AfterFunc(patience, cancel).Stop()
	visits[v.rng.IntN(len(visits))](v, ctx)
}

// visits lists the calls; frequent calls stand several times.
var visits = []func(*visitor, context.Context){
	(*visitor).acquire,
	(*visitor).acquire,
	(*visitor).acquire,
	(*visitor).tryAcquire,
	(*visitor).acquireAll,
	(*visitor).enter,
	(*visitor).enter,
	(*visitor).do,
	(*visitor).elect,
	(*visitor).spread,
	(*visitor).once,
	(*visitor).cell,
	(*visitor).breakAll,
	(*visitor).endSession,
	(*visitor).ask,
	(*visitor).watch,
	(*visitor).list,
}

func (v *visitor) acquire(ctx context.Context) {
	opts := [][]Option{nil, {Shared()}, {Shared()}, {Permits(1, 2)}, {Priority(1)}, {Delay(time.Second)}, {Lazy()}, {Lazy(), Shared()}, {Sticky()}, {Sticky()}}[v.rng.IntN(10)]
	l, err := v.c.Acquire(ctx, v.key(), opts...)
	v.b.ended(ctx, "Acquire", err)
	if err == nil {
		v.use(ctx, l)
		v.release(ctx, l)
	}
}

func (v *visitor) tryAcquire(ctx context.Context) {
	l, err := v.c.TryAcquire(ctx, v.key())
	v.b.ended(ctx, "TryAcquire", err)
	if err == nil {
		v.use(ctx, l)
		v.b.ended(ctx, "HandOver", l.HandOver(ctx, "c1"))
		v.over(l)
	}
}

func (v *visitor) acquireAll(ctx context.Context) {
	s, err := v.c.AcquireAll(ctx, []string{"k2", "k0", "k1"}, Lazy())
	v.b.ended(ctx, "AcquireAll", err)
	if err == nil {
		v.nap()
		v.release(ctx, s)
	}
}

// enter acquires a held key again.
func (v *visitor) enter(ctx context.Context) {
	outer, err := v.c.Acquire(ctx, "r", Reentrant("o"))
	v.b.ended(ctx, "Acquire", err)
	if err != nil {
		return
	}
	v.use(ctx, outer)
	inner, err := v.c.Acquire(ctx, "r", Reentrant("o"))
	v.b.ended(ctx, "Acquire", err)
	if err == nil {
		v.release(ctx, inner)
	}
	v.release(ctx, outer)
}

func (v *visitor) do(ctx context.Context) {
	v.b.ended(ctx, "Do", v.c.Do(ctx, v.key(), v.work))
}

func (v *visitor) elect(ctx context.Context) {
	v.b.ended(ctx, "Elect", v.c.Elect(ctx, v.key(), v.work))
}

func (v *visitor) work(ctx context.Context, l *Lock) error {
	v.use(ctx, l)
	return nil
}

func (v *visitor) spread(ctx context.Context) {
	var shards [3]*visitor // a single work for each at a time
	for i := range shards {
		shards[i] = v.fork()
	}
	v.b.ended(ctx, "Spread", v.c.Spread(ctx, "s", len(shards), func(ctx context.Context, shard int, l *Lock) error {
		shards[shard].use(ctx, l)
		<-ctx.Done()
		return nil
	}))
}

func (v *visitor) once(ctx context.Context) {
	run := false
	_, err := v.c.Once(ctx, fmt.Sprint("id", v.rng.IntN(10)), func(context.Context) ([]byte, error) {
		run = true
		v.nap()
		return nil, nil
	})
	if run && err != nil {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			v.b.t.Errorf("Once was run, and tells the end of ctx: %v", err)
		}
		return // the result could not be stored, for any reason
	}
	v.b.ended(ctx, "Once", err)
}

func (v *visitor) cell(ctx context.Context) {
	x := v.c.Cell(v.key())
	v.b.ended(ctx, "Update", x.Update(ctx, func(old []byte) []byte {
		v.wantValue(old)
		v.nap()
		return append(old[:min(len(old), 10)], 1)
	}))
	value, err := x.Get(ctx)
	v.b.ended(ctx, "Get", err)
	v.wantValue(value)
}

func (v *visitor) breakAll(ctx context.Context) {
	key := v.key()
	st, err := v.c.Inspect(ctx, key)
	v.b.ended(ctx, "Inspect", err)
	for _, h := range st.Holders {
		v.b.ended(ctx, "Break", v.c.Break(ctx, key, h.Token))
	}
}

// endSession ends a session, maybe its own.
func (v *visitor) endSession(ctx context.Context) {
	var refs []string
	for s, err := range v.c.Sessions(ctx) {
		v.b.ended(ctx, "Sessions", err)
		refs = append(refs, s.Ref)
	}
	if len(refs) > 0 && v.rng.IntN(4) == 0 {
		if ref := refs[v.rng.IntN(len(refs))]; ref != "" {
			v.b.ended(ctx, "EndSession", v.c.EndSession(ctx, ref))
		}
	}
	for value, err := range v.c.Values(ctx, "k") {
		v.b.ended(ctx, "Values", err)
		v.wantValue(value.Data)
	}
}

func (v *visitor) ask(ctx context.Context) {
	v.b.ended(ctx, "Ask", v.c.Ask(ctx, v.key()))
}

// watch follows a key for a few states.
func (v *visitor) watch(ctx context.Context) {
	n := v.rng.IntN(6)
	if v.rng.IntN(2) == 0 {
		i := 0
		for _, err := range v.c.Observe(ctx, v.key()) {
			v.b.ended(ctx, "Observe", err)
			if i++; i > n {
				return
			}
		}
		return
	}
	i := 0
	for _, err := range v.c.Watch(ctx, v.key()) {
		v.b.ended(ctx, "Watch", err)
		if i++; i > n {
			return
		}
	}
}

// list lists the keys of a prefix and follows a few changes.
func (v *visitor) list(ctx context.Context) {
	for _, err := range v.c.List(ctx, "k") {
		v.b.ended(ctx, "List", err)
	}
	i, n := 0, v.rng.IntN(6)
	for _, err := range v.c.WatchPrefix(ctx, "k") {
		v.b.ended(ctx, "WatchPrefix", err)
		if i++; i > n {
			return
		}
	}
}

// use calls a lock's methods while the lock is held, and sometimes after.
func (v *visitor) use(ctx context.Context, l *Lock) {
	for range v.rng.IntN(3) {
		v.nap()
		switch v.rng.IntN(7) {
		case 0:
			v.setValue(ctx, l)
		case 1:
			v.setValue(context.WithoutCancel(ctx), l)
		case 2:
			v.b.ended(ctx, "Upgrade", l.Upgrade(ctx))
		case 3:
			v.b.ended(ctx, "Downgrade", l.Downgrade(ctx))
		case 4:
			v.b.ended(ctx, "Renew", l.Renew(ctx))
		case 5:
			_ = l.Context()
			v.b.ended(ctx, "Require", l.Require(0))
		case 6:
			go v.release(bg, l) // beside any other call
		}
	}
}

// setValue sets a value, and then overwrites the caller's buffer.
func (v *visitor) setValue(ctx context.Context, l *Lock) {
	old, _ := l.Value()
	v.wantValue(old)
	value := []byte{1}
	v.b.ended(ctx, "SetValue", l.SetValue(ctx, value))
	value[0] = scribble
}

const scribble = 0xff

// wantValue checks a value of setValue or cell.
func (v *visitor) wantValue(value []byte) {
	if bytes.IndexByte(value, scribble) >= 0 {
		v.b.t.Errorf("a value has become %v", value)
	}
}

func (v *visitor) release(ctx context.Context, l anyLock) {
	v.b.ended(ctx, "Release", l.Release(ctx))
	v.over(l)
}

// over checks that a lock has ended. If another goroutine has released the lock, the
// context may end a moment later.
func (v *visitor) over(l anyLock) {
	if l.Err() == nil {
		v.b.t.Errorf("token %d is held after its release", l.Token())
	}
}
