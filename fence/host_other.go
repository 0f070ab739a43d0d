//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package fence

import (
	"errors"
	"os"
)

// These systems have no file lock that ends with its process, so a File cannot
// work: OpenFile fails with errors.ErrUnsupported.

func lockFile(*os.File) error   { return errors.ErrUnsupported }
func unlockFile(*os.File) error { return errors.ErrUnsupported }

func (hostDisk) rename(_, _ string) error { return errors.ErrUnsupported }
func (hostDisk) syncDir(string) error     { return errors.ErrUnsupported }
