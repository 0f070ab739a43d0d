package transport

import "syscall"

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not name.
const tcpUserTimeout = 0x12

// control bounds how long data may stay unacknowledged. Keepalive alone does
// not: Linux sends no probes while data is outstanding, and retransmits for
// some fifteen minutes before it gives a connection up.
func control(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		// Best effort: without it a dead peer is only found out later.
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(keepaliveTotal.Milliseconds()))
	})
}
