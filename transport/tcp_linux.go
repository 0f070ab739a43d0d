package transport

import (
	"syscall"

	"github.com/wardmote/wardmote/internal/timing"
)

// tcpUserTimeout is TCP_USER_TIMEOUT. Package syscall has no name for the option.
const tcpUserTimeout = 0x12

// control bounds the time for which data may stay unacknowledged. Keepalive
// alone does not: while data is outstanding, Linux sends no probes, and
// retransmits for some fifteen minutes before giving up a connection.
func control(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		// Best effort: without the option a dead peer is only found out later.
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(timing.KeepaliveTotal.Milliseconds()))
	})
}
