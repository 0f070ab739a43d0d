package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/wardmote/wardmote/internal/link"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
)

var errNoRelay = errors.New("cluster: not a follower of that leader")

// relayTo returns the leader to whom this voter relays streams that name the leader.
// A voter relays to the leader that its own raft follows, and to nobody else, so a
// relay reaches no place that its user could not name by the cluster's own rules.
func (n *Node) relayTo(name string) (leader member.Process, ok bool) {
	leader, _, ok = n.guessLeader()
	return leader, ok && leader.Name == name && name != n.self.Name
}

// relay carries a member's stream to the leader, for a member that is cut off from
// the leader alone.
func (n *Node) relay(c *port.Conn) {
	leader, ok := n.relayTo(c.Hello.To.Name)
	if !ok {
		_ = c.Close()
		return
	}
	if err := n.port.Relay(c, leader.Addr); err != nil {
		n.self.Log.Debug("stream not relayed", "from", c.Remote.Name, "to", leader, "error", err)
	}
}

// dialMember opens a member stream: see link.Config.
func (n *Node) dialMember(ctx context.Context, to member.Process, via string) (link.Way, error) {
	begun := time.Now()
	var c *port.Conn
	var err error
	if p := (port.Peer{Name: to.Name}); via == "" {
		c, err = n.port.Dial(ctx, to.Addr, port.KindMember, p)
	} else {
		c, err = n.port.DialVia(ctx, via, to.Addr, port.KindMember, p)
	}
	if via == "" {
		n.noteHandshake(begun, to.Addr, c, err)
	}
	if err != nil {
		return link.Way{}, err
	}
	bound, err := c.Binding()
	if err != nil {
		_ = c.Close()
		return link.Way{}, err
	}
	return link.Way{Conn: c, Name: c.Remote.Name, Named: n.certs != nil && c.Proved.Name != "", Voter: c.Proved.Voter, Bound: bound, Renew: c.Renew()}, nil
}
