package locks

import (
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
	"github.com/wardmote/wardmote/internal/machine"
)

// callerKey is the key of a context's value, the name of a call.
type callerKey struct{}

// by returns a context with the values of the call name.
func by(name string) context.Context { return context.WithValue(bg, callerKey{}, name) }

// journal records calls of Trace functions as "hook key call-of-the-event by-of-the-ctx".
type journal struct {
	t      testing.TB
	mu     sync.Mutex
	lines  []string
	events map[string][]LockEvent // by hook
}

func newJournal(t testing.TB) *journal { return &journal{t: t, events: make(map[string][]LockEvent)} }

func (j *journal) note(ctx context.Context, hook, about string) {
	by, _ := ctx.Value(callerKey{}).(string)
	if ctx.Err() != nil || ctx.Done() != nil {
		j.t.Errorf("%s %s: a context that ends", hook, about)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, strings.TrimSpace(strings.Join(strings.Fields(hook+" "+about+" "+by), " ")))
}

func (j *journal) event(hook string) func(context.Context, LockEvent) {
	return func(ctx context.Context, e LockEvent) {
		j.note(ctx, hook, e.Key+" "+e.Call.String())
		j.mu.Lock()
		defer j.mu.Unlock()
		j.events[hook] = append(j.events[hook], e)
		if e.At.IsZero() || e.At.After(time.Now()) {
			j.t.Errorf("%s %s happened at %v", hook, e.Key, e.At)
		}
	}
}

// trace returns a Trace with every function but the beats'.
func (j *journal) trace() *Trace {
	return &Trace{
		Acquiring: func(ctx context.Context, e LockEvent) (context.Context, map[string]string) {
			j.event("acquiring")(ctx, e)
			return nil, nil
		},
		SessionOpened: func(ctx context.Context, ttl time.Duration) { j.note(ctx, "opened", ttl.String()) },
		SessionLost:   func(ctx context.Context, r Reason) { j.note(ctx, "session lost:", r.String()) },
		Queued:        j.event("queued"),
		Acquired:      j.event("acquired"),
		AcquireFailed: j.event("failed"),
		Released:      j.event("released"),
		Lost:          j.event("lost"),
		Asked:         j.event("asked"),
		Contended:     j.event("contended"),
		CleanupFailed: j.event("cleanup failed"),
		Blocked:       j.event("blocked"),
		Retrying:      j.event("retrying"),
		Stuck:         j.event("stuck"),
	}
}

// want compares the lines since the last want.
func (j *journal) want(want ...string) {
	j.t.Helper()
	settle()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(j.lines, want) {
		j.t.Errorf("told\n\t%s\nwant\n\t%s", strings.Join(j.lines, "\n\t"), strings.Join(want, "\n\t"))
	}
	j.lines = nil
}

// last returns the last event of a hook.
func (j *journal) last(hook string) (e LockEvent) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if all := j.events[hook]; len(all) > 0 {
		e = all[len(all)-1]
	}
	return e
}

// newTraced returns a client with a journal, its member, and another client without.
func newTraced(t *testing.T, w *world) (j *journal, c *Client, m *member, other *Client) {
	j = newJournal(t)
	m = w.join("n")
	c = m.client(Options{Name: "c", Trace: j.trace()})
	t.Cleanup(func() { shutdown(t, c) })
	other, _ = w.client(t, "other")
	return j, c, m, other
}

func TestHooksOfAGrantHaveTheValuesOfItsCall(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j, c, _, other := newTraced(t, w)
		l, err := c.Acquire(by("ann"), "k")
		if err != nil {
			t.Fatal(err)
		}
		j.want("acquiring k Acquire ann", "opened 9s", "acquired k Acquire ann")
		wait := waiting(t, bg, other, "k")
		j.want("contended k Acquire ann")
		if err := other.Ask(bg, "k"); err != nil {
			t.Fatal(err)
		}
		j.want("asked k Acquire ann")
		if e := j.last("asked"); e.By != "other" || e.Token != l.Token() {
			t.Errorf("asked: %+v", e)
		}
		time.Sleep(3 * time.Second)
		// The grant's values, and not those of the release.
		if err := l.Release(by("bob")); err != nil {
			t.Fatal(err)
		}
		j.want("released k Acquire ann")
		if e := j.last("released"); e.Took < 3*time.Second || e.Token != l.Token() {
			t.Errorf("released: %+v", e)
		}
		release(t, wait.ok(t))

		if _, err := c.AcquireAll(by("carl"), []string{"b", "a"}); err != nil {
			t.Fatal(err)
		}
		j.want("acquiring a AcquireAll carl", "acquired a AcquireAll carl")
		if _, err := c.TryAcquire(by("dora"), "t"); err != nil {
			t.Fatal(err)
		}
		j.want("acquiring t TryAcquire dora", "acquired t TryAcquire dora")
		w.ExpireNow()
		j.want("lost a AcquireAll carl", "lost t TryAcquire dora", "session lost: session expired")
		if e := j.last("lost"); !errors.Is(e.Err, ErrLost) {
			t.Errorf("lost: %+v", e)
		}
	})
}

func TestHooksOfAWaitHaveTheValuesOfItsCall(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j, c, _, other := newTraced(t, w)
		l := acquire(t, other, "k", Meta(map[string]string{"trace": "1"}))
		began := time.Now()
		ctx, cancel := context.WithTimeout(by("ann"), 2*time.Second)
		defer cancel()
		if _, err := c.Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		took := time.Since(began)
		j.want("acquiring k Acquire ann", "opened 9s", "queued k Acquire ann", "queued k Acquire ann", "failed k Acquire ann")
		if e := j.last("queued"); e.Behind != 1 || e.Holder == nil || e.Holder.Token != l.Token() || e.Holder.Meta["trace"] != "1" {
			t.Errorf("queued: %+v, %+v", e, e.Holder)
		}
		if e := j.last("failed"); e.Took != took || !errors.Is(e.Err, context.DeadlineExceeded) || e.Token != 0 {
			t.Errorf("failed: %+v after %v", e, took)
		}
		wait := start(func() (*Lock, error) { return c.Acquire(by("bob"), "k") })
		time.Sleep(3 * time.Second)
		release(t, l)
		wait.ok(t)
		j.want("acquiring k Acquire bob", "queued k Acquire bob", "queued k Acquire bob", "acquired k Acquire bob")
		if e := j.last("acquired"); e.Took < 3*time.Second {
			t.Errorf("acquired: %+v", e)
		}
	})
}

func TestHooksOfWorksHaveTheValuesOfTheirCalls(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j, c, _, _ := newTraced(t, w)
		var parts []string
		c.AddTrace(&Trace{Part: func(ctx context.Context, e PartEvent) {
			by, _ := ctx.Value(callerKey{}).(string)
			parts = append(parts, fmt.Sprintf("%s %d of %d %s", e.Name, e.Mine, e.Shards, by))
		}})
		err := c.Do(by("ann"), "k", func(ctx context.Context, l *Lock) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		j.want("acquiring k Do ann", "opened 9s", "acquired k Do ann", "released k Do ann")

		terms := 0
		err = c.Elect(by("bob"), "e", func(ctx context.Context, l *Lock) error {
			if terms++; terms == 1 {
				return errors.New("once more")
			}
			return Final(nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		j.want("acquiring e Elect bob", "acquired e Elect bob", "released e Elect bob", "retrying e Elect bob",
			"acquiring e Elect bob", "acquired e Elect bob", "released e Elect bob")

		err = c.Spread(by("carl"), "s", 1, func(ctx context.Context, shard int, l *Lock) error { return Final(nil) })
		if err != nil {
			t.Fatal(err)
		}
		j.want("acquiring s/0 Spread carl", "acquired s/0 Spread carl", "released s/0 Spread carl")
		if !slices.Contains(parts, "s 1 of 1 carl") {
			t.Errorf("told of parts %q", parts)
		}

		if _, err := c.Once(by("dora"), "o", func(context.Context) ([]byte, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
		o := onceKeys + "o"
		j.want("acquiring "+o+" Once dora", "acquired "+o+" Once dora", "released "+o+" Once dora")

		ctx, cancel := context.WithCancel(by("emil"))
		stuck := start(func() (struct{}, error) {
			return struct{}{}, c.Do(ctx, "d", func(ctx context.Context, l *Lock) error {
				<-ctx.Done()
				time.Sleep(10 * time.Second)
				return nil
			})
		})
		settle()
		cancel()
		stuck.ok(t)
		j.want("acquiring d Do emil", "acquired d Do emil", "stuck d Do emil", "released d Do emil")
	})
}

func TestHooksOfAnOutageHaveTheValuesOfTheirCalls(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j, c, m, other := newTraced(t, w)
		l, err := c.Acquire(by("ann"), "k")
		if err != nil {
			t.Fatal(err)
		}
		acquire(t, other, "taken")
		ctx, cancel := context.WithTimeout(by("bob"), time.Second)
		defer cancel()
		wait := start(func() (*Lock, error) { return c.Acquire(ctx, "taken") })
		wait.pends(t)
		settle()
		j.lines = nil
		m.Isolate()
		wait.ends(t)
		// Who has gone cannot be withdrawn yet.
		time.Sleep(time.Second)
		reads := start(func() (Status, error) {
			ctx, cancel := context.WithTimeout(by("dora"), 5*time.Second)
			defer cancel()
			return c.Inspect(ctx, "k")
		})
		rctx, cancel := context.WithTimeout(by("carl"), time.Second)
		defer cancel()
		if err := l.Release(rctx); !errors.Is(err, cluster.ErrNoQuorum) {
			t.Errorf("release: %v", err)
		}
		reads.ends(t)
		time.Sleep(4 * time.Second)
		settle()
		got := make(map[string]int)
		for _, line := range j.lines {
			got[line]++
		}
		for _, want := range []string{"failed taken Acquire bob", "released k Acquire ann", "blocked dora", "session lost: quorum unreachable"} {
			if got[want] != 1 {
				t.Errorf("told %q %d times", want, got[want])
			}
		}
		for _, want := range []string{"cleanup failed taken Acquire bob", "cleanup failed k Acquire ann"} {
			if got[want] == 0 {
				t.Errorf("not told %q", want)
			}
		}
		if t.Failed() {
			t.Logf("told %q", j.lines)
		}
	})
}

// Each failed call is told once, with the error of the call; bad input is not.
func TestEachFailedAcquireIsToldOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j, c, _, other := newTraced(t, w)
		acquire(t, other, "taken")
		l := acquire(t, c, "mine")
		settle()
		j.lines = nil
		ended, cancel := context.WithCancel(by("ann"))
		cancel()
		for _, tt := range []struct {
			name string
			call func() error
			want string
		}{
			{"ended", func() error { _, err := c.Acquire(ended, "k"); return err }, "failed k Acquire ann"},
			{"held", func() error { _, err := c.TryAcquire(by("bob"), "taken"); return err }, "failed taken TryAcquire bob"},
			{"deadlock", func() error {
				_, err := c.Acquire(context.WithValue(l.Context(), callerKey{}, "carl"), "mine")
				return err
			}, "failed mine Acquire carl"},
			{"no room", func() error {
				wait := waiting(t, bg, other, "taken")
				defer func() { _ = wait }()
				_, err := c.Acquire(by("dora"), "taken", MaxWaiters(1))
				return err
			}, "failed taken Acquire dora"},
			{"no work", func() error { return c.Do(ended, "k", func(context.Context, *Lock) error { return nil }) }, "failed k Do ann"},
			{"key", func() error { _, err := c.Acquire(bg, ""); return err }, ""},
			{"options", func() error {
				_, err := c.Acquire(bg, "k", Meta(map[string]string{"k": strings.Repeat("x", machine.MaxMeta)}))
				return err
			}, ""},
			{"keys", func() error { _, err := c.AcquireAll(bg, nil); return err }, ""},
		} {
			err := tt.call()
			if err == nil {
				t.Fatalf("%s: no error", tt.name)
			}
			if tt.want == "" {
				j.want()
				continue
			}
			j.want(strings.Replace(tt.want, "failed", "acquiring", 1), tt.want)
			if e := j.last("failed"); e.Err != err {
				t.Errorf("%s: told %v, returned %v", tt.name, e.Err, err)
			}
		}
		wait := start(func() (*Lock, error) { return c.Acquire(by("emil"), "taken") })
		wait.pends(t)
		shutdown(t, c)
		if e := j.last("failed"); !errors.Is(e.Err, ErrClosed) || e.Key != "taken" {
			t.Errorf("at Close: told %+v", e)
		}
		if _, err := c.Acquire(bg, "k"); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// Whatever happens, every call that begins is told to end, once; and every grant.
func TestEveryBeginningHasAnEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		calls, grants := make(map[int]string), make(map[uint64]string)
		id := func(ctx context.Context) int { n, _ := ctx.Value(callerKey{}).(int); return n }
		step := func(n int, from, to string) {
			if calls[n] != from {
				t.Errorf("call %d: from %q to %q", n, calls[n], to)
			}
			calls[n] = to
		}
		next := 0
		trace := &Trace{
			Acquiring: func(ctx context.Context, e LockEvent) (context.Context, map[string]string) {
				mu.Lock()
				defer mu.Unlock()
				next++
				calls[next] = "began"
				return context.WithValue(ctx, callerKey{}, next), nil
			},
			Acquired: func(ctx context.Context, e LockEvent) {
				mu.Lock()
				defer mu.Unlock()
				grants[uint64(e.Token)] = "held"
				if calls[id(ctx)] != "lost" { // asked again
					step(id(ctx), "began", "granted")
				}
			},
			AcquireFailed: func(ctx context.Context, e LockEvent) {
				mu.Lock()
				defer mu.Unlock()
				if calls[id(ctx)] != "lost" { // before the call returned
					step(id(ctx), "began", "failed")
				}
			},
			Released: func(ctx context.Context, e LockEvent) {
				mu.Lock()
				defer mu.Unlock()
				if grants[uint64(e.Token)] != "held" {
					t.Errorf("released %d, which is %q", e.Token, grants[uint64(e.Token)])
				}
				grants[uint64(e.Token)] = "released"
				step(id(ctx), "granted", "released")
			},
			Lost: func(ctx context.Context, e LockEvent) {
				mu.Lock()
				defer mu.Unlock()
				if grants[uint64(e.Token)] != "held" {
					t.Errorf("lost %d, which is %q", e.Token, grants[uint64(e.Token)])
				}
				grants[uint64(e.Token)] = "lost"
				step(id(ctx), "granted", "lost")
			},
		}
		m := w.join("n")
		c := m.client(Options{Trace: trace})
		r := rand.New(rand.NewPCG(1, 2))
		var wg sync.WaitGroup
		for range 8 {
			seed := r.Uint64()
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, 3))
				for range 60 {
					ctx, cancel := context.WithTimeout(bg, time.Duration(r.IntN(3000))*time.Millisecond)
					if l, err := c.Acquire(ctx, fmt.Sprint(r.IntN(3))); err == nil {
						time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
						_ = l.Release(ctx)
					}
					cancel()
				}
			})
		}
		for range 6 {
			time.Sleep(4 * time.Second)
			m.Isolate()
			time.Sleep(time.Duration(r.IntN(int(2 * testTTL))))
			m.Heal()
			time.Sleep(2 * time.Second)
			w.ExpireNow()
		}
		wg.Wait()
		shutdown(t, c)
		count := make(map[string]int)
		for n, state := range calls {
			count[state]++
			if state == "began" || state == "granted" {
				t.Errorf("call %d has no end: %s", n, state)
			}
		}
		for token, state := range grants {
			if state == "held" {
				t.Errorf("grant %d has no end", token)
			}
		}
		if count["released"] < 20 || count["failed"] < 20 || count["lost"] < 3 {
			t.Errorf("too little happened: %v", count)
		}
	})
}

func TestEachBeatIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var confirmed, failed int
		m := w.join("n")
		c := m.client(Options{Trace: &Trace{
			BeatConfirmed: func(_ context.Context, took time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				if confirmed++; took < 0 || took > time.Second {
					t.Errorf("a beat took %v", took)
				}
			},
			BeatFailed: func(_ context.Context, err error) {
				mu.Lock()
				defer mu.Unlock()
				if failed++; err == nil {
					t.Error("failed without an error")
				}
			},
		}})
		l := acquire(t, c, "k")
		time.Sleep(4*testTTL + time.Second)
		settle()
		mu.Lock()
		if confirmed != 4*beatsPerTTL || failed != 0 {
			t.Errorf("%d beats confirmed, %d failed", confirmed, failed)
		}
		mu.Unlock()
		if err := l.Renew(bg); err != nil {
			t.Fatal(err)
		}
		settle()
		mu.Lock()
		if confirmed != 4*beatsPerTTL+1 {
			t.Errorf("%d beats confirmed", confirmed)
		}
		mu.Unlock()
		shutdown(t, c)
	})
}

// A function may call the client: no lock is held, and no call waits for the function.
func TestHooksMayCallTheClient(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var c *Client
		var err error
		var once sync.Once
		called := make(chan struct{})
		inside := func(context.Context, LockEvent) {
			once.Do(func() {
				var l *Lock
				if l, err = c.Acquire(within(time.Minute), "inside"); err == nil {
					err = l.Release(bg)
				}
				if err == nil {
					_, err = c.Inspect(bg, "k")
				}
				close(called)
			})
		}
		for name, trace := range map[string]*Trace{
			"acquired": {Acquired: inside},
			"released": {Released: inside},
			"failed":   {AcquireFailed: inside},
			"lost":     {Lost: inside},
			"acquiring": {Acquiring: func(ctx context.Context, e LockEvent) (context.Context, map[string]string) {
				if e.Key != "inside" {
					inside(ctx, e)
				}
				return nil, nil
			}},
		} {
			once, called = sync.Once{}, make(chan struct{})
			c = w.join("n-" + name).client(Options{Trace: trace})
			release(t, acquire(t, c, "k"))
			if name == "lost" {
				acquire(t, c, "k")
				w.ExpireNow()
			}
			ended, cancel := context.WithCancel(bg)
			cancel()
			if _, err := c.Acquire(ended, "k"); err == nil {
				t.Error("acquired with an ended context")
			}
			<-called
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			shutdown(t, c)
		}
	})
}

// A function that blocks for many TTLs costs no beat, no grant and no lock.
func TestHookThatBlocksDelaysNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		gate := make(chan struct{})
		c := w.join("n").client(Options{Trace: &Trace{Acquired: func(context.Context, LockEvent) { <-gate }}})
		l := acquire(t, c, "k")
		for i := range 100 {
			began := time.Now()
			release(t, acquire(t, c, fmt.Sprint(i)))
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("acquire and release took %v", took)
			}
			time.Sleep(testTTL / 2)
		}
		if err := l.Err(); err != nil {
			t.Error(err)
		}
		close(gate)
		shutdown(t, c)
	})
}

func TestAcquiringGivesContextAndMeta(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJournal(t)
		trace := j.trace()
		more := map[string]string{"trace": "1", "who": "trace"}
		trace.Acquiring = func(ctx context.Context, e LockEvent) (context.Context, map[string]string) {
			return context.WithValue(ctx, callerKey{}, "made-by-acquiring"), more
		}
		c := w.join("n").client(Options{Trace: trace})
		defer shutdown(t, c)
		meta := func(key string) map[string]string {
			st, err := c.Inspect(bg, key)
			if err != nil || len(st.Holders) != 1 {
				t.Fatalf("%v, %v", st, err)
			}
			return st.Holders[0].Meta
		}
		l, err := c.Acquire(by("ann"), "k", Meta(map[string]string{"who": "ann"}))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(meta("k")); got != "map[trace:1 who:ann]" {
			t.Errorf("meta %s", got)
		}
		if l.Context().Value(callerKey{}) != "ann" {
			t.Error("the lock's context is not the call's")
		}
		release(t, l)
		j.want("opened 9s", "acquired k Acquire made-by-acquiring", "released k Acquire made-by-acquiring")
		if l, err = c.Acquire(by("ann"), "k"); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(meta("k")); got != "map[trace:1 who:trace]" {
			t.Errorf("meta %s", got)
		}
		release(t, l)
		more = map[string]string{"trace": strings.Repeat("x", machine.MaxMeta)}
		l = acquire(t, c, "k", Meta(map[string]string{"who": "ann"}))
		if got := fmt.Sprint(meta("k")); got != "map[who:ann]" {
			t.Errorf("meta %s", got)
		}
		release(t, l)
		// For a shard too.
		more = map[string]string{"trace": "2"}
		err = c.Spread(bg, "s", 1, func(context.Context, int, *Lock) error {
			if got := fmt.Sprint(meta("s/0")); got != "map[trace:2]" {
				t.Errorf("meta %s", got)
			}
			return Final(nil)
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestFurtherLocksOfAnOwnerAreNotTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j, c, _, _ := newTraced(t, w)
		release(t, acquire(t, c, "first"))
		j.want("acquiring first Acquire", "opened 9s", "acquired first Acquire", "released first Acquire")
		l, err := c.Acquire(by("ann"), "k", Reentrant("o"))
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.Acquire(by("bob"), "k", Reentrant("o"))
		if err != nil {
			t.Fatal(err)
		}
		release(t, l)
		j.want("acquiring k Acquire ann", "acquired k Acquire ann")
		release(t, again)
		j.want("released k Acquire ann")
	})
}

func TestTracesCallEachInOrder(t *testing.T) {
	var told []string
	note := func(who string) *Trace {
		e := func(_ context.Context, e LockEvent) { told = append(told, who+" "+e.Key) }
		return &Trace{
			Acquiring: func(ctx context.Context, e LockEvent) (context.Context, map[string]string) {
				before, _ := ctx.Value(callerKey{}).(string)
				return context.WithValue(ctx, callerKey{}, before+who), map[string]string{who: "1", "both": who}
			},
			SessionOpened: func(context.Context, time.Duration) { told = append(told, who) },
			SessionLost:   func(context.Context, Reason) { told = append(told, who) },
			BeatConfirmed: func(context.Context, time.Duration) { told = append(told, who) },
			BeatFailed:    func(context.Context, error) { told = append(told, who) },
			Part:          func(context.Context, PartEvent) { told = append(told, who) },
			Queued:        e, Acquired: e, AcquireFailed: e, Released: e, Lost: e, Asked: e, Contended: e,
			CleanupFailed: e, Blocked: e, Retrying: e, Stuck: e,
		}
	}
	all := Traces(nil, note("a"), &Trace{}, note("b"))
	ctx, meta := all.Acquiring(bg, LockEvent{})
	if ctx.Value(callerKey{}) != "ab" || fmt.Sprint(meta) != "map[a:1 b:1 both:a]" {
		t.Errorf("acquiring: %v, %v", ctx.Value(callerKey{}), meta)
	}
	for i, call := range []func(){
		func() { all.SessionOpened(bg, 0) },
		func() { all.SessionLost(bg, 0) },
		func() { all.BeatConfirmed(bg, 0) },
		func() { all.BeatFailed(bg, nil) },
		func() { all.Part(bg, PartEvent{}) },
	} {
		if told = nil; true {
			call()
		}
		if !slices.Equal(told, []string{"a", "b"}) {
			t.Errorf("function %d: %q", i, told)
		}
	}
	for i, f := range []func(context.Context, LockEvent){
		all.Queued, all.Acquired, all.AcquireFailed, all.Released, all.Lost, all.Asked, all.Contended,
		all.CleanupFailed, all.Blocked, all.Retrying, all.Stuck,
	} {
		told = nil
		f(bg, LockEvent{Key: "k"})
		if !slices.Equal(told, []string{"a k", "b k"}) {
			t.Errorf("function %d: %q", i, told)
		}
	}
	if none := Traces(nil, nil); none.Acquired != nil || none.Acquiring != nil {
		t.Error("functions from nothing")
	}
}

func TestTraceAddedToAClientInUse(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j, c, _, _ := newTraced(t, w)
		release(t, acquire(t, c, "k"))
		settle()
		j.lines = nil
		var told []string
		added := &Trace{Acquired: func(_ context.Context, e LockEvent) { told = append(told, e.Key) }}
		remove, removeSecond := c.AddTrace(added), c.AddTrace(added)
		release(t, acquire(t, c, "k1"))
		settle()
		remove()
		remove()
		release(t, acquire(t, c, "k2"))
		settle()
		removeSecond()
		release(t, acquire(t, c, "k3"))
		settle()
		if !slices.Equal(told, []string{"k1", "k1", "k2"}) {
			t.Errorf("told %q", told)
		}
		if n := len(j.events["acquired"]); n != 4 {
			t.Errorf("the first Trace was told %d times", n)
		}
	})
}

func TestEventWithoutAHookAllocatesNothing(t *testing.T) {
	tr := newTracer(nil)
	ctx := by("ann")
	n := testing.AllocsPerRun(100, func() {
		tr.acquired(ctx, LockEvent{})
		tr.released(ctx, LockEvent{})
		tr.beatConfirmed(0)
		tr.part(ctx, PartEvent{})
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
