package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ownGroup puts the command into a process group of its own. If the guard is killed, the
// kernel kills the command; not the command's children, and not a command that the
// system runs as another user.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adoptOrphans makes this process the parent of the group's orphans, so that the guard
// learns of their end. Some containers have nobody else who would.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// hostClock reads a clock that all processes of the host share, and that goes on while
// the host sleeps.
func hostClock() time.Duration { return readClock(unix.CLOCK_BOOTTIME) }

// guardProgram is this program, also if its file was replaced meanwhile.
func guardProgram() (string, error) { return "/proc/self/exe", nil }
