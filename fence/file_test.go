package fence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// readRaw reads the mark past all locks.
func readRaw(t testing.TB, path string) Token {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := decodeMark(b)
	if err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	return m
}

func TestFileRemembersOverRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	for tok := Token(10); tok < 15; tok++ {
		f := openTest(t, path)
		if err := f.Do(tok-2, noWrite); tok > 10 && !errors.Is(err, ErrStale) {
			t.Errorf("token %d after a restart: %v", tok-2, err)
		}
		if err := f.Do(tok, noWrite); err != nil {
			t.Error(err)
		}
		f.Close()
	}
}

func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no mode bits")
	}
	path := filepath.Join(t.TempDir(), "mark")
	// A leftover of another mode does not lend it to the mark.
	if err := os.WriteFile(path+tempSuffix, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := openTest(t, path).Claim(7); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, path + lockSuffix} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o600 {
			t.Errorf("%s has mode %v", filepath.Base(p), info.Mode())
		}
	}
	if _, err := os.Lstat(path + tempSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary file is still there: %v", err)
	}
}

// What a crash may leave beside the mark is never read, whatever it says.
func TestLeftoverTempIsNeverRead(t *testing.T) {
	for _, left := range []string{"", "wardmote-fe", string(encodeMark(3)), string(encodeMark(99)), strings.Repeat("x", 1<<16)} {
		path := filepath.Join(t.TempDir(), "mark")
		f := openTest(t, path)
		if err := f.Claim(7); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := os.WriteFile(path+tempSuffix, []byte(left), 0o400); err != nil {
			t.Fatal(err)
		}
		g := fileGuard{openTest(t, path)}
		if m := g.mustCurrent(t); m != 7 {
			t.Errorf("with %.20q left over the mark is %d, want 7", left, m)
		}
		if err := g.Claim(8); err != nil {
			t.Errorf("with %.20q left over: %v", left, err)
		}
	}
}

// A leftover link must not make the guard write where it points.
func TestLeftoverLinkIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "mark"), filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, path+tempSuffix); err != nil {
		t.Skip(err)
	}
	if err := openTest(t, path).Claim(7); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(other); string(b) != "precious" {
		t.Errorf("the link's target now holds %q", b)
	}
}

func TestDamagedMarkRefusesEverything(t *testing.T) {
	good := string(encodeMark(7))
	damage := map[string]func(path string) error{
		"empty":     func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"torn":      func(p string) error { return os.WriteFile(p, []byte(good[:len(good)/2]), 0o600) },
		"zeroes":    func(p string) error { return os.WriteFile(p, make([]byte, len(good)), 0o600) },
		"flipped":   func(p string) error { return os.WriteFile(p, []byte(strings.Replace(good, "=7", "=1", 1)), 0o600) },
		"twice":     func(p string) error { return os.WriteFile(p, []byte(good+good), 0o600) },
		"long":      func(p string) error { return os.WriteFile(p, make([]byte, 1<<20), 0o600) },
		"removed":   os.Remove,
		"version 2": func(p string) error { return os.WriteFile(p, []byte("wardmote-fence 2 token=7\n"), 0o600) },
	}
	for name, damage := range damage {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "mark")
			f := openTest(t, path)
			if err := f.Claim(7); err != nil {
				t.Fatal(err)
			}
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			after, _ := os.ReadFile(path)
			refused := func(what string, err error) {
				var corrupt *CorruptError
				if !errors.As(err, &corrupt) || corrupt.Path != path || corrupt.Reason == "" {
					t.Errorf("%s: %v, want a CorruptError of the mark", what, err)
				}
			}
			write := func() error { t.Error("a write ran"); return nil }
			for _, tok := range []Token{1, 7, 8, 1<<64 - 1} {
				refused("Do", f.Do(tok, write))
				refused("DoOnce", f.DoOnce(tok, write))
				refused("Claim", f.Claim(tok))
			}
			_, err := f.Current()
			refused("Current", err)
			_, err = OpenFile(path)
			refused("OpenFile", err)
			if b, _ := os.ReadFile(path); string(b) != string(after) {
				t.Errorf("the damaged mark was changed to %q", b)
			}
		})
	}
}

// An older mark that is put back is whole, but a File that saw a newer one knows.
func TestMarkThatFellIsDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	f := openTest(t, path)
	if err := f.Claim(9); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, encodeMark(7), 0o600); err != nil {
		t.Fatal(err)
	}
	var corrupt *CorruptError
	if err := f.Claim(8); !errors.As(err, &corrupt) {
		t.Errorf("claim of 8 below the 9 it has seen: %v", err)
	}
}

func TestReplacedLockFileRefusesEverything(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not remove open files")
	}
	path := filepath.Join(t.TempDir(), "mark")
	f := openTest(t, path)
	if err := f.Claim(7); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path + lockSuffix); err != nil {
		t.Fatal(err)
	}
	var corrupt *CorruptError
	if err := f.Claim(8); !errors.As(err, &corrupt) {
		t.Errorf("without a lock file: %v", err)
	}
	// One that opens now makes its own lock file and finds the mark.
	g := fileGuard{openTest(t, path)}
	if m := g.mustCurrent(t); m != 7 {
		t.Errorf("mark is %d, want 7", m)
	}
	corrupt = nil
	if err := f.Claim(8); !errors.As(err, &corrupt) {
		t.Errorf("with another lock file: %v", err)
	}
}

// Better at the start than at the first write.
func TestOpenFileFindsOutThatItCannotStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	if err := openTest(t, path).Claim(7); err != nil {
		t.Fatal(err)
	}
	if _, err := openFile(path, &stepDisk{path: path, at: 1, fault: failsBefore}); !errors.Is(err, errDisk) {
		t.Errorf("on a disk that takes no mark: %v", err)
	}
	if m := readRaw(t, path); m != 7 {
		t.Errorf("the mark is now %d, want 7", m)
	}
}

func TestOpenFileNeedsItsDirectory(t *testing.T) {
	_, err := OpenFile(filepath.Join(t.TempDir(), "none", "mark"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a directory that is not there: %v", err)
	}
}

func TestRelativePathStaysWhereItWasOpened(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	t.Chdir(dir)
	f := openTest(t, "mark")
	t.Chdir(elsewhere)
	if err := f.Claim(7); err != nil {
		t.Fatal(err)
	}
	if m := readRaw(t, filepath.Join(dir, "mark")); m != 7 {
		t.Errorf("mark is %d, want 7", m)
	}
}

func TestClosedFileRefuses(t *testing.T) {
	f := openTest(t, filepath.Join(t.TempDir(), "mark"))
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	write := func() error { t.Error("a write ran"); return nil }
	_, cerr := f.Current()
	for _, err := range []error{f.Do(7, write), f.DoOnce(7, write), f.Claim(7), cerr} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("a closed File says %v", err)
		}
	}
	// Whoever waits for the lock has this file open already.
	if _, err := os.Stat(f.path + lockSuffix); err != nil {
		t.Errorf("the lock file after Close: %v", err)
	}
}

// stepDisk is a disk under a File that goes wrong at one of its steps and can
// lose power: then only what was synced is left.
type stepDisk struct {
	hostDisk
	path string // of the mark

	step    int   // steps so far
	at      int   // the step that goes wrong
	fault   fault // how
	stores  int   // marks stored to the end
	tempOK  bool  // the temporary file's content is synced
	markOK  bool  // the visible mark's content is synced
	durable []byte
}

type fault int

const (
	none         fault = iota
	failsBefore        // an error, and nothing has happened
	failsAfter         // an error, though it has happened
	killedBefore       // the process dies
	killedAfter
)

func (f fault) String() string {
	return [...]string{"none", "failsBefore", "failsAfter", "killedBefore", "killedAfter"}[f]
}

var errDisk = errors.New("disk says no")

type killed struct{}

// do performs one step, or what is left of it.
func (d *stepDisk) do(act func() error) error {
	d.step++
	if d.step != d.at {
		return act()
	}
	switch d.fault {
	case failsAfter, killedAfter:
		if err := act(); err != nil {
			return err
		}
	}
	switch d.fault {
	case killedBefore, killedAfter:
		panic(killed{})
	case failsBefore, failsAfter:
		return errDisk
	}
	return act()
}

func (d *stepDisk) create(path string) (df diskFile, err error) {
	err = d.do(func() error {
		d.tempOK = false
		f, err := d.hostDisk.create(path)
		df = stepFile{f, d}
		return err
	})
	return df, err
}

func (d *stepDisk) rename(from, to string) error {
	return d.do(func() error {
		d.markOK = d.tempOK
		return d.hostDisk.rename(from, to)
	})
}

func (d *stepDisk) syncDir(string) error {
	return d.do(func() error {
		d.stores++
		d.durable = nil
		if b, err := os.ReadFile(d.path); err == nil && d.markOK {
			d.durable = b
		} else if err == nil {
			d.durable = b[:len(b)/2]
		}
		return nil
	})
}

// losePower takes the mark back to what was durable: the worst a disk may do.
func (d *stepDisk) losePower(t testing.TB) {
	if d.durable == nil {
		os.Remove(d.path)
	} else if err := os.WriteFile(d.path, d.durable, 0o600); err != nil {
		t.Fatal(err)
	}
}

type stepFile struct {
	diskFile
	d *stepDisk
}

func (f stepFile) Write(b []byte) (n int, err error) {
	err = f.d.do(func() error { n, err = f.diskFile.Write(b); return err })
	return n, err
}

func (f stepFile) Sync() error {
	return f.d.do(func() error { f.d.tempOK = true; return nil })
}

// F1 and F2, at every step of a short life and for every way it can go wrong.
func TestMarkHoldsWhereverItCrashes(t *testing.T) {
	ran := 0
	for _, fault := range []fault{failsBefore, failsAfter, killedBefore, killedAfter} {
		for _, power := range []bool{false, true} {
			for at := 1; ; at++ {
				more := false
				t.Run(fmt.Sprintf("%v/power=%v/%d", fault, power, at), func(t *testing.T) {
					more = crashAt(t, at, fault, power)
				})
				ran++
				if !more {
					break
				}
			}
		}
	}
	if ran < 8*20 {
		t.Errorf("only %d crashes were tried", ran)
	}
}

// crashAt reports whether the life had as many steps as that.
func crashAt(t *testing.T, at int, fault fault, power bool) bool {
	path := filepath.Join(t.TempDir(), "mark")
	d := &stepDisk{path: path, at: at, fault: fault}

	var (
		written Token // highest token of a write that was started
		told    Token // highest mark that was told
	)
	do := func(f *File, tok Token) error {
		err := f.Do(tok, func() error {
			if tok < written {
				t.Errorf("token %d writes after token %d", tok, written)
			}
			written = max(written, tok)
			return nil
		})
		if err != nil && !errors.Is(err, ErrStale) && !errors.Is(err, errDisk) {
			t.Errorf("Do(%d): %v", tok, err)
		}
		return err
	}
	current := func(f *File) {
		m, err := f.Current()
		if err != nil {
			if !errors.Is(err, errDisk) {
				t.Errorf("Current: %v", err)
			}
			return
		}
		if m < written || m < told {
			t.Errorf("the mark is %d, after %d was told and %d written", m, told, written)
		}
		told = max(told, m)
	}
	check := func(f *File) {
		current(f)
		if written > 1 {
			if err := do(f, written-1); !errors.Is(err, ErrStale) {
				t.Errorf("Do(%d) after %d was written: %v", written-1, written, err)
			}
		}
	}
	open := func() *File {
		f, err := openFile(path, d)
		if err != nil {
			if !errors.Is(err, errDisk) {
				t.Errorf("open: %v", err)
			}
			return nil
		}
		t.Cleanup(func() { f.Close() })
		return f
	}

	// The life, beside another process that was there before it.
	var other *File
	tokens := []Token{3, 3, 5, 4, 8}
	next := 0
	alive := func() (alive bool) {
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(killed); !ok {
					panic(r)
				}
			}
		}()
		other = open()
		f := open()
		if f == nil {
			f = open() // the fault is over
		}
		if f == nil {
			t.Fatal("cannot open on a sound disk")
		}
		for ; next < len(tokens); next++ {
			err := do(f, tokens[next])
			if errors.Is(err, errDisk) {
				do(f, tokens[next]) // tries again, with the same File
			}
			if power && d.step >= at {
				return false // lights out, right after the fault
			}
			current(f)
		}
		return true
	}()

	more := d.step >= at
	d.at = 0 // nothing more goes wrong
	if power {
		d.losePower(t)
		other = nil
	} else if other != nil {
		// The survivor comes by with the very token that the dead one had shown.
		if !alive && next < len(tokens) {
			do(other, tokens[next])
		}
		check(other)
	}
	// Nothing that the survivor wrote may be lost either.
	d.losePower(t)
	f := open()
	if f == nil {
		t.Fatal("cannot open after the crash")
	}
	check(f)
	if err := do(f, 9); err != nil {
		t.Errorf("Do(9) after the crash: %v", err)
	}
	d.losePower(t)
	if f = open(); f != nil {
		check(f)
	}
	return more
}

// A process dies between the rename and the sync; another is asked for the mark,
// and then the power goes. What was told must still be true.
func TestCurrentTellsOnlyWhatIsDurable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	d := &stepDisk{path: path}
	f, err := openFile(path, d)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.WriteFile(path, encodeMark(7), 0o600); err != nil { // renamed, not synced
		t.Fatal(err)
	}
	told := fileGuard{f}.mustCurrent(t)
	d.losePower(t)
	g, err := openFile(path, d)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if m := (fileGuard{g}).mustCurrent(t); m < told {
		t.Errorf("the mark was told as %d, and after the power loss it is %d", told, m)
	}
}

func TestEqualTokensCostNoDiskWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	d := &stepDisk{path: path}
	f, err := openFile(path, d)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	was := d.stores
	for range 100 {
		if err := f.Do(7, noWrite); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Current(); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.stores - was; n != 1 {
		t.Errorf("100 writes of one token stored the mark %d times, want 1", n)
	}
}
