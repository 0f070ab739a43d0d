//go:build !unix

package main

import (
	"errors"
	"os"
	"syscall"
)

// This system has no signal that stops a process: ann runs through.
const canPause = false

func pause() error { return errors.ErrUnsupported }

func wake(*os.Process) error { return nil }

func ownGroup() *syscall.SysProcAttr { return nil }
