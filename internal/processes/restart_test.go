package processes

import (
	"fmt"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/testrounds"
)

// All members are killed and come back with their Dirs, one after the other: the
// second one is enough, and soon.
func TestAColdStart(t *testing.T) {
	company(t)
	w := newTown(t, 3, nil).lasting()
	all := w.startAll()
	w.whole(all)
	var took []time.Duration
	for round := range testrounds.Rounds(1, 20) {
		if round > 0 {
			time.Sleep(500 * time.Millisecond) // each round finds a settled cluster
		}
		for _, h := range all {
			h.kill()
		}
		_, before := w.leads()
		first, second, third := round%3, (round+1)%3, (round+2)%3
		all[first] = w.start(first)
		time.Sleep(time.Duration(round%5) * 700 * time.Millisecond)
		all[second] = w.start(second)
		began := time.Now()
		for {
			if _, n := w.leads(); n > before {
				break
			}
			if time.Since(began) > time.Minute {
				t.Fatal("no leader within a minute")
			}
			time.Sleep(time.Millisecond)
		}
		took = append(took, time.Since(began))
		if last := took[len(took)-1]; last > 5*time.Second {
			w.broken(began, "round %d took %v", round, last)
		}
		all[third] = w.start(third)
		w.whole(all)
	}
	t.Log("a leader after the start of the second member:", percentiles(took))
}

// A voter that was away for long comes back, and the cluster can lose another voter
// at once.
func TestAVoterComesBackAfterAMinute(t *testing.T) {
	t.Parallel()
	w := newTown(t, 3, nil).lasting()
	all := w.startAll()
	w.whole(all)
	leader := w.leader(all)
	away, other := all[(leader.i+1)%3], all[(leader.i+2)%3]
	away.kill()
	for i := range 10 {
		leader.acquire(fmt.Sprint("away-", i), patience)
	}
	time.Sleep(time.Duration(testrounds.Rounds(1, 60)) * time.Second)
	other.kill() // from now on each commit needs the voter that comes back
	began := time.Now()
	w.start(away.i)
	leader.acquire("back", patience)
	t.Logf("the first commit %v after the start", time.Since(began).Round(time.Millisecond))
}

// A process dies by kill -9 and is started again with its directory. It gets its own
// key back at once, and not when the dead process's session has expired.
func TestACrashedProcessGetsItsKeyBackWithItsDir(t *testing.T) {
	if !testrounds.Full() {
		t.Skip("a founding wait of a long TTL: make full")
	}
	if identity.HostBoot() == "" {
		t.Skip("this operating system has no boot ID")
	}
	w := newTown(t, 3, nil)
	w.change = func(i int, s *settings) { s.Dir, s.TTL = w.dirs[i], 8*time.Second }
	all := w.startAll()
	for i, h := range all {
		h.acquire(name(i), patience)
	}
	for i := range all {
		all[i].kill()
		began := time.Now()
		all[i] = w.start(i)
		all[i].acquire(name(i), patience)
		took := time.Since(began)
		t.Logf("member %d got its key back %v after its start", i, took)
		if took > 4*time.Second { // with the election of a leader, if it led
			w.broken(began, "member %d: as slow as an expiry", i)
		}
	}
}
