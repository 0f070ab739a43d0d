package processes

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/towns"
)

// starve gives the process a quota of 10 % of a CPU, as a container runtime enforces
// one, until ctx ends: of every 100 ms the process runs for 10. Stopping the process
// needs neither root nor cgroups, and stops all threads as the kernel does at the
// end of a quota.
func (h *house) starve(ctx context.Context) {
	defer h.p.Resume()
	for ctx.Err() == nil {
		h.p.Resume()
		time.Sleep(10 * time.Millisecond)
		h.p.Pause()
		time.Sleep(90 * time.Millisecond)
	}
}

// Members with a tenth of a CPU keep their leader and their locks, while two busy
// loops for each core compete for the rest.
func TestAStarvedHostKeepsItsLeader(t *testing.T) {
	if !testrounds.Full() {
		t.Skip("starves the machine for a minute: make full")
	}
	w := newTown(t, 3, func(_ int, s *settings) { s.TTL = 10 * time.Second })
	all := w.startAll()
	w.whole(all)
	for i, h := range all {
		h.acquire(fmt.Sprint("mine-", i), patience)
	}
	leader, terms := w.leads()
	began := time.Now()
	all[0].pause() // skips the test where nothing can pause a process
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(testrounds.Rounds(0, 60))*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, h := range all {
		h.puppet = true
		wg.Go(func() { h.starve(ctx) })
	}
	var burners []*towns.Process
	for range 2 * runtime.NumCPU() {
		burner, err := w.parent.Start(towns.Program{Env: []string{memberEnv + "=" + busy}})
		if err != nil {
			cancel()
			wg.Wait()
			t.Fatal(err)
		}
		burners = append(burners, burner)
	}
	<-ctx.Done()
	for _, b := range burners {
		b.Kill()
	}
	wg.Wait()
	if now, n := w.leads(); n != terms || now != leader {
		w.broken(began, "%d leaders more: %s leads, %s led", n-terms, now, leader)
	}
	for i, h := range all {
		h.acquire(fmt.Sprint("end-", i), patience)
		h.keeps(fmt.Sprint("mine-", i))
	}
}

// A leader that stands still, with its connections open, costs no other member its
// lock at a TTL of 3 s.
func TestASilentLeaderCostsNoOtherMemberItsLock(t *testing.T) {
	company(t)
	w := newTown(t, 3, func(_ int, s *settings) { s.TTL = 3 * time.Second })
	all := w.startAll()
	w.whole(all)
	for round := range testrounds.Rounds(1, 10) {
		if round > 0 {
			time.Sleep(time.Second) // each round finds a settled cluster
		}
		leader := w.leader(all)
		others := []*house{all[(leader.i+1)%3], all[(leader.i+2)%3]}
		held := func(h *house) string { return fmt.Sprintf("round-%d-%d", round, h.i) }
		for _, h := range others {
			h.acquire(held(h), patience)
		}
		time.Sleep(time.Duration(round) * 137 * time.Millisecond)
		leader.pause()
		began := time.Now()
		time.Sleep(20 * time.Millisecond) // until the kernel has stopped its threads
		for _, h := range others {
			h.acquire(fmt.Sprintf("stop-%d-%d", round, h.i), patience)
			t.Logf("round %d: member %d granted after %v", round, h.i, time.Since(began).Round(time.Millisecond))
		}
		time.Sleep(4 * time.Second) // longer than the TTL
		for _, h := range others {
			h.acquire(fmt.Sprintf("later-%d-%d", round, h.i), patience)
			h.keeps(held(h))
		}
		leader.resume()
		w.whole(all)
	}
}
