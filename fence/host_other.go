//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package fence

import (
	"errors"
	"os"
)

// Without a file lock that ends with its process there is no File: OpenFile
// fails with errors.ErrUnsupported.

func lockFile(*os.File) error   { return errors.ErrUnsupported }
func unlockFile(*os.File) error { return errors.ErrUnsupported }

func (hostDisk) rename(_, _ string) error { return errors.ErrUnsupported }
func (hostDisk) syncDir(string) error     { return errors.ErrUnsupported }
