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
// mark, compare, write the new mark beside the old one, sync the file, and only
// then run the write. The file has room for two marks, and the higher one counts.
//
//   - Crash before the end of the sync: the old mark or the new mark stands. The
//     old one was not touched. No write has run under the new mark.
//   - Crash after the sync: the new mark stands.
//
// A store costs one write of 8 KiB in place and one sync, without the rename of
// a temporary file and its second sync for the directory.
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
	file diskFile // nil once closed

	// latest has the highest mark that this File has read or stored. durable is true
	// if this File has itself completed the store of latest, so that the mark survives
	// a power loss. A mark of another process, or of a store that failed, may be
	// written and not yet synced. A write under such a mark could survive a power loss
	// although the mark is lost. So storeMark skips the store only if durable is true.
	latest  record
	durable bool

	buffer [markSize + 1]byte // for readMark
}

// Suffixes of the lock file and the temporary file, beside the mark file.
const (
	// OpenFile locks the lock file, because the mark file may not exist yet. Later calls
	// lock the mark file. The lock file is never removed: with content, a missing mark
	// file was removed; without content, no mark was ever stored.
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
// path+".tmp". All files are created with mode 0600. If path is a link, or has other
// names, the guards of all names share the mark.
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
	defer lock.Close()
	if err := lockFile(lock); err != nil {
		return nil, fmt.Errorf("fence: lock %s: %w", path+lockSuffix, err)
	}
	f := &File{path: path, disk: d}
	if err := f.initialize(lock); err != nil {
		if f.file != nil {
			f.file.Close()
		}
		return nil, err
	}
	return f, nil
}

// initialize opens the mark file, or stores a first mark of zero. The caller has locked
// the lock file.
func (f *File) initialize(lock *os.File) error {
	info, err := lock.Stat()
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	// If somebody removed the lock file, another process may hold the lock of a new
	// file with the same name.
	if err := sameFile(info, f.path+lockSuffix); err != nil {
		return err
	}
	known := info.Size() > 0
	if !known {
		if err := f.createMark(); err != nil {
			return fmt.Errorf("fence: %w", err)
		}
	}
	f.file, err = f.disk.open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return &CorruptError{Path: f.path, Reason: "the file is missing, although the lock file shows that a mark was stored"}
	}
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	unlock, err := f.lockMark()
	if err != nil {
		return err
	}
	defer unlock()
	// An existing mark is stored again, so that a disk which cannot store marks
	// fails OpenFile and not the first write.
	if err := f.storeMark(f.latest.token); err != nil || known {
		return err
	}
	// Only after the mark is durable: a crash between the two steps leaves a mark
	// and an empty lock file, which is a valid state.
	if _, err := lock.WriteAt([]byte(lockText), 0); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if err := lock.Sync(); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

// createMark stores a mark of zero, unless there is a mark file, and makes the name of
// the mark file durable. The rename makes sure that a mark file is never seen in part.
func (f *File) createMark() error {
	_, err := os.Stat(f.path)
	if errors.Is(err, os.ErrNotExist) {
		if err := f.writeTemp(firstMark()); err != nil {
			return err
		}
		err = f.disk.rename(f.path+tempSuffix, f.path)
	}
	if err != nil {
		return err
	}
	return f.disk.syncDir(filepath.Dir(f.path))
}

func (f *File) writeTemp(b []byte) error {
	file, err := f.disk.create(f.path + tempSuffix)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(b, 0)
	if err == nil {
		err = file.syncData()
	}
	return cmp.Or(err, file.Close())
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
	if err := f.storeMark(f.latest.token); err != nil {
		return 0, err
	}
	return f.latest.token, nil
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
	return peekMark(f.path)
}

// Close closes the File after a running write has returned. The mark file and the
// lock file stay. Later calls fail with os.ErrClosed; a second Close does nothing.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
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
	if refusal := admit(t, f.latest.token, once); refusal != nil {
		return refusal, nil
	}
	if err := f.storeMark(t); err != nil {
		return nil, err
	}
	return nil, write()
}

// lockMark waits for the mutex of this File, then for the lock of the mark file, and
// sets f.latest to the latest record. The lock of the mark file alone is not enough: all
// goroutines of this File share one open file, and so would hold its lock together.
// unlock frees both locks.
func (f *File) lockMark() (unlock func(), err error) {
	f.mu.Lock()
	if f.file == nil {
		f.mu.Unlock()
		return nil, fmt.Errorf("fence: %s: %w", f.path, os.ErrClosed)
	}
	if err := f.file.lock(); err != nil {
		f.mu.Unlock()
		return nil, fmt.Errorf("fence: lock %s: %w", f.path, err)
	}
	unlock = func() {
		// Unlocking a held lock cannot fail. If it did, other processes would
		// wait until this process ends, which breaks no promise, while an error
		// from here would tell the caller that the write has not run.
		_ = f.file.unlock()
		f.mu.Unlock()
	}
	if err := f.readMark(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// sameFile returns a *CorruptError unless the open file is still the file at its path.
func sameFile(open os.FileInfo, path string) error {
	now, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("fence: %w", err)
	}
	if err != nil || !os.SameFile(open, now) {
		return &CorruptError{Path: path, Reason: "removed or replaced while in use"}
	}
	return nil
}

// readMark sets f.latest to the latest record on disk. The caller holds the lock.
func (f *File) readMark() error {
	// If somebody replaced the mark file, other processes lock and write another file.
	if err := sameFile(f.file.info(), f.path); err != nil {
		return err
	}
	n, err := f.file.ReadAt(f.buffer[:], 0) // one byte more than a mark file has
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("fence: %w", err)
	}
	r, err := decodeMark(f.buffer[:n])
	if err != nil {
		return &CorruptError{Path: f.path, Reason: err.Error()}
	}
	if r.token < f.latest.token {
		return &CorruptError{Path: f.path, Reason: fmt.Sprintf("the token fell from %d to %d", f.latest.token, r.token)}
	}
	if r != f.latest {
		f.latest, f.durable = r, false
	}
	return nil
}

// peekMark returns the mark on disk without the lock. A store under way may tear both
// copies of the record that it writes, for a moment: so damage is looked at again.
func peekMark(path string) (Token, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, &CorruptError{Path: path, Reason: "removed or replaced while in use"}
	}
	if err != nil {
		return 0, fmt.Errorf("fence: %w", err)
	}
	defer file.Close()
	var buffer [markSize + 1]byte
	for tries := 1; ; tries++ {
		n, err := file.ReadAt(buffer[:], 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("fence: %w", err)
		}
		r, err := decodeMark(buffer[:n])
		if err == nil {
			return r.token, nil
		}
		if tries == 3 {
			return 0, &CorruptError{Path: path, Reason: err.Error()}
		}
	}
}

// storeMark writes t as the mark on disk, durably. On an error the mark on disk is
// t or the old mark. The caller holds the lock and has checked that t is not below
// the mark.
func (f *File) storeMark(t Token) error {
	if t == f.latest.token && f.durable {
		return nil
	}
	r := record{f.latest.count, t}
	if t > f.latest.token {
		r.count++
	}
	if _, err := f.file.WriteAt(r.pair(), r.offset()); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if err := f.file.syncData(); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	f.latest, f.durable = r, true
	return nil
}
