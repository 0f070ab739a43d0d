//go:build !linux

package fence

import "os"

func syncData(f *os.File) error { return f.Sync() }
