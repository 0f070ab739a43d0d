package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// Names of a member's files in its Dir.
const (
	Identity   = "identity"
	lockName   = "lock"
	raftPrefix = "raft" // of the directories of raft stores
	newSuffix  = ".new" // of a file that Replace prepares
)

// ErrInUse says that another process has taken the directory.
var ErrInUse = errors.New("in use by another process")

// Prepare makes dir with mode 0700 if it is missing, or checks it by the rules of
// the package comment, and reports whether it has narrowed its mode. The text of an
// error ends with the way to mend it. When Prepare fails, nothing has changed.
func Prepare(dir string) (narrowed bool, err error) {
	dir = filepath.Clean(dir) // a link with a slash behind it would be followed
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return false, err
		}
		info, err = os.Lstat(dir)
	}
	if err != nil {
		return false, err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return false, errors.New("a symbolic link that leads nowhere: name a directory")
		}
		return false, fmt.Errorf("a symbolic link: name its target instead, %s", shell(target))
	case !info.IsDir():
		return false, errors.New("not a directory")
	}
	if narrowed, err = judgeDir(info, dir); err != nil || !narrowed {
		return false, err
	}
	return true, narrowMode(dir, info, 0o022)
}

// Inspect checks the member's files in dir by the rules of the package comment, and
// returns the names whose mode it has narrowed. The caller has taken dir: files of
// a running process come and go. The text of an error begins with the name of the
// file and ends with the way to mend it. When Inspect fails, modes may have been
// narrowed, and nothing else has changed.
func Inspect(dir string) (narrowed []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if name := e.Name(); name == lockName || strings.HasPrefix(name, Identity) || strings.HasPrefix(name, raftPrefix) {
			found, err := inspectTree(dir, name)
			if err != nil {
				return nil, err
			}
			narrowed = append(narrowed, found...)
		}
	}
	return narrowed, nil
}

// inspectTree checks the file or directory of the name in dir, with everything
// below.
func inspectTree(dir, name string) (narrowed []string, err error) {
	err = filepath.WalkDir(filepath.Join(dir, name), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		narrow, err := judgeFile(info, path)
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		if !narrow {
			return nil
		}
		narrowed = append(narrowed, rel)
		return narrowMode(path, info, 0o077)
	})
	return narrowed, err
}

// narrowMode takes the bits from the mode of the file at path, if it is still the
// file of info.
func narrowMode(path string, info fs.FileInfo, bits fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	now, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !os.SameFile(info, now):
		return fmt.Errorf("%s was replaced while it was opened: look for the process that does this", shell(path))
	}
	return f.Chmod(now.Mode().Perm() &^ bits)
}

// Open opens a regular file, or makes it with mode 0600 if flag says so. A
// symbolic link is not followed.
func Open(path string, flag int, _ fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flag|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Replace writes the file at path anew: a later Open finds the old bytes or the
// new ones, at every moment. The new bytes are durable when Replace
// returns nil. After an error, either may be there.
func Replace(path string, data []byte) error {
	next := path + newSuffix
	// Left by a crash. Removed and not truncated: O_EXCL then refuses every file
	// that somebody else puts in this place.
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := Open(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names of new files durable, where the operating system can.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // Windows cannot sync a directory, and need not
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Take locks dir until the returned file is closed, or until the process ends. If
// another process has the lock, Take waits for it up to a second, and then fails
// with ErrInUse.
func Take(dir string) (*os.File, error) {
	f, err := Open(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0)
	if err != nil {
		return nil, err
	}
	// An operating system tells nobody that a lock is free, except a thread that
	// waits for it and that nothing can call back.
	for began := time.Now(); ; {
		locked, err := tryLock(f)
		switch {
		case locked:
			return f, nil
		case err == nil && time.Since(began) >= timing.DirLock:
			err = ErrInUse
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		<-time.After(timing.DirLockAgain)
	}
}

// shell quotes a path for a command line.
func shell(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
