// Package dirstore keeps the manifests of package objectfence in a directory. The package
// needs nothing of the file system but a link that fails if the name exists, and shows how
// to make a store of anything that can create a name once. Copy the package, or import it.
// For the files of one host take fence.File, because dirstore leaves old names behind.
//
// Each version of an object is a file with the version's number in its name. A put of
// version n+1 links a complete file to that name. Two invariants make the link a
// compare-and-set:
//
//	D1: version n+1 is made after version n
//	D2: a name that was made is never free again
//
// So the link succeeds for one caller only, and only while version n is the latest. By D1
// and D2 the latest version is found by bisection, without a list of the directory. An old
// version loses its content and, by D2, keeps its name: each change leaves an empty file.
// The package suits a state with some changes an hour.
package dirstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"

	"github.com/wardmote/wardmote/fence/objectfence"
)

// Store is an objectfence.Store in a directory that exists. Any number of processes may
// use the directory. No file may be removed from the directory.
type Store struct{ Dir string }

// path is the file of a version. The escaped key is one name, without a slash.
func (s Store) path(key string, version int) string {
	return filepath.Join(s.Dir, url.PathEscape(key)+"@"+strconv.Itoa(version))
}

// Get reads the latest version.
func (s Store) Get(ctx context.Context, key string) (body []byte, version string, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, "", err
		}
		n, err := s.latest(key)
		if err == nil && n == 0 {
			_, err = os.Stat(s.Dir) // a directory that is not there is no empty store
		}
		if err != nil {
			return nil, "", fmt.Errorf("dirstore: get: %w", err)
		}
		if n == 0 {
			return nil, "", nil
		}
		body, err := os.ReadFile(s.path(key, n))
		if err != nil {
			return nil, "", fmt.Errorf("dirstore: get: %w", err)
		}
		if len(body) > 0 {
			return body, strconv.Itoa(n), nil
		}
		// Another version was put after latest returned.
	}
}

// latest returns the number of the latest version, and 0 if there is none.
func (s Store) latest(key string) (int, error) {
	var failed error
	missing := func(n int) bool {
		_, err := os.Lstat(s.path(key, n))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = err
		}
		return err != nil
	}
	bound := 1
	for !missing(bound) {
		bound *= 2
	}
	// Versions bound/2 and before are there, version bound is not, or was not.
	n := bound/2 + sort.Search(bound-bound/2, func(i int) bool { return missing(bound/2 + i + 1) })
	return n, failed
}

// Put makes the version after version.
func (s Store) Put(ctx context.Context, key string, body []byte, version string) (string, error) {
	n := 0
	if version != "" {
		var err error
		if n, err = strconv.Atoi(version); err != nil {
			return "", fmt.Errorf("dirstore: put: %w", err)
		}
	}
	if len(body) == 0 {
		return "", errors.New("dirstore: put: an empty body stands for an old version")
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	err := s.place(body, func(file string) error { return os.Link(file, s.path(key, n+1)) })
	if errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("dirstore: put: %w: %w", objectfence.ErrConflict, err)
	}
	if err != nil {
		return "", fmt.Errorf("dirstore: put: %w", err)
	}
	if n > 0 {
		// To save space only: the content of an old version is never used. A reader
		// with the old file open still reads the whole content.
		_ = s.place(nil, func(file string) error { return os.Rename(file, s.path(key, n)) })
	}
	return strconv.Itoa(n + 1), nil
}

// place writes a complete file, and calls name to give the file a name. When place returns
// nil, file and name are on the disk. After an error they may be.
func (s Store) place(body []byte, name func(file string) error) (err error) {
	f, err := os.CreateTemp(s.Dir, ".new-*") // no key begins so: see path
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(body)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := name(f.Name()); err != nil {
		return err
	}
	if runtime.GOOS == "windows" { // which cannot sync a directory
		return nil
	}
	dir, err := os.Open(s.Dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
