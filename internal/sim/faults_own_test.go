package sim

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/transport"
)

// A site that was slow and then met another fault is fast again once the network is mended.
func TestMendingEndsSlowness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, mixed(1, 10*time.Second))
		var ends []transport.Endpoint
		for _, s := range w.sites[:2] {
			e, err := simnet.HostOf[transport.Endpoint](w.net, s.ip).Listen(s.ip + ":7000")
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			ends = append(ends, e)
		}
		w.slow(w.sites[0], 0, time.Second)
		w.isolate(w.sites[0])
		w.mendNet()
		began := time.Now()
		conn, err := ends[0].Dial(context.Background(), ends[1].Addr())
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if d := time.Since(began); d > 10*time.Millisecond {
			t.Errorf("a dial takes %v", d)
		}
	})
}

// In memory a voter that has ended counts until it is replaced: the run kills no process that
// the others need for a majority, although gossip has forgotten the dead voter.
func TestADeadVoterCountsUntilItIsReplaced(t *testing.T) {
	s := mixed(1, 3*time.Second)
	s.thin = 0
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, s)
		for _, at := range w.sites {
			w.start(at)
		}
		w.ready(time.Minute)
		a := &act{w: w}
		time.Sleep(10 * time.Second) // until all five vote
		leader := a.leader()
		for _, at := range w.others(leader)[:2] {
			if !a.quorum(at) {
				t.Fatalf("%d of 5 may not be killed", at.i)
			}
			w.crash(at)
		}
		for range 100 {
			for _, at := range w.sites {
				if w.running(at) != nil && a.quorum(at) {
					voters := w.running(leader).node.Report().Raft.Voters
					if len(voters) == 5 {
						t.Fatalf("three of %v may be killed", voters)
					}
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		w.end()
		<-time.After(time.Minute)
	})
}
