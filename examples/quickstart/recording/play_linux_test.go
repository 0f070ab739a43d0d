package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// The quickstart as a user has it: on a terminal, with keys. The picture of it fits a
// page.
func TestTheStoryPlays(t *testing.T) {
	if !testrounds.Full() {
		t.Skip("WARDMOTE_FULL=1 plays the story in real time")
	}
	program := filepath.Join(t.TempDir(), "quickstart")
	if out, err := exec.Command("go", "build", "-o", program, "..").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	frames, err := play(ctx, program, story)
	if err != nil {
		t.Fatal(err)
	}
	var picture strings.Builder
	draw(&picture, frames)
	wellFormed(t, picture.String())
	for _, want := range []string{"kill -9", "SIGSTOP", "THE FENCE REFUSED", "0 stale writes accepted"} {
		if !strings.Contains(picture.String(), want) {
			t.Errorf("the picture does not show %q", want)
		}
	}
	if end := frames[len(frames)-1].picture.text(); !strings.Contains(end, "The fence refused ") {
		t.Errorf("the end:\n%s", end)
	}
}
