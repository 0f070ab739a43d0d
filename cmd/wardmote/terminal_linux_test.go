package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A session is a shell with job control on a terminal of its own.
type session struct {
	t    *testing.T
	keys *os.File // the other end of the terminal
	cmd  *exec.Cmd
	done chan struct{}

	mu   sync.Mutex
	text bytes.Buffer // all that the terminal has shown
}

// login starts a shell on a new terminal. The end of the test hangs up.
func login(t *testing.T) *session {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := keys.SyscallConn() // not Fd: a read must end when keys is closed
	if err != nil {
		t.Fatal(err)
	}
	var n int
	var unlocked, numbered error
	err = raw.Control(func(fd uintptr) {
		unlocked = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		n, numbered = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	})
	if err := errors.Join(err, unlocked, numbered); err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	s := &session{t: t, keys: keys, cmd: exec.Command("/bin/sh", "-i"), done: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), roleEnv+"="+asCommand, "PS1=$ ", "ENV=")
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = tty, tty, tty
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		b := make([]byte, 4096)
		for {
			n, err := keys.Read(b)
			s.mu.Lock()
			s.text.Write(b[:n])
			s.mu.Unlock()
			if err != nil { // nobody has the terminal any more
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		_ = s.cmd.Wait()
		_ = keys.Close()
		<-s.done
	})
	return s
}

// types writes to the terminal as a person does.
func (s *session) types(keys string) {
	s.t.Helper()
	if _, err := s.keys.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// shown is what the terminal has shown so far.
func (s *session) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// awaits waits until the terminal has shown a text after the first from bytes, and
// returns the number of bytes shown by then.
func (s *session) awaits(text string, from int) int {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the terminal has shown %q", s.shown())
		}
	}()
	await(s.t, fmt.Sprintf("%q on the terminal", text), func() bool { return strings.Contains(s.shown()[from:], text) })
	return from + strings.Index(s.shown()[from:], text) + len(text)
}

// A program under run reads the terminal, is interrupted and stopped from the keyboard, and
// goes on in the foreground, as it would without run.
func TestRunOnATerminal(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	s := login(t)
	s.types(fmt.Sprintf("%s run -join %s on/terminal -- sh -c 'echo up-$((20+1)); read a; echo got-$a; read b; echo then-$b; exit 5'\n", os.Args[0], w.join()))
	at := s.awaits("up-21", 0)
	s.types("one\n")
	at = s.awaits("got-one", at)
	s.types("\x1a") // Ctrl-Z: the shell comes back
	at = s.awaits("$ ", at)
	s.types("echo shell-$((40+2))\n")
	at = s.awaits("shell-42", at)
	if lockOf(t, w, "on/terminal") == "" {
		t.Error("the key is free while the command is stopped")
	}
	s.types("fg\n")
	at = s.awaits("on/terminal", at)
	s.types("two\n")
	at = s.awaits("then-two", at)
	s.types("echo code-$?\n")
	at = s.awaits("code-5", at)
	// Ctrl-C reaches the command, and the terminal is the shell's again.
	s.types(fmt.Sprintf("%s run -join %s on/terminal -- sh -c 'echo again-$((20+1)); exec sleep 1000'\n", os.Args[0], w.join()))
	at = s.awaits("again-21", at)
	s.types("\x03")
	at = s.awaits("$ ", at)
	s.types("echo code-$?\n")
	s.awaits("code-130", at)
}

// A command that stays stopped for longer than the trust in its lock is dead, and its key
// is another one's, before the shell lets it go on.
func TestRunStoppedForTooLong(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	s := login(t)
	s.types(fmt.Sprintf("%s run -ttl %v -join %s on/hold -- sh -c 'echo up-$((20+1)); read a; echo has-$a; read b; echo went-$((20+2))'\n", os.Args[0], briefTTL, w.join()))
	at := s.awaits("up-21", 0)
	// A command that reads before the terminal is its own is stopped by the system and let go on
	// by run, which undoes a Ctrl-Z of the same moment. One that has read has the terminal.
	s.types("it\n")
	at = s.awaits("has-it", at)
	s.types("\x1a")
	at = s.awaits("$ ", at)
	out, err, code := runCLI(t, "", "run", "-join", w.join(), "on/hold", "--", "echo", "next")
	if code != 0 || out != "next\n" {
		t.Fatalf("code %d, stdout %q, stderr %q", code, out, err)
	}
	s.types("fg\n")
	at = s.awaits("the command was ended", at)
	at = s.awaits("$ ", at)
	s.types("echo code-$?\n")
	s.awaits(fmt.Sprint("code-", exitLost), at)
	if strings.Contains(s.shown(), "went-22") {
		t.Error("the command went on")
	}
}
