package transport

import (
	"time"

	"github.com/wardmote/wardmote/internal/simnet"
)

// A Memory is a network in memory for tests. Its hosts have IP addresses, and a
// test can slow down, cut and heal the links between the hosts. Make a Memory
// with NewMemory.
//
// A link is one direction between two hosts. A host's link to itself is perfect
// unless SetLink names the host twice, and is never cut.
//
// Streams behave like TCP: a lost part is sent again and is only late. While a
// link is cut, written bytes wait; when either direction has been cut for 25 s
// without a break, as long as the keepalive of [TCP] takes, both ends are
// reset. Packets behave like UDP: each packet has its own loss and delay, and a
// cut link drops packets.
//
// Losses and delays are drawn from the seed, separately for each link: the
// losses of one link do not depend on the traffic of the others.
//
// A Memory is made for testing/synctest: every goroutine that waits in a Memory
// is durably blocked, and delays take the bubble's time. A Memory works outside
// bubbles too, but not in two of them.
//
// The methods may be called from any goroutine. Hosts are named by IP address.
// Any other name panics, since a test that cuts nothing would pass for the
// wrong reason.
type Memory struct{ net *simnet.Network }

// A Link says how one direction between two hosts treats streams and packets.
// The zero Link is perfect.
type Link struct {
	// Loss is the probability, 0 to 1, of losing a packet. A lost part of a
	// stream is retransmitted after 200 ms, then 400 ms and so on.
	Loss float64
	// Delay is added to every packet and write. Jitter is the largest extra
	// delay, drawn evenly for each packet and each write. Packets can overtake
	// each other, the bytes of a stream cannot.
	Delay, Jitter time.Duration
}

// NewMemory returns an empty network with perfect links.
func NewMemory(seed uint64) *Memory { return &Memory{simnet.New(seed)} }

// Host returns the network as seen from the host with this IP address. The
// host's endpoints bind this address; ":0" and "0.0.0.0:0" stand for it too.
func (m *Memory) Host(ip string) Network { return simnet.HostOf[Endpoint](m.net, ip) }

// SetLink sets the link from one host to another. With two empty names, SetLink
// sets every link except the links set by name. Packets and bytes under way
// keep their delay.
func (m *Memory) SetLink(from, to string, l Link) {
	if from == "" && to == "" {
		m.net.SetDefault(simnet.Link(l))
		return
	}
	m.net.SetLink(from, to, simnet.Link(l))
}

// Cut cuts the link from one host to another. The link back is unchanged.
func (m *Memory) Cut(from, to string) { m.net.Cut(from, to) }

// Heal undoes every Cut. Delays and losses stay.
func (m *Memory) Heal() { m.net.Heal() }
