package identity

import (
	"os"
	"strings"
)

// HostBoot returns the kernel's boot ID, a random number drawn when the host was
// booted and shared by all containers on it. "" where the operating system has
// none: only Linux does.
func HostBoot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
