//go:build !linux

package main

import "time"

type usage struct {
	cpu, stolen, busy time.Duration
	written, flushes  uint64
}

// look has counters on Linux only.
func look([]int, string) usage { return usage{} }
