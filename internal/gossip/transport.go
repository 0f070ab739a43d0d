package gossip

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/wardmote/wardmote/internal/member"
)

// maxPackets bounds the packets waiting for memberlist. Further packets are
// dropped, as by UDP.
const maxPackets = 1024

// portTransport carries memberlist's packets and streams over the port. Not
// memberlist's NetTransport, because NetTransport binds a port of its own.
type portTransport struct {
	port    Port
	addr    string // as advertised
	packets chan *memberlist.Packet
	streams chan net.Conn

	dialling     context.Context // ends with stopDialling
	stopDialling context.CancelFunc
	open         context.Context // ends with close
	shut         context.CancelFunc
}

var _ memberlist.NodeAwareTransport = (*portTransport)(nil)

func newTransport(port Port, addr string) *portTransport {
	t := &portTransport{
		port: port, addr: addr,
		packets: make(chan *memberlist.Packet, maxPackets),
		streams: make(chan net.Conn),
	}
	t.open, t.shut = context.WithCancel(context.Background())
	t.dialling, t.stopDialling = context.WithCancel(t.open)
	return t
}

// accept gives memberlist a stream, or closes the stream after close.
func (t *portTransport) accept(conn net.Conn) {
	select {
	case t.streams <- conn:
	case <-t.open.Done():
		conn.Close()
	}
}

// packet queues a packet for memberlist, unless the queue is full.
func (t *portTransport) packet(b []byte, from string, at time.Time) {
	addr, err := net.ResolveUDPAddr("udp", from)
	if err != nil {
		return
	}
	select {
	case t.packets <- &memberlist.Packet{Buf: b, From: addr, Timestamp: at}:
	default:
	}
}

// close ends dials in progress and refuses later dials, packets and streams. A
// second close does nothing.
func (t *portTransport) close() {
	t.shut()
}

// Shutdown implements memberlist.Transport.
func (t *portTransport) Shutdown() error {
	t.close()
	return nil
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (t *portTransport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	host, port, err := member.SplitAddr(t.addr)
	if err != nil {
		return nil, 0, err
	}
	ip := net.ParseIP(host)
	if ip == nil {
		return nil, 0, fmt.Errorf("cluster: %q is no IP address", host)
	}
	if v4 := ip.To4(); v4 != nil {
		ip = v4
	}
	return ip, port, nil
}

// WriteTo implements memberlist.Transport.
func (t *portTransport) WriteTo(b []byte, addr string) (time.Time, error) {
	return time.Now(), t.port.Send(b, addr)
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (t *portTransport) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, addr.Addr)
}

// PacketCh implements memberlist.Transport.
func (t *portTransport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *portTransport) StreamCh() <-chan net.Conn { return t.streams }

// DialTimeout implements memberlist.Transport.
func (t *portTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport. If memberlist
// knows the member's name, the port checks the name and boot, so a recycled
// address is not taken for the earlier member.
func (t *portTransport) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	to := member.Process{Addr: addr.Addr}
	if addr.Name != "" {
		var err error
		if to.Name, to.Boot, err = parseGossipName(addr.Name); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(t.dialling, timeout)
	defer cancel()
	return t.port.Dial(ctx, to)
}
