package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/auth"
	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/wire"
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

// Only a later process with the very directory may forget a process.
func TestOnlyTheMemberItselfForgets(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		b.thieves = true
		b.form(inDir(dir))
		leader, n := b.leader(), b.followers()[0]
		b.hold(n, 1, "k")
		stop := b.beat(n, 1)
		own := func(n *Node) machine.DirID { return n.dirKey.ID() }
		for _, c := range []struct {
			from *Node
			cmd  machine.Forget
		}{
			{leader, machine.Forget{Node: n.Name(), Boot: n.self.Boot, Dir: own(n)}},
			{leader, machine.Forget{Node: n.Name(), Boot: n.self.Boot, Dir: own(leader)}},
			{b.followers()[1], machine.Forget{Node: n.Name(), Boot: 1, Dir: own(n)}},
			{n, machine.Forget{Node: n.Name(), Boot: n.self.Boot, Dir: own(n)}},
			{n, machine.Forget{Node: n.Name(), Boot: n.self.Boot + 1, Dir: own(n)}},
			{n, machine.Forget{Node: leader.Name(), Boot: 1, Dir: own(n)}},
			{n, machine.Forget{Node: n.Name(), Boot: 1, Dir: own(leader)}},
			{n, machine.Forget{Node: n.Name(), Boot: 1}},
			{leader, machine.Forget{Node: leader.Name(), Boot: 1, Dir: own(n)}},
		} {
			if _, err := c.from.link.Propose(b.within(5*time.Second), c.cmd); !errors.Is(err, ErrVersion) { // a bad request
				t.Errorf("%s: %+v: %v", c.from.Name(), c.cmd, err)
			}
		}
		b.propose(n, machine.Forget{Node: n.Name(), Boot: n.self.Boot - 1, Dir: own(n)})
		if err := stop(); err != nil {
			t.Errorf("the session ended: %v", err)
		}
	})
}

// oneCertificate gives all members one certificate, which names none.
func oneCertificate(ca *certifier) safe {
	one := tls.Certificate(*ca.issue("wardmote://test/any"))
	change := func(c *Config) {
		c.Security.TLS = &tls.Config{RootCAs: ca.roots, Certificates: []tls.Certificate{one}}
		c.Security.Identity = func(*x509.Certificate) (string, Role, error) { return "", RoleVoter, nil }
	}
	return safe{"shared", change, func(p port.Peer, _ bool) (auth.Method, error) {
		cfg := Config{Name: p.Name, Cluster: "test"}
		change(&cfg)
		return cfg.certificates()
	}, false}
}

// While a member has no stream to the leader, a stranger with the secret, or with the
// certificate of all members, poses as a later process of the member's name: without a
// directory, with one of its own, and with the proof that a false leader was shown. The
// sessions of the member live until their TTL, and the member's own next process, with its
// directory, ends them at once.
func TestAHolderOfTheSecretForgetsNobody(t *testing.T) {
	t.Parallel() // waits for the disk
	for _, mode := range []string{"Secret", "shared"} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			inBubble(t, func(b *bubble) {
				b.thieves = true
				s := oneCertificate(newCertifier(b.t))
				if mode == "Secret" {
					s = safes(b.t)[1]
				}
				name, events, stop := b.killHolder(s.change, inDir(dir), ttl(time.Minute))
				stored, err := identity.Open(filepath.Join(dir, name), name, "test", true)
				if err != nil {
					b.t.Fatal(err)
				}
				boot, key := stored.Get().Boot, stored.Get().Key.Key()
				stored.Close()
				as := port.Peer{Name: name, Boot: boot + 1}
				own := wire.NewDirSeed().Key()
				pose := func(proof func(bound []byte) *wire.DirProof, dir machine.DirID) (code wire.Code, o machine.Outcome) {
					c, leave, err := b.thief(s, b.leader(), as, as, true)
					defer leave()
					if err != nil {
						b.t.Fatal(err)
					}
					bound, err := c.Binding()
					if err != nil || bound == nil {
						b.t.Fatalf("no binding: %v", err)
					}
					exchange(b.t, c, wire.Attach, 1, wire.Marshal(&wire.AttachRequest{}))
					if p := proof(bound); p != nil {
						exchange(b.t, c, wire.Attach, 2, wire.Marshal(&wire.AttachRequest{Dir: p}))
					}
					f, _ := exchange(b.t, c, wire.Propose, 3, machine.EncodeCommand(machine.Forget{Node: name, Boot: boot, Dir: dir}))
					if f.Code == wire.CodeOK {
						if o, err = machine.DecodeOutcome(f.Body); err != nil {
							b.t.Error(err)
						}
					}
					return f.Code, o
				}
				none := func([]byte) *wire.DirProof { return nil }
				before := b.leader().self.Refused.Counts()[refused.Session]
				for attempt, code := range map[string]wire.Code{
					"without a directory": func() wire.Code { c, _ := pose(none, machine.DirID{}); return c }(),
					"by its ID alone":     func() wire.Code { c, _ := pose(none, key.ID()); return c }(),
					"with another's key":  func() wire.Code { c, _ := pose(own.Prove, key.ID()); return c }(),
					"with a proof that a false leader was shown": func() wire.Code {
						c, _ := pose(func([]byte) *wire.DirProof { return key.Prove([]byte("elsewhere")) }, key.ID())
						return c
					}(),
				} {
					if code != wire.CodeBad {
						b.t.Errorf("%s: %v", attempt, code)
					}
				}
				if n := b.leader().self.Refused.Counts()[refused.Session] - before; n < 4 {
					b.t.Errorf("%d refusals are counted", n)
				}
				if code, o := pose(own.Prove, own.ID()); code != wire.CodeOK || o.Code != machine.OK {
					b.t.Errorf("with its own directory: %v, %+v", code, o)
				}
				time.Sleep(30 * time.Second)
				b.tables(func(node string, m *machine.State) {
					if node != name && !m.Opened(sid(1)) {
						b.t.Errorf("%s: the session has ended before its TTL", node)
					}
				})
				b.served(b.start(name, s.change, inDir(dir), ttl(time.Minute)))
				if took := b.granted(events, 10*time.Second); took > time.Second {
					b.t.Errorf("granted %v after the restart was attached", took)
				}
				if err := stop(); err != nil {
					b.t.Errorf("another session ended: %v", err)
				}
			})
		})
	}
}

// The key of a directory lasts as long as the earlier processes that it can free: a boot of the
// host, or a host without a boot ID, ends it.
func TestTheKeyOfADirectoryLastsAsLongAsItsHostRuns(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		on := func(host string) (id machine.DirID, past int) {
			n := b.start("n1", alone, inDir(dir), func(c *Config) { c.hostBoot = func() string { return host } })
			id, past = n.dirKey.ID(), len(n.record.Get().Past)
			b.crash("n1")
			return id, past
		}
		first, _ := on("one")
		if again, past := on("one"); again != first || again == (machine.DirID{}) || past != 1 {
			b.t.Errorf("the same host: another key: %t, past %d", again != first, past)
		}
		other, past := on("two")
		if other == first || other == (machine.DirID{}) || past != 0 {
			b.t.Errorf("another host: the same key: %t, past %d", other == first, past)
		}
		if none, past := on(""); none != (machine.DirID{}) || past != 0 {
			b.t.Errorf("no boot ID: key %x, past %d", none, past)
		}
		if fresh, past := on("two"); fresh == other || fresh == (machine.DirID{}) || past != 0 {
			b.t.Errorf("a boot ID again: the same key: %t, past %d", fresh == other, past)
		}
		memory := b.start("n2", thin)
		if memory.dirKey != nil || memory.link.Dir() != (machine.DirID{}) {
			b.t.Error("a member in memory has the key of a directory")
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
