package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// ttyEnv names another device than /dev/tty.
const ttyEnv = "WARDMOTE_TEST_TTY"

func init() {
	if name, ok := os.LookupEnv(ttyEnv); ok {
		ttyDevice = name
	}
}

// Job control works without /dev/tty, as in a minimal container, by any standard stream that
// is the terminal.
func TestRunOnATerminalWithoutItsDevice(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	missing := filepath.Join(t.TempDir(), "tty")
	for name, redirect := range map[string]string{"all": "", "errors": "</dev/null | cat"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := login(t)
			script := `trap "echo int-$((20+3)); exit 6" INT; echo up-$((20+1)) >/dev/tty; while :; do sleep 0.02; done`
			s.types(fmt.Sprintf("%s=%s %s run -join %s without/%s -- sh -c '%s' %s\n", ttyEnv, missing, os.Args[0], w.join(), name, script, redirect))
			at := s.awaits("up-21", 0)
			s.types("\x1a") // Ctrl-Z reaches the command alone, and so shows who has the terminal
			at = s.awaits("$ ", at)
			s.types("echo shell-$((40+2))\n")
			at = s.awaits("shell-42", at)
			s.types("fg\n")
			at = s.awaits("without/"+name, at)
			s.types("\x03")
			s.awaits("int-23", at)
		})
	}
}
