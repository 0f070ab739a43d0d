package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// step is a key that is pressed when the screen has shown a text for some time.
type step struct {
	await string
	hold  time.Duration
	key   string
}

// frame is a picture that is shown for some time.
type frame struct {
	picture picture
	lasts   time.Duration
	key     string // the key that was pressed just now, or ""
}

const (
	command = "$ go run ./examples/quickstart"
	sample  = 400 * time.Millisecond // between two frames
	last    = 5 * time.Second        // of the end
	pressed = 3                      // frames that show a pressed key
)

// terminal is a program on a terminal, and its screen.
type terminal struct {
	keyboard *os.File

	mu     sync.Mutex
	screen *screen
}

// look returns the screen as it was when the program had last drawn all of it.
func (t *terminal) look() picture {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.screen.complete == nil {
		return t.screen.shown().clone()
	}
	return t.screen.complete
}

// play runs the program, takes the steps, and returns the frames.
func play(ctx context.Context, program string, story []step) ([]frame, error) {
	keyboard, display, err := openTerminal()
	if err != nil {
		return nil, err
	}
	defer keyboard.Close()
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // ends its processes too
	cmd.WaitDelay = 10 * time.Second
	attach(cmd, display)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, display.Close())
	}
	display.Close()

	t := &terminal{keyboard: keyboard, screen: newScreen()}
	for _, char := range command {
		t.screen.put(char)
	}
	begin := frame{picture: t.look(), lasts: sample}
	read := make(chan struct{})
	go func() {
		defer close(read)
		t.read()
	}()
	frames, err := t.follow(ctx, story)
	if err != nil {
		cmd.Cancel()
	}
	err = errors.Join(err, cmd.Wait())
	<-read
	end := frame{picture: t.screen.main, lasts: last}
	return append(append([]frame{begin}, frames...), end), err
}

// read shows what the program sends, until the program ends.
func (t *terminal) read() {
	p := make([]byte, 1<<16)
	for {
		n, err := t.keyboard.Read(p)
		if err != nil {
			return
		}
		t.mu.Lock()
		t.screen.Write(p[:n])
		t.mu.Unlock()
	}
}

// follow takes a frame each sample, and the steps of the story.
func (t *terminal) follow(ctx context.Context, story []step) (frames []frame, err error) {
	tick := time.NewTicker(sample)
	defer tick.Stop()
	var since time.Time // the screen shows the text of the next step
	key, left := "", 0
	for len(story) > 0 {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waited for %q on the screen:\n%s", story[0].await, t.look().text())
		case <-tick.C:
		}
		now := t.look()
		if left--; left <= 0 {
			key = ""
		}
		switch {
		case !strings.Contains(now.text(), story[0].await):
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= story[0].hold:
			key, left, since = story[0].key, pressed, time.Time{}
			if _, err := t.keyboard.WriteString(key); err != nil {
				return nil, err
			}
			story = story[1:]
		}
		frames = append(frames, frame{now, sample, key})
	}
	return frames, nil
}
