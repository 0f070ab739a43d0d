package locks

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"

	"github.com/wardmote/wardmote/internal/term/termtest"
)

func TestALostLocksReleaseSparesItsOwnClientsNextLock(t *testing.T) {
	for name, lose := range map[string]func(*world, *member, *Lock){
		"cut off": func(_ *world, m *member, l *Lock) {
			m.Isolate()
			<-l.Context().Done()
			m.Heal()
		},
		"expired": func(w *world, _ *member, _ *Lock) { w.ExpireNow(); settle() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				c, m := w.client(t, "a")
				old := acquire(t, c, "k")
				lose(w, m, old)
				next := acquire(t, c, "k")
				if next.Token() <= old.Token() {
					t.Errorf("token %d after %d", next.Token(), old.Token())
				}
				for range 2 {
					if err := old.Release(bg); !errors.Is(err, ErrLost) {
						t.Errorf("release: %v", err)
					}
				}
				time.Sleep(testTTL)
				if _, token := w.Owner("k"); token != machine.Token(next.Token()) || next.Err() != nil {
					t.Errorf("token %d holds the key, want %d; %v", token, next.Token(), next.Err())
				}
			})
		})
	}
}

// The client that goes does not take along what another of its name holds.
func TestClosingAClientSparesItsNamesake(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.join("n")
		old, fresh := m.client(Options{Name: "same"}), m.client(Options{Name: "same"})
		defer shutdown(t, fresh)
		l := acquire(t, old, "k")
		kept := acquire(t, fresh, "kept")
		next := waiting(t, bg, fresh, "k")
		if err := old.Close(bg); err != nil {
			t.Fatal(err)
		}
		n := next.ok(t)
		if err := l.Release(bg); !errors.Is(err, ErrClosed) {
			t.Errorf("release: %v", err)
		}
		time.Sleep(3 * testTTL)
		if kept.Err() != nil || n.Err() != nil || w.Counts().Grants != 2 {
			t.Errorf("%v, %v; the table keeps %+v", kept.Err(), n.Err(), w.Counts())
		}
	})
}

// A beat that is under way while a lock is released is no renewal of that.
func TestReleaseMeetsABeatUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l, other := acquire(t, a, "k"), acquire(t, a, "other")
		var beats atomic.Int64
		answer := make(chan struct{})
		m.SetHooks(termtest.Hooks{Beat: func(ctx context.Context) (bool, error) {
			beats.Add(1)
			select {
			case <-answer:
				return false, nil
			case <-ctx.Done():
				return true, ctx.Err()
			}
		}})
		time.Sleep(testTTL/beatsPerTTL + time.Second)
		if beats.Load() != 1 {
			t.Fatalf("%d beats are under way", beats.Load())
		}
		release(t, l)
		next := acquire(t, b, "k")
		close(answer)
		time.Sleep(3 * testTTL)
		if l.Err() != ErrReleased || other.Err() != nil || next.Err() != nil {
			t.Errorf("released: %v; the client's other lock: %v; the next holder: %v", l.Err(), other.Err(), next.Err())
		}
		if id, _ := w.Owner("k"); id != b.currentSession().id {
			t.Error("the next holder does not hold the key any more")
		}
	})
}

func TestAClosedClientBeatsNoMore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		release(t, acquire(t, c, "k"))
		acquire(t, c, "k")
		time.Sleep(testTTL)
		if err := c.Close(bg); err != nil {
			t.Fatal(err)
		}
		m.SetHooks(termtest.Hooks{Beat: func(context.Context) (bool, error) {
			t.Error("a beat after Close")
			return false, nil
		}})
		time.Sleep(10 * testTTL)
	})
}

// Whatever the cluster hears of it, and whatever work is slow to return, Close ends
// at once what descends from a lock.
func TestContextsBelowALockEndAsItsClientCloses(t *testing.T) {
	for _, cut := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			c, m := w.client(t, "a")
			l := acquire(t, c, "k")
			child, cancel := context.WithTimeout(l.Context(), time.Hour)
			defer cancel()
			slow := does(func(ctx context.Context) error {
				return c.Do(ctx, "slow", func(ctx context.Context, _ *Lock) error {
					<-ctx.Done()
					time.Sleep(time.Second)
					return nil
				})
			}, bg)
			slow.pends(t)
			if cut {
				m.Isolate()
			}
			closing := does(c.Close, within(time.Minute))
			select {
			case <-child.Done():
			case <-time.After(100 * time.Millisecond):
			}
			if !errors.Is(context.Cause(child), ErrClosed) || !errors.Is(context.Cause(child), ErrLost) {
				t.Errorf("cut off %v: after a tenth of a second the context's cause is %v", cut, context.Cause(child))
			}
			closing.ends(t)
			slow.ends(t)
			if cut {
				m.Heal()
			}
		})
	}
}

func TestBeatsThatAreNeverAnsweredEndTheLockInTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		m.SetHooks(termtest.Hooks{Beat: func(ctx context.Context) (bool, error) { <-ctx.Done(); return true, ctx.Err() }})
		opened := time.Now()
		l := acquire(t, c, "k")
		<-l.Context().Done()
		if d := time.Since(opened); d != testTTL-margin(testTTL) {
			t.Errorf("told after %v", d)
		}
		wantLost(t, l, QuorumUnreachable)
	})
}

func TestInnerEntriesLeaveTheWindowWhole(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		outer := acquire(t, a, "k", Reentrant("o"))
		for depth := range 5 {
			time.Sleep(1900 * time.Millisecond) // never when a beat is due
			before := outer.Remaining()
			inner := acquire(t, a, "k", Reentrant("o"))
			if inner.Remaining() != before || outer.Remaining() != before {
				t.Errorf("entry %d: %v and %v remain, before it were %v", depth, inner.Remaining(), outer.Remaining(), before)
			}
			release(t, inner)
			if outer.Remaining() != before || outer.Err() != nil {
				t.Errorf("after the inner release %v remain, before it were %v; %v", outer.Remaining(), before, outer.Err())
			}
			if err := outer.Renew(bg); err != nil || outer.Remaining() != testTTL-margin(testTTL) {
				t.Errorf("renewed: %v, %v remain", err, outer.Remaining())
			}
		}
	})
}

func TestTheOwnerAfterIsBeatenForOnAndOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		outer, inner := acquire(t, a, "k", Reentrant("o")), acquire(t, a, "k", Reentrant("o"))
		next := waiting(t, bg, a, "k", Reentrant("p"))
		release(t, inner)
		release(t, outer)
		l := next.ok(t)
		for range 100 {
			time.Sleep(testTTL / 10)
			if left := l.Remaining(); l.Err() != nil || left < testTTL/2 {
				t.Fatalf("%v, %v remain", l.Err(), left)
			}
		}
	})
}

func TestLostAnswerOfAFirstEntryIsNoSecondEntry(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		acquire(t, c, "other")
		m.SetFaults(termtest.Faults{LoseAnswer: 1, Twice: 1})
		time.AfterFunc(2*time.Second, func() { m.SetFaults(termtest.Faults{}) })
		l := acquire(t, c, "k", Reentrant("o"))
		if w.Sent(isAcquire) < 3 {
			t.Fatal("the request was not repeated")
		}
		if l.Depth() != 1 {
			t.Errorf("entered %d times", l.Depth())
		}
		release(t, l)
		if !w.free("k") {
			t.Error("one release did not free the key")
		}
		time.Sleep(time.Minute) // late copies
		if !w.free("k") {
			t.Error("a late copy took the key")
		}
	})
}

// Who waits is granted the key in the step that ends its holder's session.
func TestTheNextFollowsAnExpiryAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var clients []*Client
		var calls []*call[*Lock]
		for i := range 4 {
			c, _ := w.client(t, fmt.Sprint("c", i))
			clients = append(clients, c)
			calls = append(calls, start(func() (*Lock, error) { return c.Acquire(bg, "k") }))
			settle()
		}
		for i, c := range calls {
			if !closed(c.done) {
				t.Fatalf("%d still waits", i)
			}
			l := c.ok(t)
			w.Apply(expire(w, clients[i]))
			settle()
			wantLost(t, l, SessionExpired)
		}
	})
}

// What is still told of a session that has ended is not taken for the next one's.
func TestEventsOfAFormerSessionAreDropped(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		lost := acquire(t, c, "k")
		former := c.currentSession()
		w.Apply(expire(w, c))
		settle()
		l := acquire(t, c, "k")
		held := acquire(t, b, "held")
		next := waiting(t, bg, c, "held")
		for seq := range uint64(4) {
			for _, e := range []machine.Event{
				{Kind: machine.EventGranted, Session: former.id, Seq: seq, Key: "held", Token: 99},
				{Kind: machine.EventAsked, Session: former.id, Seq: seq, Key: "k", Token: machine.Token(lost.Token())},
				{Kind: machine.EventLost, Session: former.id, Seq: seq, Key: "k", Token: machine.Token(lost.Token()), Reason: machine.Broken},
				{Kind: machine.EventEnded, Session: former.id, Reason: machine.Expired},
			} {
				former.handleEvent(e)
			}
		}
		next.pends(t)
		if l.Err() != nil || closed(l.Asked()) {
			t.Errorf("the lock of now: %v, asked %v", l.Err(), closed(l.Asked()))
		}
		wantLost(t, lost, SessionExpired)
		release(t, held)
		next.ok(t)
		time.Sleep(testTTL)
		if w.Sent(isRelease)+w.Sent(isWithdraw) != 1 {
			t.Error("something was let go")
		}
	})
}
