//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package fence

import (
	"errors"
	"os"
	"syscall"
)

// lockFile waits for the exclusive lock of f. It belongs to this opening of the
// file, not to the process, and ends with it.
func lockFile(f *os.File) error {
	for {
		// flock, not fcntl: closing any descriptor of a file drops all of the
		// process's fcntl locks on it.
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("flock", err)
		}
	}
}

func unlockFile(f *os.File) error {
	return os.NewSyscallError("flock", syscall.Flock(int(f.Fd()), syscall.LOCK_UN))
}

func (hostDisk) rename(from, to string) error { return os.Rename(from, to) }

func (hostDisk) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
