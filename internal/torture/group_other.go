//go:build !unix

package main

import "os/exec"

// ownGroup does nothing: only the child itself is ended here.
func ownGroup(*exec.Cmd) {}

func endGroup(cmd *exec.Cmd, _ bool) error { return cmd.Process.Kill() }
