package gossip

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// Met notes that a handshake has proved a process: this member has dialled the process,
// or the process has dialled this member and proved its name. Voter says that the
// handshake has shown the voter role. Addr is the other end of the connection: one host
// proves a bounded number of processes. Met does not block.
func (g *Gossip) Met(name string, boot uint64, voter bool, addr string) {
	p := member.Process{Name: name, Boot: boot}
	if told := g.census.prove(p, voter, hostOf(addr)); told != nil && !g.transport.tell(told) {
		g.cfg.Self.Log.Debug("a proved process waits for gossip's next word", "member", name)
	}
}

// hostOf returns what counts as the host of an address: of IPv6 the first 64 bits, since a
// host may have all addresses that share them, and all of loopback is one host.
func hostOf(addr string) string {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		name, _, _ := net.SplitHostPort(addr)
		return name
	}
	ip := at.Addr().Unmap().WithZone("")
	switch {
	case ip.IsLoopback():
		return "loopback"
	case ip.Is6():
		ip = netip.PrefixFrom(ip, 64).Masked().Addr()
	}
	return ip.String()
}

// Shown reports whether Met has told of the process with the voter role. The memory is
// bounded: a process that gossip lists is kept.
func (g *Gossip) Shown(name string, boot uint64) bool {
	return g.census.shown(member.Process{Name: name, Boot: boot})
}

// runVetting dials the processes that wait for a proof, at most maxDials at once, until
// ctx ends, and returns when its goroutines have ended. Each dial takes its place for
// timing.GossipVet at least, so that a flood of ghosts costs a bounded number of dials.
func (g *Gossip) runVetting(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, maxDials)
	for {
		select {
		case <-ctx.Done():
			return
		case places <- struct{}{}:
		}
		m, ok := g.census.next()
		for !ok {
			select {
			case <-ctx.Done():
				return
			case <-g.census.more:
			}
			m, ok = g.census.next()
		}
		wg.Go(func() {
			g.vet(ctx, &m)
			<-places
		})
	}
}

// Called notes that a process has opened a stream to this member, by its own word. Among
// the processes that wait for a proof, the process is dialled before others. Called does
// not block.
func (g *Gossip) Called(name string, boot uint64) {
	g.census.called(member.Process{Name: name, Boot: boot})
}

// vet dials a process. Silence is no proof of death: a process that does not answer
// is dialled again when gossip tells of it again.
func (g *Gossip) vet(ctx context.Context, m *memberlist.Node) {
	pause := time.NewTimer(timing.GossipVet)
	defer pause.Stop()
	if s, err := sighting(m); err == nil {
		dialling, cancel := context.WithTimeout(ctx, timing.Dial)
		conn, err := g.cfg.Port.Dial(dialling, s.Process)
		cancel()
		switch {
		case err == nil:
			conn.Close()
			g.Met(s.Name, s.Boot, false, s.Addr) // Port.Dial knows the role
		case ctx.Err() == nil:
			g.cfg.Self.Refused.Note(refused.Flood, s.Name, "gossip tells of many processes that do not answer")
		}
	}
	g.census.drop(m.Name)
	select {
	case <-ctx.Done():
	case <-pause.C:
	}
}

// aliveMessage is memberlist's word about a living process.
type aliveMessage struct {
	Incarnation uint32
	Node        string
	Addr        []byte
	Port        uint16
	Meta        []byte
	Vsn         []uint8
}

// tell queues a word about a process for memberlist, as if a member had sent the word,
// and reports false if the queue is full. The word has the lowest incarnation: the
// process's own next word replaces it.
func (t *portTransport) tell(m *memberlist.Node) bool {
	b := append([]byte{msgAlive}, wire.Marshal(&aliveMessage{
		Incarnation: 1, Node: m.Name, Addr: m.Addr, Port: m.Port, Meta: m.Meta,
		Vsn: []uint8{m.PMin, m.PMax, m.PCur, m.DMin, m.DMax, m.DCur},
	})...)
	b, err := memberlist.AddLabelHeaderToPacket(b, t.label)
	if err != nil {
		return false
	}
	select {
	case t.packets <- &memberlist.Packet{Buf: b, From: &net.UDPAddr{IP: m.Addr, Port: int(m.Port)}, Timestamp: time.Now()}:
		return true
	default:
		return false
	}
}
