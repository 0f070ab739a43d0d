//go:build unix

package main

import (
	"os"
	"syscall"
)

const canPause = true

// A stopped process does not notice the stop: to the process the next instruction
// comes right after the previous instruction.
func stopProcess(p *os.Process) error     { return p.Signal(syscall.SIGSTOP) }
func continueProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// ownGroup gives a member its own process group, for two reasons. Ctrl-C reaches
// only the parent. And if the parent is killed while a member is stopped, the
// member's group is orphaned, so the system wakes the member; otherwise the member
// would stay stopped for ever.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
