package simnet

import (
	"errors"
	"syscall"
	"testing"
)

func TestListenKnowsItsHost(t *testing.T) {
	sim := New(1)
	for addr, want := range map[string]error{
		"10.0.0.1:7001": nil, ":7002": nil, "0.0.0.0:7003": nil, "[::]:7004": nil, ":0": nil, "10.0.0.1:0": nil,
		"10.0.0.2:7000": syscall.EADDRNOTAVAIL, "127.0.0.1:0": syscall.EADDRNOTAVAIL,
		"host:1": errors.ErrUnsupported, ":http": errors.ErrUnsupported, ":70000": errors.ErrUnsupported, "": errors.ErrUnsupported,
	} {
		e, err := HostOf[*Endpoint](sim, ip(1)).Listen(addr)
		if want == errors.ErrUnsupported && err != nil {
			continue // any
		}
		if !errors.Is(err, want) {
			t.Errorf("listen %q: %v, want %v", addr, err, want)
		}
		if e != nil {
			defer e.Close()
			if _, err := HostOf[*Endpoint](sim, ip(1)).Listen(e.Addr()); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("second listen %q: %v", addr, err)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a name passed as an address")
		}
	}()
	sim.Cut("node1", "node2")
}
