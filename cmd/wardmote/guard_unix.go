//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// Run starts the command through a guard. The guard is a second process of this program,
// in a process group of its own, and the parent of the command. The guard kills the
// command's group
//
//   - by an order of run;
//   - at the latest deadline that run has sent, since a stopped run sends no order;
//   - at the end of run, which closes the pipe between the two processes.
//
// The deadline is a reading of a clock that both processes share. So a deadline is right
// even if run was stopped between the reading and the sending.
//
// If the guard itself is killed, run kills the group, and on Linux the kernel kills the
// command. A process that has left the group, by setsid or setpgid, is out of reach.

// guardCommand is the first argument of a guard.
const guardCommand = "run-guard"

// The guard's ends of the two pipes.
const (
	guardOrders  = 3
	guardReports = 4
)

// groupLimit bounds the wait for the end of processes that were killed. A process that
// waits for a broken disk does not end.
const groupLimit = 5 * time.Second

// clockLook is how often the guard reads the clock. A suspended host's timers stand still.
const clockLook = 100 * time.Millisecond

// An order is a line from run to the guard:
//
//	until WARN KILL   the deadline, by hostClock in nanoseconds; the first one starts the command
//	signal NUMBER     for the group
//	kill              the group is killed
type order struct {
	verb string
	a, b int64
}

// guard is the process between run and the command.
type guard struct {
	reports io.Writer
	pid     int // of the command, and of its group
	until   deadline
	warned  bool   // SIGTERM was sent because of the present deadline
	killed  bool   // SIGKILL was sent
	why     string // for what reason the guard ended the command; "-": it did not
}

// guardMain is the program of a guard.
func guardMain() int {
	// The kernel kills the command at the end of the thread that has started the command.
	runtime.LockOSThread()
	syscall.CloseOnExec(guardOrders)
	syscall.CloseOnExec(guardReports)
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "wardmote: "+guardCommand+" is a part of wardmote run")
		return exitUsage
	}
	// A service manager sends SIGTERM to all processes of a service: the command may
	// take its time. Not ignored: the command would ignore them too. Signals that run's
	// caller ignores, as nohup ignores SIGHUP, stay ignored.
	for _, s := range passedOn {
		if !signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	orders := make(chan order)
	go readOrders(os.NewFile(guardOrders, "orders"), orders)
	g := &guard{reports: os.NewFile(guardReports, "reports"), why: "-"}
	first, ok := <-orders
	if !ok { // run has died
		return exitFailed
	}
	g.obey(first)
	if first.verb != "until" || hostClock() >= g.until.kill { // run has lost the lock
		g.report("late")
		return exitFailed
	}
	adoptOrphans()
	pid, err := syscall.ForkExec(os.Args[2], os.Args[3:], &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2},
		Sys:   ownGroup(),
	})
	if err != nil {
		g.report("failed %d %v", int(errnoOf(err)), err)
		return exitFailed
	}
	g.pid = pid
	g.report("started %d", pid)
	g.watch(orders)
	return exitOK
}

// errnoOf returns the number of a system call's error.
func errnoOf(err error) syscall.Errno {
	var number syscall.Errno
	errors.As(err, &number)
	return number
}

func (g *guard) report(format string, args ...any) {
	fmt.Fprintf(g.reports, format+"\n", args...) // if run has died, nobody listens
}

// readOrders closes orders when run has died.
func readOrders(from io.Reader, orders chan<- order) {
	defer close(orders)
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var o order
		if n, _ := fmt.Sscan(lines.Text(), &o.verb, &o.a, &o.b); n > 0 {
			orders <- o
		}
	}
}

// A change is a change of the command's process: stopped or ended.
type change struct {
	stopped syscall.Signal // by this signal; 0: ended
	status  syscall.WaitStatus
}

// watch returns when nothing is left of the command's group.
func (g *guard) watch(orders <-chan order) {
	changes := make(chan change)
	go awaitChanges(g.pid, changes)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case o, ok := <-orders:
			if !ok { // run has died
				orders = nil
				o = order{verb: "kill"}
			}
			g.obey(o)
		case c := <-changes:
			if c.stopped != 0 {
				g.report("stopped %d", int(c.stopped))
				continue
			}
			g.endGroup()
			g.report("ended %d %s", codeOf(c.status), g.why)
			return
		case <-timer.C:
		}
		timer.Reset(g.look())
	}
}

// look sends the signals that are due, and returns how long the guard may sleep.
func (g *guard) look() time.Duration {
	now := hostClock()
	if now >= g.until.kill {
		g.end("trust", syscall.SIGKILL)
		return clockLook
	}
	next := g.until.kill - now
	if now < g.until.warn {
		next = g.until.warn - now
	} else if !g.warned {
		g.warned = true
		g.end("trust", syscall.SIGTERM)
		g.signal(syscall.SIGCONT) // a stopped command would not notice SIGTERM
	}
	return min(next, clockLook)
}

func (g *guard) obey(o order) {
	switch o.verb {
	case "until":
		g.until = deadline{warn: time.Duration(o.a), kill: time.Duration(o.b)}
		if g.warned && !g.killed && hostClock() < g.until.warn { // a late beat was confirmed
			g.warned, g.why = false, "-"
		}
	case "signal":
		g.signal(syscall.Signal(o.a))
	case "kill":
		g.end("kill", syscall.SIGKILL)
	}
}

// end sends a signal that ends the command for the given reason.
func (g *guard) end(why string, s syscall.Signal) {
	if g.why == "-" {
		g.why = why
	}
	g.killed = g.killed || s == syscall.SIGKILL
	g.signal(s)
}

func (g *guard) signal(s syscall.Signal) {
	if g.pid > 0 {
		_ = syscall.Kill(-g.pid, s)
	}
}

// endGroup kills what is left of the group after the command has ended, and waits for
// the end.
func (g *guard) endGroup() {
	endGroup(g.pid)
}

func endGroup(pid int) {
	pause := time.Millisecond
	for began := time.Now(); time.Since(began) < groupLimit; pause = min(2*pause, 20*time.Millisecond) {
		if syscall.Kill(-pid, syscall.SIGKILL) == syscall.ESRCH {
			return
		}
		time.Sleep(pause)
	}
}

// awaitChanges tells the changes of the command, until it has ended, and buries the
// orphans of its group.
func awaitChanges(pid int, changes chan<- change) {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // no child is left
			return
		case got != pid:
		case !ws.Stopped():
			changes <- change{status: ws}
		case ws.StopSignal() != syscall.SIGSTOP: // which is not the terminal's
			changes <- change{stopped: ws.StopSignal()}
		}
	}
}

// codeOf returns the exit code for a process that ended so.
func codeOf(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return exitSignal + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// signalNumber is for exit codes.
func signalNumber(s os.Signal) int {
	n, _ := s.(syscall.Signal)
	return int(n)
}

// passedOn are the signals that run passes on to the command.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// orderOf returns the line of a deadline.
func orderOf(d deadline) string {
	return "until " + strconv.FormatInt(int64(d.warn), 10) + " " + strconv.FormatInt(int64(d.kill), 10)
}
