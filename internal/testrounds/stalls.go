package testrounds

import (
	"os"
	"sync"
	"time"
)

// Void is the shortest standstill of a process or of the disk that excuses a broken
// promise of time. Leaders are given up and sessions end by the clock: the promises
// hold for processes that run, and not on a host that stands still meanwhile. A host
// that withholds a process this much of one second, in many short standstills, delays
// an exchange of a few messages as long as one standstill does.
const Void = 300 * time.Millisecond

// Stalls knows how long its process has stood still. A test of real processes has a
// Stalls in each of them.
type Stalls struct {
	stop     chan struct{}
	watchers sync.WaitGroup
	tell     func(time.Duration)

	mu    sync.Mutex
	due   time.Time // of the watcher's next look
	noted []stall
}

// A stall is a standstill that ended at a time. took is the longest of the standstill
// itself and of all standstills of the process in the second before its end.
type stall struct {
	ended time.Time
	d     time.Duration
	took  time.Duration
}

// look is the time between two looks at the clock, and so about the shortest stall
// that is noticed.
const look = 20 * time.Millisecond

// WatchStalls starts to watch this process until Stop. Each stall of Void or more is
// told when it ends, for a process that may be killed before anybody asks; tell may be
// nil.
func WatchStalls(tell func(time.Duration)) *Stalls {
	s := &Stalls{stop: make(chan struct{}), tell: tell, due: time.Now().Add(look)}
	s.watchers.Go(func() {
		timer := time.NewTimer(look)
		defer timer.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-timer.C:
			}
			if d := s.looked(); d >= Void && s.tell != nil {
				s.tell(d)
			}
			timer.Reset(look)
		}
	})
	return s
}

// WatchDisk watches the disk of a file too, which Stop closes. A disk that is slow all
// the time is no stall: only single waits count.
func (s *Stalls) WatchDisk(f *os.File) {
	s.watchers.Go(func() {
		defer f.Close()
		tick := time.NewTicker(5 * look)
		defer tick.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-tick.C:
			}
			began := time.Now()
			_, err := f.WriteAt([]byte("x"), 0)
			if err == nil {
				err = f.Sync()
			}
			if d := time.Since(began); err == nil && d >= look {
				s.mu.Lock()
				s.noted = append(s.noted, stall{ended: time.Now(), took: d})
				s.mu.Unlock()
			}
		}
	})
}

// looked notes that the watcher runs, and returns how long the process had stood still
// before: 0 if the look is in time.
func (s *Stalls) looked() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	late := now.Sub(s.due)
	s.due = now.Add(look)
	if late < look {
		return 0
	}
	sum := late
	for i := len(s.noted) - 1; i >= 0 && now.Sub(s.noted[i].ended) < time.Second-late; i-- {
		sum += s.noted[i].d
	}
	s.noted = append(s.noted, stall{ended: now, d: late, took: max(late, min(sum, time.Second))})
	return max(late, min(sum, time.Second))
}

// Since returns the longest stall that ended after t, or that lasts.
func (s *Stalls) Since(t time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest := max(0, time.Since(s.due))
	for _, n := range s.noted {
		if n.ended.After(t) {
			longest = max(longest, n.took)
		}
	}
	return longest.Round(time.Millisecond)
}

// Sum returns how long the process has stood still since t, in all stalls together.
func (s *Stalls) Sum(t time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := max(0, time.Since(s.due))
	for _, n := range s.noted {
		if n.ended.After(t) {
			sum += n.d
		}
	}
	return sum.Round(time.Millisecond)
}

// Stop ends the watch.
func (s *Stalls) Stop() {
	close(s.stop)
	s.watchers.Wait()
}
