//go:build !unix

package main

import (
	"errors"
	"os"
	"syscall"
)

// canPause is false: this system has no signal that stops a process.
const canPause = false

func stopProcess(*os.Process) error     { return errors.ErrUnsupported }
func continueProcess(*os.Process) error { return errors.ErrUnsupported }

func ownGroup() *syscall.SysProcAttr { return nil }
