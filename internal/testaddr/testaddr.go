// Package testaddr finds addresses on loopback for processes that a test starts: the
// processes must know each other's addresses before any of them runs.
package testaddr

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
)

// hosts counts the hosts that this process has given out.
var hosts atomic.Uint32

// Host returns a loopback address without a port. On Linux each call returns another one,
// which other tests do not use: no other socket of the machine takes a port of the
// address between the look of Free and the start of a process. On 127.0.0.1 any outgoing
// connection may do that. Other systems have 127.0.0.1 alone. After 250 calls the
// addresses come again.
func Host() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	n, pid := hosts.Add(1), os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 1+pid>>8%200, pid%256, 2+n%250)
}

// tries bounds the search for a port. A port of TCP is seldom taken for UDP.
const tries = 100

// Free returns an address of the host that is free for TCP and UDP at the moment, and none
// of taken.
func Free(host string, taken []string) (string, error) {
	var last error
	for range tries {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return "", err
		}
		addr := l.Addr().String()
		_ = l.Close()
		if slices.Contains(taken, addr) {
			continue
		}
		u, err := net.ListenPacket("udp", addr)
		if err == nil {
			_ = u.Close()
			return addr, nil
		}
		last = err
	}
	return "", fmt.Errorf("no port of %s is free for TCP and UDP: %w", host, last)
}
