package fence

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// readRaw reads the mark file without any lock.
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
	// The mode of a leftover temporary file must not become the mode of the mark.
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

// A temporary file left over by a crash is never read, with any content.
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

// A leftover symbolic link must not make the guard write to the target.
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

// An older mark file put back is whole, but a File that has read a higher mark
// notices the damage.
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
	// A File opened now creates a new lock file and finds the mark.
	g := fileGuard{openTest(t, path)}
	if m := g.mustCurrent(t); m != 7 {
		t.Errorf("mark is %d, want 7", m)
	}
	corrupt = nil
	if err := f.Claim(8); !errors.As(err, &corrupt) {
		t.Errorf("with another lock file: %v", err)
	}
}

// OpenFile must fail on a disk that cannot store marks, not the first write.
func TestOpenFileFailsIfTheMarkCannotBeStored(t *testing.T) {
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

func TestOpenFileNeedsTheDirectory(t *testing.T) {
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
	// Close must not remove the lock file: other processes may wait for its lock.
	if _, err := os.Stat(f.path + lockSuffix); err != nil {
		t.Errorf("the lock file after Close: %v", err)
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

// Highest answers while a write of another process hangs, from a closed File too, and
// tells damage.
func TestHighestWaitsForNoWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	f := openTest(t, path)
	highest := func(want Token) {
		t.Helper()
		if got, err := f.Highest(t.Context()); err != nil || got != want {
			t.Errorf("the highest token is %d, %v; want %d", got, err, want)
		}
	}
	highest(0)
	if err := f.Do(7, func() error { highest(7); return nil }); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	highest(7)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Highest(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of ctx: %v", err)
	}
	if err := os.WriteFile(path, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	var damage *CorruptError
	if _, err := f.Highest(t.Context()); !errors.As(err, &damage) {
		t.Errorf("of a damaged mark: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Highest(t.Context()); !errors.As(err, &damage) {
		t.Errorf("of a lost mark: %v", err)
	}
}
