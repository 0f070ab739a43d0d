//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func readClock(id int32) time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(id, &ts) // all systems have the clock
	return time.Duration(ts.Nano())
}

// child is the command, as run sees it through the guard.
type child struct {
	ended chan ending // receives once

	guard   *exec.Cmd
	reports *os.File
	pid     int           // of the command
	gone    chan struct{} // closed when nothing of the group is left
	read    sync.WaitGroup

	mu     sync.Mutex
	orders *os.File
	told   deadline
}

// orderLimit bounds an order to a guard that does not read.
const orderLimit = 100 * time.Millisecond

// startChild starts the command under a guard.
func startChild(path string, argv, env []string, d deadline) (*child, error) {
	program, err := guardProgram()
	if err != nil {
		return nil, fail(exitNotExecutable, "", "run: %v", err)
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, fail(exitNotExecutable, "", "run: %v", err)
	}
	reports, told, err := os.Pipe()
	if err != nil {
		return nil, fail(exitNotExecutable, "", "run: %v", err)
	}
	c := &child{ended: make(chan ending, 1), reports: reports, orders: ours, gone: make(chan struct{})}
	c.guard = exec.Command(program, append([]string{guardCommand, path}, argv...)...)
	c.guard.Args[0] = "wardmote"
	c.guard.Env = env
	c.guard.Stdin, c.guard.Stdout, c.guard.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.guard.ExtraFiles = []*os.File{theirs, told}
	c.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = c.guard.Start()
	theirs.Close()
	told.Close()
	if err != nil {
		return nil, fail(exitNotExecutable, "", "run: %v", err)
	}
	c.trust(d)
	lines := bufio.NewScanner(reports)
	if err := c.started(lines); err != nil {
		c.close()
		return nil, err
	}
	giveTerminal(c.pid)
	c.read.Go(func() { c.follow(lines) })
	return c, nil
}

// started waits for the guard's first report.
func (c *child) started(lines *bufio.Scanner) error {
	if !lines.Scan() {
		return fail(exitLost, "run the command again", "run: the guard of the command has died")
	}
	verb, rest, _ := strings.Cut(lines.Text(), " ")
	if verb == "started" {
		_, err := fmt.Sscan(rest, &c.pid)
		return err
	}
	var number int
	_, _ = fmt.Sscan(rest, &number)
	_, text, _ := strings.Cut(rest, " ")
	code := exitNotExecutable
	if syscall.Errno(number) == syscall.ENOENT {
		code = exitNotFound
	}
	return fail(code, "", "run: %s", text)
}

// follow reads the guard's reports until the guard ends.
func (c *child) follow(lines *bufio.Scanner) {
	var e ending
	told := false
	for !told && lines.Scan() {
		var why string
		switch verb, rest, _ := strings.Cut(lines.Text(), " "); verb {
		case "stopped":
			c.stop()
		case "ended":
			_, _ = fmt.Sscan(rest, &e.code, &why)
			e.trust, e.killed = why == "trust", why == "kill"
			told = true
		}
	}
	if !told { // the guard was killed
		endGroup(c.pid)
		e = ending{err: fail(exitLost, "run the command again", "run: the guard of the command has died, and the command was killed")}
	}
	takeTerminal(c.pid)
	close(c.gone)
	c.ended <- e
}

// order sends a line to the guard.
func (c *child) order(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.orders.SetWriteDeadline(time.Now().Add(orderLimit))
	_, _ = io.WriteString(c.orders, line+"\n") // the guard's end is told by its reports
}

// trust tells the guard the deadline, if the deadline has changed.
func (c *child) trust(d deadline) {
	if moved := d.kill - c.told.kill; moved > -time.Millisecond && moved < time.Millisecond {
		return
	}
	c.told = d
	c.order(orderOf(d))
}

func (c *child) signal(s os.Signal) { c.order(fmt.Sprint("signal ", signalNumber(s))) }

// killAndWait kills the group and returns when nothing of the group is left: by the
// guard, which knows whether the group exists, or else without the guard.
func (c *child) killAndWait() {
	c.order("kill")
	limit := time.NewTimer(2 * orderLimit)
	defer limit.Stop()
	select {
	case <-c.gone:
		return
	case <-limit.C:
	}
	_ = syscall.Kill(-c.pid, syscall.SIGKILL)
	limit.Reset(groupLimit)
	select {
	case <-c.gone:
	case <-limit.C:
	}
}

// close returns when the guard has ended.
func (c *child) close() {
	c.mu.Lock()
	c.orders.Close()
	c.mu.Unlock()
	c.read.Wait()
	_ = c.guard.Wait()
	c.reports.Close()
}

// stop follows a command that was stopped from the terminal: run stops too, so that the
// shell comes back, and the command goes on when run does. Meanwhile nothing confirms the
// lock, and after its trust has ended the guard ends the command.
func (c *child) stop() {
	if !takeTerminal(c.pid) && !hasTerminal() {
		return // stopped by somebody else, who will let it go on
	}
	// Not SIGSTOP: without a shell that waits for run, the system ignores this signal.
	_ = syscall.Kill(0, syscall.SIGTSTP)
	time.Sleep(20 * time.Millisecond) // another thread may take the signal
	giveTerminal(c.pid)
	c.order(fmt.Sprint("signal ", int(syscall.SIGCONT)))
}

// terminal opens the terminal that controls this process.
func terminal() (tty *os.File, group int, ok bool) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, 0, false
	}
	group, err = unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	if err != nil {
		tty.Close()
		return nil, 0, false
	}
	return tty, group, true
}

func hasTerminal() bool {
	tty, _, ok := terminal()
	if ok {
		tty.Close()
	}
	return ok
}

// giveTerminal makes the command's group the foreground group of the terminal, if it was
// this process's.
func giveTerminal(pid int) {
	tty, group, ok := terminal()
	if !ok {
		return
	}
	defer tty.Close()
	if group != syscall.Getpgrp() {
		return
	}
	_ = unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCSPGRP, pid)
	_ = syscall.Kill(-pid, syscall.SIGCONT) // it may have stopped at a read meanwhile
}

// takeTerminal takes the terminal back, and reports whether the command's group had it.
func takeTerminal(pid int) bool {
	tty, group, ok := terminal()
	if !ok {
		return false
	}
	defer tty.Close()
	if group != pid {
		return false
	}
	// A process in the background is stopped when it does this, unless:
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCSPGRP, syscall.Getpgrp())
	return true
}
