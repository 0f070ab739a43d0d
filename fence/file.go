package fence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// File is a guard with its mark in a file. The mark survives restarts and power
// loss, and all processes of one host that open the same path share the mark. A
// File may be used from any goroutine. Several Files of one path, in one process
// or in many, exclude each other like one File.
//
// The path must be on a local file system: locks of network file systems are
// leases, and may end while a write runs.
//
// Two invariants hold after a crash of the process or of the host at any point:
//
//	F1: the mark on disk is at least the token of every write that was started
//	F2: the mark, as returned by Current, never falls
//
// The invariants follow from the order of the steps. Under the lock: read the
// mark, compare, write the new mark to a temporary file, sync the temporary file,
// rename it over the mark, sync the directory, and only then run the write.
//
//   - Crash before the rename: the old mark stands, and no write has run under
//     the new mark. A temporary file left over is never read.
//   - Crash between the rename and the sync of the directory: the old mark or
//     the new mark stands. Both are whole, because the temporary file was synced
//     before the rename. No write has run under the new mark.
//   - Crash after the sync of the directory: the new mark stands.
//
// The operating system frees the lock of a dead process, so nobody ever has to
// clean up.
type File struct {
	// Refused, if not nil, is called with each token that the file refuses: see
	// Guard.Refused. Set Refused before the first use of the File.
	Refused func(t Token, refusal error)

	path string
	disk disk

	mu   sync.Mutex
	lock *os.File // path+".lock"; nil once closed

	// mark is the highest mark that this File has read or stored. durable is true
	// if this File has itself completed the store of mark, so that mark survives
	// a power loss. A mark of another process, or of a store that failed, may be
	// renamed into place and not yet synced. A write under such a mark could
	// survive a power loss although the mark is lost. So storeMark skips the
	// store only if durable is true.
	mark    Token
	durable bool
}

// Suffixes of the lock file and the temporary file, beside the mark file.
const (
	// The lock has a file of its own, because each rename gives path a new inode,
	// and a lock belongs to an inode. The lock file is never removed: otherwise
	// two processes could lock two inodes of one name.
	lockSuffix = ".lock"
	tempSuffix = ".tmp"
)

// lockText is written to the lock file after the first mark has been stored. If
// the lock file has content, a missing mark file is damage; if the lock file is
// empty, a missing mark file means a mark of zero.
const lockText = "wardmote-fence lock: do not remove\n"

// OpenFile opens the guard with its mark in the file path. If the file does not
// exist, OpenFile creates the file with a mark of zero; the directory must exist.
// OpenFile waits until a running write of another File of this path has returned.
//
// OpenFile fails with a *CorruptError if the mark is damaged, with
// errors.ErrUnsupported if the system has no file locks, and with the error of
// the file system. On a failure the mark is unchanged.
//
// Beside path there is path+".lock", which must not be removed, and for moments
// path+".tmp". All files have mode 0600.
func OpenFile(path string) (*File, error) { return openFile(path, hostDisk{}) }

func openFile(path string, d disk) (*File, error) {
	// The path stays valid if the process changes its working directory.
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("fence: %w", err)
	}
	lock, err := os.OpenFile(path+lockSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("fence: %w", err)
	}
	f := &File{path: path, disk: d, lock: lock}
	if err := f.initialize(); err != nil {
		lock.Close()
		return nil, err
	}
	return f, nil
}

// initialize reads the mark, or stores a first mark of zero.
func (f *File) initialize() error {
	unlock, err := f.lockMark()
	if err != nil {
		return err
	}
	defer unlock()
	// An existing mark is stored again, so that a disk which cannot store marks
	// fails OpenFile and not the first write.
	if err := f.storeMark(f.mark); err != nil {
		return err
	}
	info, err := f.lock.Stat()
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if info.Size() > 0 {
		return nil
	}
	// Only after the mark is durable: a crash between the two steps leaves a mark
	// and an empty lock file, which is a valid state.
	if _, err := f.lock.WriteAt([]byte(lockText), 0); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if err := f.lock.Sync(); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

// Do raises the mark to t, durably, then runs write and returns the error of
// write. Other calls to the guard, in any process, wait until write has returned.
// With any other error write has not run:
//
//   - a *StaleError if t is below the mark
//   - ErrUnfenced if t is zero
//   - a *CorruptError if the mark is damaged
//   - the error of the file system; the mark may then be raised, and the caller
//     may try again
//
// The mark stays raised when write fails or panics. Do admits tokens equal to the
// mark, without a disk write. Guard.Do gives the reasons.
//
// A process that is stopped inside write keeps the lock until the process runs
// again or is killed. The guarantees depend on this, so keep write short.
func (f *File) Do(t Token, write func() error) error { return f.do(t, false, write) }

// DoOnce is Do for resources that allow one access per grant: DoOnce also refuses
// a token equal to the mark. See Guard.DoOnce. After an error of the file system
// the access may be spent although write has not run.
func (f *File) DoOnce(t Token, write func() error) error { return f.do(t, true, write) }

// Claim raises the mark to t, durably, without writing, and fails like Do. Call
// Claim once for each grant, before the first read of the resource.
func (f *File) Claim(t Token) error { return f.do(t, false, noWrite) }

// Current returns the mark, or zero if no token has been shown. Current waits
// until a running write has returned: after Current has returned without error,
// no write of a lower token runs or will run, in any process and after any crash.
func (f *File) Current() (Token, error) {
	unlock, err := f.lockMark()
	if err != nil {
		return 0, err
	}
	defer unlock()
	if err := f.storeMark(f.mark); err != nil {
		return 0, err
	}
	return f.mark, nil
}

// Highest returns the highest token that the file has seen, or zero. In contrast to
// Current it waits for no write, whose process may be stopped: a claim that is under way
// may be missing. Highest is a cluster.Recovery.TokenFloor:
//
//	cfg.Recovery.TokenFloor = file.Highest
//
// Highest fails with a *CorruptError if the mark is damaged, with the error of the file
// system, and with ctx's error if ctx has ended. After Close it still answers.
func (f *File) Highest(ctx context.Context) (Token, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return readMark(f.path)
}

// Close closes the File after a running write has returned. The mark file and the
// lock file stay. Later calls fail with os.ErrClosed; a second Close does nothing.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lock == nil {
		return nil
	}
	err := f.lock.Close()
	f.lock = nil
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

func (f *File) do(t Token, once bool, write func() error) error {
	refusal, err := f.writeAdmitted(t, once, write)
	return told(f.Refused, t, refusal, err)
}

// writeAdmitted runs write if the file admits t. Otherwise it returns the refusal.
func (f *File) writeAdmitted(t Token, once bool, write func() error) (refusal, err error) {
	if t == 0 {
		return ErrUnfenced, nil
	}
	unlock, err := f.lockMark()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if refusal := admit(t, f.mark, once); refusal != nil {
		return refusal, nil
	}
	if err := f.storeMark(t); err != nil {
		return nil, err
	}
	return nil, write()
}

// lockMark waits for the mutex of this File, then for the lock of the lock file,
// and then sets f.mark to the mark on disk. The lock file alone is not enough: all
// goroutines of this File share one open lock file, and so would hold its lock
// together. unlock frees both locks.
func (f *File) lockMark() (unlock func(), err error) {
	f.mu.Lock()
	if f.lock == nil {
		f.mu.Unlock()
		return nil, fmt.Errorf("fence: %s: %w", f.path, os.ErrClosed)
	}
	if err := lockFile(f.lock); err != nil {
		f.mu.Unlock()
		return nil, fmt.Errorf("fence: lock %s: %w", f.path+lockSuffix, err)
	}
	unlock = func() {
		// Unlocking a held lock cannot fail. If it did, other processes would
		// wait until this process ends, which breaks no promise, while an error
		// from here would tell the caller that the write has not run.
		_ = unlockFile(f.lock)
		f.mu.Unlock()
	}
	// If somebody removed the lock file, another process may hold the lock of a
	// new file with the same name.
	err = f.checkLockFile()
	if err == nil {
		err = f.refreshMark()
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// checkLockFile returns a *CorruptError unless the open lock file is still the file
// at its path.
func (f *File) checkLockFile() error {
	have, err := f.lock.Stat()
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	want, err := os.Stat(f.path + lockSuffix)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("fence: %w", err)
	}
	if err != nil || !os.SameFile(have, want) {
		return &CorruptError{Path: f.path + lockSuffix, Reason: "removed or replaced while in use"}
	}
	return nil
}

// refreshMark sets f.mark to the mark on disk. The caller holds the lock.
func (f *File) refreshMark() error {
	m, err := readMark(f.path)
	if err != nil {
		return err
	}
	if m < f.mark {
		return &CorruptError{Path: f.path, Reason: fmt.Sprintf("the token fell from %d to %d", f.mark, m)}
	}
	if m > f.mark {
		f.mark, f.durable = m, false
	}
	return nil
}

// readMark returns the mark on disk, or zero if no mark was ever stored. A mark is whole
// at any time, so readMark needs no lock.
func readMark(path string) (Token, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		info, err := os.Stat(path + lockSuffix)
		if err != nil {
			return 0, fmt.Errorf("fence: %w", err)
		}
		if info.Size() > 0 {
			return 0, &CorruptError{Path: path, Reason: "the file is missing, although the lock file shows that a mark was stored"}
		}
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("fence: %w", err)
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, int64(maxMark)+1))
	if err != nil {
		return 0, fmt.Errorf("fence: %w", err)
	}
	m, err := decodeMark(b)
	if err != nil {
		return 0, &CorruptError{Path: path, Reason: err.Error()}
	}
	return m, nil
}

// storeMark writes t as the mark on disk, durably. On an error the mark on disk is
// t or the old mark. The caller holds the lock and has checked that t is not below
// the mark.
func (f *File) storeMark(t Token) error {
	if t == f.mark && f.durable {
		return nil
	}
	temp := f.path + tempSuffix
	if err := f.writeTemp(temp, encodeMark(t)); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if err := f.disk.rename(temp, f.path); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if err := f.disk.syncDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	f.mark, f.durable = t, true
	return nil
}

func (f *File) writeTemp(temp string, b []byte) error {
	file, err := f.disk.create(temp)
	if err != nil {
		return err
	}
	_, err = file.Write(b)
	if err == nil {
		err = file.Sync()
	}
	return cmp.Or(err, file.Close())
}
