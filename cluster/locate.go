package cluster

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
)

// This file finds the processes behind raft IDs. Gossip lists the addresses, and any
// member can make gossip list a process that does not exist: with a voter's name, a
// later boot and an address of nobody. So the process that has answered to a raft ID
// goes before all others, and a dial tries several.

// homes are the processes that answered to a raft ID. A handshake has proved each.
type homes struct {
	mu sync.Mutex
	at map[string]member.Process // by raft ID
}

// maxHomes bounds homes: raft IDs of the past are forgotten with all others, and the
// next dial finds the present ones again.
const maxHomes = 64

// note takes the process that has answered to a raft ID.
func (h *homes) note(raftID string, p member.Process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at == nil || len(h.at) >= maxHomes {
		h.at = make(map[string]member.Process)
	}
	h.at[raftID] = p
}

func (h *homes) of(raftID string) (p member.Process, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok = h.at[raftID]
	return p, ok
}

// locate finds the process behind a raft ID.
func (n *Node) locate(raftID string) (member.Process, error) {
	all, err := n.holders(raftID)
	if err != nil {
		return member.Process{}, err
	}
	return all[0], nil
}

// holders lists the processes that may be behind a raft ID, the likeliest first, at
// least one: the process that has answered, if it lives, then gossip's. Without any word of
// gossip it is the process that has answered, unless that one has ended.
func (n *Node) holders(raftID string) ([]member.Process, error) {
	name, _, err := member.ParseRaftID(raftID)
	switch {
	case err != nil:
		return nil, err
	case name == n.self.Name:
		return []member.Process{{Name: name, Addr: n.self.Addr}}, nil
	}
	all := n.gossip.Of(name)
	home, noted := n.homes.of(raftID)
	noted = noted && !n.proof.Ended(home.Name, home.Boot)
	lives := noted && slices.ContainsFunc(all, func(s member.Sighting) bool { return s.Alive && s.Name == home.Name && s.Boot == home.Boot })
	listed, err := member.Holders(all, raftID)
	switch {
	case err != nil && noted: // gossip has forgotten the process, or has been made to
		return []member.Process{home}, nil
	case !lives || listed[0] == home:
		return listed, err
	}
	return append([]member.Process{home}, slices.DeleteFunc(listed, func(p member.Process) bool { return p == home })...), nil
}

// maxHolders is the number of processes that one dial of a raft ID tries.
const maxHolders = 4

// dialRaft connects to the holder of a raft ID. The holders are dialled one after the
// other, each timing.DialNext after the one before and without waiting for its result,
// so that an address of nobody delays no message of raft for long. The first to
// answer under the ID is taken.
func (n *Node) dialRaft(ctx context.Context, raftID string) (net.Conn, error) {
	if !n.atHome() {
		return nil, errNoRaft
	}
	all, err := n.holders(raftID)
	if err != nil {
		return nil, err
	}
	all = all[:min(len(all), maxHolders)]
	_, generation, _ := member.ParseRaftID(raftID)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result, len(all))
	var dials sync.WaitGroup
	dial := func(to member.Process) {
		peer := to
		peer.Boot = generation // raft streams name the generation
		c, err := n.dial(ctx, port.KindRaft, peer)
		if conn, ok := c.(*port.Conn); ok {
			if conn.Voter() {
				n.homes.note(raftID, member.Process{Name: to.Name, Boot: conn.Remote.Boot, Addr: to.Addr})
			} else { // its word would count towards commits
				_ = conn.Close()
				n.mere(to)
				c, err = nil, stream.ErrMere
			}
		}
		results <- result{c, err}
	}
	var first error
	next := time.NewTimer(0)
	defer next.Stop()
	for begun, failed := 0, 0; failed < len(all); {
		select {
		case <-next.C:
			if begun < len(all) {
				to := all[begun]
				dials.Go(func() { dial(to) })
				begun++
				next.Reset(timing.DialNext)
			}
		case r := <-results:
			if r.err == nil {
				cancel()
				dials.Wait()
				close(results)
				for late := range results {
					if late.err == nil {
						late.conn.Close()
					}
				}
				return r.conn, nil
			}
			if first == nil {
				first = r.err
			}
			if failed++; failed == begun {
				next.Reset(0)
			}
		}
	}
	return nil, first
}
