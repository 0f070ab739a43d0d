package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A usage is what counters of the host have counted up to a moment.
type usage struct {
	cpu     time.Duration // of the processes, in user mode and in the kernel
	written uint64        // bytes that the disk was given, by all programs
	flushes uint64        // of the disk, of all programs
	stolen  time.Duration // time that the hypervisor took from all processors
	busy    time.Duration // time that all processors worked, for all programs
}

const tick = 10 * time.Millisecond // of /proc: USER_HZ is 100 on every Linux of today

// look reads the counters, for this process and others, and the disk with a directory.
func look(pids []int, dir string) usage {
	var u usage
	for _, pid := range append([]int{os.Getpid()}, pids...) {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
			// The second field is the name in parentheses, which may have spaces.
			f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
			u.cpu += tick * time.Duration(number(f[11])+number(f[12]))
		}
	}
	if stat, err := os.ReadFile("/proc/stat"); err == nil {
		f := strings.Fields(string(stat)) // cpu user nice system idle iowait irq softirq steal
		u.stolen = tick * time.Duration(number(f[8]))
		u.busy = tick * time.Duration(number(f[1])+number(f[2])+number(f[3])+number(f[6])+number(f[7]))
	}
	u.written, u.flushes = disk(dir)
	return u
}

// disk counts the bytes and the flushes that the disk with dir has completed, since Linux 5.5.
// The bytes of a process in /proc are no measure: a write to a large folio of the kernel's
// cache counts there as the whole folio, and the disk is given the changed blocks alone.
func disk(dir string) (written, flushes uint64) {
	var s syscall.Stat_t
	if syscall.Stat(dir, &s) != nil {
		return 0, 0
	}
	at := fmt.Sprintf("/sys/dev/block/%d:%d", s.Dev>>8&0xfff, s.Dev&0xff|s.Dev>>12&0xfff00)
	for range 2 { // a partition's count is its disk's
		stat, err := os.ReadFile(at + "/stat")
		if f := strings.Fields(string(stat)); err == nil && len(f) > 15 && number(f[15]) > 0 {
			return sector * number(f[6]), number(f[15])
		}
		real, err := filepath.EvalSymlinks(at)
		if err != nil {
			return 0, 0
		}
		at = filepath.Dir(real)
	}
	return 0, 0
}

const sector = 512 // bytes, in the kernel's counters, on every disk

func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}
