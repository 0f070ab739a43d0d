//go:build unix

package files

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A process of user 1000 is given a file with secrets.
func TestWhoMayKnowASecret(t *testing.T) {
	for _, c := range []struct {
		about string
		mode  fs.FileMode
		owner int
		say   string // "": taken
	}{
		{"made under umask 077", 0o600, 1000, ""},
		{"read only", 0o400, 1000, ""},
		{"made under umask 022", 0o644, 1000, "other users can read it (mode 0644)"},
		{"for a group", 0o640, 1000, "other users can read it"},
		{"written by a group", 0o620, 1000, "other users can write to it"},
		{"a Kubernetes secret", 0o644, 0, ""},
		{"a Kubernetes secret with an fsGroup", 0o440, 0, ""},
		{"a Docker secret", 0o444, 0, ""},
		{"root's, for everybody to write", 0o666, 0, "other users can write to it"},
		{"another user's", 0o600, 1001, "run chown 1000"},
	} {
		err := judgeSecretMode(c.mode, c.owner, 1000)
		if (c.say == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v, want %q", c.about, err, c.say)
		}
	}
}

func TestASecretIsReadThroughALink(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "secret"), filepath.Join(dir, "link")
	must(t, os.WriteFile(path, []byte("text\n"), 0o600))
	must(t, os.Symlink(path, link))
	if b, err := ReadSecret(link); err != nil || string(b) != "text\n" {
		t.Errorf("read %q, %v", b, err)
	}
	must(t, os.Chmod(path, 0o622))
	if _, err := ReadSecret(link); err == nil {
		t.Error("read a file that others can write to")
	}
}

// Errors have neither the path, which may be the secret itself, nor the bytes.
func TestNoOtherKindOfFileIsReadAsASecret(t *testing.T) {
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	must(t, syscall.Mkfifo(pipe, 0o600))
	must(t, os.WriteFile(large, bytes.Repeat([]byte("x"), maxSecretFile+1), 0o600))
	for path, want := range map[string]string{
		dir:                          "not a regular file",
		pipe:                         "not a regular file",
		large:                        "exceeds 65536 bytes",
		filepath.Join(dir, "nobody"): "no such file",
	} {
		_, err := ReadSecret(path)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
