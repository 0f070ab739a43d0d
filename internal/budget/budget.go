// Package budget bounds the bytes that a node holds for its peers: large frames
// during their arrival, raft's until they are answered, requests under way, what a peer has
// the node remember, and frames that a peer has not read.
//
// A connection has a [Share] of the node's [Budget]. A frame waits for its part of
// the budget, and its peer with it, since nobody reads the connection meanwhile; the part
// is a [Hold]. A request beyond the budget is refused, and its peer asks again. A peer for
// which too much is queued loses its connection.
//
// The package knows numbers and who is charged with them. Package port gives each
// connection its share, and package stream charges the share.
package budget

import (
	"net"
	"net/netip"
	"sync"
)

// Bounds in bytes.
const (
	// SmallFrame is the size of the largest frame of the small class. The small class has
	// bounds of its own: 8 MiB in all, a quarter for an address, an eighth for a member. So
	// commands of usual size never wait for frames of 1 MiB.
	SmallFrame           = 64 << 10
	SmallFrames          = 8 << 20
	SmallFramesOfAddress = SmallFrames / 4
	SmallFramesOfMember  = SmallFrames / 8

	// Frames bounds the larger frames of all connections that are being received:
	// 32 of the largest.
	Frames = 32 << 20

	// FramesPerAddress is half of Frames, so that no host takes all.
	FramesPerAddress = 16 << 20

	// FramesPerMember bounds them for one name at one address.
	FramesPerMember = 4 << 20

	// Entries bounds raft's frames above 16 KiB, from their arrival to raft's answer: of the
	// voters, and half of that of all other processes. One leader sends entries, and one
	// message at a time, so an honest frame hardly ever waits; and however many other processes
	// claim to lead, a frame in a voter's name waits for frames in voters' names alone.
	Entries = 16 << 20

	// EntriesOfAddress is half of Entries, so that no host takes all; for the other processes
	// half of that.
	EntriesOfAddress = 8 << 20

	// EntriesOfMember bounds them for one name at one address: the largest frame.
	EntriesOfMember = 4 << 20

	// Requests bounds the requests under way of all connections, beyond RequestsLeast of
	// each connection. Some classes of requests have a part of the bounds: see Class.
	Requests = 64 << 20

	// RequestsPerAddress is half of Requests, so that no host takes all.
	RequestsPerAddress = 32 << 20

	// RequestsPerMember bounds them for one name at one address, on however many
	// connections.
	RequestsPerMember = 16 << 20

	// RequestsLeast is the part of a connection that is not counted, for the requests of
	// each class: some 25 requests of usual size.
	RequestsLeast = 16 << 10

	// Queued bounds the bytes that wait for peers to read them, beyond QueuedLeast of each
	// connection. A member that reads has hardly more.
	Queued = 64 << 20

	// QueuedPerAddress is half of Queued, so that no host takes all.
	QueuedPerAddress = 32 << 20

	// QueuedPerMember bounds them for one name at one address.
	QueuedPerMember = 16 << 20

	// QueuedLeast is the part of a connection that is not counted.
	QueuedLeast = 32 << 10
)

// Class is a class of requests.
type Class int

const (
	// Passing requests end by themselves, and may take the whole bounds.
	Passing Class = iota

	// Lasting requests wait for as long as their peer likes, and take half of the
	// bounds at most: the rest is room for passing requests, whatever waits.
	Lasting

	// Beats have half of the bounds for themselves, and count in nothing else: a session
	// lives by its beats.
	Beats

	// Kept is what a peer has this node remember for as long as the connection lasts, and is
	// counted as requests are. It has half of the bounds for itself, too.
	Kept

	// Classes is the number of classes.
	Classes = iota
)

// Budget is the budget of a node. Its methods may be called from any goroutine.
type Budget struct {
	tell func(from, detail string)

	small, large   *pool
	voters, others *pool // of raft's frames

	requestsMu sync.Mutex
	requests   sums // passing and lasting
	lasting    sums
	beats      sums
	kept       sums

	queuedMu sync.Mutex
	queued   sums
	queues   map[*Queue]int // the bytes of each in queued; no entry is 0
}

// sums are bytes: of all, and of those that have any.
type sums struct {
	all       int
	addresses map[netip.Addr]int
	members   map[payer]int
}

func newSums() sums {
	return sums{addresses: make(map[netip.Addr]int), members: make(map[payer]int)}
}

// add adds n bytes of a member; n may be below 0.
func (s *sums) add(p payer, n int) {
	s.all += n
	if s.members[p] += n; s.members[p] == 0 {
		delete(s.members, p)
	}
	if s.addresses[p.ip] += n; s.addresses[p.ip] == 0 {
		delete(s.addresses, p.ip)
	}
}

// within reports whether the bytes of all, of the address and of the member are within the
// bounds of requests, divided by part.
func (s *sums) within(part int, p payer) bool {
	return s.all <= Requests/part && s.addresses[p.ip] <= RequestsPerAddress/part && s.members[p] <= RequestsPerMember/part
}

// payer is a member's name as claimed from an address.
type payer struct {
	name string
	ip   netip.Addr
}

// New returns an unused budget. Tell is called for each request refused for a full
// budget, with the peer; tell must not block.
func New(tell func(from, detail string)) *Budget {
	b := &Budget{
		tell: tell, requests: newSums(), lasting: newSums(), beats: newSums(), kept: newSums(),
		queued: newSums(), queues: make(map[*Queue]int),
		small:  newPool(SmallFrames, SmallFramesOfAddress, SmallFramesOfMember),
		large:  newPool(Frames, FramesPerAddress, FramesPerMember),
		voters: newPool(Entries, EntriesOfAddress, EntriesOfMember),
		others: newPool(Entries/2, EntriesOfAddress/2, EntriesOfMember),
	}
	b.voters.few, b.others.few = true, true
	return b
}

// Held returns the bytes that are taken now.
func (b *Budget) Held() int {
	frames := 0
	for _, p := range []*pool{b.small, b.large, b.voters, b.others} {
		p.mu.Lock()
		frames += p.taken.all
		p.mu.Unlock()
	}
	b.requestsMu.Lock()
	requests := b.requests.all + b.beats.all + b.kept.all
	b.requestsMu.Unlock()
	b.queuedMu.Lock()
	defer b.queuedMu.Unlock()
	return frames + requests + b.queued.all
}

// Share is the part of one connection in a budget. A nil Share has no bounds.
type Share struct {
	budget *Budget
	payer  payer
}

// Share returns the share of a connection with a peer of the name at the address.
func (b *Budget) Share(name string, ip netip.Addr) *Share {
	return &Share{b, payer{name, ip}}
}

// Count counts the requests of a class under way on this connection: their bytes change from
// before to now. It reports false if a request that begins must be refused: a bound is full,
// beyond the connection's least. The caller counts a refused request until its answer; what is
// refused of Kept is not counted.
func (s *Share) Count(c Class, before, now int) bool {
	more := max(0, now-RequestsLeast) - max(0, before-RequestsLeast)
	if s == nil || more == 0 {
		return true
	}
	b, fits := s.budget, true
	b.requestsMu.Lock()
	defer b.requestsMu.Unlock()
	count := func(in *sums, part int) {
		in.add(s.payer, more)
		fits = fits && in.within(part, s.payer)
	}
	switch c {
	case Beats:
		count(&b.beats, 2)
		return fits
	case Kept:
		if count(&b.kept, 2); !fits && more > 0 {
			b.kept.add(s.payer, -more)
		}
		return fits || more < 0
	case Lasting:
		count(&b.lasting, 2)
	}
	count(&b.requests, 1)
	return fits
}

// Of returns the share of a connection; nil, if the connection has none.
func Of(conn net.Conn) *Share {
	if c, ok := conn.(interface{ Budget() *Share }); ok {
		return c.Budget()
	}
	return nil
}

// Refused tells that requests of this connection are refused.
func (s *Share) Refused(detail string) {
	if s != nil && s.budget.tell != nil {
		s.budget.tell(s.payer.name+" at "+s.payer.ip.String(), detail)
	}
}
