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
	begun   chan error    // receives once: nil if the command has been started
	gone    chan struct{} // closed when nothing of the group is left
	read    sync.WaitGroup
	told    deadline

	mu     sync.Mutex
	orders *os.File
	pid    int  // of the command; 0: not started
	killed bool // by killAndWait
}

// orderLimit bounds an order to a guard that does not read.
const orderLimit = 100 * time.Millisecond

// newChild starts a guard, which waits for begin to start the command.
func newChild(path string, argv, env []string) (*child, error) {
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
	c := &child{ended: make(chan ending, 1), reports: reports, begun: make(chan error, 1), orders: ours, gone: make(chan struct{})}
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
	c.read.Go(c.follow)
	return c, nil
}

// begin starts the command, unless killAndWait was called or the deadline has passed.
func (c *child) begin(d deadline) error {
	c.trust(d)
	err := <-c.begun
	if err == nil {
		giveTerminal(c.group())
	}
	return err
}

// group returns the process group of the command; 0: the command has not been started.
func (c *child) group() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// started waits for the guard's first report.
func (c *child) started(lines *bufio.Scanner) error {
	if !lines.Scan() {
		return fail(exitLost, "run the command again", "run: the guard of the command has died")
	}
	verb, rest, _ := strings.Cut(lines.Text(), " ")
	switch verb {
	case "started":
		c.mu.Lock()
		defer c.mu.Unlock()
		_, err := fmt.Sscan(rest, &c.pid)
		return err
	case "late":
		return fail(exitLost, "run the command again", "run: the lock was lost before the command was started")
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
func (c *child) follow() {
	lines := bufio.NewScanner(c.reports)
	err := c.started(lines)
	c.begun <- err
	if err != nil {
		close(c.gone)
		return
	}
	var e ending
	pid := c.group()
	told := false
	for !told && lines.Scan() {
		var why string
		switch verb, rest, _ := strings.Cut(lines.Text(), " "); verb {
		case "stopped":
			var by int
			_, _ = fmt.Sscan(rest, &by)
			c.stop(syscall.Signal(by))
		case "ended":
			_, _ = fmt.Sscan(rest, &e.code, &why)
			e.trust, e.killed = why == "trust", why == "kill"
			told = true
		}
	}
	if !told { // the guard was killed
		endGroup(pid)
		e = ending{err: fail(exitLost, "run the command again", "run: the guard of the command has died, and the command was killed")}
		c.mu.Lock()
		if c.killed {
			e = ending{killed: true}
		}
		c.mu.Unlock()
	}
	takeTerminal(pid)
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

// overdue reports whether the guard should have killed the command by now.
func (c *child) overdue() bool { return hostClock() >= c.told.kill+orderLimit/2 }

// killAndWait kills the group and returns when nothing of the group is left: by the
// guard, which knows whether the group exists, or without the guard, which may be stopped.
// A command that has not been started is not started any more.
func (c *child) killAndWait() {
	c.mu.Lock()
	c.killed = true
	c.mu.Unlock()
	c.order("kill")
	if c.goneWithin(orderLimit / 2) {
		return
	}
	if pid := c.group(); pid > 0 {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
	if c.goneWithin(orderLimit) {
		return
	}
	_ = c.guard.Process.Kill() // a guard that runs has told the end by now
	c.goneWithin(groupLimit)
}

func (c *child) goneWithin(d time.Duration) bool {
	limit := time.NewTimer(d)
	defer limit.Stop()
	select {
	case <-c.gone:
		return true
	case <-limit.C:
		return false
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
func (c *child) stop(by syscall.Signal) {
	pid := c.group()
	if by == syscall.SIGTTIN || by == syscall.SIGTTOU {
		// A command that used the terminal before begin gave it the terminal goes on; it may
		// have ended by now. A Ctrl-Z between the gift and the SIGCONT is lost, as the system
		// drops it with the SIGCONT: the user sees the command go on, and types it again.
		giveTerminal(pid)
		if tty, group, ok := terminal(); ok {
			tty.Close()
			if group == pid || group == syscall.Getpgrp() {
				c.order(fmt.Sprint("signal ", int(syscall.SIGCONT)))
				return
			}
		}
	}
	if !takeTerminal(pid) && !hasTerminal() {
		return // stopped by somebody else, who will let it go on
	}
	stopSelf()
	giveTerminal(pid)
	c.order(fmt.Sprint("signal ", int(syscall.SIGCONT)))
}

// stopSelf stops the process group of run, and returns when the group has been let go on. The
// signal is not SIGSTOP: without a shell that waits for run, the system ignores this one, and
// no SIGCONT comes.
func stopSelf() {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	ignored := time.NewTimer(stopLimit)
	defer ignored.Stop()
	select {
	case <-goesOn:
	case <-ignored.C:
	}
}

// stopLimit is how long a signal that stops run may take to arrive.
const stopLimit = 200 * time.Millisecond

// ttyDevice is the terminal that controls a process, by the name that the process may use.
var ttyDevice = "/dev/tty"

// terminal opens the terminal that controls this process. Where the device is missing, as in
// a minimal container, a standard stream may be the terminal: the system tells the foreground
// group of no other terminal than the one that controls the process.
func terminal() (tty *os.File, group int, ok bool) {
	if tty, err := os.OpenFile(ttyDevice, os.O_RDWR, 0); err == nil {
		group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
		if err == nil {
			return tty, group, true
		}
		tty.Close()
	}
	for _, stream := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		group, err := unix.IoctlGetInt(int(stream.Fd()), unix.TIOCGPGRP)
		if err != nil {
			continue
		}
		if fd, err := unix.FcntlInt(stream.Fd(), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			return os.NewFile(uintptr(fd), stream.Name()), group, true
		}
	}
	return nil, 0, false
}

func hasTerminal() bool {
	tty, _, ok := terminal()
	if ok {
		tty.Close()
	}
	return ok
}

// giveTerminal makes the command's group the foreground group of the terminal, if it was
// this process's. A command that has stopped at a read before goes on by stop: a SIGCONT from
// here could undo a Ctrl-Z.
func giveTerminal(pid int) {
	tty, group, ok := terminal()
	if !ok {
		return
	}
	defer tty.Close()
	if group != syscall.Getpgrp() {
		return
	}
	setForeground(tty, pid)
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
	setForeground(tty, syscall.Getpgrp())
	return true
}

// setForeground makes a group the foreground group of the terminal. A process in the
// background is stopped when it does this, unless it ignores SIGTTOU: and run may have
// come to the background since it looked.
func setForeground(tty *os.File, group int) {
	foreground.Lock()
	defer foreground.Unlock()
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCSPGRP, group) // a group that has ended needs no terminal
}

// foreground guards the handling of SIGTTOU: begin and stop may give the terminal away at
// the same time.
var foreground sync.Mutex
