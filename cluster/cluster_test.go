package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// holder opens a session on n and has it hold key. Its events go to the
// returned channel.
func (b *bubble) holder(n *Node, id byte, key string) (machine.Token, <-chan machine.Event) {
	b.t.Helper()
	events := make(chan machine.Event, 64)
	n.link.Attach(sid(id), func(e machine.Event) { events <- e })
	b.propose(n, machine.Open{Session: sid(id), Client: fmt.Sprint("c", id), Node: n.Name(), TTL: 2000})
	o := b.propose(n, machine.Acquire{Session: sid(id), Seq: 1, Key: key})
	if o.Code != machine.Granted && o.Code != machine.Queued {
		b.t.Fatalf("acquire: %+v", o)
	}
	return o.Token, events
}

// beating beats for a session until stop is called, and counts failures.
func (b *bubble) beating(n *Node, id byte) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var err error
	wg.Go(func() {
		for ctx.Err() == nil {
			if e := n.link.Beat(ctx, sid(id)); e != nil && ctx.Err() == nil {
				err = e
				return
			}
			select {
			case <-time.After(600 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return func() error { cancel(); wg.Wait(); return err }
}

func next(t *testing.T, events <-chan machine.Event, within time.Duration) machine.Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(within):
		t.Fatalf("no event within %v", within)
		return machine.Event{}
	}
}

func TestDeadHoldersKeyIsFreeWithinTTLAndAHalf(t *testing.T) {
	for round := range 20 {
		inBubble(t, func(b *bubble) {
			b.form()
			leader := b.leader()
			var follower, other *Node
			for _, n := range b.nodes {
				if n != leader && follower == nil {
					follower = n
				} else if n != leader {
					other = n
				}
			}
			time.Sleep(time.Duration(round) * 37 * time.Millisecond)
			token, _ := b.holder(follower, 1, "k")
			stop := b.beating(follower, 1)
			_, events := b.holder(other, 2, "k")
			defer b.beating(other, 2)()
			time.Sleep(5 * time.Second)
			killed := time.Now()
			go stop()
			b.crash(follower.Name())
			e := next(t, events, 10*time.Second)
			if e.Kind != machine.EventGranted || e.Token <= token {
				t.Fatalf("got %+v after token %d", e, token)
			}
			if took := time.Since(killed); took > 2*time.Second+1500*time.Millisecond {
				t.Errorf("takeover took %v", took)
			}
		})
	}
}

func TestLeaderDiesAndNoLockIsLost(t *testing.T) {
	for range 20 {
		inBubble(t, func(b *bubble) {
			b.form()
			leader := b.leader()
			var n *Node
			for _, n = range b.nodes {
				if n != leader {
					break
				}
			}
			_, events := b.holder(n, 1, "k")
			stop := b.beating(n, 1)
			time.Sleep(3 * time.Second)
			killed := time.Now()
			b.crash(leader.Name())
			o := b.propose(n, machine.Acquire{Session: sid(1), Seq: 2, Key: "other"})
			if took := time.Since(killed); took > 4*time.Second || o.Code != machine.Granted {
				t.Errorf("next acquire: %+v after %v", o, took)
			}
			time.Sleep(5 * time.Second)
			if err := stop(); err != nil {
				t.Errorf("beats failed: %v", err)
			}
			if o := b.propose(n, machine.Release{Session: sid(1), Token: o.Token}); o.Code != machine.OK {
				t.Errorf("release: %+v", o)
			}
			select {
			case e := <-events:
				t.Errorf("the holder was told %+v", e)
			default:
			}
		})
	}
}

func TestRestartedMemberVotesAgain(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		for range 3 {
			old := b.leader()
			name := old.Name()
			b.crash(name)
			n := b.start(name)
			b.ready(n)
			start := time.Now()
			for {
				votes := 0
				for _, id := range b.leader().leader.Load().raft.voters() {
					if id != old.roles.n.cfg.Name && strings.HasPrefix(id, name+"#") && id != raftID(name, old.id.get().Generation) {
						votes++
					}
				}
				if votes == 1 && len(b.leader().leader.Load().raft.servers()) == 3 {
					break
				}
				if time.Since(start) > 12*time.Second {
					t.Fatalf("%s does not vote after %v: %v", name, time.Since(start), b.leader().leader.Load().raft.servers())
				}
				time.Sleep(250 * time.Millisecond)
			}
			t.Logf("%s votes again after %v", name, time.Since(start))
		}
	})
}

// The last that is heard of a name is of its newest start, or says that it is not.
func TestTheEndOfAnEarlierStartIsToldAsSuch(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var mu sync.Mutex
		var told []Event
		b.start("n1")
		b.start("n3")
		n2 := b.start("n2", func(cfg *Config) {
			cfg.Events = func(e Event) {
				mu.Lock()
				defer mu.Unlock()
				if (e.Kind == MemberJoined || e.Kind == MemberLeft) && e.Member.Name == "n3" {
					told = append(told, e)
				}
			}
		})
		b.ready(n2)
		old := b.nodes["n3"].boot
		b.crash("n3")
		time.Sleep(time.Second)
		b.ready(b.start("n3"))
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		boot := b.nodes["n3"].boot
		want := []struct {
			kind EventKind
			boot uint64
			text string
		}{
			{MemberJoined, old, "member joined: n3"},
			{MemberJoined, boot, "member joined: n3"},
			{MemberLeft, old, "member left: n3: an earlier start of it"},
		}
		if len(told) != len(want) {
			t.Fatalf("told %v", told)
		}
		for i, w := range want {
			if e := told[i]; e.Kind != w.kind || e.Member.Boot != w.boot || e.String() != w.text {
				t.Errorf("told %v of boot %d, want %q of boot %d", e, e.Member.Boot, w.text, w.boot)
			}
		}
	})
}

func TestTwentyThinMembersLockAndACrashFreesTheirKeys(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		var thin []*Node
		for i := range 20 {
			thin = append(thin, b.start(fmt.Sprintf("thin%d", i), func(c *Config) { c.InitialSize = 0 }))
		}
		b.ready(thin...)
		time.Sleep(20 * time.Second)
		if s := b.leader().leader.Load().raft.servers(); len(s) != 3 {
			t.Fatalf("configuration has grown: %v", s)
		}
		for i, n := range thin {
			if n.roles.current() != nil {
				t.Errorf("%s runs raft", n.Name())
			}
			b.holder(n, byte(i+1), fmt.Sprint("key", i))
		}
		_, events := b.holder(thin[1], 100, "key0")
		stop := b.beating(thin[1], 100)
		b.crash("thin0")
		if e := next(t, events, 4*time.Second); e.Kind != machine.EventGranted || e.Key != "key0" {
			t.Errorf("got %+v", e)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAMemberAloneFoundsAndOthersBecomeVoters(t *testing.T) {
	inBubble(t, func(b *bubble) {
		alone := func(c *Config) { c.InitialSize, c.Join = 1, nil }
		joins := func(c *Config) { c.InitialSize, c.Join = 0, []string{b.addr("n1")} }
		n1 := b.start("n1", alone)
		b.ready(n1)
		b.holder(n1, 1, "k")
		n2 := b.start("n2", joins)
		b.ready(n2)
		time.Sleep(20 * time.Second)
		if v := n1.leader.Load().raft.voters(); len(v) != 1 {
			t.Errorf("two members should have one voter, got %v", v)
		}
		b.ready(b.start("n3", joins), b.start("n4", joins))
		time.Sleep(20 * time.Second)
		if v := n1.leader.Load().raft.voters(); len(v) != 3 {
			t.Fatalf("got voters %v", v)
		}
		b.crash("n1")
		b.ready(b.nodes["n2"])
		b.holder(b.nodes["n4"], 2, "other")
	})
}

// A voter that was cut off while it was replaced says that it votes until it is
// told. The leader knows better.
func TestTheLeaderListsWhoVotes(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		n4 := b.start("n4")
		b.ready(n4)
		l := b.leader()
		cut := "n1"
		if l.Name() == cut {
			cut = "n2"
		}
		votes := func() bool {
			return slices.ContainsFunc(l.leader.Load().raft.voters(), func(id string) bool { return strings.HasPrefix(id, cut+"#") })
		}
		b.net.Isolate(b.host(cut))
		for start := time.Now(); votes(); time.Sleep(100 * time.Millisecond) {
			if time.Since(start) > time.Minute {
				t.Fatal("it is not replaced")
			}
		}
		b.net.Heal()
		b.net.Cut(b.host(l.Name()), b.host(cut)) // so that the leader cannot tell it
		claims := func() bool {
			return slices.ContainsFunc(l.gossip.alive(), func(s sighting) bool { return s.name == cut && s.meta.Voter })
		}
		for start := time.Now(); !claims(); time.Sleep(10 * time.Millisecond) {
			if time.Since(start) > time.Minute {
				t.Fatal("it does not claim to vote")
			}
		}
		for _, m := range l.Members() {
			if m.Voter == (m.Name == cut) {
				t.Errorf("the leader lists %+v", m)
			}
		}
	})
}

func TestFoundersFoundTogether(t *testing.T) {
	inBubble(t, func(b *bubble) {
		named := func(c *Config) { c.InitialSize, c.Founders = 0, []string{"n1", "n2", "n3"} }
		n4 := b.start("n4", named)
		n1, n2 := b.start("n1", named), b.start("n2", named)
		if err := n1.Ready(b.within(20 * time.Second)); !errors.Is(err, ErrNoQuorum) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("two of three founders: %v", err)
		} else if !strings.Contains(err.Error(), "2 of 3 founders seen") {
			t.Errorf("the error does not say what is missing: %v", err)
		}
		b.ready(b.start("n3", named), n1, n2, n4)
		if n4.roles.current() != nil {
			t.Error("a member that is no founder founded")
		}
	})
}

// Locks whose sessions expired while everything was down are free after a
// restart of all, tokens go on above all earlier ones, and other ports change nothing.
func TestRestartOfAllWithDirs(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		var last machine.Token
		var cluster machine.ClusterID
		for round := range 4 {
			var nodes []*Node
			var join []string
			for i := range 3 {
				join = append(join, fmt.Sprintf("%s:%d", b.host(fmt.Sprint("n", i+1)), 7000+round))
			}
			for i := range 3 {
				name := fmt.Sprint("n", i+1)
				nodes = append(nodes, b.start(name, func(c *Config) {
					c.Dir, c.Join, c.Bind = filepath.Join(dir, name), join, join[i]
				}))
			}
			b.ready(nodes...)
			if round > 0 && nodes[0].clusterID() != cluster {
				t.Fatal("another cluster was founded")
			}
			cluster = nodes[0].clusterID()
			for i, n := range nodes {
				id, key := byte(10*round+i+1), fmt.Sprint("k", i)
				token, events := b.holder(n, id, key)
				if token == 0 { // held by the session of the run before, until it has expired
					e := next(t, events, 6*time.Second)
					token = e.Token
				}
				if token <= last {
					t.Fatalf("round %d: token %d after %d", round, token, last)
				}
				last = token
			}
			for _, n := range nodes {
				if err := n.Stop(); err != nil {
					t.Fatal(err)
				}
				delete(b.nodes, n.Name())
			}
		}
	})
}

func TestReadsWaitForChange(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		q := replica.Query{Key: "k", Waiters: 10, Also: []string{"k/0", "k/1"}}
		for i, n := range nodes {
			a, err := n.link.Read(b.within(5*time.Second), q)
			if err != nil {
				t.Fatal(err)
			}
			wait := q
			wait.Version = a.Version
			if _, err := n.link.Read(b.within(3*time.Second), wait); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%s: nothing changed, but Read returned %v", n.Name(), err)
			}
			got := make(chan replica.Answer, 1)
			go func() {
				a, err := n.link.Read(b.within(20*time.Second), wait)
				if err != nil {
					t.Error(err)
				}
				got <- a
			}()
			time.Sleep(time.Second)
			token, _ := b.holder(nodes[(i+1)%3], byte(i+1), "k/1")
			if a := <-got; a.Also[1].Token != token {
				t.Errorf("got %+v, want token %d", a, token)
			}
			b.propose(n, machine.Close{Session: sid(byte(i + 1))})
		}
	})
}

func TestIsolatedLeaderServesNothing(t *testing.T) {
	for range 10 {
		inBubble(t, func(b *bubble) {
			b.form()
			old := b.leader()
			b.holder(old, 1, "k")
			b.net.Isolate(b.host(old.Name()))
			if old.link.Beat(b.within(100*time.Millisecond), sid(1)) == nil {
				t.Error("a beat was confirmed without a quorum")
			}
			if _, err := old.link.Read(b.within(2*time.Second), replica.Query{Key: "k"}); err == nil {
				t.Error("a read was answered without a quorum")
			}
			if h := old.Health(b.within(time.Second)); h.Quorum || h.Err == nil {
				t.Errorf("health without a quorum: %+v", h)
			}
			time.Sleep(10 * time.Second)
			b.net.Heal()
			b.ready(old)
		})
	}
}

func TestLeaveIsReplacedAndKeepsTheLocks(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		n4 := b.start("n4", func(c *Config) { c.InitialSize = 0 })
		b.ready(n4)
		b.holder(n4, 1, "k")
		stop := b.beating(n4, 1)
		time.Sleep(10 * time.Second)
		// Everyone is replaced, one at a time, by a process of another name.
		for i, old := range []string{"n1", "n2", "n3"} {
			name := fmt.Sprint("m", i)
			n := b.start(name, func(c *Config) { c.InitialSize, c.Join = 0, []string{b.addr("n4")} })
			b.ready(n)
			time.Sleep(5 * time.Second)
			start := time.Now()
			if err := b.nodes[old].Leave(b.within(20 * time.Second)); err != nil {
				t.Fatalf("%s: leave: %v after %v", old, err, time.Since(start))
			}
			t.Logf("%s left within %v", old, time.Since(start))
			delete(b.nodes, old)
			if v := b.leader().leader.Load().raft.voters(); len(v) != 3 {
				t.Errorf("voters after %s left: %v", old, v)
			}
		}
		if err := stop(); err != nil {
			t.Errorf("the survivor's beats failed: %v", err)
		}
	})
}

func TestTheLastTwoLeave(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		for _, name := range []string{"n1", "n2", "n3"} {
			start := time.Now()
			if err := b.nodes[name].Leave(b.within(20 * time.Second)); err != nil {
				t.Fatalf("%s: %v after %v", name, err, time.Since(start))
			}
			delete(b.nodes, name)
			for _, n := range b.nodes {
				b.ready(n)
			}
		}
	})
}

func TestTheBoundOfTTLsFollowsTheMembers(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		bound := func(want time.Duration) {
			t.Helper()
			for _, n := range b.nodes {
				if got := n.link.TTL(); got != want {
					t.Errorf("%s has bound %v, want %v", n.Name(), got, want)
				}
			}
		}
		bound(2 * time.Second)
		n4 := b.start("n4", func(c *Config) { c.InitialSize, c.TTL = 0, 5*time.Second })
		b.ready(n4)
		time.Sleep(5 * time.Second)
		bound(5 * time.Second)
		if o := b.propose(n4, machine.Open{Session: sid(1), Client: "c", Node: "n4", TTL: 6000}); o.Code != machine.BadCommand {
			t.Errorf("a TTL over the bound: %+v", o)
		}
		if err := n4.Leave(b.within(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		delete(b.nodes, "n4")
		time.Sleep(30 * time.Second)
		bound(2 * time.Second)
	})
}

func TestStoppedNodeAnswersErrStopped(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		n := b.nodes["n2"]
		delete(b.nodes, "n2")
		waiting := make(chan error, 1)
		go func() {
			_, err := n.link.Read(context.Background(), replica.Query{Key: "k", Version: n.roles.current().table.version(replica.Query{Key: "k"})})
			waiting <- err
		}()
		time.Sleep(time.Second)
		if err := n.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := n.Stop(); err != nil {
			t.Errorf("second stop: %v", err)
		}
		if err := <-waiting; !errors.Is(err, ErrStopped) {
			t.Errorf("a waiting read got %v", err)
		}
		if err := n.Ready(context.Background()); !errors.Is(err, ErrStopped) {
			t.Errorf("Ready got %v", err)
		}
	})
}

func TestNoQuorumIsSaid(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		b.crash("n1")
		b.crash("n2")
		time.Sleep(10 * time.Second)
		n := b.nodes["n3"]
		if err := n.Ready(b.within(2 * time.Second)); !errors.Is(err, ErrNoQuorum) {
			t.Errorf("Ready got %v", err)
		}
		asked := time.Now()
		h := n.Health(context.Background())
		if h.Quorum || h.Granting || !errors.Is(h.Err, ErrNoQuorum) || h.Members != 1 || time.Since(asked) > healthWait {
			t.Errorf("Health got %+v after %v", h, time.Since(asked))
		}
		_, err := n.link.Propose(b.within(2*time.Second), machine.Open{Session: sid(1), Client: "c", Node: "n3", TTL: 1000})
		var e *replica.Error
		if !errors.As(err, &e) || !errors.Is(err, ErrNoQuorum) || e.Unknown {
			t.Errorf("Propose got %v", err)
		}
		b.mu.Lock()
		events := strings.Join(b.events, "\n")
		b.mu.Unlock()
		if !strings.Contains(events, "n3: quorum lost") {
			t.Error("no event told of the lost quorum")
		}
	})
}
