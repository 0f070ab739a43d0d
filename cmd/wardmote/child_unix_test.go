//go:build unix

package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// newCommand returns a command that stamps a file and goes on for ever, under a guard.
func newCommand(t *testing.T) (c *child, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "began")
	c, err := newChild("/bin/sh", []string{"sh", "-c", `trap '' TERM; echo >"$0"; while :; do sleep 0.02; done`, file},
		append(os.Environ(), roleEnv+"="+asCommand))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.guard.Process.Kill()
		c.close()
	})
	return c, file
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// in returns a deadline after a time.
func in(d time.Duration) deadline {
	now := hostClock()
	return deadline{warn: now + d, kill: now + d}
}

// A lock that is lost between the grant and the start of the command starts nothing.
func TestALostLockStartsNoCommand(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(c *child) error{
		"killed before": func(c *child) error { c.killAndWait(); return c.begin(in(time.Hour)) },
		"late":          func(c *child) error { return c.begin(in(0)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, file := newCommand(t)
			var f *failure
			if err := play(c); !errors.As(err, &f) || f.code != exitLost {
				t.Errorf("begin returned %v", err)
			}
			<-c.gone
			if c.group() != 0 || exists(file) {
				t.Errorf("the command was started: process %d", c.group())
			}
		})
	}
}

// A guard that is stopped obeys nothing: run kills the command by itself, and then the
// guard, so that run ends.
func TestAStoppedGuardSavesNoCommand(t *testing.T) {
	t.Parallel()
	c, file := newCommand(t)
	if err := c.begin(in(time.Hour)); err != nil {
		t.Fatal(err)
	}
	await(t, "the command", func() bool { return exists(file) })
	if err := c.guard.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.killAndWait()
	if e := <-c.ended; !e.killed {
		t.Errorf("the command ended with %+v", e)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(c.group(), 0); err == nil && !zombie(c.group()) {
		t.Errorf("process %d lives", c.group())
	}
}

// A deadline that moves on after SIGTERM ends nobody: the next SIGTERM comes before the
// next SIGKILL, and the command's own end is its own.
func TestALateBeatTakesTheWarningBack(t *testing.T) {
	g := &guard{why: "-"}
	now := hostClock()
	g.obey(order{"until", int64(now - 1), int64(now + time.Hour)})
	g.look()
	if !g.warned || g.why != "trust" {
		t.Fatalf("not warned: %+v", g)
	}
	g.obey(order{"until", int64(now + time.Hour), int64(now + 2*time.Hour)})
	if g.warned || g.why != "-" {
		t.Errorf("still warned: %+v", g)
	}
	g.obey(order{"until", int64(now - 2), int64(now - 1)})
	g.look()
	g.obey(order{"until", int64(now + time.Hour), int64(now + 2*time.Hour)})
	if g.why != "trust" || !g.killed {
		t.Errorf("a kill is taken back: %+v", g)
	}
}
