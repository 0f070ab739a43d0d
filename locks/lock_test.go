package locks

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

func TestLockCarriesItsTokenAndValues(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(bg, key{}, "v"))
		l, err := c.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if l.Context().Err() != nil || l.Err() != nil {
			t.Error("the end of Acquire's context ended the lock")
		}
		if l.Context().Value(key{}) != "v" {
			t.Error("the values of Acquire's context are gone")
		}
		if token, ok := fence.FromContext(l.Context()); !ok || token != l.Token() || token == 0 {
			t.Errorf("the context carries token %d, the lock %d", token, l.Token())
		}
		if l.Key() != "k" {
			t.Errorf("key %q", l.Key())
		}
	})
}

func TestZeroLockFailsWithoutPanic(t *testing.T) {
	for _, l := range []*Lock{nil, {}} {
		if l.Err() == nil || l.Release(bg) == nil || l.Renew(bg) == nil || l.Require(0) == nil || l.Context().Err() == nil {
			t.Error("a zero lock is held")
		}
		if l.Release(bg) == nil {
			t.Error("a zero lock was released the second time")
		}
		if l.Key() != "" || l.Token() != 0 || l.Remaining() != 0 {
			t.Error("a zero lock is of something")
		}
	}
}

func TestRequireComparesWithTheTrustLeft(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		full := testTTL - margin(testTTL)
		if l.Remaining() != full {
			t.Errorf("%v remain, want %v", l.Remaining(), full)
		}
		m.Isolate()
		time.Sleep(2 * time.Second)
		if err := l.Require(full - 2*time.Second); err != nil {
			t.Error(err)
		}
		err := l.Require(full - 2*time.Second + 1)
		var budget *BudgetError
		if !errors.As(err, &budget) || budget.Left != full-2*time.Second || budget.Key != "k" || budget.Token != l.Token() {
			t.Errorf("require: %v", err)
		}
		if l.Err() != nil {
			t.Error("Require ended the lock")
		}
		time.Sleep(full)
		if err := l.Require(0); !errors.Is(err, ErrLost) {
			t.Errorf("require: %v", err)
		}
	})
}

func TestRenewExtendsTrustToAWholeTTL(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		full := testTTL - margin(testTTL)
		time.Sleep(time.Second)
		if err := l.Renew(bg); err != nil || l.Remaining() != full {
			t.Errorf("renewed: %v, %v remain", err, l.Remaining())
		}
		m.Isolate()
		if err := l.Renew(within(time.Second)); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cluster.ErrNoQuorum) {
			t.Errorf("renew: %v", err)
		}
		if l.Remaining() != full-time.Second {
			t.Errorf("%v remain", l.Remaining())
		}
		// A renewal ends with the lock.
		began := time.Now()
		if err := l.Renew(bg); !errors.Is(err, ErrLost) || time.Since(began) != full-time.Second {
			t.Errorf("renew: %v after %v", err, time.Since(began))
		}
	})
}

func TestRenewFindsTheSessionExpired(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		m.SetFaults(termtest.Faults{LosePush: 1})
		w.ExpireNow()
		if err := l.Renew(bg); !errors.Is(err, ErrLost) {
			t.Errorf("renew: %v", err)
		}
		wantLost(t, l, SessionExpired)
	})
}

func TestErrorTexts(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
		is   []error
	}{
		{&LostError{"invoices", 7, SessionExpired}, `locks: lost "invoices" (token 7): session expired`, []error{ErrLost}},
		{&LostError{"k", 7, NodeStopped}, `locks: lost "k" (token 7): node stopped`, []error{ErrLost, cluster.ErrStopped}},
		{&SessionError{"k", ClientClosed}, `locks: wait for "k" ended: client closed`, []error{ErrSessionLost, ErrClosed}},
		{&LostError{"k", 7, Broken}, `locks: lost "k" (token 7): broken by an operator`, []error{ErrLost}},
		{&HeldError{Key: "k", Client: "c", Node: "n", Token: 7}, `locks: "k" is held by c on n (token 7)`, []error{ErrHeld}},
		{&HeldError{Key: "k", Client: "c", Node: "n"}, `locks: "k" is waited for by c on n`, []error{ErrHeld}},
		{&HeldError{Key: "k", Client: "c", Node: "n", Token: 7, Delayed: true}, `locks: "k" was held by c on n, and the delay of the grant has not passed (token 7)`, nil},
		{&HeldError{Key: "a/b", Client: "c", Node: "n", Token: 7, Conflict: "a"}, `locks: "a/b" is taken: "a" is held by c on n (token 7)`, nil},
		{&HeldError{Key: "a", Client: "c", Node: "n", Conflict: "a/b"}, `locks: "a" is taken: "a/b" is waited for by c on n`, nil},
		{&HeldError{Key: "a", Conflict: "a/"}, `locks: "a" is taken: something below "a" is held`, []error{ErrHeld}},
		{&DeadlockError{Key: "b", Cycle: []Wait{{"x", "b", 5}, {"y", "a", 4}}},
			`locks: acquire "b": deadlock: x waits for "b" (token 5), y waits for "a" (token 4)`, []error{ErrDeadlock}},
		{&DeadlockError{Key: "b", verb: "upgrade", Cycle: []Wait{{"x", "b", 0}}}, `locks: upgrade "b": deadlock: x waits for "b"`, []error{ErrDeadlock}},
		{&ChangedError{"k", 5, 7}, `locks: acquire "k": granted again since token 5, last under token 7`, []error{ErrChanged}},
		{&DeadlockError{Key: "b"}, `locks: acquire "b": deadlock`, []error{ErrDeadlock}},
		{&CapacityError{"k", 1, 3, 5}, `locks: acquire "k": the request names the capacity 3, and the key has 5`, []error{ErrCapacity}},
		{&CapacityError{"k", 6, 0, 5}, `locks: acquire "k": 6 permits are more than the capacity, 5`, []error{ErrCapacity}},
		{&CapacityError{"k", 1, 0, 0}, `locks: acquire "k": the key has no capacity, and the request names none`, []error{ErrCapacity}},
		{refusalError(&acquireRequest{key: "k", cmd: machine.Acquire{Spec: machine.Spec{IfToken: 5}}}, machine.Outcome{Code: machine.TooOld, Token: 9}),
			`locks: the token is too old: "k", token 5; grants up to token 9 are forgotten`, []error{ErrTooOld}},
		{&BudgetError{"k", 7, 2 * time.Second, time.Second}, `locks: "k" (token 7) can be trusted for 1s, need 2s`, nil},
		{refusalError(&acquireRequest{key: "k"}, machine.Outcome{Code: machine.TooManyKeys, Limit: 50_000}), `locks: acquire "k": locks: too many keys of one client: at most 50000 keys`, []error{ErrTooManyKeys}},
		{refusalError(&acquireRequest{key: "k"}, machine.Outcome{Code: machine.TooMuchOfNode, Field: machine.NodeWaits, Limit: 262_144}), `locks: acquire "k": locks: over a quota of this member: at most 262144 waits`, []error{ErrQuota}},
		{refusalError(&acquireRequest{key: "k"}, machine.Outcome{Code: machine.TooManyKeys, Limit: 32 << 20}), `locks: acquire "k": locks: too many keys of one client: at most 33554432 bytes of keys, metas and lineages`, []error{ErrTooManyKeys}},
		{refusalError(&acquireRequest{key: "k"}, machine.Outcome{Code: machine.TooManyWaiters, Limit: 5}), `locks: too many waiters: 5 wait for "k"`, []error{ErrTooManyWaiters}},
		{callError("acquire", "k", &replica.Error{Err: cluster.ErrStopped}), `locks: acquire "k": cluster: node stopped`, []error{cluster.ErrStopped}},
	} {
		if test.err.Error() != test.want {
			t.Errorf("%s, want %s", test.err, test.want)
		}
		for _, is := range test.is {
			if !errors.Is(test.err, is) {
				t.Errorf("%v is not %v", test.err, is)
			}
		}
		if errors.Is(test.err, context.Canceled) {
			t.Errorf("%v is a cancel", test.err)
		}
	}
}

// No code of a user runs under the session's mutex. Not in a bubble: a bubble does
// not detect a deadlock of mutexes.
func TestContextOfAUsersOwnMayAskALock(t *testing.T) {
	w := newWorld(t)
	a, _ := w.client(t, "a")
	other := acquire(t, a, "other")
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		err := a.Do(inquisitive{ctx, other}, "k", func(ctx context.Context, l *Lock) error {
			cancel()
			<-ctx.Done()
			return l.Release(bg)
		})
		if err != nil {
			t.Error(err)
		}
		l, err := a.Acquire(inquisitive{bg, other}, "l")
		if err != nil {
			t.Error(err)
			return
		}
		release(t, l)
		if ctx := l.Context(); context.Cause(ctx) != ErrReleased || l.Context() != ctx {
			t.Errorf("the context of a released lock: %v", context.Cause(ctx))
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		panic("the session is stuck") // and so would be the client's Close
	}
}
