package fence

import (
	"bytes"
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
	r, err := decodeMark(b)
	if err != nil {
		t.Fatalf("%.100q…: %v", b, err)
	}
	return r.token
}

// writeRaw writes records into the mark file without any lock.
func writeRaw(t testing.TB, path string, records ...record) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, r := range records {
		if _, err := f.WriteAt(r.pair(), r.offset()); err != nil {
			t.Fatal(err)
		}
	}
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
	for _, left := range []string{"", "wardmote-fe", string(firstMark()), string(record{99, 99}.pair()), strings.Repeat("x", 1<<16)} {
		path := filepath.Join(t.TempDir(), "mark")
		f := openTest(t, path)
		if err := f.Claim(7); err != nil {
			t.Fatal(err)
		}
		f.Close()
		fresh := filepath.Join(t.TempDir(), "mark")
		for _, path := range []string{path, fresh} {
			if err := os.WriteFile(path+tempSuffix, []byte(left), 0o400); err != nil {
				t.Fatal(err)
			}
		}
		if m := (fileGuard{openTest(t, fresh)}).mustCurrent(t); m != 0 {
			t.Errorf("with %.20q left over a new mark is %d", left, m)
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

// Several names of one mark file, by a symbolic link or a hard link: the guards of all
// names share the mark, and exclude each other.
func TestNamesOfOneMarkShareIt(t *testing.T) {
	for name, link := range map[string]func(old, new string) error{"symbolic": os.Symlink, "hard": os.Link} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, other := filepath.Join(dir, "mark"), filepath.Join(dir, "other")
			f := fileGuard{openTest(t, path)}
			if err := f.Claim(7); err != nil {
				t.Fatal(err)
			}
			if err := link(path, other); err != nil {
				t.Skip(err)
			}
			g := fileGuard{openTest(t, other)}
			if err := g.Claim(6); !errors.Is(err, ErrStale) {
				t.Errorf("token 6 by the other name: %v", err)
			}
			handles := []anyGuard{f, g, f, g}
			if err := race(len(handles), 30,
				func(w int, t Token, write func() error) error { return handles[w].Do(7+t, write) },
				func(w int, t Token) error { return handles[w].Claim(7 + t) }); err != nil {
				t.Error(err)
			}
			if a, b := f.mustCurrent(t), g.mustCurrent(t); a != b {
				t.Errorf("the marks are %d and %d", a, b)
			}
		})
	}
}

// A link at path to a file that is no mark: the file is left alone.
func TestMarkThatIsALinkToSomethingElseIsRefused(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "mark"), filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, path); err != nil {
		t.Skip(err)
	}
	var corrupt *CorruptError
	if _, err := OpenFile(path); !errors.As(err, &corrupt) {
		t.Errorf("a link to a file that is no mark: %v", err)
	}
	if b, _ := os.ReadFile(other); string(b) != "precious" {
		t.Errorf("the link's target now holds %q", b)
	}
}

func TestDamagedMarkRefusesEverything(t *testing.T) {
	change := func(edit func(b []byte) []byte) func(string) error {
		return func(p string) error {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			return os.WriteFile(p, edit(b), 0o600)
		}
	}
	damage := map[string]func(path string) error{
		"empty":       change(func([]byte) []byte { return nil }),
		"cut":         change(func(b []byte) []byte { return b[:len(b)/2] }),
		"cut by one":  change(func(b []byte) []byte { return b[:len(b)-1] }),
		"zeroes":      change(func(b []byte) []byte { return make([]byte, len(b)) }),
		"half zeroes": change(func(b []byte) []byte { clear(b[:len(b)/2]); return b }),
		"half erased": change(func(b []byte) []byte { clear(b[len(b)/2:]); return b }),
		"flipped":     change(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("=7"), []byte("=1")) }),
		"twice":       change(func(b []byte) []byte { return append(b, b...) }),
		"long":        change(func([]byte) []byte { return make([]byte, 1<<20) }),
		"swapped":     change(func(b []byte) []byte { return append(b[pairSize:], b[:pairSize]...) }),
		"version 1":   change(func([]byte) []byte { return []byte("wardmote-fence 1 token=7 crc32c=ce14d2ca\n") }),
		"version 3":   change(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("fence 2"), []byte("fence 3")) }),
		"removed":     os.Remove,
	}
	for name, damage := range damage {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "mark")
			f := openTest(t, path)
			if err := f.Claim(7); err != nil {
				t.Fatal(err)
			}
			if err := damage(path); err != nil && runtime.GOOS == "windows" {
				t.Skip(err) // Windows does not remove open files
			} else if err != nil {
				t.Fatal(err)
			}
			after, _ := os.ReadFile(path)
			refused := func(what string, err error) {
				var corrupt *CorruptError
				if !errors.As(err, &corrupt) || corrupt.Path != path || corrupt.Reason == "" {
					t.Errorf("%s: %v, want a CorruptError of the mark", what, err)
				}
				if err != nil && !strings.Contains(err.Error(), "claim a token above all") {
					t.Errorf("%s does not say what to do: %v", what, err)
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
	writeRaw(t, path, record{2, 6}, record{3, 7})
	var corrupt *CorruptError
	if err := f.Claim(8); !errors.As(err, &corrupt) {
		t.Errorf("claim of 8 below the 9 it has seen: %v", err)
	}
}

// The lock file matters only while a File is opened: without it the guard goes on, and a
// File opened later shares the mark.
func TestRemovedLockFileIsReplaced(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not remove open files")
	}
	path := filepath.Join(t.TempDir(), "mark")
	f := fileGuard{openTest(t, path)}
	if err := f.Claim(7); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path + lockSuffix); err != nil {
		t.Fatal(err)
	}
	if err := f.Claim(8); err != nil {
		t.Errorf("without a lock file: %v", err)
	}
	g := fileGuard{openTest(t, path)}
	if err := g.Claim(7); !errors.Is(err, ErrStale) {
		t.Errorf("token 7 after token 8, with another lock file: %v", err)
	}
	handles := []anyGuard{f, g}
	if err := race(len(handles), 30,
		func(w int, t Token, write func() error) error { return handles[w].Do(8+t, write) },
		func(w int, t Token) error { return handles[w].Claim(8 + t) }); err != nil {
		t.Error(err)
	}
}

// After its mark file was replaced a File refuses: other processes lock the new file.
func TestReplacedMarkFileRefusesEverything(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not replace open files")
	}
	dir := t.TempDir()
	path, other := filepath.Join(dir, "mark"), filepath.Join(dir, "other")
	f := openTest(t, path)
	for _, path := range []string{path, other} {
		if err := openTest(t, path).Claim(7); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	var corrupt *CorruptError
	if err := f.Claim(8); !errors.As(err, &corrupt) || corrupt.Path != path {
		t.Errorf("with another mark file: %v", err)
	}
	if m := (fileGuard{openTest(t, path)}).mustCurrent(t); m != 7 {
		t.Errorf("the mark is %d, want 7", m)
	}
}

// One copy of each record may be damaged: the mark stands, and the next store mends it.
func TestDamageOfOneCopyIsMended(t *testing.T) {
	for copied := range 4 {
		path := filepath.Join(t.TempDir(), "mark")
		if err := openTest(t, path).Claim(7); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		clear(b[copied*blockSize:][:blockSize])
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		f := fileGuard{openTest(t, path)}
		if m := f.mustCurrent(t); m != 7 {
			t.Errorf("without copy %d the mark is %d, want 7", copied, m)
		}
		for _, tok := range []Token{8, 9} {
			if err := f.Claim(tok); err != nil {
				t.Error(err)
			}
		}
		if b, err = os.ReadFile(path); err != nil || bytes.IndexByte(b, 0) >= 0 {
			t.Errorf("copy %d is still damaged after two stores: %v", copied, err)
		}
	}
}

// OpenFile must fail on a disk that cannot store marks, not the first write.
func TestOpenFileFailsIfTheMarkCannotBeStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	if err := openTest(t, path).Claim(7); err != nil {
		t.Fatal(err)
	}
	for at := 1; at <= 2; at++ {
		if _, err := openFile(path, &stepDisk{path: path, at: at, fault: failsBefore}); !errors.Is(err, errDisk) {
			t.Errorf("on a disk that fails at step %d: %v", at, err)
		}
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

// A new token costs one write in place and one sync: no other file is touched. Equal
// tokens cost none.
func TestClaimCostsOneSync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	d := &stepDisk{path: path}
	f, err := openFile(path, d)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	steps, writes, syncs := d.step, d.writes, d.syncs
	for tok := Token(1); tok <= 10; tok++ {
		for range 10 {
			if err := f.Do(tok, noWrite); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Current(); err != nil {
				t.Fatal(err)
			}
		}
	}
	steps, writes, syncs = d.step-steps, d.writes-writes, d.syncs-syncs
	if steps != 20 || writes != 10 || syncs != 10 {
		t.Errorf("10 tokens cost %d writes, %d syncs and %d steps in all, want 10, 10 and 20", writes, syncs, steps)
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

// Highest reads while others store: it sees no torn mark, and never a lower one than before.
func TestHighestBesideClaims(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	f, reader := openTest(t, path), openTest(t, path)
	const last = 300
	claimed := make(chan error, 1)
	go func() {
		var err error
		for token := Token(1); token <= last && err == nil; token++ {
			err = f.Claim(token)
		}
		claimed <- err
	}()
	for was := Token(0); was < last; {
		got, err := reader.Highest(t.Context())
		if err != nil || got < was {
			t.Errorf("%d after %d, %v", got, was, err)
			break
		}
		was = got
	}
	if err := <-claimed; err != nil {
		t.Error(err)
	}
}
