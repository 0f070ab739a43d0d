package transport

import (
	"context"
	"net"
)

// MaxPacket is the size of the largest packet: what fits a UDP datagram over
// IPv4. A larger one is refused with syscall.EMSGSIZE.
const MaxPacket = 65507

// A Network is where a member listens and dials: the host's TCP and UDP, as
// [TCP] returns, or one host of a [Memory].
//
// Its methods may be called from any goroutine.
type Network interface {
	// Listen binds addr ("host:port") for streams and for packets, on one port
	// number; port 0 picks a number that is free for both. When it fails,
	// nothing stays bound.
	Listen(addr string) (Endpoint, error)
}

// An Endpoint is one bound address of a [Network]. Its methods may be called
// from any goroutine.
type Endpoint interface {
	// Addr is the address as bound: host:port, with the port that was picked.
	Addr() string

	// Accept waits for the next stream. After Close it fails with
	// [net.ErrClosed]; any other error is passing.
	Accept() (net.Conn, error)

	// Dial opens a stream to addr. When it fails, no stream is left behind. The
	// stream outlives both ctx and the endpoint.
	Dial(ctx context.Context, addr string) (net.Conn, error)

	// ReadFrom waits for the next packet. What does not fit p is cut off. After
	// Close it fails with [net.ErrClosed]; any other error is passing.
	ReadFrom(p []byte) (n int, from string, err error)

	// WriteTo sends p as one packet and keeps no reference to it. A nil error
	// does not say that it arrived, or that it will.
	WriteTo(p []byte, addr string) error

	// Close frees the address and ends Accept and ReadFrom. Streams that were
	// accepted or dialled stay; those that nobody accepted are reset.
	Close() error
}
