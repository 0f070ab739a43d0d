package fence

import (
	"io"
	"os"
)

// disk has the file system calls that store a mark. The tests have a disk that fails,
// crashes and loses power.
type disk interface {
	create(path string) (diskFile, error) // replaces a file at path
	open(path string) (diskFile, error)   // for reading and writing
	rename(from, to string) error         // atomic
	syncDir(dir string) error             // makes the renames in dir durable
}

type diskFile interface {
	io.ReaderAt
	io.WriterAt
	syncData() error // makes the content durable; the times of the file may be lost
	lock() error     // waits for the exclusive lock, which belongs to this open file
	unlock() error
	info() os.FileInfo // of the time of opening
	Close() error      // frees the lock
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
	return openHostFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (hostDisk) open(path string) (diskFile, error) { return openHostFile(path, os.O_RDWR) }

type hostFile struct {
	*os.File
	opened os.FileInfo
}

func openHostFile(path string, flag int) (diskFile, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &hostFile{f, info}, nil
}

func (f *hostFile) syncData() error   { return syncData(f.File) }
func (f *hostFile) lock() error       { return lockFile(f.File) }
func (f *hostFile) unlock() error     { return unlockFile(f.File) }
func (f *hostFile) info() os.FileInfo { return f.opened }
