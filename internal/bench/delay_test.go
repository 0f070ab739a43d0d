package main

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"testing"
	"time"
)

// A stream through a proxy is the same stream, each way late, and Close ends it.
func TestDelayProxy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	var p proxies
	d, err := p.through(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.through(l.Addr().String()); err != nil || again != d {
		t.Errorf("the same address has two proxies: %v", err)
	}
	c, err := net.Dial("tcp", d.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 5 {
		begun := time.Now()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < 2*wayDelay {
			t.Errorf("there and back took %v, less than twice %v", took, wayDelay)
		}
	}
	sent := make([]byte, 4<<20)
	rand.Read(sent)
	go c.Write(sent)
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("the bytes came back otherwise: %v", err)
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes came from a closed proxy", n)
	}
}
