package cluster

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/wire"
)

const stageDelay = 10 * time.Second

// delayed has session 1 hold k, with a delay, and expire.
func (s *stage) delayed() machine.Token {
	s.t.Helper()
	s.open(1)
	o := s.table.apply(machine.EncodeEntry([]machine.Command{
		machine.Acquire{Session: sid(1), Seq: 1, Key: "k", Delay: uint64(stageDelay / time.Millisecond)},
	}), time.Now())[0]
	if o.Code != machine.Granted {
		s.t.Fatalf("%+v", o)
	}
	s.apply(machine.Expire{Session: sid(1), Term: s.l.term})
	return o.Token
}

func (s *stage) held(key string) (held bool) {
	s.table.view(func(m *machine.State) { held = m.Status(key, 0).Held > 0 })
	return held
}

// delays is how many the keeper counts.
func (s *stage) delays() int {
	s.l.keeper.mu.Lock()
	defer s.l.keeper.mu.Unlock()
	return len(s.l.keeper.delays)
}

func TestADelayIsCountedFromTheExpiry(t *testing.T) {
	onStage(t, func(s *stage) {
		s.delayed()
		time.Sleep(stageDelay / 2)
		// It is told how long.
		st := machine.Status{}
		s.table.view(func(m *machine.State) { st = m.Status("k", 1) })
		s.l.keeper.describe(st.Holders)
		if g := st.Holders[0]; !g.Delayed || g.Left != uint64(stageDelay/2/time.Millisecond) {
			t.Errorf("%+v", g)
		}
		time.Sleep(stageDelay/2 - time.Millisecond)
		if !s.held("k") {
			t.Error("freed before the delay was over")
		}
		time.Sleep(2 * tickInterval)
		if s.held("k") {
			t.Error("not freed")
		}
		synctest.Wait()
		if n := s.delays(); n != 0 {
			t.Errorf("%d delays are still counted", n)
		}
	})
}

func TestANewLeaderCountsADelayAnew(t *testing.T) {
	onStage(t, func(s *stage) {
		s.delayed()
		time.Sleep(stageDelay - time.Second)
		s.unlead()
		s.apply(machine.LeaderStart{Term: 2})
		s.lead(2)
		time.Sleep(stageDelay - time.Millisecond)
		if !s.held("k") {
			t.Fatal("the new leader did not count the whole delay")
		}
		time.Sleep(2 * tickInterval)
		if s.held("k") {
			t.Error("not freed")
		}
	})
}

// The end of a delay is proposed until its fate is known; one that was reclaimed
// or broken meanwhile is forgotten.
func TestTheEndOfADelayIsProposedUntilItIsDone(t *testing.T) {
	onStage(t, func(s *stage) {
		s.delayed()
		s.set(make(chan struct{}), nil)
		time.Sleep(stageDelay + 2*tickInterval)
		s.set(nil, nil) // the proposal fails
		synctest.Wait()
		if !s.held("k") || s.delays() != 1 {
			t.Errorf("held %t, %d delays counted", s.held("k"), s.delays())
		}
		time.Sleep(delayRetry + 2*tickInterval)
		if s.held("k") || s.delays() != 0 {
			t.Errorf("held %t, %d delays counted", s.held("k"), s.delays())
		}
	})
	onStage(t, func(s *stage) {
		token := s.delayed()
		s.open(2) // of the same client's name
		if o := s.acquire(2, 1, "k"); o <= token {
			t.Fatalf("not reclaimed: %d", o)
		}
		time.Sleep(stageDelay + 2*tickInterval)
		synctest.Wait()
		if !s.held("k") && s.alive(2) || s.delays() != 0 {
			t.Errorf("held %t, %d delays counted", s.held("k"), s.delays())
		}
	})
}

// A delay outlives the leader that counts it, and ends all the same.
func TestADelayedKeyAcrossALeaderChange(t *testing.T) {
	for range 5 {
		inBubble(t, func(b *bubble) {
			b.form()
			leader := b.leader()
			var n *Node
			for _, n = range b.nodes {
				if n != leader {
					break
				}
			}
			const delay = 6 * time.Second
			b.propose(n, machine.Open{Session: sid(1), Client: "gone", Node: "n", TTL: 2000})
			b.propose(n, machine.Acquire{Session: sid(1), Seq: 1, Key: "k", Delay: uint64(delay / time.Millisecond)})
			start := time.Now() // of its silence
			token, events := b.holder(n, 2, "k")
			defer b.beating(n, 2)()
			if token != 0 {
				t.Fatalf("granted %d", token)
			}
			// Once it has expired, the leader that counts dies.
			time.Sleep(5 * time.Second)
			b.crash(leader.Name())
			e := next(t, events, 30*time.Second)
			took := time.Since(start)
			if e.Kind != machine.EventGranted || took < 2*time.Second+delay {
				t.Errorf("%+v after %v", e, took)
			}
			if took > 5*time.Second+4*time.Second+delay {
				t.Errorf("granted after %v", took)
			}
		})
	}
}

// Only a leader ends a delay: not a client, on whatever node, nor a stream.
func TestAForgedEndOfADelayIsRefused(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		leader := b.leader()
		b.propose(leader, machine.Open{Session: sid(1), Client: "gone", Node: "n", TTL: 2000})
		o := b.propose(leader, machine.Acquire{Session: sid(1), Seq: 1, Key: "k", Delay: 3_600_000})
		time.Sleep(5 * time.Second)
		term := leader.leader.Load().term
		forged := machine.EndDelay{Token: o.Token, Term: term}
		for _, n := range nodes {
			if out, err := n.link.Propose(b.within(5*time.Second), forged); err == nil {
				t.Errorf("%s: %+v", n.Name(), out)
			}
		}
		p, err := port.Open(port.Config{
			Network: b.networkOf("peer"), Bind: b.addr("peer"), Cluster: "test",
			Self: port.Peer{Name: "peer", Boot: 1}, ClusterID: func() [16]byte { return leader.clusterID() },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		conn, err := p.Dial(b.within(5*time.Second), leader.Addr(), port.KindMember, port.Peer{})
		if err != nil {
			t.Fatal(err)
		}
		r := newRPC(conn, func(*request) {})
		r.start()
		defer r.close()
		if f, _, err := r.call(context.Background(), wire.Attach, wire.Marshal(&wire.AttachRequest{})); err != nil || f.Code != wire.CodeOK {
			t.Fatal(f.Code, err)
		}
		f, _, err := r.call(context.Background(), wire.Propose, machine.AppendCommand(nil, forged))
		if err != nil || f.Code != wire.CodeBad {
			t.Errorf("%v, %v", f.Code, err)
		}
		leader.leader.Load().table.view(func(m *machine.State) {
			if st := m.Status("k", 1); st.Held != 1 || !st.Holders[0].Delayed {
				t.Errorf("%+v", st)
			}
		})
		// What clients may propose goes through.
		b.propose(nodes[0], machine.Open{Session: sid(2), Client: "c", Node: "n", TTL: 2000})
		for _, c := range []machine.Command{
			machine.Ask{Session: sid(2), Key: "k"},
			machine.Break{Session: sid(2), Key: "k", Token: o.Token},
		} {
			if out := b.propose(nodes[0], c); out.Code != machine.OK {
				t.Errorf("%#v: %+v", c, out)
			}
		}
		shared := b.propose(nodes[0], machine.Acquire{Session: sid(2), Seq: 1, Key: "k", Mode: machine.Shared})
		up := b.propose(nodes[1], machine.Upgrade{Session: sid(2), Seq: 2, Token: shared.Token})
		if up.Code != machine.Granted {
			t.Fatalf("upgrade: %+v", up)
		}
		for _, c := range []machine.Command{
			machine.SetValue{Session: sid(2), Token: up.Token, Rev: 1, Value: []byte("v")},
			machine.Downgrade{Session: sid(2), Token: up.Token},
		} {
			if out := b.propose(nodes[2], c); out.Code != machine.OK {
				t.Errorf("%#v: %+v", c, out)
			}
		}
	})
}

// What is over all at once, as after a leader change, does not push out what
// clients propose, and ends all the same.
func TestManyDelaysThatEndAtOnceLeaveRoomForClients(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		const keys = maxProposals + 1000
		for i := 0; i < keys; i += 1000 {
			var batch []machine.Command
			for j := range 1000 {
				batch = append(batch, machine.Acquire{Session: sid(1), Seq: uint64(i + j + 1), Key: fmt.Sprint("k", i+j), Delay: 3000})
			}
			s.table.apply(machine.EncodeEntry(batch), time.Now())
		}
		s.apply(machine.Expire{Session: sid(1), Term: 1})
		s.set(make(chan struct{}), nil)
		time.Sleep(3*time.Second + 2*tickInterval)
		if n := s.delays(); n < maxProposals {
			t.Fatalf("%d delays", n)
		}
		done := make(chan wire.Code, 1)
		s.l.propose(machine.Open{Session: sid(2), Client: "c", Node: "n", TTL: 3000}, func(_ machine.Outcome, c wire.Code) { done <- c })
		if c := verdict(done); c != 0 {
			t.Errorf("a client was told %v", c)
		}
		s.set(nil, nil)
		time.Sleep(time.Minute)
		if n := s.delays(); n > 0 || s.held("k0") {
			t.Errorf("%d delays are left", n)
		}
	})
}
