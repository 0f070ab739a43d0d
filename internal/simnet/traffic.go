package simnet

// Traffic counts what a host has sent, or received, since the Network was made. A host's
// words to itself count too. A packet lost on its way counts as sent alone, and a
// part of a stream is never lost.
type Traffic struct {
	Packets, PacketBytes uint64
	Writes, StreamBytes  uint64 // parts of streams, each a Write of a window at most
	Streams              uint64 // dialled by the sender, and accepted by the receiver's host
}

// Traffic returns what the host with this IP address has sent and received.
func (n *Network) Traffic(host string) (sent, received Traffic) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.host(mustIP(host))
	return h.sent, h.received
}

func (t *Traffic) packet(p packet) {
	t.Packets++
	t.PacketBytes += uint64(len(p.data))
}

func (t *Traffic) write(bytes int) {
	t.Writes++
	t.StreamBytes += uint64(bytes)
}

// Messages returns the packets and the parts of streams together.
func (t Traffic) Messages() uint64 { return t.Packets + t.Writes }

// Bytes returns the bytes of packets and streams together.
func (t Traffic) Bytes() uint64 { return t.PacketBytes + t.StreamBytes }

// Sub returns the traffic since an earlier reading.
func (t Traffic) Sub(before Traffic) Traffic {
	t.Packets -= before.Packets
	t.PacketBytes -= before.PacketBytes
	t.Writes -= before.Writes
	t.StreamBytes -= before.StreamBytes
	t.Streams -= before.Streams
	return t
}

// Add returns the traffic of both together.
func (t Traffic) Add(more Traffic) Traffic {
	t.Packets += more.Packets
	t.PacketBytes += more.PacketBytes
	t.Writes += more.Writes
	t.StreamBytes += more.StreamBytes
	t.Streams += more.Streams
	return t
}
