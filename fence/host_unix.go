//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package fence

import (
	"errors"
	"os"
	"syscall"
)

// lockFile waits for the exclusive lock of f. The lock belongs to the open file
// f, not to the process, and ends when f is closed.
func lockFile(f *os.File) error {
	for {
		// Not fcntl: closing any descriptor of a file drops all fcntl locks that
		// the process has on the file.
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
