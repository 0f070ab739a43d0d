// Command recording runs the quickstart on a terminal of its own, presses keys, and draws
// the screen as an animated picture:
//
//	go run ./examples/quickstart/recording -o docs/quickstart.svg
//
// pty_linux.go is the terminal, screen.go understands the codes of the quickstart,
// play.go presses the keys, and svg.go draws. The picture shows a real run, so two
// pictures differ in details. The command needs Linux.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"
)

// The size of the terminal in columns and lines: wide enough for all that matters, and
// small enough to be read on a page.
const (
	columns = 92
	rows    = 27
)

// story is the run that is shown. It ends with the refusal at the fence.
var story = []step{
	{await: "Press k", hold: 1500 * time.Millisecond, key: "k"},
	{await: "Press r", hold: 1500 * time.Millisecond, key: "r"},
	{await: "Press p", hold: 1500 * time.Millisecond, key: "p"},
	{await: "THE FENCE REFUSED", hold: 4 * time.Second, key: "q"},
}

func main() {
	out := flag.String("o", "quickstart.svg", "the file to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := record(ctx, *out); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func record(ctx context.Context, out string) error {
	temp, err := os.MkdirTemp("", "recording-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	program := filepath.Join(temp, "quickstart")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/wardmote/wardmote/examples/quickstart")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("go build: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	frames, err := play(ctx, program, story)
	if err != nil {
		return err
	}
	var picture bytes.Buffer
	draw(&picture, frames)
	const most = 200_000 // bytes: a page should not wait for the picture
	if picture.Len() > most {
		return fmt.Errorf("the picture has %d bytes, more than %d", picture.Len(), most)
	}
	fmt.Printf("%s: %d frames, %d bytes\n", out, len(frames), picture.Len())
	return os.WriteFile(out, picture.Bytes(), 0o644)
}
