package raftstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/wardmote/wardmote/internal/files"
)

// logDisk is the directory of a log. Names are made durable by syncNames.
type logDisk interface {
	path(name string) string // for errors
	names() ([]string, error)
	create(name string, size int64) (logFile, error) // full of zeros; the name must be free
	open(name string) (logFile, error)
	rename(from, to string) error
	remove(name string) error
	syncNames() error
}

// logFile is the file of a segment.
type logFile interface {
	ReadAt(p []byte, at int64) (int, error)
	WriteAt(p []byte, at int64) (int, error)
	Size() (int64, error)
	Sync() error // of the bytes, not of the times
	Close() error
}

// dirDisk is a logDisk in a directory of the operating system.
type dirDisk string

func (d dirDisk) path(name string) string { return filepath.Join(string(d), name) }

// names makes the directory if it is missing.
func (d dirDisk) names() ([]string, error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Mkdir(string(d), 0o700); err != nil {
			return nil, err
		}
		return nil, files.SyncDir(filepath.Dir(string(d)))
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

func (d dirDisk) create(name string, size int64) (logFile, error) {
	f, err := files.Open(d.path(name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0)
	if err != nil {
		return nil, err
	}
	if err := allocate(f, size); err != nil {
		return nil, errors.Join(err, f.Close(), d.remove(name))
	}
	return diskFile{f}, nil
}

func (d dirDisk) open(name string) (logFile, error) {
	f, err := files.Open(d.path(name), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

func (d dirDisk) rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }
func (d dirDisk) remove(name string) error     { return os.Remove(d.path(name)) }
func (d dirDisk) syncNames() error             { return files.SyncDir(string(d)) }

type diskFile struct{ *os.File }

func (f diskFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f diskFile) Sync() error { return syncData(f.File) }
