//go:build !linux

package transport

import "syscall"

// control has nothing to set: only Linux lets unacknowledged data suppress
// the keepalive for a quarter of an hour and offers the option against it.
func control(_, _ string, _ syscall.RawConn) error { return nil }
