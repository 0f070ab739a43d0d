//go:build darwin || linux

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), getTermios)
	return err == nil
}

// singleKeys sets the terminal to deliver each key at once, without showing the
// key. Ctrl-C still works.
func singleKeys() (restore func(), err error) {
	in := int(os.Stdin.Fd())
	before, err := unix.IoctlGetTermios(in, getTermios)
	if err != nil {
		return nil, err
	}
	mode := *before
	mode.Lflag &^= unix.ICANON | unix.ECHO
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
	// Ctrl-Z would leave the shell with a terminal in this mode.
	signal.Ignore(syscall.SIGTSTP)
	if err := unix.IoctlSetTermios(in, setTermios, &mode); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(in, setTermios, before) }, nil
}

// windowSize returns zeros if the terminal does not tell.
func windowSize() (width, height int) {
	size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}
