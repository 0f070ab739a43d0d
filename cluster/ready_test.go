package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/timing"
)

// readyAfter starts waiting for Ready and returns the time that Ready took.
func (b *bubble) readyAfter(n *Node, within time.Duration) time.Duration {
	b.t.Helper()
	began := time.Now()
	if err := n.Ready(b.within(within)); err != nil {
		b.t.Fatalf("%s: %v", n.Name(), err)
	}
	return time.Since(began)
}

// A new process is ready when the voters are complete; a process that was ready
// before stays ready with the quorum alone. Whoever waits hears why.
func TestANewProcessIsReadyOnceTheVotersAreComplete(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		b.eventually("all know the voters", 5*time.Second, func() bool {
			return !slices.ContainsFunc(nodes, func(n *Node) bool { return !n.Health(b.within(time.Second)).SafeToTakeNext })
		})
		b.net.Isolate(b.host("n3")) // silent, without any proof of its end
		time.Sleep(2 * time.Second)
		leader := b.leader()
		n4 := b.start("n4", thin, joins(b.addr("n1"), b.addr("n2")))
		time.Sleep(2 * time.Second)
		if took := b.readyAfter(leader, time.Second); took > 100*time.Millisecond {
			t.Errorf("a member that was ready waits for %v", took)
		}
		err := n4.Ready(b.within(time.Second))
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNoQuorum) ||
			!strings.Contains(err.Error(), "2 of 3 wanted voters work, and 0 more may fail: n3 at 10.0.0.3:7000 is not reached by the leader") {
			t.Errorf("Ready returned %v", err)
		}
		if h := n4.Health(b.within(time.Second)); h.SafeToTakeNext || h.Voters.Reachable != 2 || h.Voters.Bears != 0 || !strings.Contains(h.Next, "take no other process yet") {
			t.Errorf("Health returned %+v", h)
		}
		b.readyAfter(n4, timing.ReadyPatience/2)
		if h := n4.Health(b.within(time.Second)); !h.SafeToTakeNext || h.Reason != "" || h.Next != "" || !h.Voter {
			t.Errorf("ready, and Health returned %+v", h)
		}
		b.crash("n3")
		b.crash("n2") // beyond what a quorum of n1, n2 and n4 needs
		if took := b.readyAfter(n4, 10*time.Second); took > 5*time.Second {
			t.Errorf("n4 waited for %v", took)
		}
	})
}

// Where nothing can make the voters complete but the operator, Ready waits no longer
// than its patience: the missing voter may be started only after this member is
// ready.
func TestReadyDoesNotWaitForEverForVotersWithADir(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		b.form(inDir(dir))
		b.crash("n3")
		b.crash("n2")
		time.Sleep(time.Second)
		n2 := b.start("n2", inDir(dir))
		began := time.Now()
		for time.Since(began) < timing.ReadyPatience/2 { // as a probe does
			if err := n2.Ready(b.within(time.Second)); err == nil {
				t.Fatal("ready without the third voter")
			}
			time.Sleep(5 * time.Second)
		}
		b.readyAfter(n2, timing.ReadyPatience)
		if took := time.Since(began); took < timing.ReadyPatience || took > timing.ReadyPatience+10*time.Second {
			t.Errorf("ready after %v", took)
		}
		if h := n2.Health(b.within(time.Second)); h.SafeToTakeNext || !h.Granting || !strings.Contains(h.Reason, "n3") {
			t.Errorf("Health returned %+v", h)
		}
		b.join("n3", inDir(dir))
		b.eventually("complete", 10*time.Second, func() bool { return n2.Health(b.within(time.Second)).SafeToTakeNext })
	})
}

// One and two members are ready although no failure can be borne: a single voter is
// wanted, and votes.
func TestSmallClustersAreReady(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1 := b.start("n1", alone)
		b.readyAfter(n1, 10*time.Second)
		n2 := b.start("n2", thin)
		b.readyAfter(n2, 10*time.Second)
		for _, n := range []*Node{n1, n2} {
			if h := n.Health(b.within(time.Second)); h.SafeToTakeNext || h.Voters != (VoterHealth{1, 1, 1, 1, 0}) || h.Reason != "" {
				t.Errorf("%s: %+v", n.Name(), h)
			}
		}
		n3 := b.start("n3", thin)
		b.readyAfter(n3, 20*time.Second)
		b.eventually("three vote", 20*time.Second, func() bool { return n3.Health(b.within(time.Second)).SafeToTakeNext })
	})
}

// A deployment that takes the next process as soon as the new one is ready never
// leaves fewer than two voters, in memory and with kill -9.
func TestADeploymentPacedByReadyKeepsTheQuorum(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		time.Sleep(time.Second)
		for _, name := range []string{"n1", "n2", "n3", "n1", "n2", "n3"} {
			b.crash(name)
			b.readyAfter(b.start(name), time.Minute)
			if h := b.nodes[name].Health(b.within(time.Second)); !h.SafeToTakeNext || h.Voters.Bears != 1 {
				t.Fatalf("%s is ready, and Health returned %+v", name, h)
			}
		}
	})
}

// The same with processes of new names, at new addresses.
func TestADeploymentOfNewNamesPacedByReadyKeepsTheQuorum(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		time.Sleep(time.Second)
		for i := range testrounds.Rounds(3, 6) {
			names := b.voters()
			name := names[i%len(names)]
			b.net.Isolate(b.host(name)) // silent: the leader hears of it late
			gone := b.nodes[name]
			delete(b.nodes, name)
			next := b.start(fmt.Sprint("m", i), thin, joins(b.addr("n1"), b.addr("n2"), b.addr("n3"), b.addr("m0"), b.addr("m1"), b.addr("m2"), b.addr("m3")))
			took := b.readyAfter(next, time.Minute)
			if h := next.Health(b.within(time.Second)); !h.SafeToTakeNext || h.Voters.Bears != 1 || slices.Contains(b.voters(), name) {
				t.Fatalf("ready after %v, and Health returned %+v; voters %v", took, h, b.voters())
			}
			if err := gone.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// The word of an earlier leader does not count once a later leader serves this
// member: the earlier one knew nothing of its own end.
func TestAnEarlierLeadersWordIsNotBelieved(t *testing.T) {
	n := inNoCluster(t)
	if _, ok := n.votersKnown(); ok {
		t.Error("known before any word")
	}
	changed := n.votersChanged()
	set := setOf(1, voter("a", ""))
	set.Term = 5
	n.leaderTerm.Store(5)
	n.votersTold(n.founding.Cluster(), set)
	if got, ok := n.votersKnown(); !ok || !whole(got) {
		t.Errorf("%+v, %v", got, ok)
	}
	select {
	case <-changed:
	default:
		t.Error("nobody was woken")
	}
	n.leaderTerm.Store(6)
	if got, ok := n.votersKnown(); ok || whole(got) {
		t.Errorf("%+v, %v", got, ok)
	}
}
