//go:build !unix

package files

import "io/fs"

const noWait = 0

// judgeSecret knows no owners and modes.
func judgeSecret(fs.FileInfo) error { return nil }
