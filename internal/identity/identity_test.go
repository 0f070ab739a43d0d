package identity

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func open(t *testing.T, dir, name, cluster string, named bool) *Store {
	t.Helper()
	s, err := Open(dir, name, cluster, named)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRecordOutlivesTheProcessWithADirectoryOnly(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s := open(t, dir, "ann", "c", true)
		if err := s.Update(func(r *Record) { r.Token = 7 }); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		again := open(t, dir, "ann", "c", true)
		if got := again.Get().Token; (got == 7) != (dir != "") {
			t.Errorf("directory %q: token %d after a restart", dir, got)
		}
		again.Close()
	}
}

func TestForeignAndDamagedRecordsAreRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "ann", "c", true)
	if err := s.Update(func(r *Record) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "ann", "c", true); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second process got the directory: %v", err)
	}
	s.Close()
	for _, c := range []struct {
		name, cluster string
		named         bool
		reason        string
	}{
		{"ben", "c", true, "belongs to member"},
		{"ann", "d", true, "belongs to cluster"},
	} {
		if _, err := Open(dir, c.name, c.cluster, c.named); err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	unnamed := open(t, dir, "made-up", "c", false)
	if got := unnamed.Get().Name; got != "ann" {
		t.Errorf("a member without a name took %q, not the name in the record", got)
	}
	unnamed.Close()
	if err := os.WriteFile(filepath.Join(dir, file), []byte("garbage, and enough of it to be a page"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "ann", "c", true); err == nil {
		t.Error("a damaged record was accepted")
	}
}
