package simnet

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
)

const (
	packetQueue     = 4096      // unread packets of an endpoint, and unsent packets of a frozen host
	backlogSize     = 4096      // unaccepted streams of an endpoint
	windowSize      = 256 << 10 // bytes of one direction of a stream: written and not yet read
	maxPacket       = 65507     // bytes: the largest UDP datagram over IPv4
	firstDynamic    = 49152     // Listen and Dial pick no smaller port number
	retransmission  = 200 * time.Millisecond
	maxRetransmits  = 6 // of one write; 12.6 s in all
	silenceLimit    = timing.KeepaliveTotal
	synRetransmit   = time.Second
	maxSynTransmits = 5
)

// A Network is a simulated network, made by New. The methods may be called from
// any goroutine.
//
// Hosts are named by IP address. Any other name panics, since a test that cuts
// nothing would pass for the wrong reason.
type Network struct {
	seed uint64

	// mu guards all state of the Network, streams included. Callers hold mu for
	// moments only, never while waiting: a goroutine blocked on a mutex is not
	// durably blocked, and the time of the bubble would stand still.
	mu          sync.Mutex
	defaultLink Link
	links       map[route]*link
	hosts       map[netip.Addr]*host
	streams     map[*stream]struct{} // each side, until closed and known to be closed by the other side
	changed     wakeup.All           // wakes every Dial after a fault, a repair or a Close

	// All delayed events share one list with one timer. A goroutine or a timer
	// per message would be slower, and would not keep the order: events due at
	// the same instant happen in the order of sending.
	events []event // by time
	timer  *time.Timer
}

// New returns an empty network with perfect links.
func New(seed uint64) *Network {
	return &Network{
		seed:    seed,
		links:   make(map[route]*link),
		hosts:   make(map[netip.Addr]*host),
		streams: make(map[*stream]struct{}),
	}
}

func mustIP(s string) netip.Addr {
	ip, err := netip.ParseAddr(s)
	if err != nil {
		panic(fmt.Sprintf("transport: memory: host %q is not an IP address", s))
	}
	return ip.Unmap()
}
