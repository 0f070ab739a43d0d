package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
)

// killHolder has a follower hold a key, lets a waiter of another member queue up,
// and kills the follower. The waiter's beats go on until stop.
func (b *bubble) killHolder(change ...func(*Config)) (name string, events <-chan machine.Event, stop func() error) {
	b.t.Helper()
	b.form(change...)
	n, other := b.followers()[0], b.followers()[1]
	if token, _ := b.hold(n, 1, "k"); token == 0 {
		b.t.Fatal("the key is taken")
	}
	_, events = b.hold(other, 2, "k")
	stop = b.beat(other, 2)
	b.crash(n.Name())
	return n.Name(), events, stop
}

// granted waits for the grant of a waiter's key, and returns how long it took.
func (b *bubble) granted(events <-chan machine.Event, within time.Duration) time.Duration {
	began := time.Now()
	for {
		if e := b.next(events, within); e.Kind == machine.EventGranted {
			return time.Since(began)
		}
	}
}

// attached waits until the node has a leader.
func (b *bubble) served(n *Node) {
	b.t.Helper()
	b.eventually(n.Name()+" has a leader", time.Minute, func() bool { _, _, ok := n.link.Leader(); return ok })
}

func TestARestartedProcessFreesItsOwnPast(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		name, events, stop := b.killHolder(inDir(dir), ttl(30*time.Second))
		time.Sleep(time.Second)
		n := b.start(name, inDir(dir), ttl(30*time.Second))
		b.served(n)
		if took := b.granted(events, 20*time.Second); took > time.Second {
			t.Errorf("granted %v after the restart was attached", took)
		}
		time.Sleep(time.Second)
		if past := n.record.Get().Past; len(past) != 0 {
			t.Errorf("the record keeps %v", past)
		}
		if err := stop(); err != nil {
			t.Errorf("another session ended: %v", err)
		}
		b.hold(n, 3, "k") // the new process opens sessions
	})
}

// The processes in between died before they could reach a leader.
func TestACrashLoopFreesItsWholePast(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		name, events, stop := b.killHolder(inDir(dir), ttl(time.Minute))
		for range 20 {
			b.net.Isolate(b.host(name))
			b.start(name, inDir(dir), ttl(time.Minute))
			time.Sleep(100 * time.Millisecond)
			b.crash(name)
		}
		b.net.Heal()
		b.start(name, inDir(dir), ttl(time.Minute))
		time.Sleep(10 * time.Second)
		if past := b.nodes[name].record.Get().Past; len(past) != 0 {
			t.Errorf("the record keeps %v", past)
		}
		// Of twenty-one processes the record knew sixteen: the holder's session expires.
		if took := b.granted(events, time.Minute); took < 30*time.Second {
			t.Errorf("a process was forgotten that the record did not know, after %v", took)
		}
		stop()
	})
}

// Without the proof nothing is freed before the TTL has passed.
func TestAPastThatMayLiveIsNotFreed(t *testing.T) {
	t.Parallel() // waits for the disk
	const long = 12 * time.Second
	late := func(b *bubble, events <-chan machine.Event) {
		b.t.Helper()
		if took := b.granted(events, 2*long); took < long/2 {
			b.t.Errorf("freed after %v", took)
		}
	}
	t.Run("in memory", func(t *testing.T) {
		inBubble(t, func(b *bubble) {
			name, events, stop := b.killHolder(ttl(long))
			b.join(name, ttl(long))
			late(b, events)
			stop()
		})
	})
	t.Run("host booted", func(t *testing.T) {
		dir := t.TempDir()
		inBubble(t, func(b *bubble) {
			name, events, stop := b.killHolder(inDir(dir), ttl(long))
			b.join(name, inDir(dir), ttl(long), func(c *Config) { c.hostBoot = func() string { return "another" } })
			late(b, events)
			stop()
		})
	})
	t.Run("no boot ID", func(t *testing.T) {
		dir := t.TempDir()
		none := func(c *Config) { c.hostBoot = func() string { return "" } }
		inBubble(t, func(b *bubble) {
			name, events, stop := b.killHolder(inDir(dir), ttl(long), none)
			b.join(name, inDir(dir), ttl(long), none)
			late(b, events)
			stop()
		})
	})
	// The directory is a copy of the one of a running process.
	t.Run("it answers", func(t *testing.T) {
		dir := t.TempDir()
		inBubble(t, func(b *bubble) {
			b.form(inDir(dir), ttl(long))
			n := b.followers()[0]
			b.hold(n, 1, "k")
			stop := b.beat(n, 1)
			stored, err := os.ReadFile(filepath.Join(dir, n.Name(), "identity"))
			if err != nil {
				t.Fatal(err)
			}
			copied := filepath.Join(dir, "copy")
			os.MkdirAll(copied, 0o700)
			if err := os.WriteFile(filepath.Join(copied, "identity"), stored, 0o600); err != nil {
				t.Fatal(err)
			}
			cfg := b.config(n.Name())
			cfg.Dir, cfg.TTL, cfg.Bind, cfg.Network = copied, long, b.addr("elsewhere"), b.networkOf("elsewhere")
			second, err := Start(b.within(time.Second), cfg)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			second.Stop()
			if past := second.record.Get().Past; len(past) != 1 {
				t.Errorf("the record of the second process knows %v", past)
			}
			if err := stop(); err != nil {
				t.Errorf("the running process lost its session: %v", err)
			}
		})
	})
}

func TestWhoAnswersAsAProcess(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		n, p := b.leader(), b.followers()[0].self.Process()
		if !n.answers(p) {
			t.Error("a running process does not answer")
		}
		later := p
		later.Boot++
		if n.answers(later) {
			t.Error("another process answers")
		}
		b.crash(p.Name)
		if n.answers(p) {
			t.Error("a dead process answers")
		}
	})
}

// Only a later process of the very member may forget a process.
func TestOnlyTheMemberItselfForgets(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.thieves = true
		b.form()
		leader, n := b.leader(), b.followers()[0]
		b.hold(n, 1, "k")
		stop := b.beat(n, 1)
		for _, c := range []struct {
			from *Node
			cmd  machine.Forget
		}{
			{leader, machine.Forget{Node: n.Name(), Boot: n.self.Boot}},
			{b.followers()[1], machine.Forget{Node: n.Name(), Boot: 1}},
			{n, machine.Forget{Node: n.Name(), Boot: n.self.Boot}},
			{n, machine.Forget{Node: n.Name(), Boot: n.self.Boot + 1}},
			{n, machine.Forget{Node: leader.Name(), Boot: 1}},
		} {
			if _, err := c.from.link.Propose(b.within(5*time.Second), c.cmd); !errors.Is(err, ErrVersion) { // a bad request
				t.Errorf("%s: %+v: %v", c.from.Name(), c.cmd, err)
			}
		}
		b.propose(n, machine.Forget{Node: n.Name(), Boot: n.self.Boot - 1})
		if err := stop(); err != nil {
			t.Errorf("the session ended: %v", err)
		}
	})
}

// The clock was set back: the new process is the later one all the same.
func TestBootsRiseAlthoughTheClockFell(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		n := b.join("n1", alone, inDir(dir))
		ahead := n.self.Boot + uint64(time.Hour)
		if err := n.record.Update(func(r *identity.Record) { r.Boot = ahead }); err != nil {
			t.Fatal(err)
		}
		b.crash("n1")
		n = b.join("n1", alone, inDir(dir))
		if n.self.Boot != ahead+1 {
			t.Errorf("boot %d after %d", n.self.Boot, ahead)
		}
		b.eventually("the past is freed", 5*time.Second, func() bool { return len(n.record.Get().Past) == 0 })
		b.open(n, 1)
	})
}
