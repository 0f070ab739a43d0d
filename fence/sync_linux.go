package fence

import (
	"errors"
	"os"
	"syscall"
)

// syncData makes the content of f durable. Not f.Sync, which also waits until the file
// system has written the times of f to its journal.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
