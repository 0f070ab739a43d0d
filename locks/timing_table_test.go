package locks

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// TestTimingTable: the table of docs/timing.md follows from the code. Run with
// -rewrite-documents after a change.
func TestTimingTable(t *testing.T) {
	file := filepath.Join("..", "docs", "timing.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const head = "|---|---|---|---|---|---|---|\n"
	before, rest, ok := strings.Cut(string(text), head)
	end := strings.Index(rest, "\n\n") + 1
	if !ok || end == 0 {
		t.Fatal("no table")
	}
	var rows strings.Builder
	for _, ttl := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute} {
		beat, trusted := ttl/beatsPerTTL, ttl-margin(ttl)
		led := ttl + timing.Election(ttl) + 2*timing.Attend + timing.LeastStagger
		fmt.Fprintf(&rows, "| %s | %s | %s | %s | %s to %s | up to %s | %s |\n", seconds(ttl), seconds(beat), seconds(trusted), seconds(trusted-beat),
			seconds(ttl-beat), seconds(ttl+timing.KeeperTick), seconds(led), seconds(max(ttl, timing.LeastFounding)))
	}
	if *rewriteDocuments {
		if err := os.WriteFile(file, []byte(before+head+rows.String()+"\n"+strings.TrimLeft(rest[end:], "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got := rest[:end]; got != rows.String() {
		t.Errorf("the table is\n%s\nwant\n%s", got, &rows)
	}
}

// seconds writes a duration to a hundredth of a second.
func seconds(d time.Duration) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", d.Seconds()), "0"), ".") + " s"
}
