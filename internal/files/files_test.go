package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAReplacedFileIsOldOrNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, content := range []string{"one", "two, and longer", "", "four"} {
		must(t, os.WriteFile(path+newSuffix, []byte("left by a crash"), 0o644))
		must(t, Replace(path, []byte(content)))
		got, err := os.ReadFile(path)
		must(t, err)
		if string(got) != content {
			t.Errorf("read %q, want %q", got, content)
		}
		if _, err := os.Lstat(path + newSuffix); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the prepared file stays: %v", err)
		}
	}
	if err := Replace(filepath.Join(path, "below a file"), nil); err == nil {
		t.Error("wrote below a file")
	}
}

func TestADirectoryIsTakenOnce(t *testing.T) {
	t.Parallel() // waits for the lock
	dir := t.TempDir()
	first, err := Take(dir)
	must(t, err)
	if _, err := Take(dir); !errors.Is(err, ErrInUse) {
		t.Errorf("taken twice: %v", err)
	}
	freed := make(chan error)
	go func() { freed <- first.Close() }()
	second, err := Take(dir)
	must(t, err)
	must(t, <-freed)
	must(t, second.Close())
}

func TestAPathIsQuotedForTheShell(t *testing.T) {
	for path, want := range map[string]string{
		"/var/lib/wardmote-1": "/var/lib/wardmote-1",
		"/a b":                "'/a b'",
		"/it's;rm":            `'/it'\''s;rm'`,
	} {
		if got := shell(path); got != want {
			t.Errorf("%q became %s, want %s", path, got, want)
		}
	}
}

func TestADirIsADirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := Prepare(file); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a file: %v", err)
	}
	if _, err := Open(dir, os.O_RDONLY, 0); err == nil {
		t.Error("a directory was opened as a file")
	}
}
