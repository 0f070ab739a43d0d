//go:build !linux

package raftstore

import "os"

func allocate(f *os.File, size int64) error { return f.Truncate(size) }
func syncData(f *os.File) error             { return f.Sync() }
