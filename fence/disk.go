package fence

import (
	"io"
	"os"
)

// disk is what storing a mark asks of a file system. It is an interface so that
// tests can put a disk under a File that crashes, fails and loses power.
type disk interface {
	create(path string) (diskFile, error) // replaces what is there
	rename(from, to string) error         // atomic
	syncDir(dir string) error             // the renames in dir are durable
}

type diskFile interface {
	io.Writer
	Sync() error
	Close() error
}

// hostDisk is the host's file system. Its rename and syncDir differ by system.
type hostDisk struct{}

// create removes what is there rather than truncate it: a leftover may be a
// link, or have another mode.
func (hostDisk) create(path string) (diskFile, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}
