package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestKillOfTheGuardKillsTheCommand(t *testing.T) {
	t.Parallel()
	s := succeed(t, sharedTown(t), "unguarded")
	guard := childrenOf(t, s.first.cmd.Process.Pid)
	if len(guard) != 1 {
		t.Fatalf("run has the children %v", guard)
	}
	if err := syscall.Kill(guard[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.check()
	if code := s.first.wait(); code != exitLost || !strings.Contains(s.first.stderr(), "the guard of the command has died") {
		t.Errorf("code %d, stderr %s", code, s.first.stderr())
	}
}

// childrenOf returns the processes whose parent is pid.
func childrenOf(t *testing.T, pid int) (all []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		stat := read(file) // "" of a process that has ended meanwhile
		_, rest, _ := strings.Cut(stat, ") ")
		if fields := strings.Fields(rest); len(fields) < 2 || fields[1] != fmt.Sprint(pid) {
			continue
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, child)
	}
	return all
}
