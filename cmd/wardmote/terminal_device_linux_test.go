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

// Without /dev/tty, as in a minimal container, the command still gets the terminal, by a
// standard stream that is the terminal. A command without it would be stopped as it reads.
func TestRunOnATerminalWithoutItsDevice(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	s := login(t)
	s.types(fmt.Sprintf("%s=%s %s run -join %s without/device -- sh -c 'echo up-$((20+1)); read a; echo got-$a'\n",
		ttyEnv, filepath.Join(t.TempDir(), "tty"), os.Args[0], w.join()))
	at := s.awaits("up-21", 0)
	s.types("one\n")
	s.awaits("got-one", at)
}
