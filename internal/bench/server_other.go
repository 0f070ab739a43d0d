//go:build !linux

package main

import "syscall"

func apart() *syscall.SysProcAttr { return nil }
