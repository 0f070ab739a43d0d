//go:build unix

package main

import (
	"os"
	"syscall"
)

const canPause = true

// A stopped process does not notice that it is: for it the next instruction
// comes right after the one before, whatever happened in between.
func stopProcess(p *os.Process) error     { return p.Signal(syscall.SIGSTOP) }
func continueProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// apart gives a member a process group of its own. So Ctrl-C reaches the parent
// alone. And should the parent be killed while a member is stopped, that
// member's group is orphaned, which makes the system wake it: otherwise it would
// stay, stopped, for ever.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
