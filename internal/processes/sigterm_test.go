package processes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// SIGTERM to all members at once, as when a deployment is scaled to zero. All end
// within 3 s, exit with 0, and have written no WARN in their whole lives.
func TestSIGTERMToAllEndsAllCleanly(t *testing.T) {
	rounds, lanes := testrounds.Rounds(2, 50), 2 // a round mostly waits for a founding
	for lane := range lanes {
		t.Run(fmt.Sprint(lane), func(t *testing.T) {
			t.Parallel()
			var longest time.Duration
			for round := lane; round < rounds && !t.Failed(); round += lanes {
				longest = max(longest, scaleToZero(t, round))
			}
			t.Logf("the longest end took %v", longest)
		})
	}
}

// scaleToZero starts four members, ends all at once, and returns the time that the
// longest end took. Rounds differ in the way to end, and every fourth has a Dir.
func scaleToZero(t *testing.T, round int) (longest time.Duration) {
	const members, limit = 4, 3 * time.Second
	ending := []string{"stop", "leave", "join"}[round%3]
	w := newTown(t, members, nil)
	w.change = func(i int, s *settings) {
		s.Work, s.TTL, s.Ending, s.Insecure = true, time.Second, ending, false
		if round%4 == 3 {
			s.Dir = w.dirs[i]
		}
		if i == 3 {
			s.InitialSize = 0 // only joins
		}
	}
	var all []*house
	born := time.Now()
	for i := range members {
		all = append(all, w.start(i))
	}
	for _, h := range all {
		h.awaitNews("working "+name(h.i), time.Minute)
	}
	began := time.Now()
	for _, h := range all {
		h.terminate()
	}
	for _, h := range all {
		h.exited(20 * time.Second)
		took := time.Since(began)
		longest = max(longest, took)
		if took > limit {
			w.broken(began, "round %d, %s: member %d ended after %v", round, ending, h.i, took)
		}
		for line := range strings.Lines(h.log()) {
			if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
				w.broken(born, "round %d, %s: member %d logged %s", round, ending, h.i, line)
			}
		}
	}
	return longest
}
