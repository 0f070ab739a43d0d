package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/timing"
)

// This file tells why a new cluster does not grant. A process that says on its own stream
// that it is in another cluster of this name holds the first grant back for as long as it
// says so: the other cluster may be granting. The process may never answer a question
// about its cluster, by a defect or by intent, and it needs no voter role. Then nothing
// settles the meeting but an operator, who must hear the name.

// holder returns the process that holds the first grant back by its own word, and since
// when: of several the one met first. Ok is false if there is none.
func (m *meetings) holder(window time.Duration) (p member.Process, since time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, at := range m.list {
		if !at.shown || at.settled() || now.Sub(at.contact) >= window {
			continue
		}
		if !ok || cmp.Or(at.first.Compare(since), cmp.Compare(at.with.Name, p.Name)) < 0 {
			p, since, ok = at.with, at.first, true
		}
	}
	return p, since, ok
}

// heldBy names the process that holds the first grant back, or "".
func (n *Node) heldBy() string {
	p, _, ok := n.meetings.holder(n.meetingWindow())
	if !ok {
		return ""
	}
	text := p.Name + " at " + cmp.Or(p.Addr, "an unknown address")
	n.meetings.mu.Lock()
	defer n.meetings.mu.Unlock()
	at := n.meetings.list[member.Process{Name: p.Name, Boot: p.Boot}]
	if listens, _ := netip.ParseAddrPort(p.Addr); at != nil && at.host.IsValid() && port.Host(listens.Addr()) != at.host {
		text += ", by a stream from " + at.host.String() + ","
	}
	return text
}

// cameFrom notes the host of a stream of a process that was met. The process says itself at
// which address it listens, and its name and that address may be a member's.
func (m *meetings) cameFrom(p port.Peer, host netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := m.list[member.Process{Name: p.Name, Boot: p.Boot}]; at != nil && host.IsValid() {
		at.host = port.Host(host)
	}
}

// meetingWindow is how long a process counts after its last sign of life.
func (n *Node) meetingWindow() time.Duration { return max(n.link.TTL(), timing.LeastFounding) }

// tellHeld tells a process that has held the first grant back for timing.ConflictAtMost,
// and takes the word back when the process holds it back no more. The result is the
// process told; before is the one told before.
func (n *Node) tellHeld(before member.Process) member.Process {
	p, since, ok := n.meetings.holder(n.meetingWindow())
	if before.Name != "" && (!ok || p.Name != before.Name || p.Boot != before.Boot) {
		n.conflicts.settled(before)
	}
	if !ok || time.Since(since) < timing.ConflictAtMost {
		return member.Process{}
	}
	n.tellConflict(p, fmt.Sprintf("no lock is granted since %s: the process says that it is in another cluster of this name, and the two clusters are not settled", since.Format(time.TimeOnly)),
		"see Health of that process; if it settles nothing, stop the process")
	return p
}
