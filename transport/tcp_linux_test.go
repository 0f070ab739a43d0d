package transport

import (
	"net"
	"syscall"
	"testing"
)

func TestBothSidesFindADeadPeerIn25Seconds(t *testing.T) {
	w := world(tcpWorld)
	a, b := w.listen(t, 1), w.listen(t, 2)
	defer closeAll(a, b)
	x, y := pair(t, a, b)
	defer closeAll(x, y)
	for side, c := range map[string]net.Conn{"dialled": x, "accepted": y} {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		for name, o := range map[string]struct{ level, option, want int }{
			"keepalive":    {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
			"idle":         {syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 10},
			"interval":     {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 5},
			"probes":       {syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 3},
			"user timeout": {syscall.IPPROTO_TCP, tcpUserTimeout, 25_000},
			"no delay":     {syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1},
		} {
			err := raw.Control(func(fd uintptr) {
				got, err := syscall.GetsockoptInt(int(fd), o.level, o.option)
				if err != nil || got != o.want {
					t.Errorf("%s side: %s is %d, %v; want %d", side, name, got, err, o.want)
				}
			})
			check(t, err)
		}
	}
}
