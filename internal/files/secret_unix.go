//go:build unix

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

const noWait = syscall.O_NONBLOCK

// judgeSecret refuses a file with secrets that other users may have written or read.
func judgeSecret(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("its owner is unknown: name a file on another file system")
	}
	return judgeSecretMode(info.Mode().Perm(), int(st.Uid), os.Geteuid())
}

// judgeSecretMode is judgeSecret for a file of the mode and owner, in a process of the
// user self.
func judgeSecretMode(mode fs.FileMode, owner, self int) error {
	switch {
	case owner != self && owner != 0:
		return fmt.Errorf("belongs to user %d, and this process runs as user %d: run chown %d on it", owner, self, self)
	case mode&0o022 != 0:
		return fmt.Errorf("other users can write to it (mode %04o): run chmod 0600 on it, and make a new secret", mode)
	case owner == self && owner != 0 && mode&0o077 != 0:
		return fmt.Errorf("other users can read it (mode %04o): run chmod 0600 on it, and make a new secret if they may have", mode)
	}
	return nil
}
