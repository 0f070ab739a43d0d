package main

import (
	"fmt"
	"os"
	"strings"
)

// zombie reports whether a process has ended and waits for its parent.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}
