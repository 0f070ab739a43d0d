package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// handshakeTimeout bounds TLS and preamble together, on either side. It is the
// only deadline a Port sets; an admitted connection has none.
const handshakeTimeout = 5 * time.Second

// Caps on accepted connections, so that a flood costs a bounded amount of
// memory and leaves room for healthy members. The caps on admitted ones are
// answered with StatusTooManyConnections. A connection that is still shaking
// hands is never refused for being one too many, it pushes out another: see
// Port.begin.
const (
	maxConns        = 4096 // admitted, in all
	maxConnsPerIP   = 1024 // admitted, from one address: hosts behind a proxy share theirs
	maxConnsPerName = 64   // admitted, from members of one name
	maxHandshaking  = 256  // not yet admitted
)

// A loop whose Accept or ReadFrom fails in passing (too many open files, say)
// waits before it tries again, each time twice as long.
const (
	minBackoff = time.Millisecond
	maxBackoff = time.Second
)

// Config configures a [Port]. Open copies what it needs and changes nothing.
type Config struct {
	// Network is where to listen and dial. Default: TCP().
	Network Network

	// Bind is the address to listen on, "host:port"; port 0 picks one.
	Bind string

	// Cluster is the cluster's name. Connections from and to members of a
	// cluster of another name are refused.
	Cluster string

	// Self is this member's name (1 to 128 printable bytes of UTF-8) and its
	// boot ID, which must not be 0.
	Self Peer

	// ClusterID returns the cluster's ID, zero while it is unknown. It is asked
	// in each handshake and must not block. Nil: never known.
	ClusterID func() [16]byte

	// Admit has the last word on a connection that passed every other check.
	// An error refuses it: with the Status of a *RefusedError, else with
	// StatusRefused. It is called from many goroutines and must not block. Nil
	// admits all.
	Admit func(h Hello) error

	// TLS, if not nil, makes every stream TLS 1.3 with certificates on both
	// sides, whatever the versions and the ClientAuth it asks for. ClientCAs
	// defaults to RootCAs, ServerName to the host that was dialled. Packets
	// are not encrypted by it.
	TLS *tls.Config

	// Logger receives what only debugging needs, and warnings when accepting
	// fails. Nil: silent.
	Logger *slog.Logger

	// Foreign is told of each meeting with a member of another cluster that
	// passed TLS, be it that it dialled in or was reached. h is what it said
	// of itself: From and ClusterID are the stranger's, and Cluster is the own
	// cluster's name if the names agree, else "". addr is its address. It is
	// called from many goroutines and must not block. May be nil.
	Foreign func(h Hello, addr string)

	_ struct{}
}

// A Port is one member's port: it accepts and dials connections of every kind,
// and sends and receives packets. Its methods may be called from any
// goroutine.
type Port struct {
	cfg       Config
	endpoint  Endpoint
	serverTLS *tls.Config
	clientTLS *tls.Config
	caps      caps
	cluster   [16]byte // hash of cfg.Cluster

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup // loops, handshakes and handlers

	mu       sync.Mutex // never held while a connection is used or closed
	closed   bool
	serving  bool
	handlers map[Kind]func(*Conn)
	packets  func(b []byte, from string, at time.Time)
	conns    map[*Conn]struct{} // admitted and dialled
	accepted int                // of conns
	perIP    map[netip.Addr]int // of accepted
	perName  map[string]int     // of accepted
	pending  map[net.Conn]pending
	begun    uint64
}

// pending is an accepted connection that is still shaking hands.
type pending struct {
	ip     netip.Addr
	number uint64 // in order of arrival
}

type caps struct{ conns, perIP, perName, handshaking int }

// Open binds cfg.Bind. Nothing runs before [Port.Serve]. When it fails,
// nothing is bound.
func Open(cfg Config) (*Port, error) {
	if n := len(cfg.Self.Name); n == 0 || n > maxName {
		return nil, fmt.Errorf("transport: config: Self.Name of %d bytes is not within 1-%d", n, maxName)
	}
	if !printable(cfg.Self.Name) {
		return nil, fmt.Errorf("transport: config: Self.Name %q is not printable", cfg.Self.Name)
	}
	if cfg.Self.Boot == 0 {
		return nil, errors.New("transport: config: Self.Boot is 0")
	}
	if cfg.Network == nil {
		cfg.Network = TCP()
	}
	if cfg.ClusterID == nil {
		cfg.ClusterID = func() [16]byte { return [16]byte{} }
	}
	if cfg.Admit == nil {
		cfg.Admit = func(Hello) error { return nil }
	}
	if cfg.Foreign == nil {
		cfg.Foreign = func(Hello, string) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	endpoint, err := cfg.Network.Listen(cfg.Bind)
	if err != nil {
		return nil, err
	}
	p := &Port{
		cfg:      cfg,
		endpoint: endpoint,
		caps:     caps{maxConns, maxConnsPerIP, maxConnsPerName, maxHandshaking},
		cluster:  hashCluster(cfg.Cluster),
		handlers: make(map[Kind]func(*Conn)),
		conns:    make(map[*Conn]struct{}),
		perIP:    make(map[netip.Addr]int),
		perName:  make(map[string]int),
		pending:  make(map[net.Conn]pending),
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	if cfg.TLS != nil {
		p.serverTLS, p.clientTLS = mutual(cfg.TLS)
	}
	return p, nil
}

// mutual returns cfg for the two sides of a connection, with TLS 1.3 and
// certificates on both.
func mutual(cfg *tls.Config) (server, client *tls.Config) {
	client = cfg.Clone()
	client.MinVersion, client.MaxVersion = tls.VersionTLS13, 0
	server = client.Clone()
	if server.ClientCAs == nil {
		server.ClientCAs = server.RootCAs
	}
	// RequireAnyClientCert stands only beside the caller's own verification,
	// as SPIFFE does it.
	own := server.VerifyPeerCertificate != nil || server.VerifyConnection != nil
	if server.ClientAuth != tls.RequireAnyClientCert || !own {
		server.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return server, client
}

// Addr is the address as bound, host:port.
func (p *Port) Addr() string { return p.endpoint.Addr() }

// Handle sets who serves accepted connections of kind k; until then they are
// refused. Each call of h has its own goroutine. The connection is h's to
// close and may outlive the call; h must return once it is closed, since
// Close waits for it.
func (p *Port) Handle(k Kind, h func(*Conn)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers[k] = h
}

// HandlePackets sets who receives packets; until then they are dropped. h is
// called in the order of arrival, one call at a time, and must not block. It
// may keep b. The packet was read at the time at.
func (p *Port) HandlePackets(h func(b []byte, from string, at time.Time)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.packets = h
}

// Serve starts accepting connections and receiving packets, and returns at
// once. After Close, or called again, it does nothing.
func (p *Port) Serve() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.serving {
		return
	}
	p.serving = true
	p.wg.Go(p.acceptLoop)
	p.wg.Go(p.packetLoop)
}

// Close frees the address, closes every connection, accepted or dialled, ends
// running Dials with [net.ErrClosed], and returns when every goroutine that
// the Port started has ended. It must not be called from a handler.
func (p *Port) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.wg.Wait()
		return nil
	}
	p.closed = true
	conns := make([]*Conn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	shaking := make([]net.Conn, 0, len(p.pending))
	for c := range p.pending {
		shaking = append(shaking, c)
	}
	p.mu.Unlock()

	p.stop()
	err := p.endpoint.Close()
	for _, c := range shaking {
		_ = c.Close()
	}
	for _, c := range conns {
		c.cut()
	}
	p.wg.Wait()
	return err
}

// Drop closes every connection, accepted or dialled, with an incarnation of
// the member name other than except.
func (p *Port) Drop(name string, except uint64) {
	var drop []*Conn
	p.mu.Lock()
	for c := range p.conns {
		if c.Remote.Name == name && c.Remote.Boot != except {
			drop = append(drop, c)
		}
	}
	p.mu.Unlock()
	for _, c := range drop {
		c.cut()
	}
}

// Send sends b as one packet of at most MaxPacket bytes. It does not block,
// keeps no reference to b, and does not know whether the packet arrives.
func (p *Port) Send(b []byte, addr string) error {
	return p.endpoint.WriteTo(b, addr)
}

// Dial opens a connection of kind k to the member to at addr. An empty
// to.Name takes whoever answers, to.Boot 0 any of its incarnations. It fails
// with a *RefusedError if the other side was reached and one of the two sides
// refused. When it fails no connection is left behind, and nothing was sent
// but the preamble. ctx bounds the call, not the connection; once the other
// side's host has answered, the call takes no longer than 5 s.
func (p *Port) Dial(ctx context.Context, addr string, k Kind, to Peer) (*Conn, error) {
	if len(to.Name) > maxName {
		return nil, fmt.Errorf("transport: dial: name of %d bytes exceeds %d", len(to.Name), maxName)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()

	c, err := p.dial(ctx, addr, k, to)
	if err != nil && p.ctx.Err() != nil {
		return nil, fmt.Errorf("transport: dial %s: %w", addr, net.ErrClosed)
	}
	return c, err
}

func (p *Port) dial(ctx context.Context, addr string, k Kind, to Peer) (*Conn, error) {
	raw, err := p.endpoint.Dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	hello := Hello{Kind: k, Cluster: p.cfg.Cluster, ClusterID: p.cfg.ClusterID(), From: p.cfg.Self, To: to}
	_ = raw.SetDeadline(time.Now().Add(handshakeTimeout))
	// Closing is what certainly ends a handshake, also one of TLS's.
	ended := context.AfterFunc(ctx, func() { _ = raw.Close() })
	stream, a, err := p.greet(ctx, raw, addr, hello)
	if err == nil {
		err = p.judge(addr, hello, a)
	}
	if !ended() && !isRefused(err) {
		err = fmt.Errorf("transport: dial %s: %w", addr, ctx.Err())
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	_ = raw.SetDeadline(time.Time{})
	c := &Conn{Conn: stream, Hello: hello, Remote: a.from, raw: raw, port: p}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.conns[c] = struct{}{}
	}
	p.mu.Unlock()
	if closed {
		_ = raw.Close()
		return nil, fmt.Errorf("transport: dial %s: %w", addr, net.ErrClosed)
	}
	return c, nil
}

func isRefused(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused)
}

// greet does the dialling side's half of a handshake.
func (p *Port) greet(ctx context.Context, raw net.Conn, addr string, h Hello) (net.Conn, answer, error) {
	stream := raw
	if p.clientTLS != nil {
		cfg := p.clientTLS
		if cfg.ServerName == "" {
			cfg = cfg.Clone()
			cfg.ServerName, _, _ = net.SplitHostPort(addr)
		}
		client := tls.Client(raw, cfg)
		if err := client.HandshakeContext(ctx); err != nil {
			return nil, answer{}, fmt.Errorf("transport: dial %s: tls: %w", addr, err)
		}
		stream = client
	}
	if _, err := stream.Write(appendHello(make([]byte, 0, maxHello), h)); err != nil {
		return nil, answer{}, fmt.Errorf("transport: dial %s: %w", addr, err)
	}
	a, err := readAnswer(stream)
	if errors.Is(err, errVersion) {
		return stream, answer{status: StatusBadVersion}, nil
	}
	if err != nil {
		return nil, answer{}, fmt.Errorf("transport: dial %s: no answer to the preamble: %w", addr, err)
	}
	return stream, a, nil
}

// judge is the dialling side's verdict on an answer. It repeats the accepting
// side's checks: that side may be wrong about who it is, as an address that a
// load balancer or a recycled host answers.
func (p *Port) judge(addr string, h Hello, a answer) error {
	status := a.status
	if status == StatusOK {
		switch {
		case a.cluster != p.cluster, differ(h.ClusterID, a.clusterID):
			status = StatusForeignCluster
		case misdelivered(h, a.from):
			status = StatusWrongDestination
		}
	}
	if status == StatusOK {
		return nil
	}
	if status == StatusForeignCluster {
		from := Hello{Kind: h.Kind, ClusterID: a.clusterID, From: a.from, To: h.From}
		if a.cluster == p.cluster {
			from.Cluster = h.Cluster
		}
		p.cfg.Foreign(from, addr)
	}
	return &RefusedError{Addr: addr, Status: status, Kind: h.Kind, ClusterID: a.clusterID, Peer: a.from}
}

// differ says whether two cluster IDs contradict each other.
func differ(a, b [16]byte) bool {
	return a != b && a != [16]byte{} && b != [16]byte{}
}

// misdelivered says whether h was meant for another member than self, or for
// another incarnation of it. In KindRaft the number is a generation, which
// only Config.Admit can judge.
func misdelivered(h Hello, self Peer) bool {
	if h.To.Name != "" && h.To.Name != self.Name {
		return true
	}
	return h.Kind != KindRaft && h.To.Boot != 0 && h.To.Boot != self.Boot
}

// acceptLoop runs from Serve to Close.
func (p *Port) acceptLoop() {
	backoff := backoff{port: p}
	for {
		raw, err := p.endpoint.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || !backoff.wait("accept failed", err) {
				return
			}
			continue
		}
		backoff.reset()
		p.begin(raw)
	}
}

// begin starts the handshake of an accepted connection. At the cap the oldest
// handshake of the address that has most of them is given up for it: one
// address that only opens connections then starves itself, and an honest
// handshake is over long before it is the oldest.
func (p *Port) begin(raw net.Conn) {
	ip := remoteIP(raw)
	var victim net.Conn
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		_ = raw.Close()
		return
	}
	if len(p.pending) >= p.caps.handshaking {
		victim = p.oldestOfBusiest()
		delete(p.pending, victim)
	}
	p.begun++
	p.pending[raw] = pending{ip, p.begun}
	// Under mu, so that Close either sees the connection or waits for it.
	p.wg.Go(func() { p.handshake(raw, ip) })
	p.mu.Unlock()
	if victim != nil {
		p.cfg.Logger.Debug("handshake gave way", "remote", victim.RemoteAddr())
		_ = victim.Close()
	}
}

func (p *Port) oldestOfBusiest() net.Conn {
	count := make(map[netip.Addr]int)
	most := 0
	for _, s := range p.pending {
		count[s.ip]++
		most = max(most, count[s.ip])
	}
	var oldest net.Conn
	var number uint64
	for c, s := range p.pending {
		if count[s.ip] == most && (oldest == nil || s.number < number) {
			oldest, number = c, s.number
		}
	}
	return oldest
}

// handshake runs once per accepted connection and then becomes its handler.
func (p *Port) handshake(raw net.Conn, ip netip.Addr) {
	c, handler := p.welcome(raw, ip)
	p.mu.Lock()
	delete(p.pending, raw)
	p.mu.Unlock()
	if c == nil {
		_ = raw.Close()
		return
	}
	handler(c)
}

// welcome does the accepting side's half of a handshake. It returns nil if the
// connection is to be closed.
func (p *Port) welcome(raw net.Conn, ip netip.Addr) (*Conn, func(*Conn)) {
	log := p.cfg.Logger.With("remote", raw.RemoteAddr())
	_ = raw.SetDeadline(time.Now().Add(handshakeTimeout))
	stream := raw
	if p.serverTLS != nil {
		server := tls.Server(raw, p.serverTLS)
		if err := server.HandshakeContext(p.ctx); err != nil {
			log.Debug("tls handshake failed", "err", err)
			return nil, nil
		}
		stream = server
	}
	h, hash, err := readHello(stream)
	switch {
	case errors.Is(err, errVersion):
		log.Debug("connection refused", "err", err)
		p.answer(stream, StatusBadVersion)
		// What is unread at a close would reset the connection and could
		// overtake the answer.
		_, _ = io.CopyN(io.Discard, stream, maxHello)
		return nil, nil
	case errors.Is(err, errLayout):
		log.Debug("connection refused", "err", err)
		p.answer(stream, StatusBadPreamble)
		return nil, nil
	case err != nil: // no answer: it may be anything that speaks to ports
		log.Debug("connection refused", "err", err)
		return nil, nil
	}
	c := &Conn{Conn: stream, Hello: h, Remote: h.From, Accepted: true, raw: raw, port: p}
	status, handler := p.admit(c, hash, ip)
	if status != StatusOK {
		log.Debug("connection refused", "kind", h.Kind, "from", h.From, "status", status)
		p.answer(stream, status)
		return nil, nil
	}
	if !p.answer(stream, StatusOK) {
		c.cut()
		return nil, nil
	}
	_ = raw.SetDeadline(time.Time{})
	return c, handler
}

func (p *Port) answer(stream net.Conn, s Status) bool {
	a := answer{status: s, cluster: p.cluster, clusterID: p.cfg.ClusterID(), from: p.cfg.Self}
	_, err := stream.Write(appendAnswer(make([]byte, 0, maxAnswer), a))
	return err == nil
}

// admit is the accepting side's verdict. With StatusOK the connection is
// among p.conns.
func (p *Port) admit(c *Conn, hash [16]byte, ip netip.Addr) (Status, func(*Conn)) {
	h := &c.Hello
	if hash == p.cluster {
		h.Cluster = p.cfg.Cluster
	}
	if hash != p.cluster || differ(h.ClusterID, p.cfg.ClusterID()) {
		p.cfg.Foreign(*h, c.RemoteAddr().String())
		return StatusForeignCluster, nil
	}
	if misdelivered(*h, p.cfg.Self) {
		return StatusWrongDestination, nil
	}
	p.mu.Lock()
	handler := p.handlers[h.Kind]
	p.mu.Unlock()
	if handler == nil {
		return StatusRefused, nil
	}
	if err := p.cfg.Admit(*h); err != nil {
		var refused *RefusedError
		if errors.As(err, &refused) && refused.Status != StatusOK {
			return refused.Status, nil
		}
		return StatusRefused, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return StatusRefused, nil
	case p.accepted >= p.caps.conns,
		p.perIP[ip] >= p.caps.perIP,
		p.perName[h.From.Name] >= p.caps.perName:
		return StatusTooManyConnections, nil
	}
	p.conns[c] = struct{}{}
	p.accepted++
	p.perIP[ip]++
	p.perName[h.From.Name]++
	return StatusOK, handler
}

// remove forgets a connection that is being closed. It is called once per
// connection.
func (p *Port) remove(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	if !c.Accepted {
		return
	}
	p.accepted--
	decrement(p.perIP, remoteIP(c.raw))
	decrement(p.perName, c.Remote.Name)
}

func decrement[K comparable](m map[K]int, k K) {
	if m[k]--; m[k] <= 0 {
		delete(m, k)
	}
}

// remoteIP is the other side's address without its port; the zero Addr if it
// has none, which is then one address like any other.
func remoteIP(c net.Conn) netip.Addr {
	a, _ := netip.ParseAddrPort(c.RemoteAddr().String())
	return a.Addr().Unmap()
}

// packetLoop runs from Serve to Close.
func (p *Port) packetLoop() {
	buf := make([]byte, MaxPacket)
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

// A backoff spaces the attempts of one loop.
type backoff struct {
	port *Port
	next time.Duration
}

func (b *backoff) reset() { b.next = 0 }

// wait returns false if the Port was closed meanwhile.
func (b *backoff) wait(what string, err error) bool {
	b.next = min(max(2*b.next, minBackoff), maxBackoff)
	b.port.cfg.Logger.Warn(what, "err", err, "retry", b.next)
	t := time.NewTimer(b.next)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-b.port.ctx.Done():
		return false
	}
}
