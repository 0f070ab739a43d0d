package fence

import (
	"io"
	"os"
)

// disk has the file system calls that store a mark. It is an interface so that
// tests can run a File on a disk that fails, crashes and loses power.
type disk interface {
	create(path string) (diskFile, error) // replaces a file at path
	rename(from, to string) error         // atomic
	syncDir(dir string) error             // makes the renames in dir durable
}

type diskFile interface {
	io.Writer
	Sync() error
	Close() error
}

// hostDisk is the host's file system. The methods rename and syncDir are in
// host_*.go, because they differ by operating system.
type hostDisk struct{}

// create removes an old file at path. Not truncated, because a leftover may be a
// link, or have another mode.
func (hostDisk) create(path string) (diskFile, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}
