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

// The coverage counts the network as it is: a later fault does not hide an earlier one, and the
// mending of one site leaves the faults of the others.
func TestFaultsOfTheNetworkAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, mixed(1, 10*time.Second))
		s, o := w.sites[0], w.sites[1]
		slow := func(s *site) { w.slow(s, 0, time.Second) }
		for _, test := range []struct {
			claim    string
			faults   func()
			most     netState // between s and most others
			one      netState // between s and o
			mendsOne netState // the same when s is mended
		}{
			{"none", func() {}, netWhole, netWhole, netWhole},
			{"cut off, then slow", func() { w.isolate(s); slow(s) }, netCut, netCut, netWhole},
			{"hears nobody, then is heard by nobody", func() { w.deafen(s); w.mute(s) }, netCut, netCut, netWhole},
			{"hears nobody, as the other", func() { w.deafen(s); w.deafen(o) }, netIn, netCut, netOut},
			{"slow, as the other", func() { slow(s); slow(o) }, netSlow, netSlow, netSlow},
			{"the other is cut off", func() { w.isolate(o) }, netWhole, netCut, netCut},
			{"the other is cut off and slow, then slow", func() { w.isolate(o); slow(o); slow(s) }, netSlow, netCut, netCut},
			{"in the larger part", func() { w.part(w.sites[1:3], []*site{s, w.sites[3], w.sites[4]}) }, netWhole, netCut, netWhole},
			{"in two larger parts", func() { w.part(w.sites[1:3], append(w.sites[3:], s)); w.part(w.sites[3:], w.sites[:3]) }, netCut, netCut, netWhole},
			{"cut off, then paused", func() { w.isolate(s); w.pause(s) }, netPaused, netPaused, netWhole},
		} {
			test.faults()
			between := func() netState {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.between(s, o)
			}
			w.mu.Lock()
			most := w.between(s, w.others(s)...)
			w.mu.Unlock()
			one := between()
			w.mendNetOf(s)
			if mended := between(); most != test.most || one != test.one || mended != test.mendsOne {
				t.Errorf("%s: %s to most, %s to one, %s when mended; and not %s, %s, %s", test.claim,
					netNames[most], netNames[one], netNames[mended], netNames[test.most], netNames[test.one], netNames[test.mendsOne])
			}
			w.mendNet()
			if n := between(); n != netWhole {
				t.Errorf("%s: %s after all was mended", test.claim, netNames[n])
			}
		}
	})
}

// A leader that was succeeded and knows so is no rival, even if it is cut off later.
func TestAFormerLeaderIsNoRival(t *testing.T) {
	rivals := func(w *town) (n int) {
		w.cover.mu.Lock()
		defer w.cover.mu.Unlock()
		for x, times := range w.cover.seen {
			if x.leader == leadRival {
				n += times
			}
		}
		return n
	}
	var came, wrong int
	former := phase{"a former leader is cut off", func(a *act) {
		before := rivals(a.w)
		a.follow(leadRival)
		a.wait(time.Second)
		came += rivals(a.w) - before
		a.write()
		a.w.mendNet()
		a.wait(3 * time.Second) // all know the newest leader
		leader := a.leader()
		before = rivals(a.w)
		for _, s := range a.w.others(leader) {
			a.w.isolate(s)
			a.wait(time.Second)
			a.w.mendNet()
			a.wait(time.Second)
		}
		wrong += rivals(a.w) - before
	}}
	res := play(t, repeat(mixed(seed(), 3*time.Second), former, 2))
	if len(res.violations) > 0 {
		describe(t, res)
	}
	if came == 0 {
		t.Errorf("seed %d: no rival came about", res.plan.shape.seed)
	}
	if wrong > 0 {
		t.Errorf("seed %d: a former leader was counted as a rival %d times", res.plan.shape.seed, wrong)
	}
}
