package gossip

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
)

// maxPackets bounds the packets waiting for memberlist. Further packets are
// dropped, as by UDP.
const maxPackets = 1024

// maxIndirect bounds the requests of one second to ping a third member. An honest
// member gets about three for each dead member.
const maxIndirect = 512

// portTransport carries memberlist's packets and streams over the port. Not
// memberlist's NetTransport, because NetTransport binds a port of its own.
//
// The bytes are sealed here, and checked before memberlist sees them. Garbage thus
// costs an attempt to open it and a counter, and no place in the queue.
type portTransport struct {
	port    Port
	addr    string // as advertised
	label   string // the cluster's name
	refused *refused.Log
	ring    *ring
	bad     error  // why there is no ring
	lanes   *lanes // nil: packets travel by UDP
	guard   *guard
	packets chan *memberlist.Packet
	streams chan net.Conn

	dialling     context.Context // ends with stopDialling
	stopDialling context.CancelFunc
	open         context.Context // ends with close
	shut         context.CancelFunc

	mu       sync.Mutex
	followed map[string]error // the last failed dial of each address that follow was called for
	second   time.Time        // of the latest request to ping a third member
	indirect int              // such requests within a second of second
}

var _ memberlist.NodeAwareTransport = (*portTransport)(nil)

func newTransport(cfg Config) *portTransport {
	t := &portTransport{
		port: cfg.Port, addr: cfg.Self.Addr, label: cfg.Self.Cluster, refused: cfg.Self.Refused,
		guard:   newGuard(),
		packets: make(chan *memberlist.Packet, maxPackets),
		streams: make(chan net.Conn),

		followed: make(map[string]error),
	}
	t.open, t.shut = context.WithCancel(context.Background())
	t.dialling, t.stopDialling = context.WithCancel(t.open)
	var keys [][]byte
	if cfg.Keys != nil {
		keys = cfg.Keys()
	}
	if t.ring, t.bad = newRing(cfg.Self.Cluster, keys); t.bad == nil && cfg.InStreams {
		t.lanes = newLanes(t.open, cfg.Port.DialPackets)
	}
	return t
}

// accept gives memberlist a stream from a member of the name at the host when there is a
// place for it, or closes the stream: after close, and if there is none for long.
func (t *portTransport) accept(conn net.Conn, name string, host netip.Addr) {
	if t.bad != nil || t.open.Err() != nil {
		conn.Close()
		return
	}
	leave := t.guard.enter(name, host, t.open.Done())
	if leave == nil {
		t.refused.Note(refused.Flood, name+" at "+host.String(), "too many gossip streams at once")
		conn.Close()
		return
	}
	stream := &guarded{Conn: conn, transport: t, leave: leave}
	select {
	case t.streams <- stream:
	case <-t.open.Done():
		stream.Close()
	}
}

// datagram takes a packet that came by UDP. Where packets travel in streams, nothing
// proves the sender of a datagram.
func (t *portTransport) datagram(b []byte, from string, at time.Time) {
	if t.lanes != nil {
		t.refused.Note(refused.Packet, from, "a gossip packet outside of a stream")
		return
	}
	t.packet(b, from, at)
}

// packet opens a packet, checks it, and queues it for memberlist, unless the queue is
// full.
func (t *portTransport) packet(b []byte, from string, at time.Time) {
	if t.bad != nil {
		return
	}
	b, err := t.ring.open(b, t.ring.packets)
	if err != nil {
		t.refused.Note(refused.Packet, from, "a gossip packet under another key")
		return
	}
	indirect, err := checkPacket(b, t.label)
	if err != nil {
		t.refused.Note(refused.Packet, from, "a gossip packet of another cluster or shape")
		return
	}
	if indirect > 0 && !t.mayPing(indirect, at) {
		t.refused.Note(refused.Flood, from, "too many requests to ping a third member")
		return
	}
	addr, err := netip.ParseAddrPort(from)
	if err != nil {
		return
	}
	select {
	case t.packets <- &memberlist.Packet{Buf: b, From: net.UDPAddrFromAddrPort(addr), Timestamp: at}:
	default:
	}
}

// mayPing counts n requests to ping a third member, and reports whether they are
// within the bound.
func (t *portTransport) mayPing(n int, at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at.Sub(t.second) >= time.Second {
		t.second, t.indirect = at, 0
	}
	t.indirect += n
	return t.indirect <= maxIndirect
}

// stop is close, and waits for the goroutines of lanes.
func (t *portTransport) stop() {
	t.shut()
	if t.lanes != nil {
		t.lanes.wait()
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
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (t *portTransport) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	b = t.ring.seal(make([]byte, 0, len(b)+sealOverhead), b, t.ring.packets)
	if t.lanes == nil {
		return time.Now(), t.port.Send(b, addr.Addr)
	}
	to, err := processAt(addr)
	if err == nil {
		err = t.lanes.send(b, to)
	}
	return time.Now(), err
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
	to, err := processAt(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(t.dialling, timeout)
	defer cancel()
	conn, err := t.port.Dial(ctx, to)
	t.mu.Lock()
	if _, ok := t.followed[addr.Addr]; ok {
		t.followed[addr.Addr] = err
	}
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return &guarded{Conn: conn, transport: t, answer: true}, nil
}

// processAt returns the process that an address of memberlist names; without a
// name, any process at the address.
func processAt(addr memberlist.Address) (to member.Process, err error) {
	to.Addr = addr.Addr
	if addr.Name != "" {
		to.Name, to.Boot, err = parseGossipName(addr.Name)
	}
	return to, err
}

// follow notes the result of dials to addr until dialled is called, which returns
// the error of the last dial. One goroutine at a time may follow an address.
func (t *portTransport) follow(addr string) (dialled func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followed[addr] = nil
	return func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		defer delete(t.followed, addr)
		return t.followed[addr]
	}
}
