//go:build unix

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// noFollow opens no symbolic link, and does not wait for the writer of a named
// pipe.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// judgeDir refuses a Dir that users other than this process's and root can write
// to, with the exception of an fsGroup. narrow: the group's right to write must be
// taken away.
func judgeDir(info fs.FileInfo, dir string) (narrow bool, err error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false, errors.New("its owner is unknown")
	}
	groups, err := os.Getgroups()
	if err != nil {
		return false, err
	}
	return judgeMode(dir, info.Mode().Perm(), int(st.Uid), int(st.Gid), os.Geteuid(), append(groups, os.Getegid()))
}

// judgeMode is judgeDir for a Dir of the mode, owner and group, in a process of the
// user self and the groups.
func judgeMode(dir string, mode fs.FileMode, owner, group, self int, groups []int) (narrow bool, err error) {
	switch {
	case owner != self && owner != 0:
		return false, fmt.Errorf("belongs to user %d, and this process runs as user %d: run chown -R %d %s, or name a new directory",
			owner, self, self, shell(dir))
	case mode&0o002 != 0 && owner == self:
		return false, fmt.Errorf("every user can write to it (mode %04o): run chmod 0700 %s, or name a new directory", mode, shell(dir))
	case mode&0o002 != 0:
		return false, fmt.Errorf("every user can write to it (mode %04o), and it belongs to root: name a directory inside, such as %s, which is then made with mode 0700",
			mode, shell(filepath.Join(dir, "wardmote")))
	case mode&0o020 == 0:
		return false, nil
	case owner == 0 && slices.Contains(groups, group):
		return false, nil // a volume with an fsGroup
	case owner == self:
		return true, nil
	}
	return false, fmt.Errorf("group %d can write to it, and this process is not in that group: run chmod g-w %s", group, shell(dir))
}

// judgeFile refuses a file that users other than this process's may have made, or
// can reach by another name. narrow: the mode must be narrowed.
func judgeFile(info fs.FileInfo, path string) (narrow bool, err error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	self := os.Geteuid()
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return false, fmt.Errorf("a symbolic link: if you made it, put its target in its place; if not, look for its maker first: ls -l %s", shell(path))
	case !info.IsDir() && !info.Mode().IsRegular():
		return false, fmt.Errorf("neither a file nor a directory, but %v: look for its maker", info.Mode())
	case !ok:
		return false, errors.New("its owner is unknown")
	case int(st.Uid) != self:
		return false, fmt.Errorf("belongs to user %d, and this process runs as user %d: if the file is this member's, run chown %d %s",
			st.Uid, self, self, shell(path))
	case !info.IsDir() && st.Nlink > 1:
		return false, fmt.Errorf("has %d names, and a change through any of them changes the file: remove the other names, which find -inum %d shows",
			st.Nlink, st.Ino)
	}
	return info.Mode().Perm()&0o077 != 0, nil
}
