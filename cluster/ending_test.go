package cluster

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// The calls wait for each other on a channel: a mutex would stop the bubble's time.
func TestStopsAndLeavesAtOnceEndOnce(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		n := b.leader()
		delete(b.nodes, n.Name())
		ends := make(chan error, 4)
		for i := range cap(ends) {
			go func() {
				if i%2 == 0 {
					ends <- n.Stop()
				} else {
					ends <- n.Leave(context.Background())
				}
			}()
		}
		for range cap(ends) {
			if err := <-ends; err != nil && !errors.Is(err, ErrStopped) { // of a Leave that a Stop hurried
				t.Error(err)
			}
		}
	})
}

// A Leave that waits for a successor ends when a Stop waits.
func TestAStopHurriesALeave(t *testing.T) {
	t.Parallel() // waits for the disk
	inBubble(t, func(b *bubble) {
		n := b.join("n1", alone)
		b.join("n2", thin, joins(b.addr("n1")), func(c *Config) { c.Dir = t.TempDir() }) // may not vote beside n1
		delete(b.nodes, "n1")
		left := make(chan error, 1)
		go func() { left <- n.Leave(context.Background()) }()
		time.Sleep(5 * time.Second)
		select {
		case err := <-left:
			t.Fatalf("left without a successor: %v", err)
		default:
		}
		began := time.Now()
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Stop took %v", took)
		}
		if err := <-left; !errors.Is(err, ErrStopped) {
			t.Errorf("Leave: %v", err)
		}
	})
}

// guest holds a key on n as a session of package locks does: it registers with the
// node, ends its locks when told, and closes the session.
func (b *bubble) guest(n *Node, id byte, key string, works time.Duration) (ended *time.Time) {
	b.t.Helper()
	b.hold(n, id, key)
	g := n.link.Enter()
	ended = new(time.Time)
	stop := b.beat(n, id)
	go func() {
		<-n.link.Done()
		*ended = time.Now()
		g.Ended()
		time.Sleep(works)
		n.link.Propose(context.Background(), machine.Close{Session: sid(id)})
		stop()
		g.Left()
	}()
	return ended
}

// In memory and with a Dir, by Stop and by Leave: the keys of a member that ends
// are free at once, and no raft and no voter is gone before.
func TestAnEndingMemberFreesItsKeysAtOnce(t *testing.T) {
	t.Parallel() // waits for the disk
	for _, leaves := range []bool{false, true} {
		for _, durable := range []bool{false, true} {
			for _, leads := range []bool{false, true} {
				dir := t.TempDir()
				inBubble(t, func(b *bubble) {
					if durable {
						b.form(inDir(dir))
					} else {
						b.form()
					}
					n, other := b.followers()[0], b.followers()[1]
					if leads {
						n = b.leader()
					}
					ended := b.guest(n, 1, "k", 0)
					_, events := b.hold(other, 2, "k")
					stop := b.beat(other, 2)
					delete(b.nodes, n.Name())
					began := time.Now()
					done := make(chan error, 1)
					go func() {
						if leaves {
							done <- n.Leave(context.Background())
						} else {
							done <- n.Stop()
						}
					}()
					for {
						if e := b.next(events, time.Second); e.Kind == machine.EventGranted {
							break
						}
					}
					if took := time.Since(began); took > 100*time.Millisecond || ended.IsZero() {
						t.Errorf("the key was granted after %v, the lock had ended: %v", took, !ended.IsZero())
					}
					if err := <-done; err != nil {
						t.Error(err)
					}
					if err := stop(); err != nil {
						t.Errorf("another member lost its lock: %v", err)
					}
					if v := b.voters(); slices.Contains(v, n.Name()) != (durable && !leaves) {
						t.Errorf("the voters are %v", v)
					}
				})
			}
		}
	}
}

// A member with a Dir that stops stays a voter.
func TestAStopWithADirKeepsTheVote(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		b.form(inDir(dir))
		old := b.leader()
		name, id := old.Name(), old.seat.Current().ID()
		delete(b.nodes, name)
		if err := old.Stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if v := b.voters(); len(v) != 3 {
			t.Errorf("the voters are %v", v)
		}
		n := b.join(name, inDir(dir))
		if got := n.seat.Current().ID(); got != id {
			t.Errorf("came back as %s, not %s", got, id)
		}
	})
}

// Everybody leaves, at moments that lie close together, with work that takes a
// moment to end: nobody waits for anybody, and nobody fails.
func TestEverybodyLeavesWithoutWaiting(t *testing.T) {
	t.Parallel() // waits for the disk
	var longest time.Duration
	defer func() { t.Logf("the longest took %v", longest) }()
	step := time.Duration(testrounds.Rounds(700, 100)) * time.Millisecond
	for _, durable := range []bool{false, true} {
		for delay := time.Duration(0); delay <= 700*time.Millisecond; delay += step {
			dir := t.TempDir()
			inBubble(t, func(b *bubble) {
				change := func(*Config) {}
				if durable {
					change = inDir(dir)
				}
				b.form(change)
				b.join("n4", thin, change)
				time.Sleep(3 * time.Second)
				type end struct {
					name string
					took time.Duration
					err  error
				}
				ends := make(chan end, 4)
				id := byte(0)
				for name, n := range b.nodes {
					id++
					b.guest(n, id, name, time.Duration(id)*50*time.Millisecond)
				}
				i := 0
				for name, n := range b.nodes {
					delete(b.nodes, name)
					i++
					wait := time.Duration(i) * delay / 4
					go func() {
						time.Sleep(wait)
						began := time.Now()
						err := n.Leave(b.within(10 * time.Second))
						ends <- end{name, time.Since(began), err}
					}()
				}
				for range 4 {
					e := <-ends
					longest = max(longest, e.took)
					if e.err != nil || e.took > 1500*time.Millisecond {
						t.Errorf("delay %v: %s left after %v: %v", delay, e.name, e.took, e.err)
					}
				}
			})
		}
	}
}

// Members that are about to end are nobody's successors, although they still live. Nor
// does anybody wait for an exchange with them: neither a leader, whose entries no other
// voter answers, nor a voter that has asked for votes.
func TestNobodyWaitsForAMemberThatEnds(t *testing.T) {
	for _, leads := range []bool{false, true} {
		for _, cut := range []time.Duration{0, time.Second} { // longer than an election timeout
			inBubble(t, func(b *bubble) {
				b.form()
				n := b.followers()[0]
				if leads {
					n = b.leader()
				}
				for _, o := range b.nodes {
					if o != n {
						o.gossip.Update(func(m *member.Metadata) { m.Ending = true })
					}
				}
				time.Sleep(2 * time.Second)
				delete(b.nodes, n.Name())
				b.net.Isolate(b.host(n.Name())) // nobody can replace n
				time.Sleep(cut)
				began := time.Now()
				if err := n.Leave(b.within(time.Minute)); err != nil {
					t.Error(err)
				}
				// One question whether they stay, and one goodbye.
				if took, most := time.Since(began), timing.ConfirmRound+timing.Goodbye+100*time.Millisecond; took > most {
					t.Errorf("leads %v, cut off for %v: left after %v, more than %v", leads, cut, took, most)
				}
			})
		}
	}
}

// A key cannot be freed once every other member has ended, and nobody waits for it.
// But nobody takes a silent member for one that has ended.
func TestNobodyIsLeftToBeTold(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		b.form(inDir(dir))
		n, others := b.followers()[0], []*Node{b.leader(), b.followers()[1]}
		b.hold(n, 1, "k")
		for _, o := range others { // which stay voters: no quorum is left
			delete(b.nodes, o.Name())
			o.Stop()
		}
		time.Sleep(5 * time.Second)
		began := time.Now()
		_, err := n.link.Propose(b.within(time.Minute), machine.Close{Session: sid(1)})
		if took := time.Since(began); !errors.Is(err, replica.ErrAllEnd) || took > 0 {
			t.Errorf("after %v: %v", took, err)
		}
		if _, err := n.link.Propose(b.within(time.Minute), machine.Acquire{Session: sid(1), Seq: 2, Key: "other"}); !errors.Is(err, ErrNoQuorum) {
			t.Errorf("a command that wants something: %v", err) // others may come
		}
	})
	inBubble(t, func(b *bubble) {
		b.form()
		n, others := b.followers()[0], []*Node{b.leader(), b.followers()[1]}
		b.hold(n, 1, "k")
		for _, o := range others {
			b.crash(o.Name())
		}
		if _, err := n.link.Propose(b.within(30*time.Second), machine.Close{Session: sid(1)}); !errors.Is(err, ErrNoQuorum) {
			t.Errorf("without a word of the others: %v", err)
		}
	})
}

// A goodbye counts only on a stream of the process that it is about.
func TestAGoodbyeComesFromTheProcessItself(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		to := nodes[1].self.Process()
		body := wire.Marshal(&wire.GoodbyeNotice{Name: "n3", Boot: nodes[2].self.Boot})
		for i, want := range map[int]wire.Code{0: wire.CodeNo, 2: wire.CodeOK} {
			f, err := nodes[i].peers.Ask(b.within(time.Second), to, wire.Goodbye, body)
			if err != nil || f.Code != want {
				t.Errorf("%s says goodbye for n3: code %d, %v", nodes[i].Name(), f.Code, err)
			}
		}
	})
}

// A later process of the member takes the directory for the proof that no lock of
// this process is trusted any more.
func TestTheDirIsGivenBackAfterAllLocksHaveEnded(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		b.form(inDir(dir))
		n := b.followers()[0]
		delete(b.nodes, n.Name())
		g := n.link.Enter()
		stopped := make(chan error, 1)
		go func() { stopped <- n.Stop() }()
		cfg := b.config(n.Name())
		inDir(dir)(&cfg)
		for range 3 {
			time.Sleep(10 * time.Second) // far longer than a stop takes
			var bad *ConfigError
			if _, err := Start(b.within(time.Minute), cfg); !errors.As(err, &bad) || bad.Field != "Config.Dir" {
				t.Fatalf("started while a lock of the earlier process may be trusted: %v", err)
			}
		}
		g.Left()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		b.join(n.Name(), inDir(dir))
	})
}
