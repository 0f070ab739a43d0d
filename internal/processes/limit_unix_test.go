//go:build unix

package processes

import (
	"os/signal"
	"syscall"
)

// limitFiles bounds the size of every file of this process: a write beyond the
// bound fails, as on a full disk. 0 means no bound.
func limitFiles(size uint64) error {
	if size == 0 {
		return nil
	}
	signal.Ignore(syscall.SIGXFSZ) // the write fails with EFBIG instead
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: size})
}
