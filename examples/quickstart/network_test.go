package main

import (
	"context"
	"net"
	"testing"
	"time"
)

func TestCutNetworkLosesAllBytes(t *testing.T) {
	here, there := newCuttable(), newCuttable()
	listen := func(n *cuttable) *endpoint {
		e, err := n.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e.(*endpoint)
	}
	a, b := listen(here), listen(there)
	accepted := make(chan net.Conn, 4)
	go func() {
		for {
			c, err := b.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() (near, far net.Conn) {
		near, err := a.Dial(t.Context(), b.Addr())
		if err != nil {
			t.Fatal(err)
		}
		far = <-accepted
		t.Cleanup(func() { near.Close(); far.Close() })
		return near, far
	}
	write := func(c net.Conn, text string) {
		t.Helper()
		if n, err := c.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("write: %d, %v", n, err)
		}
	}
	read := func(c net.Conn, patience time.Duration) string {
		t.Helper()
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 10)
		n, err := c.Read(p)
		if err != nil {
			return err.Error()
		}
		return string(p[:n])
	}
	const long, short = 10 * time.Second, 50 * time.Millisecond

	near, far := dial()
	write(near, "one")
	if got := read(far, long); got != "one" {
		t.Fatalf("read %q", got)
	}

	here.setCut(true)
	write(near, "two")
	write(far, "three")
	for _, c := range []net.Conn{near, far} {
		if got := read(c, short); len(got) < 10 {
			t.Errorf("read %q through a cut", got)
		}
	}
	if err := a.WriteTo([]byte("packet"), b.Addr()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	if c, err := a.Dial(ctx, b.Addr()); err == nil {
		c.Close()
		t.Error("dialled through a cut")
	}

	here.setCut(false)
	if got := read(far, long); got != "EOF" {
		t.Errorf("read %q from a stream of before the cut", got)
	}
	near, far = dial()
	write(near, "four")
	if got := read(far, long); got != "four" {
		t.Errorf("read %q after the cut", got)
	}
	if err := a.WriteTo([]byte("packet"), b.Addr()); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 10)
	if n, _, err := b.ReadFrom(p); err != nil || string(p[:n]) != "packet" {
		t.Errorf("packet %q, %v", p[:n], err)
	}
	if n := len(here.streams); n != 1 {
		t.Errorf("%d streams are followed, want the open one", n)
	}
}
