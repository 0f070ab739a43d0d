package processes

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
)

// Two of three members are killed: the survivor tells what it knows at once, and how old it
// is, from the first moment on.
func TestTheSurvivorsReportHasItsAge(t *testing.T) {
	company(t)
	for range testrounds.Rounds(1, 10) {
		w := newTown(t, 3, nil)
		all := w.startAll()
		w.whole(all)
		leader := w.leader(all)
		survivor, other := all[(leader.i+1)%3], all[(leader.i+2)%3]
		survivor.acquire("k", patience)
		tell := func() (r locks.Report) {
			if err := json.Unmarshal([]byte(survivor.ask("report", "", patience).Detail), &r); err != nil {
				t.Fatal(err)
			}
			return r
		}
		for tell().Node.Summary.Keys != 1 { // a follower hears of the commit a moment later
			time.Sleep(10 * time.Millisecond)
		}
		leader.kill()
		other.kill()
		killed := time.Now()
		for {
			since := time.Since(killed)
			r := tell()
			h, s := r.Node.Health, r.Node.Summary
			switch {
			case s == nil || s.Source != "table" || s.Keys != 1:
				t.Fatalf("the survivor's summary is %+v", s)
			case time.Duration(h.Age) < since-time.Second || time.Duration(s.Age) < since-time.Second:
				t.Fatalf("%v after the death: health of %v, summary of %v ago", since, h.Age, s.Age)
			case since > 5*time.Second && (h.Quorum || !strings.Contains(h.Reason, "1 of 3 voters seen since")):
				t.Fatalf("%v after the death: quorum %t, %q", since, h.Quorum, h.Reason)
			}
			if since > 6*time.Second {
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
}
