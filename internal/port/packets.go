package port

import (
	"errors"
	"net"
	"time"
)

// packetBuffer holds any UDP datagram, in bytes.
const packetBuffer = 64 << 10

// Send sends b as one packet of at most 65,507 bytes. It does not block, keeps
// no reference to b, and does not know whether the packet arrives.
func (p *Port) Send(b []byte, addr string) error {
	return p.endpoint.WriteTo(b, addr)
}

// packetLoop runs from Serve to Close.
func (p *Port) packetLoop() {
	buf := make([]byte, packetBuffer)
	backoff := backoff{port: p}
	for {
		n, from, err := p.endpoint.ReadFrom(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) || !backoff.wait("receiving packets failed", err) {
				return
			}
			continue
		}
		at := time.Now()
		backoff.reset()
		p.mu.Lock()
		h := p.packets
		p.mu.Unlock()
		if h != nil {
			h(append([]byte(nil), buf[:n]...), from, at)
		}
	}
}
