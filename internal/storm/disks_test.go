//go:build linux

package storm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/wardmote/wardmote/internal/towns"
)

// disk is the Dir of a member: with the right to mount a small file system in memory, so
// that the disk can be full.
type disk struct {
	mount, dir string
	end        func() // unmounts; nil: not mounted
	err        error  // why it is no file system of its own
}

// diskSize has room for some segments of the log.
const diskSize = 64 << 20

func newDisk(mount string) *disk {
	d := &disk{mount: mount, dir: filepath.Join(mount, "dir")}
	if d.err = os.Mkdir(mount, 0o700); d.err == nil {
		d.err = syscall.Mount("tmpfs", mount, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", diskSize))
	}
	if d.err == nil {
		if d.end, d.err = towns.AtEnd("umount -l " + mount); d.err != nil {
			_ = syscall.Unmount(mount, syscall.MNT_DETACH)
		}
	}
	return d
}

func (d *disk) close() {
	if d.end != nil {
		d.end()
	}
}

// fill leaves no room on the disk, and empty gives it back.
func (d *disk) fill() error {
	if d.end == nil {
		return d.err
	}
	f, err := os.Create(filepath.Join(d.mount, "balloon"))
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<16)
	for err == nil {
		_, err = f.Write(block) // until the disk is full
	}
	for n := len(block) / 2; n > 0; n /= 2 {
		_, _ = f.Write(block[:n])
	}
	return nil
}

func (d *disk) empty() { _ = os.Remove(filepath.Join(d.mount, "balloon")) }

// wipe loses all files of the member.
func (d *disk) wipe() { _ = os.RemoveAll(d.dir) }

// illness is a fault of a disk that has been made. hit waits until the fault has hit a write, for
// hitWithin about, and reports whether it has.
type illness struct {
	hit  func() bool
	heal func()
}

// hitWithin bounds the time until a fault of a disk has hit a write, and hitTries is how many voters
// have the fault in turn until it hits.
const (
	hitWithin = 10 * time.Second
	hitTries  = 3
)

// errIdle: the fault has hit nothing.
var errIdle = errors.New("it hit nothing")

// sick makes a voter's disk sick until that has hit a write, and for the length of the step then.
func (x *fighter) sick(s step, make func(h *house) (illness, error)) error {
	for try := range hitTries {
		err := x.sicken(s, make)
		switch {
		case errors.Is(err, errNobody) && try > 0:
			return errIdle
		case !errors.Is(err, errIdle):
			return err
		}
		s.Who++
	}
	return errIdle
}

// sicken is one try of sick. A member that has failed meanwhile is restarted, as events and Health
// advise.
func (x *fighter) sicken(s step, make func(h *house) (illness, error)) error {
	h := x.voter(s)
	if h == nil {
		return errNobody
	}
	if _, taken := x.disks.LoadOrStore(h.i, true); taken {
		return errNobody
	}
	defer x.disks.Delete(h.i)
	ill, err := make(h)
	if err != nil {
		return err
	}
	if ill.hit() {
		x.wait(s.For)
	} else {
		err = errIdle
	}
	ill.heal()
	h.mu.Lock()
	failed, killed := h.failed != "", h.killed
	h.mu.Unlock()
	if failed && !killed {
		if again := x.kill(h, 0, nil); again != nil && !errors.Is(again, errNobody) {
			return again
		}
	}
	return err
}

// voter returns the running process of one of the voters, since the others hardly write; of a
// member by number if nobody knows the voters.
func (x *fighter) voter(s step) *house {
	runs := func(h *house) bool {
		if h == nil || h.p.Ended() {
			return false
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.stopped == 0
	}
	for i := range x.w.kind.Members {
		h := x.w.house((s.Who + i) % x.w.kind.Members)
		if !runs(h) {
			continue
		}
		r, _ := h.ask("voters", "", time.Second)
		if names := strings.Fields(r.Detail); len(names) > 0 {
			slices.Sort(names)
			for j := range x.w.kind.Members {
				if h := x.w.house(j); runs(h) && name(j) == names[s.Who%len(names)] {
					return h
				}
			}
		}
	}
	return x.member("", s)
}

// sees has the member look at its store, and returns a function that waits until a write has
// taken as long as slow, or, if slow is 0, has failed.
func (h *house) sees(slow time.Duration) (hit func() bool) {
	answer := h.begin(command{Do: "hit", N: int64(slow), Wait: hitWithin})
	return func() bool {
		_, err := answer()
		return err == nil
	}
}

// commanded makes a fault of the disk by a command to the member.
func commanded(how string, slow time.Duration) func(x *fighter, s step) error {
	return func(x *fighter, s step) error {
		return x.sick(s, func(h *house) (illness, error) {
			tell := func(how string) { h.begin(command{Do: "disk", Key: how, Wait: time.Second}) }
			tell(how)
			return illness{h.sees(slow), func() { tell("heal") }}, nil
		})
	}
}

// full leaves no room on a member's disk. The store has room for some writes in its files.
func (x *fighter) full(s step) error {
	return x.sick(s, func(h *house) (illness, error) {
		d := x.w.disks[h.i]
		return illness{h.sees(0), d.empty}, d.fill()
	})
}

// traced makes a fault of the disk by strace, which calls a hit so.
func traced(injection, called string) func(x *fighter, s step) error {
	return func(x *fighter, s step) error {
		return x.sick(s, func(h *house) (illness, error) {
			out := filepath.Join(x.w.base, fmt.Sprint(name(h.i), "-", h.p.Pid(), ".strace"))
			return tamper(h.p.Pid(), injection, called, out)
		})
	}
}

// tamper has strace make each flush of a process fail or wait. strace writes what it sees to the
// file out.
func tamper(pid int, injection, called, out string) (illness, error) {
	_ = os.Remove(out) // of an earlier fault
	cmd := exec.Command("strace", "-f", "-qq", "-o", out, "-p", fmt.Sprint(pid), "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:"+injection)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return illness{}, err
	}
	hit := func() bool {
		for began := time.Now(); time.Since(began) < hitWithin; time.Sleep(20 * time.Millisecond) { // strace tells nobody
			if text, err := os.ReadFile(out); err == nil && bytes.Contains(text, []byte("("+called+")")) {
				return true
			}
		}
		return false
	}
	return illness{hit, func() {
		_ = cmd.Process.Signal(syscall.SIGINT) // strace lets the process go on
		_ = cmd.Wait()
	}}, nil
}

// idleDisks returns an error if the run had faults of disks that hit the next write, and none of them
// was seen to hit one.
func (r *result) idleDisks() error {
	made, idle := 0, 0
	for name, f := range faults {
		if f.writes {
			made += r.Faults[name]
			idle += r.Idle[name]
		}
	}
	if made > 0 || idle == 0 {
		return nil
	}
	return fmt.Errorf("none of %d faults of disks has hit a write: %v", idle, r.Idle)
}
