//go:build unix

package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// mode returns the mode of a file.
func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return info.Mode()
}

// A process of user 1000, in the groups 1000 and 2000, is given a Dir.
func TestWhoMayWriteToADir(t *testing.T) {
	const refused, narrowed, taken = "refused", "narrowed", "taken"
	for _, c := range []struct {
		about        string
		mode         fs.FileMode
		owner, group int
		want, say    string
	}{
		{"made by Start", 0o700, 1000, 1000, taken, ""},
		{"made by mkdir or systemd", 0o755, 1000, 1000, taken, ""},
		{"made by mkdir under umask 002", 0o775, 1000, 1000, narrowed, ""},
		{"a directory in a volume with an fsGroup, after the next mount", 0o770, 1000, 2000, narrowed, ""},
		{"shared with a group", 0o770, 1000, 3000, narrowed, ""},
		{"for everybody", 0o777, 1000, 1000, refused, "run chmod 0700 /d,"},
		{"for everybody but the group", 0o707, 1000, 1000, refused, "run chmod 0700 /d,"},
		{"a volume of root", 0o755, 0, 0, taken, ""},
		{"a volume with an fsGroup", 0o775, 0, 2000, taken, ""},
		{"root's, for another group", 0o775, 0, 3000, refused, "run chmod g-w /d"},
		{"an emptyDir, or a volume of local-path", 0o777, 0, 0, refused, "name a directory inside, such as /d/wardmote"},
		{"/tmp", 0o777, 0, 0, refused, "name a directory inside"},
		{"another user's", 0o700, 1001, 1001, refused, "run chown -R 1000 /d"},
		{"another user's, for everybody", 0o777, 1001, 1001, refused, "run chown -R 1000 /d"},
		{"another user's, for our group", 0o770, 1001, 2000, refused, "run chown -R 1000 /d"},
	} {
		narrow, err := judgeMode("/d", c.mode, c.owner, c.group, 1000, []int{1000, 2000})
		got := taken
		switch {
		case err != nil:
			got = refused
		case narrow:
			got = narrowed
		}
		if got != c.want || err != nil && !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s (%04o, %d:%d): %s, want %s %q: %v", c.about, c.mode, c.owner, c.group, got, c.want, c.say, err)
		}
	}
	if narrow, err := judgeMode("/d", 0o755, 1000, 1000, 0, []int{0}); err == nil {
		t.Errorf("root took a directory that user 1000 can change: %v", narrow)
	}
}

func TestANewDirIsForItsOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	_, err := Prepare(dir)
	must(t, err)
	for _, path := range []string{dir, filepath.Dir(dir)} {
		if m := mode(t, path); m != 0o700|fs.ModeDir {
			t.Errorf("%s has mode %v", path, m)
		}
	}
}

func TestADirForEverybodyIsRefusedUnchanged(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, Identity)
	must(t, os.WriteFile(file, nil, 0o644))
	must(t, os.Chmod(file, 0o644))
	must(t, os.Chmod(dir, 0o777))
	if _, err := Prepare(dir); err == nil || !strings.Contains(err.Error(), "every user can write to it (mode 0777)") {
		t.Errorf("prepared: %v", err)
	}
	if m := mode(t, dir).Perm(); m != 0o777 {
		t.Errorf("the directory has mode %v now", m)
	}
	if m := mode(t, file).Perm(); m != 0o644 {
		t.Errorf("the file has mode %v now", m)
	}
}

func TestALinkToADirIsRefusedWithItsTarget(t *testing.T) {
	target, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(target, link))
	for _, dir := range []string{link, link + "/"} {
		if _, err := Prepare(dir); err == nil || !strings.Contains(err.Error(), "name its target instead, "+target) {
			t.Errorf("prepared: %v", err)
		}
	}
	must(t, os.Remove(target))
	if _, err := Prepare(link); err == nil || !strings.Contains(err.Error(), "leads nowhere") {
		t.Errorf("prepared: %v", err)
	}
	// Only the last element counts: an operator's /data may be a link.
	above := filepath.Join(t.TempDir(), "data")
	must(t, os.Symlink(t.TempDir(), above))
	_, err = Prepare(filepath.Join(above, "member"))
	must(t, err)
}

func TestModesOfTheMembersFilesAreNarrowed(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, "raft", "snapshots")
	must(t, os.MkdirAll(store, 0o755))
	own := map[string]fs.FileMode{
		Identity: 0o644, lockName: 0o666, "raft/raft.db": 0o660, "raft/snapshots/1-2-3": 0o604, "raft/retired": 0o600,
	}
	for name, m := range own {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, nil, m))
		must(t, os.Chmod(path, m))
	}
	for _, name := range []string{"raft", "raft/snapshots"} {
		must(t, os.Chmod(filepath.Join(dir, name), 0o770|fs.ModeSetgid)) // as the kubelet leaves it
	}
	foreign := filepath.Join(dir, "lost+found")
	must(t, os.Mkdir(foreign, 0o755))
	must(t, os.Chmod(foreign, 0o777))

	narrowed, err := Inspect(dir)
	must(t, err)
	slices.Sort(narrowed)
	want := []string{Identity, lockName, "raft", "raft/raft.db", "raft/snapshots", "raft/snapshots/1-2-3"}
	if !slices.Equal(narrowed, want) {
		t.Errorf("narrowed %q, want %q", narrowed, want)
	}
	for name := range own {
		if m := mode(t, filepath.Join(dir, name)); m != 0o600 {
			t.Errorf("%s has mode %v", name, m)
		}
	}
	for _, name := range []string{"raft", "raft/snapshots"} {
		if m := mode(t, filepath.Join(dir, name)).Perm(); m != 0o700 {
			t.Errorf("%s has mode %v", name, m)
		}
	}
	if m := mode(t, foreign).Perm(); m != 0o777 {
		t.Errorf("somebody else's directory has mode %v", m)
	}
	if narrowed, err = Inspect(dir); err != nil || len(narrowed) > 0 {
		t.Errorf("the second time narrowed %q: %v", narrowed, err)
	}
}

func TestForeignThingsInADirAreRefused(t *testing.T) {
	for _, c := range []struct {
		about string
		make  func(path string) error
		say   string
	}{
		{"a link", func(path string) error { return os.Symlink("/etc/passwd", path) }, "a symbolic link"},
		{"a link to nothing", func(path string) error { return os.Symlink("nowhere", path) }, "a symbolic link"},
		{"a second name", func(path string) error {
			other := filepath.Join(t.TempDir(), "other")
			return errors.Join(os.WriteFile(other, nil, 0o600), os.Link(other, path))
		}, "has 2 names"},
		{"a pipe", func(path string) error { return syscall.Mkfifo(path, 0o600) }, "neither a file nor a directory"},
		{"another user's file", func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 12345, -1))
		}, "belongs to user 12345"},
	} {
		for _, name := range []string{Identity, "raft/raft.db", "raft.aside-1-1/retired", "raft"} {
			dir := t.TempDir()
			path := filepath.Join(dir, name)
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			if err := c.make(path); errors.Is(err, syscall.EPERM) {
				t.Logf("%s: %v: only root can try it", c.about, err)
				break
			} else if err != nil {
				t.Fatal(err)
			}
			_, err := Inspect(dir)
			if err == nil || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s as %s: %v", c.about, name, err)
			}
		}
	}
}

// A link or a pipe that appears after Inspect is not opened either.
func TestOpenFollowsNoLinkAndWaitsForNoPipe(t *testing.T) {
	dir := t.TempDir()
	link, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	target := filepath.Join(dir, "target")
	must(t, errors.Join(os.WriteFile(target, []byte("as it was"), 0o600), os.Symlink(target, link), syscall.Mkfifo(pipe, 0o600)))
	for _, flag := range []int{os.O_RDONLY, os.O_RDWR | os.O_CREATE, os.O_WRONLY | os.O_CREATE | os.O_TRUNC} {
		for _, path := range []string{link, pipe} {
			if f, err := Open(path, flag, 0); err == nil {
				f.Close()
				t.Errorf("opened %s with flags %x", path, flag)
			}
		}
	}
	// A link in place of the file that Replace prepares.
	must(t, os.Symlink(target, filepath.Join(dir, "file.new")))
	must(t, Replace(filepath.Join(dir, "file"), []byte("new")))
	if b, err := os.ReadFile(target); string(b) != "as it was" {
		t.Errorf("the target holds %q now: %v", b, err)
	}
}
