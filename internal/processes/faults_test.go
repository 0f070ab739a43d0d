package processes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// Each of three first members crashes once while the cluster forms. A second voter that
// crashes before the first one's successor votes leaves a minority in memory. Where Join
// is complete, the members found a successor on that word; elsewhere the survivor says
// that all must start anew, and that ends it. If each successor voted before the next crash,
// nothing is lost.
func TestProcessesThatCrashOnceWhileStartingFoundACluster(t *testing.T) {
	t.Parallel()
	for round := range testrounds.Rounds(1, 10) {
		complete := round%2 == 1
		w := newTown(t, 3, func(_ int, s *settings) { s.JoinIsComplete = complete })
		all := []*house{w.start(0), w.start(1), w.start(2)}
		began, early := time.Now(), false
		for i, at := range []time.Duration{400 * time.Millisecond, 600 * time.Millisecond, 2 * time.Second} {
			time.Sleep(at) // the schedule of the crashes
			survivor := all[(i+1)%3]
			early = early || i > 0 && !strings.Contains(survivor.log(), fmt.Sprintf(`msg="voter added" member=m%d about=m%d `, (i+1)%3, i-1))
			all[i].kill()
			all[i] = w.start(i)
		}
		if _, err := all[0].try("ready", "", patience); err != nil {
			if complete || !strings.Contains(err.Error(), "cannot come back by itself") {
				t.Fatal(err)
			}
			if !early {
				w.broken(began, "the crashes took a majority: %v", err)
			}
			if !strings.Contains(all[0].log(), "restart every member") {
				t.Error("the survivor does not say what to do")
			}
			all[0].kill() // the one member that remembers the cluster
			all[0] = w.start(0)
		}
		for _, h := range all {
			h.ready()
		}
		all[2].acquire("k", patience)
		for _, h := range all {
			h.kill() // what is left of a round takes nothing from the next
		}
	}
}

// One of three processes crashes again and again. The cluster grants as soon as the
// process stays.
func TestACrashLoopAtTheStartEnds(t *testing.T) {
	t.Parallel()
	if !testrounds.Full() {
		t.Skip("takes 15 s: make full")
	}
	w := newTown(t, 3, nil)
	all := []*house{w.start(0), w.start(1), w.start(2)}
	for range 10 {
		time.Sleep(time.Second) // the loop's period
		all[2].kill()
		all[2] = w.start(2)
	}
	for _, h := range all {
		h.ready()
	}
	all[0].acquire("k", patience)
}

// The leader's process stands still until the others have elected the next leader,
// and wakes before its client's trust is spent. The client keeps its lock, and the
// contender is granted only after the release.
func TestALeaderThatWakesInTimeKeepsItsLock(t *testing.T) {
	t.Parallel()
	if !testrounds.Full() {
		t.Skip("takes 20 s: make full")
	}
	w := newTown(t, 3, func(_ int, s *settings) { s.TTL = 10 * time.Second })
	all := w.startAll()
	leader := w.leader(all)
	other := all[(leader.i+1)%3]
	leader.acquire("k", patience)
	contender := other.begin("acquire", "k", patience)
	leader.pause()
	rest := []*house{other, all[(leader.i+2)%3]}
	if w.leader(rest) == leader {
		t.Fatal("the paused process leads")
	}
	leader.resume()
	leader.acquire("l", patience) // through the next leader
	if r, lost := leader.lost("k"); lost {
		w.broken(leader.held["k"], "the lock was lost though the process woke in time: %s", r.Detail)
	}
	leader.release("k")
	if r, err := contender(); err != nil {
		t.Error(err)
	} else if r.Token <= w.tokens["k"] {
		t.Errorf("granted under token %d after %d", r.Token, w.tokens["k"])
	}
}

// A process stands still for longer than its TTL: its lock passes on, and the process
// is told as soon as it runs.
func TestAPausedHolderIsToldWhenItRuns(t *testing.T) {
	t.Parallel()
	w := newTown(t, 3, nil)
	all := w.startAll()
	leader := w.leader(all)
	holder, other := all[(leader.i+1)%3], all[(leader.i+2)%3]
	holder.acquire("k", patience)
	holder.pause()
	other.acquire("k", patience)
	woken := time.Now()
	holder.resume()
	holder.awaitNews("lost k", patience)
	r, _ := holder.lost("k")
	if late := time.Duration(r.At - woken.UnixNano()); late > 5*time.Second {
		w.broken(woken, "told %v after the process ran again", late)
	}
}

// A voter loses its disk. The voter joins as a new generation, and the cluster bears
// the loss of another voter then.
func TestALostDiskIsReplaced(t *testing.T) {
	t.Parallel()
	w := newTown(t, 3, nil).lasting()
	all := w.startAll()
	all[0].acquire("k", patience)
	all[0].release("k")
	all[2].kill()
	entries, err := filepath.Glob(filepath.Join(w.dirs[2], "*"))
	if err != nil || len(entries) == 0 {
		t.Fatalf("nothing to lose in %s: %v", w.dirs[2], err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(e); err != nil {
			t.Fatal(err)
		}
	}
	all[2] = w.start(2)
	all[2].ready()
	all[1].kill()
	all[2].acquire("k", patience)
}

// A voter's disk is full. The voter says so and votes no more, its process lives, and
// the others go on.
func TestAFullDiskEndsAVoterAndNothingElse(t *testing.T) {
	t.Parallel()
	if err := limitFiles(0); err != nil {
		t.Skip("no way to limit files here")
	}
	w := newTown(t, 3, nil)
	w.change = func(i int, s *settings) {
		s.Dir = w.dirs[i]
		if i == 2 {
			s.FileLimit = 300 << 10 // the log's second file is larger
		}
	}
	all := w.startAll()
	for n := 0; !all[2].heard("event  node failed"); n++ {
		if n == 3000 {
			t.Fatal("the disk is not full after 3,000 locks")
		}
		all[0].acquire("k", patience)
		all[0].release("k")
	}
	all[1].acquire("k", patience)
	all[2].acquire("l", patience) // the process lives on, as a thin member
}
