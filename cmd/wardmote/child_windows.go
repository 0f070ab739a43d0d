package main

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// On Windows the command runs in a job object, which ends with this process, and with it
// everything in the job. There is no SIGTERM: where other systems send one, the job ends.
// A process that the command starts in its first moments, before it is in the job, is out
// of reach.

const guardCommand = "run-guard"

func guardMain() int { return exitUsage }

type child struct {
	ended chan ending

	cmd  *exec.Cmd
	job  windows.Handle
	gone chan struct{}

	mu       sync.Mutex
	why      string
	started  bool
	deadline *time.Timer
	told     deadline
}

var began = time.Now()

func hostClock() time.Duration { return time.Since(began) }

func newChild(path string, argv, env []string) (*child, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fail(exitNotExecutable, "", "run: %v", err)
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		return nil, fail(exitNotExecutable, "", "run: %v", err)
	}
	c := &child{ended: make(chan ending, 1), job: job, gone: make(chan struct{})}
	c.cmd = exec.Command(path, argv[1:]...)
	c.cmd.Args, c.cmd.Env = argv, env
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.deadline = time.AfterFunc(time.Hour, func() { c.end("trust") })
	return c, nil
}

// begin starts the command, unless killAndWait was called or the deadline has passed.
func (c *child) begin(d deadline) error {
	c.mu.Lock()
	late := c.why != "" || hostClock() >= d.kill
	c.started = !late
	c.mu.Unlock()
	if late {
		return fail(exitLost, "run the command again", "run: the lock was lost before the command was started")
	}
	if err := c.cmd.Start(); err != nil {
		close(c.gone)
		return fail(exitNotExecutable, "", "run: %v", err)
	}
	const rights = windows.PROCESS_SET_QUOTA | windows.PROCESS_TERMINATE
	process, err := windows.OpenProcess(rights, false, uint32(c.cmd.Process.Pid))
	if err == nil {
		err = windows.AssignProcessToJobObject(c.job, process)
		windows.CloseHandle(process)
	}
	if err != nil && !errors.Is(err, windows.ERROR_INVALID_PARAMETER) { // it may have ended
		_ = c.cmd.Process.Kill()
	}
	c.trust(d)
	c.mu.Lock()
	dead := c.why != ""
	c.mu.Unlock()
	if dead { // since the start, and before the command was in the job
		_ = windows.TerminateJobObject(c.job, exitLost)
	}
	go c.wait()
	return nil
}

func (c *child) wait() {
	var exit *exec.ExitError
	err := c.cmd.Wait()
	c.mu.Lock()
	e := ending{trust: c.why == "trust", killed: c.why == "kill"}
	c.mu.Unlock()
	switch {
	case errors.As(err, &exit):
		e.code = exit.ExitCode()
	case err != nil:
		e.err = err
	}
	_ = windows.TerminateJobObject(c.job, exitLost) // what the command has left behind
	close(c.gone)
	c.ended <- e
}

func (c *child) end(why string) {
	c.mu.Lock()
	if c.why == "" {
		c.why = why
	}
	c.mu.Unlock()
	_ = windows.TerminateJobObject(c.job, exitLost)
}

func (c *child) trust(d deadline) {
	c.told = d
	c.deadline.Reset(max(0, d.warn-hostClock()))
}

// overdue reports whether the command should have ended by now.
func (c *child) overdue() bool { return hostClock() >= c.told.kill+time.Second }

func (c *child) killAndWait() {
	c.end("kill")
	c.mu.Lock()
	started := c.started
	c.mu.Unlock()
	if !started {
		return
	}
	select {
	case <-c.gone:
	case <-time.After(time.Second):
	}
}

// signal does nothing for an interrupt, which the console has sent to the command itself.
func (c *child) signal(s os.Signal) {
	if s != os.Interrupt {
		_ = windows.TerminateJobObject(c.job, exitSignal+uint32(signalNumber(s)))
	}
}

func (c *child) close() {
	c.deadline.Stop()
	windows.CloseHandle(c.job)
}

func signalNumber(s os.Signal) int {
	n, _ := s.(syscall.Signal)
	return int(n)
}

var passedOn = []os.Signal{os.Interrupt, syscall.SIGTERM}
