package gossip

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/wardmote/wardmote/internal/member"
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

// NotifyAlive refuses members of another cluster of the same name. Not
// memberlist's MergeDelegate: memberlist asks a MergeDelegate for joins only, and
// after the accepting side has sent its state.
func (d delegate) NotifyAlive(m *memberlist.Node) error {
	if m.Name == gossipName(d.g.cfg.Self.Process()) {
		return nil // memberlist needs its own node
	}
	s, err := sighting(m)
	if err != nil {
		return err
	}
	if foreign(s, d.g.cfg.Cluster()) {
		d.g.cfg.Watcher.Foreign(s.Process)
		return fmt.Errorf("cluster: %s is of another cluster", m.Name)
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
	s.Alive, s.Since = alive, time.Now()
	news, newest := d.g.members.record(s)
	if self := d.g.cfg.Self; !self.Is(s.Process) {
		if news {
			d.tell(s, s.Boot < newest)
		}
		if !alive {
			d.g.cfg.Port.Drop(s.Name, newest)
		}
	}
	d.g.members.changed.Wake()
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

// sighting reads a node of memberlist. The result says nothing yet about life
// and time.
func sighting(m *memberlist.Node) (member.Sighting, error) {
	name, boot, err := parseGossipName(m.Name)
	if err != nil {
		return member.Sighting{}, err
	}
	s := member.Sighting{Process: member.Process{
		Name: name, Boot: boot, Addr: net.JoinHostPort(m.Addr.String(), strconv.Itoa(int(m.Port))),
	}}
	if len(m.Meta) > 0 {
		if err := wire.Unmarshal(m.Meta, &s.Meta); err != nil {
			return member.Sighting{}, err
		}
	}
	return s, nil
}
