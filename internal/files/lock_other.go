//go:build (!unix && !windows) || aix || solaris

package files

import (
	"errors"
	"os"
)

// tryLock fails: two processes in one directory could both vote.
func tryLock(*os.File) (locked bool, err error) {
	return false, errors.New("this operating system has no lock on files: leave Dir empty")
}
