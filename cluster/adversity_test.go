package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/internal/wire"
	"github.com/wardmote/wardmote/transport"
)

func voterNames(n *Node) (out []string) {
	if r := n.roles.current(); r != nil {
		for _, v := range r.voters() {
			name, _, _ := splitRaftID(v)
			out = append(out, name)
		}
	}
	return
}

// The joiner's only Who fails; nothing changes in gossip afterwards.
func TestAJoinerThatWasNotAnsweredAsksAgain(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.ready(b.start("n1", func(c *Config) { c.InitialSize = 1; c.Join = nil }))
		time.Sleep(20 * time.Second)
		n := b.start("n4", func(c *Config) { c.InitialSize = 0; c.Join = c.Join[:1] })
		for len(n.gossip.alive()) < 2 {
			time.Sleep(100 * time.Microsecond)
		}
		b.net.Partition([]string{b.host("n4")}, []string{b.host("n1")})
		time.Sleep(2500 * time.Millisecond)
		b.net.Heal()
		time.Sleep(5 * time.Minute)
		if n.founding.Load() == nil {
			t.Error("never joined")
		}
	})
}

// The oldest voter's disk fails; two other candidates are there.
func TestAFailedDiskDoesNotBlockTheRepairOfVoters(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1 := b.start("n1")
		time.Sleep(time.Millisecond)
		b.start("n2")
		time.Sleep(time.Millisecond)
		b.start("n3")
		b.ready(b.nodes["n1"], b.nodes["n2"], b.nodes["n3"])
		b.ready(b.start("n4"), b.start("n5"))
		time.Sleep(10 * time.Second)
		n1.roles.do(context.Background(), func() { n1.roles.retire(n1.roles.current(), errors.New("disk")) })
		time.Sleep(5 * time.Minute)
		l := b.leader()
		if slices.Contains(voterNames(l), "n1") {
			t.Error("the failed voter was never replaced:", voterNames(l))
		}
	})
}

func TestTheOnlyDurableVoterCanLeave(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		n1 := b.start("n1", func(c *Config) { c.InitialSize = 1; c.Join = nil; c.Dir = filepath.Join(dir, "1") })
		b.ready(n1)
		b.ready(b.start("n2", func(c *Config) { c.InitialSize = 0; c.Dir = filepath.Join(dir, "2") }))
		time.Sleep(10 * time.Second)
		delete(b.nodes, "n1")
		err := n1.Leave(b.within(10 * time.Minute))
		if err != nil {
			t.Error(err)
		}
	})
}

func TestAnAddressReusedWhileFoundingCountsOnce(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.start("n2")
		b.hosts["n1-x"] = b.host("n1")
		b.hosts["n1-y"] = b.host("n1")
		b.start("n1-x", func(c *Config) { c.Bind = b.addr("n1") })
		time.Sleep(2 * time.Second)
		b.crash("n1-x")
		b.start("n1-y", func(c *Config) { c.Bind = b.addr("n1") })
		time.Sleep(5 * time.Second)
		n3 := b.start("n3")
		if err := n3.Ready(b.within(2 * time.Minute)); err != nil {
			t.Error(err)
		}
	})
}

func TestTwoOfOneNameFoundOneCluster(t *testing.T) {
	for seed := range 60 {
		inBubble(t, func(b *bubble) {
			b.net.SetDefault(simnet.Link{Delay: 5 * time.Millisecond, Jitter: time.Duration(seed%10) * 2 * time.Millisecond})
			b.hosts["n3b"] = "10.0.9.9"
			b.host("n3")
			b.net.Cut(b.host("n3"), "10.0.9.9")
			n2, n3 := b.start("n1"), b.start("n2")
			time.Sleep(2 * time.Second)
			join := []string{b.addr("n1"), b.addr("n2")}
			a1 := b.start("n3", func(c *Config) { c.Join = join })
			time.Sleep(time.Nanosecond * time.Duration(1+(seed%40)*500000))
			a2 := b.start("n3b", func(c *Config) {
				c.Name = "n3"
				c.Bind = "10.0.9.9:7000"
				c.Network = simnet.HostOf[transport.Endpoint](b.net, "10.0.9.9")
				c.Join = join
			})
			time.Sleep(30 * time.Second)
			ids := map[machine.ClusterID][]string{}
			for k, n := range map[string]*Node{"a1": a1, "a2": a2, "n2": n2, "n3": n3} {
				ids[n.clusterID()] = append(ids[n.clusterID()], k)
			}
			ready := 0
			for _, n := range []*Node{a1, a2} {
				if n.Ready(b.within(time.Second)) == nil {
					ready++
				}
			}
			if len(ids) > 1 {
				if ready == 2 {
					t.Errorf("seed %d: two live clusters: %v", seed, ids)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

func TestADirKeepsADefaultName(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 {
		n, err := Start(context.Background(), Config{InitialSize: 1, Dir: dir})
		if err != nil {
			t.Fatal(i, err)
		}
		n.Stop()
	}
}

func TestPlainTextStaysOnLoopback(t *testing.T) {
	if _, err := (Config{InitialSize: 1, Bind: "0.0.0.0:7000", Network: transport.TCP(), Advertise: "10.1.1.1:7000"}).withDefaults(); err == nil {
		t.Error("Network: TCP() lets plain text out")
	}
	if _, err := (Config{InitialSize: 1, Bind: "0.0.0.0:7000", Advertise: "127.0.0.1:7000"}).withDefaults(); err == nil {
		t.Error("Advertise on loopback lets Bind on all interfaces")
	}
}

// Crash between the two writes of BootstrapCluster.
func TestAFoundingCutShortIsFinished(t *testing.T) {
	dir := t.TempDir()
	id, err := openIdentity(dir, "a", "wardmote", true)
	if err != nil {
		t.Fatal(err)
	}
	id.update(func(r *identityRecord) {
		r.Generation = 7
		r.Founding = &wire.Founding{Cluster: machine.ClusterID{1}, Voters: []string{raftID("a", 7)}, Floor: 1, TTL: 1000}
	})
	id.close()
	st, err := openBoltStore(filepath.Join(dir, raftDir))
	if err != nil {
		t.Fatal(err)
	}
	st.SetUint64([]byte("CurrentTerm"), 1)
	st.Close()
	n, err := Start(context.Background(), Config{Name: "a", InitialSize: 1, Dir: dir, TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	if err := n.Ready(ctx); err != nil {
		t.Error(err)
	}
}

// Identity.db lost (or never reached the disk), raft directory kept.
func TestALostIdentityJoinsAnew(t *testing.T) {
	for _, all := range []bool{false, true} {
		dir := t.TempDir()
		inBubble(t, func(b *bubble) {
			names := []string{"n1", "n2", "n3"}
			d := func(name string) func(*Config) { return func(c *Config) { c.Dir = filepath.Join(dir, name) } }
			start := func() (out []*Node) {
				for _, n := range names {
					out = append(out, b.start(n, d(n)))
				}
				return
			}
			b.ready(start()...)
			time.Sleep(5 * time.Second)
			for _, n := range names {
				b.crash(n)
			}
			for i, n := range names {
				if all || i == 0 {
					os.Remove(filepath.Join(dir, n, identityFile))
				}
			}
			time.Sleep(time.Second)
			nodes := start()
			for _, n := range nodes {
				if err := n.Ready(b.within(3 * time.Minute)); err != nil {
					t.Errorf("all=%v: %s: %v", all, n.Name(), err)
				}
			}
		})
	}
}

func TestStopDoesNotWaitForUnreachableMembers(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var join []string
		for i := range 20 {
			name := string(rune('a' + i))
			join = append(join, b.addr(name))
			b.networkOf(name)
			b.net.Cut(b.host("n1"), b.host(name))
		}
		n := b.start("n1", func(c *Config) { c.Join = join })
		time.Sleep(time.Second)
		start := time.Now()
		n.Stop()
		delete(b.nodes, "n1")
		if time.Since(start) > 10*time.Second {
			t.Error("stop took", time.Since(start))
		}
	})
}

func TestASeedThatRestartsAloneGrantsNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		seed := func(c *Config) { c.InitialSize = 1; c.Join = nil }
		rest := func(c *Config) { c.InitialSize = 0; c.Join = []string{b.addr("n1")} }
		b.start("n1", seed)
		b.start("n2", rest)
		b.start("n3", rest)
		b.ready(b.nodes["n1"], b.nodes["n2"], b.nodes["n3"])
		time.Sleep(30 * time.Second)
		b.crash("n1")
		time.Sleep(time.Second)
		n1 := b.start("n1", seed)
		time.Sleep(time.Minute)
		e1 := n1.Ready(b.within(5 * time.Second))
		e2 := b.nodes["n2"].Ready(b.within(5 * time.Second))
		if e1 == nil && e2 == nil && n1.clusterID() != b.nodes["n2"].clusterID() {
			t.Error("two live clusters")
		}
	})
}

func TestSeedsThatComeBackTogetherGrantNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		for _, n := range []string{"n4", "n5", "n6"} {
			b.ready(b.start(n))
		}
		time.Sleep(10 * time.Second)
		for _, n := range []string{"n1", "n2", "n3"} {
			node := b.nodes[n]
			delete(b.nodes, n)
			if err := node.Leave(b.within(time.Minute)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
		}
		time.Sleep(time.Minute)
		for _, n := range []string{"n1", "n2", "n3"} {
			b.start(n)
		}
		time.Sleep(2 * time.Minute)
		e1 := b.nodes["n1"].Ready(b.within(5 * time.Second))
		e2 := b.nodes["n4"].Ready(b.within(5 * time.Second))
		if b.nodes["n1"].clusterID() != b.nodes["n4"].clusterID() && e1 == nil && e2 == nil {
			t.Error("two live clusters, no partition")
		}
	})
}

// N3 accepted a value whose other voters restarted before it was chosen.
func TestAValueOfTheDeadIsNotRepeated(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n3 := b.start("n3")
		v := wire.Founding{Cluster: machine.ClusterID{9}, Floor: 1 << 50, TTL: 2000,
			Voters: []string{raftID("n1", 5), raftID("n2", 6), raftID("n3", n3.id.get().Generation)}}
		n3.foundingStep(wire.Accept, wire.Marshal(&wire.AcceptRequest{Ballot: wire.Ballot{Round: 1, Name: "n1"}, Value: v}))
		n1, n2 := b.start("n1"), b.start("n2")
		for _, n := range []*Node{n1, n2, n3} {
			if err := n.Ready(b.within(5 * time.Minute)); err != nil {
				t.Error(n.Name(), err)
			}
		}
	})
}

func TestAllLeaveAtOnce(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		done := make(chan error, 3)
		for name, n := range b.nodes {
			delete(b.nodes, name)
			go func() { done <- n.Leave(b.within(time.Minute)) }()
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestStopIsBoundedOnAHungDisk(t *testing.T) {
	withDisks(t, func(b *bubble, disks map[string]*sickDisk) {
		n := b.leader()
		hang := make(chan struct{})
		disks[n.Name()].set(hang, nil)
		go n.link.Propose(b.within(time.Second), machine.Open{Session: sid(1), Client: "c", Node: "n", TTL: 2000})
		time.Sleep(2 * time.Second)
		n.leader.Load().raft.handing.Store(true) // raft leaves a transfer unanswered that is stopped now
		delete(b.nodes, n.Name())
		start := time.Now()
		if err := n.Stop(); !errors.Is(err, errDiskStalled) {
			t.Errorf("Stop: %v", err)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("Stop took %v", took)
		}
		close(hang)
		time.Sleep(10 * time.Second)
	})
}

func TestConflictsAreToldOnceAndBounded(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n := b.start("n1")
		for i := range 10_000 {
			n.conflict(Member{Name: "x", Boot: uint64(i)}, "test")
		}
		if len(n.conflicts) > maxConflicts {
			t.Errorf("%d kept", len(n.conflicts))
		}
	})
}

// Every read that waited, and was given up, frees its place on the stream.
func TestCancelledWatchesFreeTheStream(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		leader := b.leader()
		var n *Node
		for _, o := range b.nodes {
			if o != leader {
				n = o
			}
		}
		b.holder(n, 9, "other")
		a, err := n.link.Read(b.within(5*time.Second), replica.Query{Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		up, _ := n.link.current()
		for i := range maxServing + 100 {
			up.read(replica.Query{Key: "k", Version: a.Version}, func(replica.Answer, wire.Code) {})()
			if i%4096 == 0 {
				time.Sleep(50 * time.Millisecond)
			}
		}
		time.Sleep(500 * time.Millisecond)
		if err := n.link.Beat(b.within(2*time.Second), sid(9)); err != nil {
			t.Errorf("beat: %v", err)
		}
	})
}

// What happened while a member had no stream to the leader it is told as soon as
// it has one again, not at its session's next beat.
func TestSessionsAreReattached(t *testing.T) {
	inBubble(t, func(b *bubble) {
		ttl := func(c *Config) { c.TTL = time.Minute }
		nodes := []*Node{b.start("n1", ttl), b.start("n2", ttl), b.start("n3", ttl)}
		b.readyWithin(2*time.Minute, nodes...)
		n, other := nodes[0], b.leader()
		if n == other {
			n = nodes[1]
		}
		events := make(chan machine.Event, 10)
		for id := byte(1); id <= 2; id++ {
			b.propose(n, machine.Open{Session: sid(id), Client: "c", Node: "n", TTL: 60_000})
		}
		n.link.Attach(sid(2), func(e machine.Event) { events <- e })
		held := b.propose(n, machine.Acquire{Session: sid(1), Seq: 1, Key: "k"})
		b.propose(n, machine.Acquire{Session: sid(2), Seq: 1, Key: "k"}) // waits
		b.net.Isolate(b.host(n.Name()))
		b.propose(other, machine.Release{Session: sid(1), Token: held.Token})
		time.Sleep(30 * time.Second) // the stream is given up
		b.net.Heal()
		if e := next(t, events, 3*time.Second); e.Kind != machine.EventGranted || e.Token <= held.Token {
			t.Errorf("told %+v", e)
		}
		// A session that ended meanwhile, too.
		b.net.Isolate(b.host(n.Name()))
		b.propose(other, machine.Close{Session: sid(2)})
		time.Sleep(30 * time.Second)
		b.net.Heal()
		if e := next(t, events, 3*time.Second); e.Kind != machine.EventEnded {
			t.Errorf("told %+v", e)
		}
	})
}

func TestLiftIsProposedUntilItIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, table: newTable()}
		s.apply(machine.LeaderStart{Term: 1}, machine.Found{Cluster: machine.ClusterID{1}, Floor: 1, TTL: 3000}, machine.Raise{Term: 1, Format: machine.MaxFormat})
		fail := make(chan struct{})
		s.commits = fail
		s.lead(1)
		time.Sleep(4 * time.Second) // Lift has been proposed
		s.set(nil, nil)             // and fails
		time.Sleep(time.Second)
		s.table.view(func(m *machine.State) {
			if !m.Lifted() {
				t.Error("nothing is granted")
			}
		})
		s.unlead()
	})
}

func TestTheFoundingWaitIsNotCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, table: newTable()}
		s.apply(machine.LeaderStart{Term: 1}, machine.Found{Cluster: machine.ClusterID{1}, Floor: 1, TTL: 30_000}, machine.Raise{Term: 1, Format: machine.MaxFormat})
		s.apply(machine.Bound{Term: 1, TTL: 1000})
		s.lead(1)
		time.Sleep(29 * time.Second)
		s.table.view(func(m *machine.State) {
			if m.Lifted() {
				t.Error("lifted early")
			}
		})
		s.unlead()
	})
}

// A call that a hung leader does not answer goes on at the next.
func TestACallLeavesAHungLeader(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		n := &Node{}
		n.ctx, n.cancel = context.WithCancelCause(context.Background())
		k, old := newLink(n), s.l
		m := &member{push: func(machine.Event) {}, bound: k.bounded}
		old.join(m)
		k.up = local{old, m}
		hung := make(chan struct{})
		s.set(hung, nil)
		done := make(chan error, 1)
		go func() {
			_, err := k.Propose(context.Background(), machine.Acquire{Session: sid(1), Seq: 1, Key: "k"})
			done <- err
		}()
		synctest.Wait()
		stopped := make(chan struct{})
		go func() { old.stop(); close(stopped) }() // hangs with its disk
		synctest.Wait()
		s.mu.Lock()
		s.commits = nil
		s.mu.Unlock()
		s.apply(machine.LeaderStart{Term: 2})
		s.lead(2)
		m2 := &member{push: func(machine.Event) {}, bound: k.bounded}
		s.l.join(m2)
		k.mu.Lock()
		k.up = local{s.l, m2}
		k.mu.Unlock()
		k.changed.fire()
		if err := <-done; err != nil {
			t.Error(err)
		}
		close(hung)
		<-stopped
	})
}

// A raft that is stuck is begun anew: on its store, or in memory as a new
// generation; the cluster goes on meanwhile.
func TestAStuckRaftIsRestarted(t *testing.T) {
	dir := t.TempDir()
	for _, durable := range []bool{false, true} {
		inBubble(t, func(b *bubble) {
			var nodes []*Node
			for _, name := range []string{"n1", "n2", "n3"} {
				nodes = append(nodes, b.start(name, func(c *Config) {
					if durable {
						c.Dir = filepath.Join(dir, name)
					}
				}))
			}
			b.ready(nodes...)
			n := b.leader()
			old := n.roles.current()
			b.holder(n, 1, "k")
			stop := b.beating(n, 1)
			old.refused.Store(new(time.Now()))
			if old.stuck() {
				t.Error("a transfer that has just begun counts as stuck")
			}
			time.Sleep(transferLimit + time.Second)
			if !old.stuck() {
				t.Error("a transfer that does not end does not count as stuck")
			}
			n.roles.restart(old)
			time.Sleep(20 * time.Second)
			now := n.roles.current()
			if now == nil || now == old || durable != (now.id == old.id) {
				t.Errorf("durable %t: raft was %s, is %v", durable, old.id, now)
			}
			if v := b.leader().leader.Load().raft.voters(); len(v) != 3 {
				t.Errorf("voters: %v", v)
			}
			if err := stop(); err != nil {
				t.Errorf("a lock was lost: %v", err)
			}
		})
	}
}

// A session that ends while its member attaches is told to have ended, and nothing
// of it stays behind.
func TestASessionEndsWhileItsMemberAttaches(t *testing.T) {
	for range 300 {
		onStage(t, func(s *stage) {
			s.open(1)
			ended := make(chan struct{}, 10)
			m := &member{push: func(e machine.Event) { ended <- struct{}{} }}
			s.l.join(m)
			go s.l.attach(m, []machine.SessionID{sid(1)})
			go s.table.apply(machine.EncodeEntry([]machine.Command{machine.Close{Session: sid(1)}}), time.Now())
			synctest.Wait()
			s.l.mu.Lock()
			defer s.l.mu.Unlock()
			if len(s.l.sessions) > 0 || len(ended) == 0 {
				t.Errorf("events of %d sessions come here, %d came", len(s.l.sessions), len(ended))
			}
		})
		if t.Failed() {
			return
		}
	}
}
