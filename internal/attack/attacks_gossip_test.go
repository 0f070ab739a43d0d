package attack

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	imember "github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

type meta = imember.Metadata

// metadata encodes a member's description.
func metadata(change func(*meta)) []byte {
	m := meta{Version: imember.ProtocolVersion, TTL: uint64(ttl / time.Millisecond)}
	change(&m)
	return wire.Marshal(&m)
}

// gossips sends a message of gossip to member i, by a packet and by a stream of
// packets.
func (a *attacker) gossips(i int, message []byte) {
	b := a.sealed(message, asPacket)
	a.packet(i, b)
	a.mu.Lock()
	s := a.streams[i]
	a.mu.Unlock()
	if s == nil {
		return
	}
	_, _ = s.Write(framed(b))
}

// openPackets opens streams of packets to all members, where members take them.
func (a *attacker) openPackets() {
	a.streams = make(map[int]*talk)
	for i, h := range a.w.houses {
		if h == nil {
			continue
		}
		if t, err := a.dial(i, hello{kind: kindPackets}); err == nil {
			a.streams[i] = t
		}
	}
}

// gossipAttacks spread lies by gossip.
var gossipAttacks = []attack{
	{name: "3,000 ghosts", packet: true, settle: 1500 * time.Millisecond, run: func(a *attacker) string {
		a.openPackets()
		m := metadata(func(m *meta) { m.Cluster = a.know.cluster; m.Generation = 7 })
		for n := range 3000 {
			a.gossips(n%len(a.w.houses), gossipNode(peer{fmt.Sprint("ghost", n), 5}, fmt.Sprintf("127.253.%d.%d:9", n>>8, n&255), 1, m))
			if n%100 == 99 {
				time.Sleep(10 * time.Millisecond) // the members' queue is bounded
			}
		}
		return ""
	}},
	{name: "the death of others", packet: true, settle: 4 * time.Second, run: func(a *attacker) string {
		a.openPackets()
		for round := range 8 {
			for i := range a.w.houses {
				for j := range a.w.houses {
					if i != j {
						a.gossips(i, gossipMessage(gossipDead, fields{"Incarnation": uint32(1000 + round), "Node": gossipName(a.know.process(j)), "From": "x"}))
						a.gossips(i, gossipMessage(gossipSuspect, fields{"Incarnation": uint32(1000 + round), "Node": gossipName(a.know.process(j)), "From": "x"}))
					}
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		return ""
	}},
	{name: "Leads: max, in a member's name", packet: true, settle: 2 * time.Second, run: func(a *attacker) string {
		a.openPackets()
		v := a.know.process(a.w.victim())
		m := metadata(func(m *meta) { m.Cluster = a.know.cluster; m.Leads = math.MaxUint64; m.Voter = true })
		for round := range 4 {
			for i := range a.w.houses {
				a.gossips(i, gossipNode(v, a.w.told[a.w.victim()], uint32(1_000_000+round), m))
			}
			time.Sleep(500 * time.Millisecond)
		}
		return ""
	}},
	{name: "16 leaders of term 2^64-1", packet: true, settle: 2 * time.Second, run: func(a *attacker) string {
		a.openPackets()
		m := metadata(func(m *meta) { m.Cluster = a.know.cluster; m.Leads = math.MaxUint64; m.Voter = true })
		a.rounds(4, func(round, i int) {
			for n := range 16 {
				a.gossips(i, gossipNode(peer{fmt.Sprint("lead", n), 5}, fmt.Sprintf("127.253.0.%d:9", n+1), uint32(1+round), m))
			}
		})
		return ""
	}},
	{name: "a voter that is said to leave", packet: true, settle: 2 * time.Second, run: func(a *attacker) string {
		a.openPackets()
		m := metadata(func(m *meta) {
			m.Cluster, m.Voter, m.Leaving, m.Thin = a.know.cluster, true, true, true
			m.Generation = generation(a.know.raftID(a.w.victim()))
		})
		a.rounds(6, func(round, i int) {
			a.gossips(i, gossipNode(a.know.process(a.w.victim()), a.w.told[a.w.victim()], uint32(2_000_000+round), m))
		})
		return ""
	}},
	{name: "a voter's next process that is not there", packet: true, settle: 2 * time.Second, run: func(a *attacker) string {
		a.openPackets()
		v := a.know.process(a.w.victim())
		id := generation(a.know.raftID(a.w.victim()))
		same := metadata(func(m *meta) { m.Cluster, m.Voter, m.Generation = a.know.cluster, true, id })
		next := metadata(func(m *meta) { m.Cluster, m.Generation = a.know.cluster, id+1 })
		a.rounds(6, func(round, i int) {
			a.gossips(i, gossipMessage(gossipDead, fields{"Incarnation": uint32(3_000_000 + round), "Node": gossipName(v), "From": "x"}))
			a.gossips(i, gossipNode(peer{v.Name, v.Boot + 1000}, "127.253.0.1:9", uint32(1+round), same))
			a.gossips(i, gossipNode(peer{v.Name, v.Boot + 2000}, "127.253.0.2:9", uint32(1+round), next))
		})
		return ""
	}},
	{name: "a fake leader", packet: true, settle: 2 * time.Second, run: func(a *attacker) string {
		a.openPackets()
		fake, err := a.fakeLeader(intruder)
		if err != nil {
			return err.Error()
		}
		m := metadata(func(m *meta) { m.Cluster = a.know.cluster; m.Leads = math.MaxUint64; m.Voter = true })
		for round := range 8 {
			for i := range a.w.houses {
				a.gossips(i, gossipNode(intruder, fake.addr(), uint32(1+round), m))
			}
			time.Sleep(250 * time.Millisecond)
		}
		if a.w.mode != insecure && fake.steals() {
			return "a lock released by keys shown to the fake leader"
		}
		if a.who != member { // a voter may be asked
			return gained(fake.attached.Load() > 0, "members attached")
		}
		return gained(fake.used.Load() > 0, "members use it")
	}},
	{name: "100 states of 20 MiB", settle: time.Millisecond, lasts: true, run: func(a *attacker) string {
		head := framed(a.sealed(nil, asMessage))
		state := gossipMessage(gossipPushPull, fields{"Nodes": 0, "UserStateLen": 20<<20 - 1, "Join": false})
		chunk := make([]byte, 1<<20)
		stop := time.Now().Add(6 * time.Second)
		for n := range 100 {
			if time.Now().After(stop) {
				break
			}
			t, err := a.dial(a.w.victim(), hello{kind: kindGossip})
			if err != nil {
				break
			}
			size := uint32(20 << 20)
			if n%2 == 0 {
				size = 2 << 20 // within what a list of members may have
			}
			_ = t.SetWriteDeadline(time.Now().Add(time.Second))
			if _, err := t.Write(append(binary.BigEndian.AppendUint32(head, size), state...)); err != nil {
				continue
			}
			for range min(19, size>>20) {
				if _, err := t.Write(chunk[:len(chunk)-100]); err != nil {
					break
				}
			}
		}
		return ""
	}},
	{name: "a list of a million members", settle: 300 * time.Millisecond, run: func(a *attacker) string {
		t, err := a.dial(a.w.victim(), hello{kind: kindGossip})
		if err != nil {
			return ""
		}
		b := framed(a.sealed(nil, asMessage))
		state := gossipMessage(gossipPushPull, fields{"Nodes": 1_000_000, "UserStateLen": 0, "Join": false})
		if a.hasSecret() {
			state = seal(derive(a.w.papers.secret, "gossip", clusterName, 32), state, asMessage)
		}
		_, _ = t.Write(append(b, framed(state)...))
		return ""
	}},
	{name: "5,000 garbage packets a second", packet: true, settle: 300 * time.Millisecond, run: func(a *attacker) string {
		before := 0
		for _, h := range a.w.houses {
			before += len(h.log())
		}
		stop := time.Now().Add(2 * time.Second)
		sent := 0
		for began := time.Now(); time.Now().Before(stop); {
			due := int(time.Since(began).Seconds() * 5000)
			for ; sent < due; sent++ {
				b := noise(64+sent%1200, uint64(sent))
				if sent%2 == 0 {
					b = labelled(b)
				}
				a.packet(sent%len(a.w.houses), b)
			}
			time.Sleep(time.Millisecond)
		}
		after := 0
		for _, h := range a.w.houses {
			after += len(h.log())
		}
		if after-before > 64<<10 {
			return fmt.Sprintf("%d kB of log", (after-before)>>10)
		}
		return ""
	}},
}

// rounds calls f for each member, a few times in a second.
func (a *attacker) rounds(n int, f func(round, i int)) {
	for round := range n {
		for i := range a.w.houses {
			f(round, i)
		}
		time.Sleep(250 * time.Millisecond)
	}
}
