package fence

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// File is a guard whose mark is kept in a file: it survives restarts and power
// loss, and is shared by all processes of one host that open the same path. It
// may be used from any goroutine. Several Files of one path, in one process or
// in many, exclude each other as one does.
//
// The path must be on a local file system: locks of network file systems are
// leases, and may end while a write runs.
//
// These hold after a crash at any point, of the process or of the host:
//
//	F1: the mark on disk is at least the token of every write that was started
//	F2: the mark, as Current tells it, never falls
//
// They follow from the order of things. Under the lock: read the mark, compare,
// write the new mark to a temporary file, sync it, rename it over the mark,
// sync the directory, and only then run the write.
//
//   - Crash before the rename: the old mark stands, and no write has run under
//     the new one. The temporary file that is left over is never read.
//   - Crash between the rename and the sync of the directory: the old mark or
//     the new one stands, both of them whole, because the temporary file was
//     synced before it got the name. No write has run under the new one.
//   - Crash after: the new mark stands.
//
// A dead process's lock is freed by the system, so nothing is ever waiting to be
// cleaned up.
type File struct {
	path string
	disk disk

	mu   sync.Mutex
	lock *os.File // path+".lock"; nil once closed

	// mark is the highest mark that this File has read or stored; durable says
	// whether it knows that mark to be safe from power loss. A mark that another
	// process stored, or that a failed store left behind, may have been renamed
	// into place but not yet synced. A write under it could survive a power loss
	// that the mark does not. So the store is skipped only for a mark that this
	// File has itself stored to the end.
	mark    Token
	durable bool
}

// Suffixes of a File's other two files.
const (
	// The lock is taken on a file of its own, because the rename gives path a
	// new inode each time, and a lock is on the inode. It is never removed: two
	// processes could then lock two inodes of one name.
	lockSuffix = ".lock"
	tempSuffix = ".tmp"
)

// lockText is the lock file's content once a first mark has been stored. From
// then on a missing mark is damage; before, it is zero.
const lockText = "wardmote-fence lock: do not remove\n"

// OpenFile opens the guard whose mark is in the file path. If there is none it
// makes one, with a mark of zero; the directory must exist. It waits for a write
// under way elsewhere. It fails with a *CorruptError if the mark is damaged,
// and where the system has no file locks with errors.ErrUnsupported; a failure
// leaves the mark as it was.
//
// Beside path it keeps path+".lock", which must not be removed, and for moments
// path+".tmp". All have mode 0600.
func OpenFile(path string) (*File, error) {
	return openFile(path, hostDisk{})
}

func openFile(path string, d disk) (*File, error) {
	// A relative path must not follow the process to another directory.
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("fence: %w", err)
	}
	lock, err := os.OpenFile(path+lockSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("fence: %w", err)
	}
	f := &File{path: path, disk: d, lock: lock}
	if err := f.open(); err != nil {
		lock.Close()
		return nil, err
	}
	return f, nil
}

// open finds the mark, or makes the first one.
func (f *File) open() error {
	unlock, err := f.enter()
	if err != nil {
		return err
	}
	defer unlock()
	if err := f.read(); err != nil {
		return err
	}
	// Storing even a mark that is there shows now, not at the first write, that
	// it can be done.
	if err := f.store(f.mark); err != nil {
		return err
	}
	info, err := f.lock.Stat()
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if info.Size() > 0 {
		return nil
	}
	// Only after the mark is durable: a crash in between leaves a mark and an
	// empty lock file, which is no contradiction.
	if _, err := f.lock.WriteAt([]byte(lockText), 0); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if err := f.lock.Sync(); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

// Do raises the mark to t, durably, and runs write; no other access to the guard
// by any process happens meanwhile. It returns write's error. Any other error
// means that write has not run: a *StaleError if t is below the mark, ErrUnfenced
// if it is zero, a *CorruptError if the mark is damaged, or what the file system
// said; after that last one the mark may be raised, and Do may be tried again.
//
// The mark stays raised when write fails or panics; see Guard.Do, also for why
// equal tokens are admitted. They cost no disk write.
//
// A process that is stopped inside write keeps the lock until it runs again or
// is killed. That is what makes it safe; keep write short.
func (f *File) Do(t Token, write func() error) error {
	return f.do(t, false, write)
}

// DoOnce is Do for resources that allow one access per grant: it refuses the
// mark itself too. See Guard.DoOnce. After a failure of the file system the
// access may be spent though write has not run.
func (f *File) DoOnce(t Token, write func() error) error {
	return f.do(t, true, write)
}

// Claim raises the mark to t, durably, without writing, and fails as Do does.
// Call it once for each grant, before the first read of the resource.
func (f *File) Claim(t Token) error {
	return f.do(t, false, nothing)
}

// Current returns the mark, zero if no token has been seen. It waits for a write
// under way: when it returns without error, no write of a lower token is running,
// and none will, in any process and after any crash.
func (f *File) Current() (Token, error) {
	unlock, err := f.enter()
	if err != nil {
		return 0, err
	}
	defer unlock()
	if err := f.read(); err != nil {
		return 0, err
	}
	if err := f.store(f.mark); err != nil {
		return 0, err
	}
	return f.mark, nil
}

// Close gives up the File, after a write under way has ended. The mark and its
// lock file stay. Later calls fail with os.ErrClosed; closing again does nothing.
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
	if t == 0 {
		return ErrUnfenced
	}
	unlock, err := f.enter()
	if err != nil {
		return err
	}
	defer unlock()
	if err := f.read(); err != nil {
		return err
	}
	if err := admit(t, f.mark, once); err != nil {
		return err
	}
	if err := f.store(t); err != nil {
		return err
	}
	return write()
}

// enter takes the lock: first of this File, whose goroutines share one opening
// of the lock file and so would all hold its lock at once, then of the host.
func (f *File) enter() (leave func(), err error) {
	f.mu.Lock()
	if f.lock == nil {
		f.mu.Unlock()
		return nil, fmt.Errorf("fence: %s: %w", f.path, os.ErrClosed)
	}
	if err := lockFile(f.lock); err != nil {
		f.mu.Unlock()
		return nil, fmt.Errorf("fence: lock %s: %w", f.path+lockSuffix, err)
	}
	leave = func() {
		// Unlocking what one holds cannot fail. If it did, others would wait
		// until this process ends, which breaks no promise, while an error here
		// would read as if the write had not run.
		_ = unlockFile(f.lock)
		f.mu.Unlock()
	}
	// If somebody removed the lock file after all, others may hold the lock of
	// another by that name.
	if err := f.checkLock(); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

func (f *File) checkLock() error {
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

// read brings f.mark up to what is on disk. The caller holds the lock.
func (f *File) read() error {
	m, err := f.readMark()
	if err != nil {
		return err
	}
	if m < f.mark {
		return &CorruptError{Path: f.path, Reason: fmt.Sprintf("its token fell from %d to %d", f.mark, m)}
	}
	if m > f.mark {
		f.mark, f.durable = m, false
	}
	return nil
}

func (f *File) readMark() (Token, error) {
	file, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		info, err := f.lock.Stat()
		if err != nil {
			return 0, fmt.Errorf("fence: %w", err)
		}
		if info.Size() > 0 {
			return 0, &CorruptError{Path: f.path, Reason: "missing, though its lock file says that it was stored"}
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
		return 0, &CorruptError{Path: f.path, Reason: err.Error()}
	}
	return m, nil
}

// store makes t the mark on disk, durably. When it fails the mark on disk is t
// or what it was. The caller holds the lock and has seen that t is not below the
// mark.
func (f *File) store(t Token) error {
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
	if _, err := file.Write(b); err != nil {
		file.Close()
		return err
	}
	if err := file.Sync(); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
