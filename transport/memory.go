package transport

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

const (
	memoryQueue     = 4096      // packets that an endpoint keeps unread, and a frozen host unsent
	memoryBacklog   = 4096      // streams that an endpoint keeps unaccepted
	memoryWindow    = 256 << 10 // bytes of a stream's direction that were written and not yet read
	firstDynamic    = 49152     // ports below are never picked
	retransmission  = 200 * time.Millisecond
	maxRetransmits  = 6 // of one write; 12.6 s in all
	memorySilence   = keepaliveTotal
	synRetransmit   = time.Second
	maxSynTransmits = 5
)

// A Memory is a network in memory, with hosts that have IP addresses, and with
// links that can be slow, lossy or cut. It is made for tests inside
// testing/synctest bubbles: whatever waits in it is durably blocked, and all
// that takes time takes the bubble's time. It works outside of bubbles too,
// but not in two of them.
//
// A link is one direction between two hosts. A host's link to itself is
// perfect unless SetLink says otherwise, and is never cut.
//
// Streams behave like TCP. What a link loses is sent again and is only late.
// While a direction is cut or its sender frozen, what was written waits; when
// either direction has been cut for 25 s without a break, as long as the
// keepalive of [TCP] takes, both ends are reset. Packets behave like UDP: the
// loss and the delay are each packet's own, and a cut link swallows them.
//
// Faults that happen by chance are drawn from the seed, for each link on its
// own: what is lost on one link does not depend on the traffic of the others.
//
// The methods may be called from any goroutine. Hosts are named by IP address;
// what is none panics, since a test that cuts nothing would pass for the wrong
// reason.
type Memory struct {
	seed uint64

	// mu guards everything in the Memory, its streams included. It is held for
	// moments only, never while waiting: a goroutine that waits for a mutex is
	// not durably blocked, and its bubble's time would stand still.
	mu      sync.Mutex
	def     Link
	links   map[route]*memoryLink
	hosts   map[netip.Addr]*memoryHost
	streams map[*memoryStream]struct{} // one side each, until it is closed and the other knows
	changed chan struct{}              // closed at the next change; nil if nobody waits

	// All that happens later is in one heap with one timer: no goroutine or
	// timer per message, and what is due at one instant happens in the order
	// in which it was sent.
	events eventHeap
	number uint64
	timer  *time.Timer
	armed  time.Time // when timer fires; zero if it does not
}

// A Link says how one direction between two hosts treats what is sent.
type Link struct {
	// Loss is the probability, 0 to 1, that a packet is lost. What a stream
	// loses is retransmitted after 200 ms, then 400 ms and so on.
	Loss float64
	// Delay is what everything takes; Jitter is the most that is added to it,
	// drawn evenly for each packet and each write. Packets can overtake each
	// other, a stream's bytes cannot.
	Delay, Jitter time.Duration
}

type route struct{ from, to netip.Addr }

type memoryLink struct {
	Link
	set bool // by SetLink
	cut bool
	rng *rand.Rand
}

// InMemory tells a Network that sends nothing beyond this process.
func (*memoryHost) InMemory() {}

type memoryHost struct {
	memory    *Memory
	ip        netip.Addr
	frozen    bool
	isolated  bool
	endpoints map[uint16]*memoryEndpoint
	dynamic   uint16         // picked last
	unsent    []memoryPacket // sent while frozen
}

type memoryPacket struct {
	data     []byte
	from, to netip.AddrPort
	sender   string // from as text
}

// NewMemory returns an empty network with perfect links.
func NewMemory(seed uint64) *Memory {
	return &Memory{
		seed:    seed,
		links:   make(map[route]*memoryLink),
		hosts:   make(map[netip.Addr]*memoryHost),
		streams: make(map[*memoryStream]struct{}),
	}
}

// Host returns the network as the host with this IP address sees it. Its
// endpoints bind that address, which ":0" and "0.0.0.0:0" stand for too.
func (m *Memory) Host(ip string) Network {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.host(mustIP(ip))
}

// SetDefault sets every link that SetLink has not set.
func (m *Memory) SetDefault(l Link) {
	m.change(func() { m.def = l })
}

// SetLink sets the link from one host to another. What is under way already
// keeps its delay.
func (m *Memory) SetLink(from, to string, l Link) {
	m.change(func() {
		link := m.link(route{mustIP(from), mustIP(to)})
		link.Link, link.set = l, true
	})
}

// Cut cuts the link from one host to another, and leaves the way back.
func (m *Memory) Cut(from, to string) {
	m.change(func() { m.link(route{mustIP(from), mustIP(to)}).cut = true })
}

// Partition cuts, both ways, the links between hosts of different groups.
// Hosts in no group keep their links, and links that were cut before stay cut.
func (m *Memory) Partition(groups ...[]string) {
	m.change(func() {
		for i, left := range groups {
			for j, right := range groups {
				if i == j {
					continue
				}
				for _, from := range left {
					for _, to := range right {
						m.link(route{mustIP(from), mustIP(to)}).cut = true
					}
				}
			}
		}
	})
}

// Isolate cuts, both ways, every link between host and all others, also those
// that appear later.
func (m *Memory) Isolate(host string) {
	m.change(func() { m.host(mustIP(host)).isolated = true })
}

// Rejoin undoes Isolate, and every cut of a link from or to host.
func (m *Memory) Rejoin(host string) {
	m.change(func() {
		ip := mustIP(host)
		m.host(ip).isolated = false
		for r, l := range m.links {
			if r.from == ip || r.to == ip {
				l.cut = false
			}
		}
	})
}

// Heal undoes every cut, partition, isolation and freeze. Delays and losses
// stay.
func (m *Memory) Heal() {
	m.change(func() {
		for _, l := range m.links {
			l.cut = false
		}
		for _, h := range m.hosts {
			h.isolated = false
			m.thaw(h)
		}
	})
}

// Freeze stops what a host's process exchanges with the network, as SIGSTOP
// does: it sends nothing, and reads and accepts nothing, while its kernel goes
// on keeping its connections. Nothing is lost but the packets that exceed its
// queues. The test's own goroutines run on, and their deadlines pass.
func (m *Memory) Freeze(host string) {
	m.change(func() { m.host(mustIP(host)).frozen = true })
}

// Thaw undoes Freeze, as SIGCONT does: what waited flows.
func (m *Memory) Thaw(host string) {
	m.change(func() { m.thaw(m.host(mustIP(host))) })
}

// Crash ends a host's process, as kill -9 does. Its endpoints are gone and its
// streams broken: their other ends are reset after what was sent before, once
// a link lets them know, or after 25 s if none does. The goroutines that a
// test left on the host find everything closed. The address is free for a new
// Listen at once.
func (m *Memory) Crash(host string) {
	m.change(func() {
		h := m.host(mustIP(host))
		h.unsent = nil
		for s := range m.streams {
			if s.host == h {
				s.crash()
			}
		}
		h.frozen = false
		for _, e := range h.endpoints {
			e.shut()
		}
	})
}

func mustIP(s string) netip.Addr {
	ip, err := netip.ParseAddr(s)
	if err != nil {
		panic(fmt.Sprintf("transport: memory: host %q is not an IP address", s))
	}
	return ip.Unmap()
}

// All that follows, up to the endpoint's methods, is called with mu held.

func (m *Memory) host(ip netip.Addr) *memoryHost {
	h := m.hosts[ip]
	if h == nil {
		h = &memoryHost{memory: m, ip: ip, endpoints: make(map[uint16]*memoryEndpoint), dynamic: firstDynamic - 1}
		m.hosts[ip] = h
	}
	return h
}

func (m *Memory) link(r route) *memoryLink {
	l := m.links[r]
	if l == nil {
		sum := fnv.New64a()
		_, _ = sum.Write(r.from.AsSlice())
		_, _ = sum.Write(r.to.AsSlice())
		l = &memoryLink{rng: rand.New(rand.NewPCG(m.seed, sum.Sum64()))}
		m.links[r] = l
	}
	return l
}

// quality is the link as set, or the default.
func (m *Memory) quality(r route) (Link, *rand.Rand) {
	l := m.link(r)
	switch {
	case l.set:
		return l.Link, l.rng
	case r.from == r.to:
		return Link{}, l.rng
	}
	return m.def, l.rng
}

func (m *Memory) isCut(r route) bool {
	if r.from == r.to {
		return false
	}
	return m.link(r).cut || m.host(r.from).isolated || m.host(r.to).isolated
}

// lost draws whether something is lost.
func (l Link) lost(rng *rand.Rand) bool {
	return l.Loss > 0 && rng.Float64() < l.Loss
}

// latency draws how long something takes.
func (l Link) latency(rng *rand.Rand) time.Duration {
	d := max(l.Delay, 0)
	if l.Jitter > 0 {
		d += time.Duration(rng.Int64N(int64(l.Jitter)))
	}
	return d
}

// change makes a change to the network, and lets everything take notice.
func (m *Memory) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	now := time.Now()
	for s := range m.streams {
		s.out.adapt(now)
		s.readers.Broadcast()
	}
	for _, h := range m.hosts {
		for _, e := range h.endpoints {
			e.accepts.Broadcast()
			e.reads.Broadcast()
		}
	}
	m.announce()
}

// announce wakes every Dial.
func (m *Memory) announce() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// changes returns a channel that the next change closes. It is made on demand
// and so inside the bubble, wherever the Memory was made.
func (m *Memory) changes() <-chan struct{} {
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}

func (m *Memory) thaw(h *memoryHost) {
	h.frozen = false
	for _, p := range h.unsent {
		m.send(p)
	}
	h.unsent = nil
}

// send puts a packet on its link.
func (m *Memory) send(p memoryPacket) {
	r := route{p.from.Addr(), p.to.Addr()}
	if m.isCut(r) {
		return
	}
	l, rng := m.quality(r)
	if l.lost(rng) {
		return
	}
	if d := l.latency(rng); d > 0 {
		m.at(time.Now().Add(d), func() { m.arrive(p) })
		return
	}
	m.arrive(p)
}

func (m *Memory) arrive(p memoryPacket) {
	if m.isCut(route{p.from.Addr(), p.to.Addr()}) {
		return
	}
	e := m.host(p.to.Addr()).endpoints[p.to.Port()]
	if e == nil || len(e.packets) >= memoryQueue {
		return
	}
	e.packets = append(e.packets, p)
	e.reads.Signal()
}

// at has f called with mu held when the time has come.
func (m *Memory) at(t time.Time, f func()) {
	m.number++
	heap.Push(&m.events, event{t, m.number, f})
	m.arm()
}

// arm sets the timer to the first event.
func (m *Memory) arm() {
	if len(m.events) == 0 {
		return
	}
	first := m.events[0].at
	if !m.armed.IsZero() && !first.Before(m.armed) {
		return
	}
	m.armed = first
	if m.timer == nil {
		m.timer = time.AfterFunc(time.Until(first), m.run)
	} else {
		m.timer.Reset(time.Until(first))
	}
}

// run does what is due. A run that an earlier timer set off finds nothing due,
// or what another run would have done: neither does harm.
func (m *Memory) run() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.armed = time.Time{}
	now := time.Now()
	for len(m.events) > 0 && !m.events[0].at.After(now) {
		heap.Pop(&m.events).(event).do()
	}
	m.arm()
}

type event struct {
	at     time.Time
	number uint64 // in order of sending
	do     func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].number < h[j].number
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = event{}
	*h = (*h)[:last]
	return e
}

// Listen implements [Network].
func (h *memoryHost) Listen(addr string) (Endpoint, error) {
	fail := func(err error) (Endpoint, error) {
		return nil, fmt.Errorf("transport: memory: listen %s: %w", addr, err)
	}
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return fail(err)
	}
	wanted, err := netip.ParseAddrPort(net.JoinHostPort(h.ip.String(), service))
	if err != nil {
		return fail(err)
	}
	if host != "" {
		ip, err := netip.ParseAddr(host)
		if err != nil {
			return fail(err)
		}
		if ip.Unmap() != h.ip && !ip.IsUnspecified() {
			return fail(syscall.EADDRNOTAVAIL)
		}
	}
	m := h.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	port := wanted.Port()
	if port == 0 {
		port = h.pick()
	}
	if port == 0 || h.endpoints[port] != nil {
		return fail(syscall.EADDRINUSE)
	}
	e := &memoryEndpoint{host: h, addr: netip.AddrPortFrom(h.ip, port)}
	e.text = e.addr.String()
	e.accepts.L, e.reads.L = &m.mu, &m.mu
	h.endpoints[port] = e
	return e, nil
}

// pick returns a port that nobody listens on, 0 if there is none.
func (h *memoryHost) pick() uint16 {
	for range 1<<16 - firstDynamic {
		if h.dynamic++; h.dynamic < firstDynamic {
			h.dynamic = firstDynamic
		}
		if h.endpoints[h.dynamic] == nil {
			return h.dynamic
		}
	}
	return 0
}

// memoryEndpoint is an endpoint of a host, until shut.
type memoryEndpoint struct {
	host    *memoryHost
	addr    netip.AddrPort
	text    string
	closed  bool
	backlog []*memoryStream
	packets []memoryPacket
	accepts sync.Cond // on Memory.mu
	reads   sync.Cond // on Memory.mu
}

func (e *memoryEndpoint) Addr() string { return e.text }

func (e *memoryEndpoint) Accept() (net.Conn, error) {
	m := e.host.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	for !e.closed && (e.host.frozen || len(e.backlog) == 0) {
		e.accepts.Wait()
	}
	if e.closed {
		return nil, e.fail("accept", net.ErrClosed)
	}
	s := e.backlog[0]
	e.backlog = e.backlog[1:]
	return s, nil
}

func (e *memoryEndpoint) ReadFrom(p []byte) (int, string, error) {
	m := e.host.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	for !e.closed && (e.host.frozen || len(e.packets) == 0) {
		e.reads.Wait()
	}
	if e.closed {
		return 0, "", e.fail("read", net.ErrClosed)
	}
	first := e.packets[0]
	e.packets[0] = memoryPacket{}
	e.packets = e.packets[1:]
	return copy(p, first.data), first.sender, nil
}

func (e *memoryEndpoint) WriteTo(p []byte, addr string) error {
	if len(p) > MaxPacket {
		return e.fail("write", syscall.EMSGSIZE)
	}
	to, err := parseAddr(addr)
	if err != nil {
		return e.fail("write", err)
	}
	packet := memoryPacket{data: append([]byte(nil), p...), from: e.addr, to: to, sender: e.text}
	m := e.host.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case e.closed:
		return e.fail("write", net.ErrClosed)
	case !e.host.frozen:
		m.send(packet)
	case len(e.host.unsent) < memoryQueue:
		e.host.unsent = append(e.host.unsent, packet)
	}
	return nil
}

// Dial takes the links' time both ways, and waits while either is cut.
func (e *memoryEndpoint) Dial(ctx context.Context, addr string) (net.Conn, error) {
	to, err := parseAddr(addr)
	if err != nil {
		return nil, e.fail("dial", err)
	}
	m := e.host.memory
	there := route{e.addr.Addr(), to.Addr()}
	back := route{to.Addr(), e.addr.Addr()}
	m.mu.Lock()
	defer m.mu.Unlock()
	for travelled := false; ; {
		if err := ctx.Err(); err != nil {
			return nil, e.failTo("dial", to, err)
		}
		if e.closed {
			return nil, e.failTo("dial", to, net.ErrClosed)
		}
		if e.host.frozen || m.isCut(there) || m.isCut(back) {
			travelled = false
			wait(ctx, m, m.changes(), nil)
			continue
		}
		if travelled {
			break
		}
		travelled = true
		if d := m.shake(there, back); d > 0 {
			t := time.NewTimer(d)
			wait(ctx, m, nil, t.C)
			t.Stop()
		}
	}
	l := m.hosts[to.Addr()]
	if l == nil || l.endpoints[to.Port()] == nil || len(l.endpoints[to.Port()].backlog) >= memoryBacklog {
		return nil, e.failTo("dial", to, syscall.ECONNREFUSED)
	}
	near, far := m.connect(e.host, netip.AddrPortFrom(e.addr.Addr(), e.host.pick()), l, to)
	listener := l.endpoints[to.Port()]
	listener.backlog = append(listener.backlog, far)
	listener.accepts.Signal()
	return near, nil
}

// wait gives mu up until one of the channels or ctx is done.
func wait(ctx context.Context, m *Memory, changed <-chan struct{}, due <-chan time.Time) {
	m.mu.Unlock()
	defer m.mu.Lock()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-due:
	}
}

// shake draws how long a stream's handshake takes.
func (m *Memory) shake(there, back route) (d time.Duration) {
	for _, r := range []route{there, back} {
		l, rng := m.quality(r)
		again := synRetransmit
		for range maxSynTransmits {
			if !l.lost(rng) {
				break
			}
			d += again
			again *= 2
		}
		d += l.latency(rng)
	}
	return d
}

func (e *memoryEndpoint) Close() error {
	m := e.host.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.closed {
		return e.fail("close", net.ErrClosed)
	}
	e.shut()
	return nil
}

// shut is Close, with mu held.
func (e *memoryEndpoint) shut() {
	e.closed = true
	delete(e.host.endpoints, e.addr.Port())
	for _, s := range e.backlog {
		s.crash()
	}
	e.backlog, e.packets = nil, nil
	e.accepts.Broadcast()
	e.reads.Broadcast()
	e.host.memory.announce()
}

func (e *memoryEndpoint) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "memory", Source: net.TCPAddrFromAddrPort(e.addr), Err: err}
}

func (e *memoryEndpoint) failTo(op string, to netip.AddrPort, err error) error {
	return &net.OpError{Op: op, Net: "memory", Source: net.TCPAddrFromAddrPort(e.addr), Addr: net.TCPAddrFromAddrPort(to), Err: err}
}

func parseAddr(addr string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		// There are no names to look up.
		return a, errors.Join(&net.DNSError{Err: "no such host", Name: addr, IsNotFound: true}, err)
	}
	return unmap(a), nil
}
