package cluster

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

func TestADeadHoldersKeyIsFreeWithinTTLAndAHalf(t *testing.T) {
	for round := range testrounds.Rounds(2, 20) {
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
	for round := range testrounds.Rounds(2, 20) {
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

// A leader's process that ends resets its streams, and another member leads within
// a few exchanges. A short TTL then costs no living holder its lock.
func TestTheLeaderDiesAndAnotherLeadsAtOnce(t *testing.T) {
	for round := range testrounds.Rounds(4, 200) {
		inBubble(t, func(b *bubble) {
			b.form(ttl(time.Second))
			var events []<-chan machine.Event
			var stops []func() error
			for i, n := range b.followers() {
				_, e := b.hold(n, byte(i+1), n.Name())
				events, stops = append(events, e), append(stops, b.beat(n, byte(i+1)))
			}
			time.Sleep(3*time.Second + time.Duration(round)*37*time.Millisecond)
			old := b.leader().Name()
			survivors := b.followers()
			killed := time.Now()
			b.net.Crash(b.host(old))
			for i, n := range survivors {
				b.acquire(n, byte(i+1), 2, "other")
				if took := time.Since(killed); took > 200*time.Millisecond {
					t.Errorf("round %d: the next acquire on %s was answered after %v", round, n.Name(), took)
				}
			}
			b.crash(old)
			time.Sleep(3 * time.Second)
			for i, n := range survivors {
				if err := stops[i](); err != nil {
					t.Errorf("beats of %s failed: %v", n.Name(), err)
				}
				for len(events[i]) > 0 {
					if e := <-events[i]; e.Kind == machine.EventEnded {
						t.Errorf("the holder on %s was told %+v", n.Name(), e)
					}
				}
			}
		})
	}
}

// Hosts that run their processes for 10 ms of every 100 keep their leader.
func TestStarvedHostsKeepTheirLeader(t *testing.T) {
	for range testrounds.Rounds(1, 10) {
		inBubble(t, func(b *bubble) {
			b.form(ttl(10 * time.Second))
			old := b.leader()
			term := old.seat.Current().Term()
			stop := make(chan struct{})
			var hosts sync.WaitGroup
			for i, name := range []string{"n1", "n2", "n3"} {
				hosts.Go(func() {
					for phase := time.After(time.Duration(i) * 33 * time.Millisecond); ; phase = time.After(10 * time.Millisecond) {
						<-phase
						b.net.Freeze(b.host(name))
						time.Sleep(90 * time.Millisecond)
						b.net.Thaw(b.host(name))
						select {
						case <-stop:
							return
						default:
						}
					}
				})
			}
			time.Sleep(20 * time.Second)
			close(stop)
			hosts.Wait()
			if now := old.seat.Current().Term(); now != term || old.leading.Load() == nil {
				t.Errorf("the term went from %d to %d, %s leads: %t", term, now, old.Name(), old.leading.Load() != nil)
			}
		})
	}
}

// A leader that falls silent resets nothing. The others notice one election timeout
// after its last word and elect another leader at the first attempt.
func TestASilentLeaderCostsOneElection(t *testing.T) {
	for _, bound := range []time.Duration{3 * time.Second, 10 * time.Second} {
		var worst time.Duration
		for round := range testrounds.Rounds(4, 200) {
			inBubble(t, func(b *bubble) {
				b.form(ttl(bound))
				time.Sleep(3*time.Second + time.Duration(round)*37*time.Millisecond)
				old := b.leader()
				term := old.seat.Current().Term()
				silent := time.Now()
				b.net.Isolate(b.host(old.Name()))
				b.eventually("another member leads", 20*time.Second, func() bool {
					for _, n := range b.nodes {
						if n != old && n.leading.Load() != nil {
							if now := n.seat.Current().Term(); now > term+1 {
								t.Errorf("TTL %v, round %d: term %d follows term %d", bound, round, now, term)
							}
							return true
						}
					}
					return false
				})
				took := time.Since(silent)
				worst = max(worst, took)
				if most := timing.Election(bound) + 500*time.Millisecond; took > most {
					t.Errorf("TTL %v, round %d: another member leads after %v, later than %v", bound, round, took, most)
				}
			})
		}
		t.Logf("TTL %v: at most %v", bound, worst)
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
		b.open(leader, 1)
		held := b.acquire(leader, 1, 1, "k")
		_, events := b.hold(n, 2, "k") // waits
		isolated := func(c machine.Command) {
			b.net.Isolate(b.host(n.Name()))
			decided := make(chan wire.Code, 1)
			leader.currentTerm().Decide(c, func(_ machine.Outcome, code wire.Code) { decided <- code })
			if code := <-decided; code != wire.CodeOK {
				b.t.Fatalf("%#v: code %d", c, code)
			}
			time.Sleep(30 * time.Second) // the stream is reset
			b.net.Heal()
		}
		isolated(machine.Release{Session: sid(1), Token: held})
		if e := b.next(events, 3*time.Second); e.Kind != machine.EventGranted || e.Token <= held {
			t.Errorf("told %+v", e)
		}
		isolated(machine.Expire{Session: sid(2), Term: leader.currentTerm().Number()})
		if e := b.next(events, 3*time.Second); e.Kind != machine.EventEnded {
			t.Errorf("told %+v", e)
		}
	})
}
