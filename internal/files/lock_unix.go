//go:build unix && !aix && !solaris

package files

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks the file if no other open file of any process has the lock.
func tryLock(f *os.File) (locked bool, err error) {
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case err == nil:
		return true, nil
	case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, syscall.EINTR):
		return false, nil
	default:
		return false, os.NewSyscallError("flock", err)
	}
}
