package attack

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// stalled returns how long this process, its disk or a member has stood still since a
// time.
func (w *town) stalled(since time.Time) time.Duration {
	longest := w.host.Since(since)
	for _, h := range w.houses {
		if h == nil {
			continue
		}
		select {
		case <-h.gone:
		default:
			c := command{Do: "stalls", Key: strconv.FormatInt(since.UnixNano(), 10), Wait: 5 * time.Second}
			if r, err := h.begin(c)(); err == nil && len(r.Took) == 1 {
				longest = max(longest, r.Took[0])
			}
		}
	}
	return longest
}

// mostTries bounds the tries of one attack on a host that stands still.
const mostTries = 3

// void reports whether a harm since a time proves nothing, and notes in the log why:
// members give up a leader or a session that is silent, and on a host that stands
// still everybody is. The end of a process is never void. An attack that makes
// members stand still does so in every try, and the last try counts.
func (w *town) void(v verdict, since time.Time, try int) bool {
	d := w.stalled(since.Add(-ttl)) // a session lives for so long without a beat
	if d >= testrounds.Void || v.harm != "" {
		w.t.Logf("%s, %s: try %d: %v; meanwhile the host stood still for %v", v.who, v.attack, try, v, d)
	}
	return v.harm != "" && d >= testrounds.Void && try < mostTries && !strings.Contains(v.harm, "process m")
}
