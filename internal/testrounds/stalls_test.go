package testrounds

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestAStallIsKnownByItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := WatchStalls(nil)
		time.Sleep(time.Second)
		if d := s.Since(time.Time{}); d != 0 {
			t.Errorf("a process that runs stood still for %v", d)
		}
		s.Stop() // as if the process stood still from now on
		began := time.Now()
		time.Sleep(time.Second)
		if d := s.Since(began); d < time.Second-look {
			t.Errorf("a second's stall takes %v before its end", d)
		}
		s.looked()
		if d := s.Since(began.Add(time.Second - 1)); d < time.Second-look {
			t.Errorf("a second's stall took %v", d)
		}
		if d := s.Since(time.Now()); d != 0 {
			t.Errorf("%v after the stall", d)
		}
	})
}

// A process that is late in every look by a quarter of its time has lost its promises
// of time, though no single stall is long.
func TestShortStallsOfOneSecondAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []time.Duration
		s := WatchStalls(func(d time.Duration) { told = append(told, d) })
		s.Stop() // the looks are the test's
		s.looked()
		began := time.Now()
		for range 4 {
			time.Sleep(look + 70*time.Millisecond)
			s.looked()
			time.Sleep(look)
			s.looked()
		}
		if d := s.Since(began); d != 280*time.Millisecond {
			t.Errorf("four stalls of 70 ms within a second are %v", d)
		}
		time.Sleep(look + 70*time.Millisecond)
		if d := s.looked(); d < Void {
			t.Errorf("the fifth stall makes %v", d)
		}
		if d := s.Sum(began); d != 350*time.Millisecond {
			t.Errorf("five stalls of 70 ms sum to %v", d)
		}
		for range 50 {
			time.Sleep(look)
			s.looked()
		}
		began = time.Now()
		time.Sleep(look + 70*time.Millisecond)
		s.looked()
		if d := s.Since(began); d != 70*time.Millisecond {
			t.Errorf("a stall a second after the others is %v", d)
		}
		if len(told) != 0 {
			t.Errorf("told %v after Stop", told)
		}
	})
}

// A stall is told when it ends, without a question.
func TestAStallIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan time.Duration, 1)
		s := WatchStalls(func(d time.Duration) { told <- d })
		defer s.Stop()
		s.mu.Lock()
		s.due = s.due.Add(-Void - look) // as if the process had stood still
		s.mu.Unlock()
		if d := <-told; d < Void {
			t.Errorf("told %v", d)
		}
	})
}

func TestTheDiskIsWatched(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	s := WatchStalls(nil)
	s.WatchDisk(f)
	for began := time.Now(); ; time.Sleep(time.Millisecond) { // the file tells no event
		if info, err := os.Stat(f.Name()); err == nil && info.Size() > 0 {
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatal("nothing is written")
		}
	}
	s.Stop()
	if f.Close() == nil {
		t.Error("the file stays open")
	}
}
