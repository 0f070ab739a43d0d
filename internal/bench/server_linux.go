package main

import "syscall"

// apart keeps a server out of reach of the terminal's signals, and has the kernel kill
// the server when the thread that started it ends: main keeps that thread.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
