//go:build linux

package storm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

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
