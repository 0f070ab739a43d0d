//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

const canPause = true

// pause stops this process, all threads of it, until another process wakes it.
func pause() error {
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	defer signal.Stop(woken)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-woken // the stop may come a moment after Kill
	return nil
}

func wake(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// ownGroup lets Ctrl-C reach the parent alone. If the parent is killed, the system wakes
// the members of the group that are stopped.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
