package transport

import (
	"context"
	"net"
)

// A Network lets a member listen and dial: [TCP] returns the host's network,
// and [Memory.Host] a host in memory.
//
// The methods may be called from any goroutine.
type Network interface {
	// Listen binds addr ("host:port") for streams and for packets, under one
	// port number. Port 0 picks a number that is free for both. When Listen
	// fails, nothing stays bound.
	Listen(addr string) (Endpoint, error)
}

// An Endpoint is one bound address of a [Network]. The methods may be called
// from any goroutine.
type Endpoint interface {
	// Addr is the bound address: host:port, with the picked port number.
	Addr() string

	// Accept waits for the next stream. After Close it fails with
	// [net.ErrClosed]. Any other error is passing: the next call may succeed.
	Accept() (net.Conn, error)

	// Dial opens a stream to addr. The stream outlives both ctx and the
	// endpoint. When Dial fails, no stream is left behind.
	Dial(ctx context.Context, addr string) (net.Conn, error)

	// ReadFrom waits for the next packet. Bytes beyond len(p) are cut off.
	// After Close it fails with [net.ErrClosed]. Any other error is passing.
	ReadFrom(p []byte) (n int, from string, err error)

	// WriteTo sends p as one packet and keeps no reference to p. A nil error
	// does not promise arrival. A packet of more than 65,507 bytes, the largest
	// UDP datagram over IPv4, is refused with syscall.EMSGSIZE.
	WriteTo(p []byte, addr string) error

	// Close frees the address and ends Accept and ReadFrom. Accepted and
	// dialled streams stay; streams not yet accepted are reset.
	Close() error
}
