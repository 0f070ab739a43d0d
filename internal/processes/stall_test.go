package processes

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// watch watches this process and its disk until the end of the test.
func watch(t *testing.T) *testrounds.Stalls {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	s := testrounds.WatchStalls(nil)
	s.WatchDisk(f)
	t.Cleanup(s.Stop)
	return s
}

// stalled returns how long this process or a member has stood still since a time.
// Processes that the test paused are not counted.
func (w *town) stalled(since time.Time) time.Duration {
	longest := w.stalls.Since(since)
	for _, h := range w.houses {
		if h.puppet {
			continue
		}
		select {
		case <-h.p.Gone(): // the process has told its stalls
		default:
			_, _ = h.begin("stalls", strconv.FormatInt(since.UnixNano(), 10), time.Second)()
		}
		h.mu.Lock()
		for _, r := range h.news {
			if r.News == "stalled" && time.Unix(0, r.At).After(since) {
				longest = max(longest, r.Took)
			}
		}
		h.mu.Unlock()
	}
	return longest
}

// broken fails the test because a promise about times, leaders or sessions was broken
// after a time. The promise is void, and the test goes on, if the host stood still
// meanwhile: members give up a leader that is silent, and a session that is.
func (w *town) broken(since time.Time, format string, args ...any) {
	w.t.Helper()
	if d := w.stalled(since); d >= testrounds.Void {
		w.t.Logf("the host stood still for %v, which excuses:", d)
		w.t.Logf(format, args...)
		return
	}
	w.t.Errorf(format, args...)
}

// company has a test of times run beside others in a plain run, whose limits are
// wide. With all rounds the test runs alone, for the times that it prints.
func company(t *testing.T) {
	if !testrounds.Full() {
		t.Parallel()
	}
}
