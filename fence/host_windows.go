package fence

import (
	"os"
	"syscall"
	"unsafe"
)

// The standard library does not export these three functions. Not
// golang.org/x/sys, because this package imports only the standard library.
var (
	kernel32     = syscall.NewLazyDLL("kernel32.dll")
	lockFileEx   = kernel32.NewProc("LockFileEx")
	unlockFileEx = kernel32.NewProc("UnlockFileEx")
	moveFileEx   = kernel32.NewProc("MoveFileExW")
)

const (
	lockfileExclusiveLock   = 0x2
	movefileReplaceExisting = 0x1
	movefileWriteThrough    = 0x8
	lockedByteHigh          = 1 << 30 // byte 2^62
)

// lockFile waits for the exclusive lock of f. The lock belongs to the open file
// f, not to the process, and ends when f is closed. The locked byte is far behind the
// end of f, because Windows lets nobody else read a locked byte.
func lockFile(f *os.File) error {
	o := syscall.Overlapped{OffsetHigh: lockedByteHigh}
	ok, _, err := lockFileEx.Call(f.Fd(), lockfileExclusiveLock, 0,
		1, 0, uintptr(unsafe.Pointer(&o)))
	if ok == 0 {
		return os.NewSyscallError("LockFileEx", err)
	}
	return nil
}

func unlockFile(f *os.File) error {
	o := syscall.Overlapped{OffsetHigh: lockedByteHigh}
	ok, _, err := unlockFileEx.Call(f.Fd(), 0,
		1, 0, uintptr(unsafe.Pointer(&o)))
	if ok == 0 {
		return os.NewSyscallError("UnlockFileEx", err)
	}
	return nil
}

// rename returns when the rename is on disk. Not os.Rename, because os.Rename does
// not wait for the disk, and Windows cannot sync directories afterwards.
func (hostDisk) rename(from, to string) error {
	f, err := syscall.UTF16PtrFromString(from)
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	t, err := syscall.UTF16PtrFromString(to)
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	ok, _, err := moveFileEx.Call(uintptr(unsafe.Pointer(f)), uintptr(unsafe.Pointer(t)),
		movefileReplaceExisting|movefileWriteThrough)
	if ok == 0 {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

func (hostDisk) syncDir(string) error { return nil }
