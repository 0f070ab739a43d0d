package raftstore

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate gives a new file its length and its blocks, so that a full disk is known before
// a batch is written. File systems without fallocate give the length alone.
func allocate(f *os.File, size int64) error {
	for {
		switch err := unix.Fallocate(int(f.Fd()), 0, 0, size); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return f.Truncate(size)
		case err != nil:
			return os.NewSyscallError("fallocate", err)
		default:
			return nil
		}
	}
}

// syncData flushes the bytes of a file, and its length, but not its times.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
