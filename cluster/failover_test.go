package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/testrounds"
)

func TestADeadHoldersKeyIsFreeWithinTTLAndAHalf(t *testing.T) {
	for round := range testrounds.Rounds(3, 20) {
		inBubble(t, func(b *bubble) {
			b.form()
			f := b.followers()
			holder, waiter := f[0], f[1]
			time.Sleep(time.Duration(round) * 237 * time.Millisecond)
			token, _ := b.hold(holder, 1, "k")
			stop := b.beat(holder, 1)
			_, events := b.hold(waiter, 2, "k")
			defer b.beat(waiter, 2)()
			time.Sleep(5 * time.Second)
			killed := time.Now()
			go stop()
			b.crash(holder.Name())
			e := b.next(events, 10*time.Second)
			if e.Kind != machine.EventGranted || e.Token <= token {
				t.Fatalf("told %+v after token %d", e, token)
			}
			if took := time.Since(killed); took > 2*time.Second+1500*time.Millisecond {
				t.Errorf("the key was granted after %v", took)
			}
		})
	}
}

func TestTheLeaderDiesAndNoLockIsLost(t *testing.T) {
	for round := range testrounds.Rounds(3, 20) {
		inBubble(t, func(b *bubble) {
			b.form()
			n := b.followers()[0]
			_, events := b.hold(n, 1, "k")
			stop := b.beat(n, 1)
			time.Sleep(3*time.Second + time.Duration(round)*137*time.Millisecond)
			killed := time.Now()
			b.crash(b.leader().Name())
			token := b.acquire(n, 1, 2, "other")
			if took := time.Since(killed); took > 4*time.Second || token == 0 {
				t.Errorf("the next acquire got token %d after %v", token, took)
			}
			time.Sleep(5 * time.Second)
			if err := stop(); err != nil {
				t.Errorf("beats failed: %v", err)
			}
			if o := b.propose(n, machine.Release{Session: sid(1), Token: token}); o.Code != machine.OK {
				t.Errorf("release: %+v", o)
			}
			if len(events) > 0 {
				t.Errorf("the holder was told %+v", <-events)
			}
		})
	}
}

// A delay outlives the leader and ends all the same.
func TestADelayedKeyAcrossALeaderChange(t *testing.T) {
	for range testrounds.Rounds(1, 5) {
		inBubble(t, func(b *bubble) {
			b.form()
			n := b.followers()[0]
			const delay = 6 * time.Second
			b.open(n, 1)
			b.propose(n, delayed(1, 1, "k", delay))
			silent := time.Now()
			token, events := b.hold(n, 2, "k")
			defer b.beat(n, 2)()
			if token != 0 {
				t.Fatalf("granted token %d", token)
			}
			// Session 1 has expired when the leader dies.
			time.Sleep(5 * time.Second)
			b.crash(b.leader().Name())
			e := b.next(events, 30*time.Second)
			took := time.Since(silent)
			if e.Kind != machine.EventGranted || took < 2*time.Second+delay {
				t.Errorf("told %+v after %v", e, took)
			}
			if took > 5*time.Second+4*time.Second+delay {
				t.Errorf("granted after %v", took)
			}
		})
	}
}

func TestAThinMemberScansAcrossALeaderChange(t *testing.T) {
	for range testrounds.Rounds(1, 5) {
		inBubble(t, func(b *bubble) {
			b.form()
			reader, writer := b.join("reader", thin), b.join("writer", thin)
			b.hold(writer, 1, "jobs/1")
			defer b.beat(writer, 1)()
			list, err := reader.link.Scan(b.within(10*time.Second), replica.Scan{Prefix: "jobs/", Limit: 10})
			if err != nil || len(list.Keys) != 1 || list.Keys[0].Key != "jobs/1" || list.Keys[0].Held != 1 {
				t.Fatalf("%+v, %v", list, err)
			}
			type verdict struct {
				a   replica.Scanned
				err error
			}
			changed := make(chan verdict, 1)
			go func() {
				a, err := reader.link.Scan(b.within(time.Minute), replica.Scan{Prefix: "jobs/", Limit: 10, Since: list.Version})
				changed <- verdict{a, err}
			}()
			time.Sleep(time.Second)
			b.crash(b.leader().Name())
			b.acquire(writer, 1, 2, "jobs/2")
			select {
			case v := <-changed:
				if v.err != nil || len(v.a.Keys) != 1 || v.a.Keys[0].Key != "jobs/2" || v.a.Version <= list.Version {
					t.Errorf("%+v, %v", v.a, v.err)
				}
			case <-time.After(20 * time.Second):
				t.Error("the change was not told")
			}
			_, err = reader.link.Scan(b.within(time.Second), replica.Scan{Prefix: "none/", Limit: 1, Since: list.Version + 1000})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a wait that was given up returned %v", err)
			}
		})
	}
}

// A member loses the stream to the leader while a session of the member gets a key,
// or ends. The member learns the news with the next stream, and not only at the
// session's next beat.
func TestSessionsAreAttachedAgain(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form(ttl(time.Minute))
		n, leader := b.followers()[0], b.leader()
		b.open(n, 1)
		held := b.acquire(n, 1, 1, "k")
		_, events := b.hold(n, 2, "k") // waits
		isolated := func(c machine.Command) {
			b.net.Isolate(b.host(n.Name()))
			b.propose(leader, c)
			time.Sleep(30 * time.Second) // the stream is reset
			b.net.Heal()
		}
		isolated(machine.Release{Session: sid(1), Token: held})
		if e := b.next(events, 3*time.Second); e.Kind != machine.EventGranted || e.Token <= held {
			t.Errorf("told %+v", e)
		}
		isolated(machine.Close{Session: sid(2)})
		if e := b.next(events, 3*time.Second); e.Kind != machine.EventEnded {
			t.Errorf("told %+v", e)
		}
	})
}
