//go:build linux

package storm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/wardmote/wardmote/internal/towns"
)

// groups are two control groups of a town: one with a tenth of a CPU, one with little
// memory. Both versions of control groups are known; where neither can be used, err says
// why.
type groups struct {
	cpu, memory       string // directories
	cpuErr, memoryErr error
	end               func() // removes them
}

const cgroups = "/sys/fs/cgroup"

func newGroups(name string) *groups {
	g := &groups{}
	make := func(controller, v1File, v1Value, v2File, v2Value string) (string, error) {
		dir := filepath.Join(cgroups, controller, name)
		file, value := v1File, v1Value
		if _, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
			dir, file, value = filepath.Join(cgroups, name+"-"+controller), v2File, v2Value
		} else if _, err := os.Stat(filepath.Join(cgroups, controller, "cgroup.procs")); err != nil {
			return "", err
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644); err != nil {
			_ = os.Remove(dir)
			return "", err
		}
		return dir, nil
	}
	g.cpu, g.cpuErr = make("cpu", "cpu.cfs_quota_us", "10000", "cpu.max", "10000 100000")
	g.memory, g.memoryErr = make("memory", "memory.limit_in_bytes", "4194304", "memory.max", "4194304")
	var err error
	if g.end, err = towns.AtEnd("rmdir " + g.cpu + "\nrmdir " + g.memory); err != nil {
		g.cpuErr, g.memoryErr = err, err
	}
	return g
}

// put puts a process into a group.
func put(dir string, pid int) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(fmt.Sprint(pid)), 0o644)
}

// origin returns the directory of the group of a process, for the controller of dir.
func origin(dir string, pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch controller := filepath.Base(filepath.Dir(dir)); {
		case len(parts) != 3:
		case parts[1] == controller:
			return filepath.Join(cgroups, controller, parts[2])
		case parts[1] == "" && controller == filepath.Base(cgroups):
			return filepath.Join(cgroups, parts[2])
		}
	}
	return ""
}

// close removes the groups. All processes have ended by then.
func (g *groups) close() {
	if g != nil && g.end != nil {
		g.end()
	}
}

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

// tamper has strace make a system call of a process fail or wait, until the result is
// called.
func tamper(pid int, injection string) (stop func(), err error) {
	cmd := exec.Command("strace", "-f", "-qq", "-o", "/dev/null", "-p", fmt.Sprint(pid), "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:"+injection)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = cmd.Process.Signal(syscall.SIGINT) // strace lets the process go on
		_ = cmd.Wait()
	}, nil
}
