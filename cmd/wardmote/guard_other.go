//go:build unix && !linux

package main

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ownGroup puts the command into a process group of its own.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// adoptOrphans does nothing: the system's first process buries orphans.
func adoptOrphans() {}

// hostClock reads a clock that all processes of the host share. On macOS it goes on while
// the host sleeps.
func hostClock() time.Duration { return readClock(unix.CLOCK_MONOTONIC) }

func guardProgram() (string, error) { return os.Executable() }
