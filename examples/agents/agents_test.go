package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain is an agent in the processes that the test starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == agentCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// One agent is killed between two files, one is stopped before a write and refused when it
// wakes up, and the tree has every edit once.
func TestNoEditIsLostOrMadeTwice(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out strings.Builder
	if err := demo(t.Context(), &out, 500*time.Millisecond); err != nil {
		t.Fatalf("%v, after\n%s", err, out.String())
	}
	wants := []string{"ben is killed between two files", "20 edits of 6 files: 0 lost, 0 made twice"}
	if canPause {
		wants = append(wants, "ann is stopped before it writes pair-0", "ann is REFUSED")
	}
	for _, want := range wants {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the program does not say %q, but\n%s", want, out.String())
		}
	}
}
