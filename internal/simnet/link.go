package simnet

import (
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"time"
)

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

type route struct{ from, to netip.Addr }

// link is the state of one route.
type link struct {
	Link
	set bool // by SetLink: the default does not apply
	cut bool
	rng *rand.Rand // nil: nothing was drawn yet, and most of a million routes never draw
}

// link returns the state of route r. The callers of all functions in this file
// hold mu.
func (n *Network) link(r route) *link {
	l := n.links[r]
	if l == nil {
		l = &link{}
		n.links[r] = l
	}
	return l
}

// between returns the state of the route between two hosts.
func (n *Network) between(from, to string) *link { return n.link(route{mustIP(from), mustIP(to)}) }

// quality returns the Link that applies to r, and the random source of r if the Link
// draws.
func (n *Network) quality(r route) (Link, *rand.Rand) {
	l := n.link(r)
	q := n.defaultLink
	switch {
	case l.set:
		q = l.Link
	case r.from == r.to:
		q = Link{}
	}
	if l.rng == nil && (q.Loss > 0 || q.Jitter > 0) {
		sum := fnv.New64a()
		_, _ = sum.Write(r.from.AsSlice())
		_, _ = sum.Write(r.to.AsSlice())
		l.rng = rand.New(rand.NewPCG(n.seed, sum.Sum64()))
	}
	return q, l.rng
}

// isCut reports whether r carries nothing. A host always reaches itself.
func (n *Network) isCut(r route) bool {
	if r.from == r.to {
		return false
	}
	return n.link(r).cut || n.host(r.from).isolated || n.host(r.to).isolated
}

// travelTime draws the time that a part of a stream takes on r. A lost part is
// retransmitted after the time again, then after twice as long and so on, most
// times in all.
func (n *Network) travelTime(r route, again time.Duration, most int) time.Duration {
	l, rng := n.quality(r)
	d := l.latency(rng)
	for range most {
		if !l.lost(rng) {
			break
		}
		d += again
		again *= 2
	}
	return d
}

// lost draws whether a packet or a transmission is lost.
func (l Link) lost(rng *rand.Rand) bool {
	return l.Loss > 0 && rng.Float64() < l.Loss
}

// latency draws the delay of a packet or a write.
func (l Link) latency(rng *rand.Rand) time.Duration {
	d := max(l.Delay, 0)
	if l.Jitter > 0 {
		d += time.Duration(rng.Int64N(int64(l.Jitter)))
	}
	return d
}
