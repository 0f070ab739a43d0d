package cluster

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
)

// Two of three voters in memory are gone for good. An operator says so, on any
// member, and everybody goes on in a successor.
func TestRecoverInMemory(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1 := b.form(wants(3))[0] // five members in memory would want five voters
		n4, n5 := b.join("n4", thin, wants(3)), b.join("n5", thin, wants(3))
		token, events := b.hold(n5, 1, "k")
		if err := n1.Recover(b.within(time.Minute), RecoverOptions{}); err == nil || !strings.Contains(err.Error(), "a leader of the cluster answers") {
			t.Errorf("recovered a cluster that answers: %v", err)
		}
		old := *n1.founding.Value()
		b.crashed("n2", "n3")
		b.eventually("the dead are not seen", time.Minute, func() bool { return len(n4.gossip.Alive()) == 3 })
		var bad *ConfigError
		for _, name := range []string{"", "a b", "n4"} {
			if err := n4.Recover(b.within(time.Minute), RecoverOptions{Gone: []string{name}}); !errors.As(err, &bad) || bad.Field != "RecoverOptions.Gone" {
				t.Errorf("%q: %v", name, err)
			}
		}
		if err := n4.Recover(b.within(time.Minute), RecoverOptions{Gone: []string{"n2"}}); err == nil || !strings.Contains(err.Error(), "named as gone: n3") {
			t.Errorf("recovered without a word about n3: %v", err)
		}
		if err := n4.Recover(b.within(time.Minute), RecoverOptions{Gone: []string{"n2", "n3"}}); err != nil {
			t.Fatal(err)
		}
		b.ready(n1, n4, n5)
		for _, n := range []*Node{n1, n4, n5} {
			if v := n.founding.Value(); founding.Kin(old, *v) != founding.Successor {
				t.Errorf("%s is in %+v", n.Name(), v)
			}
		}
		if e := b.next(events, time.Millisecond); e.Kind != machine.EventEnded || e.Reason != machine.Moved {
			t.Errorf("told %+v", e)
		}
		if later, _ := b.hold(n5, 2, "k"); later <= token {
			t.Errorf("token %d after %d", later, token)
		}
	})
}

// Two of three disks are lost. The survivor goes on from its table; its old store
// stays aside, and the next members catch up from the successor.
func TestRecoverFromOneDiskOfThree(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		nodes := b.form(inDir(dir))
		token, _ := b.hold(nodes[0], 1, "held")
		b.open(nodes[1], 2)
		cell := b.acquire(nodes[1], 2, 1, "cell")
		b.propose(nodes[1], machine.SetValue{Session: sid(2), Token: cell, Rev: 1, Value: []byte("kept")})
		b.propose(nodes[1], machine.Release{Session: sid(2), Token: cell})
		b.eventually("n1 has the value", time.Minute, func() bool { return valueOf(nodes[0], "cell") == "kept" })
		old := *nodes[0].founding.Value()
		for _, name := range []string{"n1", "n2", "n3"} {
			b.crash(name)
		}
		n1 := b.start("n1", inDir(dir))
		time.Sleep(20 * time.Second)
		if err := n1.Recover(b.within(time.Minute), RecoverOptions{Gone: []string{"n2"}}); err == nil || !strings.Contains(err.Error(), "n3") {
			t.Errorf("recovered without a word about n3: %v", err)
		}
		if err := n1.Recover(b.within(time.Minute), RecoverOptions{Gone: []string{"n2", "n3"}}); err != nil {
			t.Fatal(err)
		}
		b.ready(n1)
		if v := n1.founding.Value(); founding.Kin(old, *v) != founding.Successor || len(v.Voters) != 1 {
			t.Errorf("founded %+v", v)
		}
		if got := valueOf(n1, "cell"); got != "kept" {
			t.Errorf("the value is %q", got)
		}
		if later, _ := b.hold(n1, 3, "held"); later <= token {
			t.Errorf("token %d after %d", later, token)
		}
		if stores, _ := filepath.Glob(filepath.Join(dir, "n1", "raft.aside-*", "retired")); len(stores) != 1 {
			t.Errorf("aside: %q", stores)
		}
		tableOf(n1).View(func(m *machine.State) {
			if err := m.Check(); err != nil {
				t.Error(err)
			}
		})
		// Later starts know the successor alone.
		b.crash("n1")
		n1 = b.join("n1", inDir(dir))
		fresh := t.TempDir()
		n2, n3 := b.join("n2", inDir(fresh)), b.join("n3", inDir(fresh))
		b.eventually("three vote", 5*time.Minute, func() bool { return len(b.voters()) == 3 })
		for _, n := range []*Node{n1, n2, n3} {
			b.eventually(n.Name()+" has the value", time.Minute, func() bool { return valueOf(n, "cell") == "kept" })
		}
	})
}

func valueOf(n *Node, key string) (value string) {
	if n.seat.Current() != nil {
		tableOf(n).View(func(m *machine.State) { value = m.Value(key) })
	}
	return value
}

// An operator called two voters gone whose disks were only away. They come back
// together, as a majority of the old cluster, and join the successor instead.
func TestVotersThatComeBackAskForASuccessor(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		nodes := b.form(inDir(dir))
		old := nodes[0].founding.Cluster()
		for _, name := range []string{"n1", "n2", "n3"} {
			b.crash(name)
		}
		n1 := b.start("n1", inDir(dir))
		time.Sleep(20 * time.Second)
		if err := n1.Recover(b.within(time.Minute), RecoverOptions{Gone: []string{"n2", "n3"}}); err != nil {
			t.Fatal(err)
		}
		b.ready(n1)
		n2, n3 := b.start("n2", inDir(dir)), b.start("n3", inDir(dir))
		b.ready(n2, n3)
		for _, n := range []*Node{n2, n3} {
			if n.founding.Cluster() != n1.founding.Cluster() {
				t.Errorf("%s is in %s, not in %s", n.Name(), clusterText(n.founding.Cluster()), clusterText(n1.founding.Cluster()))
			}
			if stores, _ := filepath.Glob(filepath.Join(dir, n.Name(), "raft.aside-"+clusterText(old)+"-*")); len(stores) != 1 {
				t.Errorf("%s: aside: %q", n.Name(), stores)
			}
		}
		b.eventually("three vote", 5*time.Minute, func() bool { return len(b.voters()) == 3 })
	})
}

func TestStopEndsARecover(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1 := b.form(func(c *Config) {
			begun := time.Now() // the first founding alone knows the floor
			c.Recovery.TokenFloor = func(context.Context) (fence.Token, error) {
				if time.Since(begun) > 30*time.Second {
					return 0, errors.New("down")
				}
				return 0, nil
			}
		})[0]
		time.Sleep(time.Minute)
		b.crashed("n2", "n3")
		recovered := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() { recovered <- n1.Recover(ctx, RecoverOptions{Gone: []string{"n2", "n3"}}) }()
		time.Sleep(30 * time.Second)
		if len(recovered) != 0 {
			t.Errorf("did not wait: %v", <-recovered)
		}
		b.leave("n1")
		time.Sleep(time.Minute)
		select {
		case err := <-recovered:
			if !errors.Is(err, ErrStopped) {
				t.Errorf("Recover: %v", err)
			}
		default:
			t.Error("Recover outlives the node")
		}
	})
}

// The log of an earlier cluster may be longer than every log of the present one.
func TestALogOfAnEarlierClusterMakesNoHeir(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		b.form(inDir(dir), wants(3))
		n4 := b.join("n4", inDir(dir), thin, wants(3))
		if err := n4.record.Update(func(r *identity.Record) {
			r.Retired = identity.Retirement{Cluster: machine.ClusterID{7}, Voted: true, Term: 1000, Index: 1_000_000}
		}); err != nil {
			t.Fatal(err)
		}
		b.crashed("n1", "n2", "n3")
		a, err := n4.retire(context.Background(), n4.founding.Cluster())
		if err != nil || a.Refused != "" || a.Voter || a.LogTerm != 0 || a.LogIndex != 0 {
			t.Errorf("retired with %+v, %v", a, err)
		}
	})
}

// A member whose own store has failed recovers nothing: it knows neither the table nor the
// voters. The result says how many failures the successor bears.
func TestRecoverLooksAtTheOwnStoreAndTellsTheResult(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var log lockedBuffer
		n1 := b.form(func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })[0]
		b.crashed("n2", "n3")
		b.eventually("the dead are not seen", time.Minute, func() bool { return len(n1.gossip.Alive()) == 1 })
		gone := RecoverOptions{Gone: []string{"n2", "n3"}}
		n1.mute.Store(true)
		if err := n1.Recover(b.within(time.Minute), gone); err == nil || !strings.Contains(err.Error(), "own store has failed") {
			t.Errorf("recovered beside a failed store: %v", err)
		}
		if n1.record.Get().RetiredHere() {
			t.Error("retired")
		}
		n1.mute.Store(false)
		if err := n1.Recover(b.within(time.Minute), gone); err != nil {
			t.Fatal(err)
		}
		if text := log.String(); !strings.Contains(text, "fewer failures can be borne than before") || !strings.Contains(text, "bears=0 before=1") || !strings.Contains(text, `gone="n2, n3"`) {
			t.Errorf("the result is not told: %s", text)
		}
		b.ready(n1)
	})
}

// lockedBuffer is a log of several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// An operator calls a voter gone that runs. Its vote would live on beside the successor.
func TestALivingVoterIsNotGone(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1 := b.form(wants(5))[0]
		b.join("n4", wants(5))
		b.join("n5", wants(5))
		b.eventually("five vote", 5*time.Minute, func() bool { return len(b.voters()) == 5 })
		b.crashed("n3", "n4", "n5")
		b.eventually("the dead are not seen", time.Minute, func() bool { return len(n1.gossip.Alive()) == 2 })
		gone := RecoverOptions{Gone: []string{"n2", "n3", "n4", "n5"}}
		if err := n1.Recover(b.within(time.Minute), gone); err == nil || !strings.Contains(err.Error(), "n2 is named as gone, and votes in the cluster") {
			t.Fatalf("recovered without a living voter: %v", err)
		}
		if n1.record.Get().RetiredHere() {
			t.Error("retired")
		}
		b.crashed("n2")
		if err := n1.Recover(b.within(time.Minute), gone); err != nil {
			t.Fatal(err)
		}
		b.ready(n1)
	})
}
