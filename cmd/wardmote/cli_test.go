//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A running is the command as a process.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	gone chan struct{}

	mu       sync.Mutex
	out, err bytes.Buffer
}

// sink is a buffer that a process writes and a test reads.
type sink struct {
	r  *running
	to *bytes.Buffer
}

func (s sink) Write(b []byte) (int, error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.to.Write(b)
}

// begin starts the command. The end of the test kills it.
func begin(t *testing.T, input string, args ...string) *running {
	t.Helper()
	r := &running{t: t, cmd: exec.Command(os.Args[0], args...), gone: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), roleEnv+"="+asCommand)
	r.cmd.WaitDelay = patience // for a process that has left the group and keeps the streams
	r.cmd.Stdin = strings.NewReader(input)
	r.cmd.Stdout, r.cmd.Stderr = sink{r, &r.out}, sink{r, &r.err}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.gone)
		_ = r.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Signal(syscall.SIGCONT)
		_ = r.cmd.Process.Kill()
		<-r.gone
	})
	return r
}

// wait waits for the end and returns the exit code.
func (r *running) wait() int {
	r.t.Helper()
	select {
	case <-r.gone:
	case <-time.After(patience):
		r.t.Fatalf("%q still runs; stdout %q, stderr %q", r.cmd.Args[1:], r.stdout(), r.stderr())
	}
	if ws, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return -int(ws.Signal())
	}
	return r.cmd.ProcessState.ExitCode()
}

// signal sends a signal. If the run has ended, its exit code tells why.
func (r *running) signal(s os.Signal) { _ = r.cmd.Process.Signal(s) }

func (r *running) stdout() string { r.mu.Lock(); defer r.mu.Unlock(); return r.out.String() }
func (r *running) stderr() string { r.mu.Lock(); defer r.mu.Unlock(); return r.err.String() }

// awaitOutput waits until the standard output or error has the text; a line end counts on
// the standard output alone.
func (r *running) awaitOutput(text string) {
	r.t.Helper()
	await(r.t, fmt.Sprintf("%q in the output of %q", text, r.cmd.Args[1:]), func() bool {
		if strings.Contains(r.stdout(), text) || text != "\n" && strings.Contains(r.stderr(), text) {
			return true
		}
		r.lives()
		return false
	})
}

// lives fails the test if the run has ended.
func (r *running) lives() {
	r.t.Helper()
	select {
	case <-r.gone:
		r.t.Fatalf("%q has ended: code %d, stdout %q, stderr %q", r.cmd.Args[1:], r.wait(), r.stdout(), r.stderr())
	default:
	}
}

// await waits for a condition that no event tells.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for began := time.Now(); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal("waited in vain for " + what)
		}
	}
}

// runCLI runs the command to its end, in this process: a hundred processes would starve
// the members of the towns, and then every lock is lost.
func runCLI(t *testing.T, input string, args ...string) (out, err string, code int) {
	t.Helper()
	if len(args) > 0 && args[0] == "run" { // has the streams and the signals of its process
		return runProcess(t, input, args...)
	}
	var o, e bytes.Buffer
	p := &program{in: strings.NewReader(input), out: &o, err: &e}
	code = p.main(args)
	return o.String(), e.String(), code
}

// runProcess runs the command to its end, as a process of its own.
func runProcess(t *testing.T, input string, args ...string) (out, err string, code int) {
	t.Helper()
	r := begin(t, input, args...)
	code = r.wait()
	return r.stdout(), r.stderr(), code
}

// stamps returns the times in the lines of a process and of its child process.
func stamps(t *testing.T, file, name string) (times []time.Duration) {
	t.Helper()
	for line := range strings.Lines(read(file)) {
		who, at, ok := strings.Cut(strings.TrimSpace(line), " ")
		if who != name && who != name+".child" || !ok {
			continue
		}
		n, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		times = append(times, time.Duration(n))
	}
	return times
}
