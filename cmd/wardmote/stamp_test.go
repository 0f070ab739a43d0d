//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// stampCommand makes the test binary the program under a lock.
const stampCommand = "test-stamp"

// stamp appends lines "NAME TIME" to a file until it is killed. TIME is read by hostClock
// before the line is written: a process that has written a line was alive at TIME. The
// arguments are FILE NAME [ignore] [fork] [leave]:
//
//	ignore   SIGTERM and SIGINT change nothing
//	fork     a child process, which ignores signals, does the same under NAME.child
//	leave    the child stays behind, and this process ends at once, with code 7
func stamp(args []string) int {
	file, name, rest := args[0], args[1], args[2:]
	if slices.Contains(rest, "ignore") {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	line := func() { fmt.Fprintf(f, "%s %d\n", name, int64(hostClock())) }
	line()
	if slices.Contains(rest, "fork") {
		c := exec.Command(os.Args[0], stampCommand, file, name+".child", "ignore")
		if err := c.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if slices.Contains(rest, "leave") {
			for !strings.Contains(read(file), name+".child") {
				time.Sleep(time.Millisecond)
			}
			return 7
		}
	}
	for {
		line()
		time.Sleep(time.Millisecond)
	}
}

func read(file string) string {
	b, _ := os.ReadFile(file)
	return string(b)
}
