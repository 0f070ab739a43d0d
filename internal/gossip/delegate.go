package gossip

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/wire"
)

// delegate receives memberlist's callbacks. They run under memberlist's lock. A
// callback copies the node it is given, because memberlist goes on changing the
// node, and calls no method of memberlist.
type delegate struct{ g *Gossip }

var (
	_ memberlist.Delegate      = delegate{}
	_ memberlist.EventDelegate = delegate{}
	_ memberlist.AliveDelegate = delegate{}
)

// NodeMeta returns the own description, encoded. Above memberlist's limit of 512
// bytes memberlist panics; member.Metadata stays far below.
func (d delegate) NodeMeta(int) []byte {
	meta := d.g.members.ownMeta()
	return wire.Marshal(&meta)
}

// The next four carry user data, and wardmote has none: state would slow gossip
// with the size of the cluster.

func (delegate) NotifyMsg([]byte)                {}
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }
func (delegate) LocalState(bool) []byte          { return nil }
func (delegate) MergeRemoteState([]byte, bool)   {}

// NotifyAlive refuses members of another cluster of the same name, descriptions that
// no member has made, another address of a known process, and more members than
// memory is meant for. Not memberlist's MergeDelegate: memberlist asks a
// MergeDelegate for joins only, and after the accepting side has sent its state.
func (d delegate) NotifyAlive(m *memberlist.Node) error {
	if m.Name == gossipName(d.g.cfg.Self.Process()) {
		return nil // memberlist needs its own node
	}
	s, err := sighting(m)
	if err != nil {
		return err
	}
	if err := versions(m); err != nil {
		return err
	}
	if foreign(s, d.g.cfg.Cluster()) {
		d.g.cfg.Watcher.Foreign(s.Process)
		return fmt.Errorf("cluster: %s is of another cluster", m.Name)
	}
	if place := d.g.members.place(s.Process); place != "" && place != s.Addr {
		d.g.inquiries.askAddress(s.Process, place, func(answers bool) {
			if answers {
				d.g.members.setPlace(s.Process, s.Addr)
			}
		})
		return fmt.Errorf("cluster: %s is at %s, not at %s", m.Name, place, s.Addr)
	}
	switch d.g.census.admits(m, s.Process) {
	case later:
		return fmt.Errorf("cluster: %s waits for a proof", m.Name)
	case noRoom:
		d.g.cfg.Self.Refused.Note(refused.Flood, s.Name, "gossip tells of more members than a cluster has")
		return fmt.Errorf("cluster: no room for %s", m.Name)
	}
	return nil
}

// versions fails for a process whose versions of gossip's protocol leave out this
// process's. Before it takes any state from another member, memberlist compares the
// versions of all processes that it knows, dead ones too, and gives the exchange up if
// there is none in common: a single invented process would keep every newcomer out. If
// all known processes speak this process's versions at present, there always is one.
func versions(m *memberlist.Node) error {
	const protocol, delegate = memberlist.ProtocolVersion2Compatible, 0
	if m.PMin > protocol || m.PMax < protocol || m.PCur != protocol || m.DMin > delegate || m.DCur != delegate {
		return fmt.Errorf("cluster: %s speaks versions %d (%d to %d) and %d (%d to %d) of gossip, not %d and %d",
			m.Name, m.PCur, m.PMin, m.PMax, m.DCur, m.DMin, m.DMax, protocol, delegate)
	}
	return nil
}

func (d delegate) NotifyJoin(m *memberlist.Node)   { d.note(m, true) }
func (d delegate) NotifyUpdate(m *memberlist.Node) { d.note(m, true) }
func (d delegate) NotifyLeave(m *memberlist.Node)  { d.note(m, false) }

// note records a node and tells the Watcher the news.
func (d delegate) note(m *memberlist.Node, alive bool) {
	s, err := sighting(m)
	if err != nil {
		return
	}
	if self := d.g.cfg.Self; !self.Is(s.Process) {
		d.g.census.note(m, s.Process, alive)
	}
	s.Alive, s.Since = alive, time.Now()
	news, newest := d.g.members.record(s)
	if self := d.g.cfg.Self; !self.Is(s.Process) {
		if news {
			d.tell(s, s.Boot < newest)
		}
		if !alive {
			at := s.Process
			if place := d.g.members.place(at); place != "" {
				at.Addr = place
			}
			d.g.inquiries.askEnd(at, func(answers bool) {
				if !answers {
					d.g.cfg.Port.Drop(at.Name, at.Boot)
				}
			})
		}
	}
	d.g.members.tell()
}

func (d delegate) tell(s member.Sighting, earlier bool) {
	watcher := d.g.cfg.Watcher
	if !s.Alive {
		watcher.Left(s, earlier)
		return
	}
	watcher.Joined(s, earlier)
	if s.Name == d.g.cfg.Self.Name {
		watcher.Namesake(s)
	}
}

// sighting reads a node of memberlist, and fails if no member describes itself so.
// The result says nothing yet about life and time.
func sighting(m *memberlist.Node) (member.Sighting, error) {
	name, boot, err := parseGossipName(m.Name)
	if err != nil {
		return member.Sighting{}, err
	}
	ip, ok := netip.AddrFromSlice(m.Addr)
	if ip = ip.Unmap(); !ok || ip.IsUnspecified() || ip.IsMulticast() || m.Port == 0 {
		return member.Sighting{}, fmt.Errorf("cluster: %v:%d of %s is no address", m.Addr, m.Port, m.Name)
	}
	s := member.Sighting{Process: member.Process{
		Name: name, Boot: boot, Addr: net.JoinHostPort(m.Addr.String(), strconv.Itoa(int(m.Port))),
	}}
	if len(m.Meta) > maxMeta {
		return member.Sighting{}, fmt.Errorf("cluster: description of %s: %d bytes exceed the limit of %d", m.Name, len(m.Meta), maxMeta)
	}
	if len(m.Meta) > 0 {
		if err := wire.Unmarshal(m.Meta, &s.Meta); err != nil {
			return member.Sighting{}, err
		}
	}
	if err := s.Meta.Check(); err != nil {
		return member.Sighting{}, fmt.Errorf("cluster: description of %s: %w", m.Name, err)
	}
	return s, nil
}
