package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/timing"
)

// Every first member in turn is replaced by a member of another name.
func TestLeaveIsReplacedAndKeepsTheLocks(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form(wants(3))
		n4 := b.join("n4", thin, wants(3))
		b.hold(n4, 1, "k")
		stop := b.beat(n4, 1)
		time.Sleep(10 * time.Second)
		for i, name := range []string{"n1", "n2", "n3"} {
			b.join(fmt.Sprint("m", i), thin, wants(3), joins(b.addr("n4")))
			time.Sleep(5 * time.Second)
			began := time.Now()
			b.leave(name)
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("%s left after %v", name, took)
			}
			if v := b.voters(); len(v) != 3 {
				t.Errorf("after %s left the voters are %v", name, v)
			}
		}
		if err := stop(); err != nil {
			t.Errorf("beats failed: %v", err)
		}
	})
}

func TestMembersLeaveDownToTheLast(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		for _, name := range []string{"n1", "n2", "n3"} {
			began := time.Now()
			b.leave(name)
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("%s left after %v", name, took)
			}
			for _, n := range b.nodes {
				b.ready(n)
			}
		}
	})
}

func TestAllLeaveAtOnce(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		left := make(chan error, 3)
		for name, n := range b.nodes {
			delete(b.nodes, name)
			go func() { left <- n.Leave(b.within(time.Minute)) }()
		}
		for range 3 {
			if err := <-left; err != nil {
				t.Error(err)
			}
		}
	})
}

// The only voter waits until a successor votes, and then hands over.
func TestTheOnlyVoterLeavesAfterItsSuccessorVotes(t *testing.T) {
	t.Parallel() // waits for the disk
	dir := t.TempDir()
	inBubble(t, func(b *bubble) {
		b.join("n1", alone, inDir(dir))
		n2 := b.join("n2", thin, inDir(dir))
		time.Sleep(10 * time.Second)
		b.leave("n1")
		b.ready(n2)
		if b.leader() != n2 {
			t.Error("the successor does not lead")
		}
	})
}

// A voter that nobody can replace stops at the end of the caller's context, and
// Leave tells so.
func TestLeaveEndsWithItsContext(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		n := b.followers()[0]
		delete(b.nodes, n.Name())
		b.net.Isolate(b.host(n.Name()))
		began := time.Now()
		if err := n.Leave(b.within(7 * time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Leave returned %v", err)
		}
		if took := time.Since(began); took < 7*time.Second || took > 10*time.Second {
			t.Errorf("left after %v", took)
		}
		if err := n.Ready(context.Background()); !errors.Is(err, ErrStopped) {
			t.Errorf("the node runs on: %v", err)
		}
	})
}

func TestAStoppedNodeAnswersErrStopped(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n := b.form()[1]
		delete(b.nodes, n.Name())
		a, err := n.link.Read(b.within(time.Second), replica.Query{Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error, 1)
		go func() {
			_, err := n.link.Read(context.Background(), replica.Query{Key: "k", Version: a.Version})
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
			t.Errorf("a waiting read returned %v", err)
		}
		if err := n.Ready(context.Background()); !errors.Is(err, ErrStopped) {
			t.Errorf("Ready returned %v", err)
		}
	})
}

func TestStopDoesNotWaitForUnreachableMembers(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var addrs []string
		for i := range 20 {
			name := fmt.Sprint("far", i)
			addrs = append(addrs, b.addr(name))
			b.networkOf(name)
			b.net.Cut(b.host("n1"), b.host(name))
		}
		n := b.start("n1", joins(addrs...))
		delete(b.nodes, "n1")
		time.Sleep(time.Second)
		began := time.Now()
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("Stop took %v", took)
		}
	})
}

// A stopping leader hands over leadership, and nobody waits for an election.
func TestAStoppingLeaderHandsOver(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		old := b.leader()
		delete(b.nodes, old.Name())
		stopped := make(chan error, 1)
		began := time.Now()
		go func() { stopped <- old.Stop() }()
		b.leader()
		if took := time.Since(began); took >= timing.LeastElection {
			t.Errorf("another member leads after %v", took)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}
