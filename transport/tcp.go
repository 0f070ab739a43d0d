package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/wardmote/wardmote/internal/timing"
)

// maxPacket is the largest packet in bytes: a UDP datagram over IPv4.
const maxPacket = 65507

// maxPortTries bounds the search for a number that is free for TCP and UDP.
const maxPortTries = 64

// packetBuffer is the size of the kernel's buffer for unread packets, in bytes.
// The kernel may grant less; then a burst loses packets, and gossip repairs the
// loss.
const packetBuffer = 2 << 20

// TCP returns the host's own network: TCP for streams, UDP for packets.
//
// Every stream probes an idle peer, and ends with an error some 25 s after the
// peer's host has gone silent. There is no idle timeout: a connection used only
// by elections must still be there at the election.
func TCP() Network { return tcpNetwork{} }

type tcpNetwork struct{}

var keepalive = net.KeepAliveConfig{
	Enable:   true,
	Idle:     timing.KeepaliveIdle,
	Interval: timing.KeepaliveInterval,
	Count:    timing.KeepaliveProbes,
}

func (tcpNetwork) Listen(addr string) (Endpoint, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("transport: listen: %w", err)
	}
	tries := 1
	if port == "" || strings.Trim(port, "0") == "" {
		tries = maxPortTries
	}
	config := net.ListenConfig{KeepAliveConfig: keepalive}
	for ; ; tries-- {
		streams, err := config.Listen(context.Background(), "tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("transport: %w", err)
		}
		// The kernel picked a number for TCP alone. If another process has the
		// number for UDP, the loop asks for the next number.
		bound := streams.Addr().String()
		packets, err := net.ListenPacket("udp", bound)
		if err == nil {
			udp := packets.(*net.UDPConn)
			_ = udp.SetReadBuffer(packetBuffer) // best effort
			return &tcpEndpoint{addr: bound, streams: streams, packets: udp}, nil
		}
		_ = streams.Close()
		if tries <= 1 {
			return nil, fmt.Errorf("transport: %w", err)
		}
	}
}

type tcpEndpoint struct {
	addr    string
	streams net.Listener
	packets *net.UDPConn
}

func (e *tcpEndpoint) Addr() string { return e.addr }

func (e *tcpEndpoint) Accept() (net.Conn, error) {
	c, err := e.streams.Accept()
	if err != nil {
		return nil, err
	}
	// The keepalive comes from the listener's configuration. The option set by
	// control is not inherited.
	if raw, err := c.(*net.TCPConn).SyscallConn(); err == nil {
		_ = control("", "", raw)
	}
	return c, nil
}

func (e *tcpEndpoint) Dial(ctx context.Context, addr string) (net.Conn, error) {
	// The source address is the kernel's choice: a member bound to one
	// interface may have to leave by another.
	d := net.Dialer{KeepAliveConfig: keepalive, Control: control}
	return d.DialContext(ctx, "tcp", addr)
}

func (e *tcpEndpoint) ReadFrom(p []byte) (int, string, error) {
	n, from, err := e.packets.ReadFromUDPAddrPort(p)
	if err != nil {
		return n, "", err
	}
	return n, unmap(from).String(), nil
}

func (e *tcpEndpoint) WriteTo(p []byte, addr string) error {
	if len(p) > maxPacket {
		return &net.OpError{Op: "write", Net: "udp", Err: syscall.EMSGSIZE}
	}
	to, err := netip.ParseAddrPort(addr)
	if err != nil { // a name
		named, err := net.ResolveUDPAddr("udp", addr)
		if err != nil {
			return err
		}
		to = named.AddrPort()
	}
	_, err = e.packets.WriteToUDPAddrPort(p, unmap(to))
	return err
}

func (e *tcpEndpoint) Close() error {
	return errors.Join(e.streams.Close(), e.packets.Close())
}

// unmap turns the ::ffff:10.0.0.1 of a dual-stack socket into 10.0.0.1: each
// address has a single spelling.
func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
