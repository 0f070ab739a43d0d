//go:build !linux

package main

import (
	"errors"
	"os"
	"os/exec"
)

func openTerminal() (user, program *os.File, err error) {
	return nil, nil, errors.ErrUnsupported
}

func attach(*exec.Cmd, *os.File) {}
