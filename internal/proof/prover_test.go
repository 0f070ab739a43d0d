package proof

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
)

// stage is a Prover of member "me" with fake gossip and a fake network.
type stage struct {
	p *Prover

	mu        sync.Mutex
	sightings []member.Sighting
	gossiped  wakeup.All
	at        map[string]member.Process // by address: who answers
	deaf      map[string]bool           // addresses without any answer, not even a refusal
	wanted    bool
	claims    bool // no answerer proves its name
	dials     []string
	ended     []string
	shared    []string
}

func onStage(t *testing.T, f func(t *testing.T, s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{at: make(map[string]member.Process), deaf: make(map[string]bool), wanted: true}
		s.p = New(Config{
			Self:     member.Self{Name: "me", Boot: 1, Addr: "me:1"},
			Members:  func() []member.Sighting { s.mu.Lock(); defer s.mu.Unlock(); return slices.Clone(s.sightings) },
			Gossiped: s.gossiped.Wait,
			Wanted:   func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.wanted },
			Dial:     s.dial,
			Ended: func(name string, boot uint64) {
				s.set(func() { s.ended = append(s.ended, fmt.Sprint(name, boot)) })
			},
			Shared: func(addr string, _, _ member.Process) { s.set(func() { s.shared = append(s.shared, addr) }) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.p.Run(ctx) })
		defer wg.Wait()
		defer cancel()
		f(t, s)
	})
}

func (s *stage) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *stage) dial(ctx context.Context, to member.Process) (who member.Process, err error) {
	var deaf, found bool
	s.set(func() {
		s.dials = append(s.dials, to.Addr)
		deaf = s.deaf[to.Addr]
		who, found = s.at[to.Addr]
	})
	switch {
	case deaf:
		<-ctx.Done()
		return who, context.Cause(ctx)
	case !found:
		return who, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	if !s.claims {
		s.p.Answered(time.Now(), to.Addr, who)
	}
	return who, nil
}

// gossip shows a process, alive from now on.
func (s *stage) gossip(name string, boot uint64, addr string) {
	s.set(func() {
		s.sightings = append(s.sightings, member.Sighting{Process: member.Process{Name: name, Boot: boot, Addr: addr}, Alive: true})
	})
	s.gossiped.Wake()
}

// run has a process answer at its address.
func (s *stage) run(name string, boot uint64, addr string) {
	s.set(func() { s.at[addr] = member.Process{Name: name, Boot: boot, Addr: addr} })
}

func (s *stage) kill(addr string) { s.set(func() { delete(s.at, addr) }) }

func (s *stage) expect(t *testing.T, claim string, ended ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.ended, ended) {
		t.Errorf("%s: ended %v, want %v; dials %v", claim, s.ended, ended, s.dials)
	}
}

func TestARestartAtTheAddressIsProvedByGossipAndOneDial(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.gossip("a", 1, "h:1")
		s.run("a", 2, "h:1")
		changed := s.p.Changed()
		s.gossip("a", 2, "h:1")
		s.expect(t, "at once", "a1")
		if !s.p.Ended("a", 1) || s.p.Ended("a", 2) {
			t.Error("the wrong boot has ended")
		}
		select {
		case <-changed:
		default:
			t.Error("nobody is woken")
		}
	})
}

func TestARestartElsewhereIsProvedUnlessTheOlderProcessAnswers(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.gossip("a", 1, "h:1")
		s.run("a", 1, "h:1")
		s.run("a", 2, "i:1")
		s.gossip("a", 2, "i:1")
		time.Sleep(time.Minute)
		s.expect(t, "the older one answers")
		s.kill("h:1")
		time.Sleep(timing.ProofAgain)
		s.expect(t, "the older one is gone", "a1")
	})
}

// The address of a lost host answers nothing: two dials without an answer.
func TestALostHostIsProvedByTwoDials(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.gossip("a", 1, "h:1")
		s.set(func() { s.deaf["h:1"] = true })
		s.run("a", 2, "i:1")
		s.gossip("a", 2, "i:1")
		time.Sleep(timing.Dial + timing.ProofAgain + timing.Dial - time.Millisecond)
		s.expect(t, "not yet")
		time.Sleep(time.Millisecond)
		s.expect(t, "after the second", "a1")
	})
}

// A boot known from gossip alone proves nothing: the dial to the newer process must
// find the newer process.
func TestAGossipedBootAloneProvesNothing(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.gossip("a", 1, "h:1")
		s.gossip("a", 2, "i:1") // nobody answers at either address
		time.Sleep(time.Minute)
		s.expect(t, "nobody has shown boot 2")
	})
}

func TestAnotherNameAtTheAddressIsProvedInASecond(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := member.Process{Name: "a", Boot: 1, Addr: "h:1"}
		s.gossip("a", 1, "h:1")
		s.p.Answered(time.Now(), "h:1", a)
		s.run("b", 2, "h:1")
		s.p.Suspect(a) // as raft does
		time.Sleep(timing.ProofAgain - time.Millisecond)
		s.expect(t, "not yet")
		time.Sleep(time.Millisecond)
		s.expect(t, "after the second dial", "a1")
		n := len(s.dials)
		time.Sleep(time.Hour)
		if len(s.dials) != n {
			t.Errorf("%d dials more", len(s.dials)-n)
		}
	})
}

// The own earlier process, and a suspect that nothing proves, cost a dial each.
func TestDialsEnd(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.run("me", 1, "me:1")
		s.gossip("me", 1, "me:1")
		s.gossip("me", 0x0, "me:1")
		s.gossip("c", 3, "h:1")
		s.gossip("d", 4, "h:1")
		s.run("d", 4, "h:1")
		time.Sleep(time.Hour)
		for range 100 {
			s.gossiped.Wake()
			synctest.Wait()
		}
		if len(s.dials) > 4 {
			t.Errorf("dials %v", s.dials)
		}
	})
}

func TestNobodyIsDialledWithoutNeed(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.set(func() { s.wanted = false })
		s.gossip("a", 1, "h:1")
		s.run("a", 2, "h:1")
		s.gossip("a", 2, "h:1")
		time.Sleep(time.Minute)
		if s.expect(t, "no need"); len(s.dials) > 0 {
			t.Errorf("dials %v", s.dials)
		}
		s.p.Goodbye("b", 7)
		s.expect(t, "but a goodbye counts", "b7")
		s.set(func() { s.wanted = true })
		s.p.Wake()
		s.expect(t, "and need brings the dials", "b7", "a1")
	})
}

func TestASharedAddressIsReportedOnce(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a, b := member.Process{Name: "a", Boot: 1, Addr: "h:1"}, member.Process{Name: "b", Boot: 2, Addr: "h:1"}
		for range 5 {
			s.p.Answered(time.Now(), "h:1", a)
			s.p.Answered(time.Now(), "h:1", b)
			time.Sleep(500 * time.Millisecond)
		}
		s.expect(t, "proves nothing")
		if !slices.Equal(s.shared, []string{"h:1"}) {
			t.Errorf("reported %v", s.shared)
		}
	})
}

// A goodbye that its process did not say is taken back as soon as the process answers a
// dial, and a true one stays.
func TestAGoodbyeOfALivingProcessIsTakenBack(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.gossip("a", 1, "h:1")
		s.gossip("b", 2, "h:2")
		s.run("a", 1, "h:1")
		s.p.Goodbye("a", 1)
		s.p.Goodbye("b", 2)
		s.expect(t, "at once", "a1", "b2")
		changed := s.p.Changed()
		time.Sleep(timing.GoodbyeDoubt)
		synctest.Wait()
		if s.p.Ended("a", 1) || !s.p.Ended("b", 2) {
			t.Errorf("a has ended: %t, b: %t", s.p.Ended("a", 1), s.p.Ended("b", 2))
		}
		select {
		case <-changed:
		default:
			t.Error("nobody is woken")
		}
		s.p.Goodbye("a", 1) // again and again
		time.Sleep(timing.GoodbyeDoubt)
		synctest.Wait()
		if s.p.Ended("a", 1) {
			t.Error("a second forged goodbye stays")
		}
		s.kill("h:1")
		s.p.Goodbye("a", 1)
		time.Sleep(time.Minute)
		if !s.p.Ended("a", 1) {
			t.Error("a true goodbye is taken back")
		}
	})
}

// However many others may have ended, and although the process is being dialled for another reason,
// a forged goodbye is found out in time.
func TestAGoodbyeIsLookedAtBesideManySuspects(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.gossip("a", 1, "h:1")
		s.run("a", 1, "h:1")
		s.set(func() { s.deaf["h:1"] = true })
		s.p.Suspect(member.Process{Name: "a", Boot: 1, Addr: "h:1"})
		for i := range 2 * maxSuspects {
			name, addr := fmt.Sprint("s", i), fmt.Sprintf("s%d:1", i)
			s.set(func() { s.deaf[addr] = true })
			s.p.Suspect(member.Process{Name: name, Boot: 1, Addr: addr})
		}
		synctest.Wait()
		s.p.Goodbye("a", 1)
		s.set(func() { delete(s.deaf, "h:1") })
		time.Sleep(timing.GoodbyeDoubt + time.Second)
		synctest.Wait()
		if s.p.Ended("a", 1) {
			t.Error("a forged goodbye stays")
		}
	})
}

// The goodbyes of processes that come and go are forgotten with them, and those of processes that are
// called alive are looked at first.
func TestGoodbyesPileUpNowhere(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.set(func() { s.wanted = false })
		for i := range 20 * maxSuspects {
			s.gossip(fmt.Sprint("short", i), 1, fmt.Sprintf("s%d:1", i))
			s.p.Goodbye(fmt.Sprint("short", i), 1)
			s.set(func() { s.sightings = nil })
		}
		s.p.mu.Lock()
		n := len(s.p.farewells)
		s.p.mu.Unlock()
		if n > 2*maxSuspects {
			t.Errorf("%d goodbyes are remembered", n)
		}
		s.gossip("a", 1, "h:1")
		s.run("a", 1, "h:1")
		for i := range 2 * maxSuspects {
			name, addr := fmt.Sprint("dead", i), fmt.Sprintf("d%d:1", i)
			s.set(func() {
				s.deaf[addr] = true
				s.sightings = append(s.sightings, member.Sighting{Process: member.Process{Name: name, Boot: 1, Addr: addr}})
			})
			s.p.Goodbye(name, 1)
		}
		s.p.Goodbye("a", 1)
		s.set(func() { s.wanted = true })
		s.p.Wake()
		time.Sleep(timing.GoodbyeDoubt + 2*timing.Dial)
		synctest.Wait()
		if s.p.Ended("a", 1) {
			t.Error("a forged goodbye of a living process waits for those of dead ones")
		}
	})
}

// Processes that prove no name restart at their addresses: their earlier processes are
// not dialled again and again, and leave room for others.
func TestAClaimedSuccessorIsDialledOnce(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.claims = true
		for i := range 10 {
			name, addr := fmt.Sprint("a", i), fmt.Sprintf("h%d:1", i)
			s.gossip(name, 1, addr)
			s.run(name, 2, addr)
			s.gossip(name, 2, addr)
		}
		time.Sleep(time.Minute)
		s.set(func() {
			if n := len(s.dials); n > 2*10 {
				t.Errorf("%d dials in a minute", n)
			}
		})
		s.expect(t, "a claim proves nothing")
	})
}
