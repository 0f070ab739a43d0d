package lockstest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// A frozen holder loses nothing while it is frozen, and everything when it is thawed.
func TestAFrozenHolderFindsOutOnThaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		holder := (c.Leader() + 1) % 3
		var mu sync.Mutex
		var lost []time.Time
		client := c.NewClient(holder, locks.Options{Trace: &locks.Trace{Lost: func(context.Context, locks.LockEvent) {
			mu.Lock()
			lost = append(lost, time.Now())
			mu.Unlock()
		}}})
		l, err := client.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		ctx := l.Context()
		time.Sleep(5 * time.Second)
		c.Freeze(holder)
		next, err := c.Client((holder+1)%3).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		mu.Lock()
		if ctx.Err() != nil || len(lost) != 0 {
			t.Errorf("frozen, the holder was told: %v, %v", ctx.Err(), lost)
		}
		mu.Unlock()

		thawed := time.Now()
		c.Thaw(holder)
		var e *locks.LostError
		if err := l.Err(); !errors.As(err, &e) || e.Reason != locks.ProcessPaused {
			t.Errorf("Err returned %v after %v", err, time.Since(thawed))
		}
		<-ctx.Done()
		if took := time.Since(thawed); took > 100*time.Millisecond {
			t.Errorf("the context ended %v after the thaw", took)
		}
		if next.Token() <= l.Token() || next.Err() != nil {
			t.Errorf("the next lock: token %d after %d, %v", next.Token(), l.Token(), next.Err())
		}
		if again, err := client.Acquire(t.Context(), "other"); err != nil || again.Err() != nil {
			t.Errorf("thawed, the member cannot lock: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(lost) != 1 || lost[0].Before(thawed) {
			t.Errorf("told %v, thawed %v", lost, thawed)
		}
	})
}

// A freeze shorter than a TTL costs nothing.
func TestAShortFreezeCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3, lockstest.TTL(10*time.Second))
		for i := range 3 { // the leader too
			l, err := c.Client(i).Acquire(t.Context(), string(rune('a'+i)))
			if err != nil {
				t.Fatal(err)
			}
			c.Freeze(i)
			time.Sleep(4 * time.Second)
			c.Thaw(i)
			if left := l.Remaining(); left == 0 || left > 6*time.Second {
				t.Errorf("%v remain: %v", left, l.Err())
			}
			time.Sleep(5 * time.Second)
			if left := l.Remaining(); left < 5*time.Second {
				t.Errorf("%v remain after more beats: %v", left, l.Err())
			}
		}
	})
}

// Calls into the library block while the member is frozen, and their ctx changes nothing.
// The functions of a Trace and Config.Events are not called.
func TestCallsBlockWhileFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const member = 3
		var told sync.Map // the time of each call of the test's functions, by a text
		c := lockstest.New(t, 4, lockstest.Config(func(i int, cfg *cluster.Config) {
			if i == member {
				cfg.Events = func(_ context.Context, e cluster.Event) { told.Store(e.String(), time.Now()) }
			}
		}))
		client, node := c.NewClient(member, locks.Options{Trace: &locks.Trace{
			Blocked: func(_ context.Context, e locks.LockEvent) { told.Store("blocked at "+e.Key, time.Now()) },
		}}), c.Node(member)
		node.AddHooks(cluster.Hooks{Events: func(_ context.Context, e cluster.Event) { told.Store("added: "+e.String(), time.Now()) }})
		held, err := client.Acquire(t.Context(), "held")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Client(0).Acquire(t.Context(), "taken"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		calls := map[string]func(){
			"Acquire":    func() { _, _ = client.Acquire(ctx, "taken") },
			"TryAcquire": func() { _, _ = client.TryAcquire(ctx, "taken") },
			"Do":         func() { _ = client.Do(ctx, "taken", func(context.Context, *locks.Lock) error { return nil }) },
			"Inspect":    func() { _, _ = client.Inspect(ctx, "taken") },
			"Shards":     func() { _, _ = client.Shards(ctx, "s") },
			"Cell.Get":   func() { _, _ = client.Cell("c").Get(ctx) },
			"Context":    func() { held.Context() },
			"Require":    func() { _ = held.Require(time.Second) },
			"Renew":      func() { _ = held.Renew(ctx) },
			"Release":    func() { _ = held.Release(ctx) },
			"Health":     func() { node.Health(ctx) },
			"Ready":      func() { _ = node.Ready(ctx) },
			"Leave":      func() { _ = node.Leave(ctx) },
			"Recover":    func() { _ = node.Recover(ctx, cluster.RecoverOptions{}) },
			"Close":      func() { _ = client.Close(ctx) },
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		var returned []string
		begin := func(name string, call func()) {
			wg.Go(func() {
				call()
				mu.Lock()
				returned = append(returned, name)
				mu.Unlock()
			})
		}
		begin("a wait", calls["Acquire"])
		time.Sleep(time.Second)
		begin("a call without an answer", func() { _, _ = client.Acquire(t.Context(), "free") })
		synctest.Wait()
		c.Freeze(member)
		frozen := time.Now()
		if held.Key() != "held" || held.Token() == 0 || node.Name() == "" {
			t.Error("a field cannot be read")
		}
		for name, call := range calls {
			begin(name, call)
		}
		time.Sleep(time.Minute)
		mu.Lock()
		if len(returned) != 0 {
			t.Errorf("frozen, these returned: %q", returned)
		}
		mu.Unlock()
		c.Heal()
		thawed := time.Now()
		wg.Wait()
		n := 0
		told.Range(func(what, at any) bool {
			n++
			if at := at.(time.Time); at.After(frozen) && at.Before(thawed) {
				t.Errorf("frozen for %v, the test was told %q", at.Sub(frozen), what)
			}
			return true
		})
		if _, ok := told.Load("blocked at free"); !ok || n < 3 {
			t.Error("the test was told nothing")
		}
		if took := time.Since(thawed); took > 10*time.Second {
			t.Errorf("the calls ended %v after the thaw", took)
		}
	})
}

// A frozen leader is replaced, and follows after the thaw.
func TestAFrozenLeaderIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3, lockstest.TTL(10*time.Second))
		old := c.Leader()
		l, err := c.Client((old+1)%3).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		c.Freeze(old)
		next := c.Leader()
		time.Sleep(30 * time.Second)
		if next == old || l.Err() != nil {
			t.Errorf("%d leads after %d; a lock of another member: %v", next, old, l.Err())
		}
		c.Thaw(old)
		time.Sleep(5 * time.Second)
		if err := c.Client(old).Do(t.Context(), "other", func(context.Context, *locks.Lock) error { return nil }); err != nil || l.Err() != nil {
			t.Errorf("after the thaw: %v; %v", err, l.Err())
		}
	})
}

// The only member of a cluster would go on without a network.
func TestAFrozenOnlyMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 1)
		c.Freeze(0)
		acquired := make(chan error, 1)
		go func() {
			_, err := c.Client(0).Acquire(t.Context(), "in the freeze")
			acquired <- err
		}()
		time.Sleep(time.Second)
		thawed := time.Now().Truncate(time.Millisecond)
		c.Thaw(0)
		if err := <-acquired; err != nil {
			t.Error(err)
		}
		if _, h, ok := c.Holder("in the freeze"); !ok || h.Acquired.Before(thawed) {
			t.Errorf("thawed at %v, granted at %v", thawed, h.Acquired)
		}

		l, err := c.Client(0).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		ctx := l.Context()
		c.Freeze(0)
		time.Sleep(time.Minute)
		if ctx.Err() != nil {
			t.Error("the context ended")
		}
		c.Thaw(0)
		if err := l.Err(); !errors.Is(err, locks.ErrLost) {
			t.Errorf("after 30 TTLs: %v", err)
		}
	})
}

// The end of a test, and Kill, do not wait for a frozen member; Pause and Freeze end each
// on its own.
func TestFreezeAndTheOtherFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 4)
		c.Settle()
		c.Freeze(3)
		blocked := make(chan error, 1)
		go func() {
			_, err := c.Client(3).Acquire(t.Context(), "k")
			blocked <- err
		}()
		time.Sleep(time.Second)
		c.Kill(3)
		select {
		case err := <-blocked:
			if err == nil {
				t.Error("a killed member was granted a key")
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the calls of a killed member wait for its thaw")
		}
		c.Restart(3)

		c.Pause(3)
		c.Freeze(3)
		c.Thaw(3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if c.Node(3).Health(ctx).Quorum {
			t.Error("Thaw undid Pause")
		}
		c.Freeze(3)
		c.Resume(3)
		returned := make(chan struct{})
		go func() {
			c.Node(3).Health(t.Context())
			close(returned)
		}()
		time.Sleep(10 * time.Second)
		select {
		case <-returned:
			t.Error("Resume undid Freeze")
		default:
		}
		c.Heal()
		<-returned
		c.Freeze(0)
		c.Freeze(1)
	})
}
