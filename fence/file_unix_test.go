//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package fence

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Only this test shows that other processes are excluded while write runs.
func TestHostLockIsHeldOverTheWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	f := openTest(t, path)
	probe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	try := func() error { return syscall.Flock(int(probe.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

	ran := false
	err = f.Do(7, func() error {
		ran = true
		if err := try(); !errors.Is(err, syscall.EWOULDBLOCK) {
			t.Errorf("while write runs the lock says %v", err)
		}
		return nil
	})
	if err != nil || !ran {
		t.Fatalf("Do: %v, write ran: %v", err, ran)
	}
	if err := try(); err != nil {
		t.Errorf("after the write the lock says %v", err)
	}
}
