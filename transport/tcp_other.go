//go:build !linux

package transport

import "syscall"

// control sets nothing: only on Linux does unacknowledged data suppress the
// keepalive for a quarter of an hour, and only Linux has an option against
// this.
func control(_, _ string, _ syscall.RawConn) error { return nil }
