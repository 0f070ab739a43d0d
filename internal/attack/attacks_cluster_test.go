package attack

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// forgedFounding is the founding of a cluster that does not exist.
func forgedFounding(a *attacker) wire.Founding {
	return wire.Founding{Cluster: machine.ClusterID{6, 6, 6}, Voters: []string{"intruder#1", "other#1", "third#1"}, Floor: 1, TTL: uint64(ttl / time.Millisecond)}
}

// everyMember asks every running member, and reports whether one said CodeOK.
func (a *attacker) everyMember(kind wire.Type, body func(i int) any) bool {
	ok := false
	for i, h := range a.w.houses {
		if h == nil {
			continue
		}
		f, err := a.ask(i, peer{}, kind, body(i))
		ok = ok || err == nil && f.Code == wire.CodeOK
	}
	return ok
}

// ballot is the last ballot that there can be.
var ballot = wire.Ballot{Round: math.MaxUint64, Name: "intruder", Boot: 77}

// clusterAttacks make claims about the cluster.
var clusterAttacks = []attack{
	{name: "removal", quick: true, settle: time.Second, run: func(a *attacker) string {
		a.everyMember(wire.Removed, func(i int) any { return &wire.RemovedNotice{Raft: a.know.raftID(i), Term: a.know.term + 1} })
		return ""
	}},
	{name: "invitation", settle: 300 * time.Millisecond, run: func(a *attacker) string {
		a.everyMember(wire.Invite, func(int) any { return &wire.InviteRequest{Term: math.MaxUint64} })
		return ""
	}},
	{name: "retirement", settle: time.Second, run: func(a *attacker) string {
		return gained(a.everyMember(wire.Retire, func(int) any { return &wire.RetireRequest{Cluster: a.know.cluster} }), "a voter retired")
	}},
	{name: "another's goodbye", quick: true, settle: time.Second, run: func(a *attacker) (gain string) {
		v := a.know.process(a.w.victim())
		for i := range a.w.houses {
			if i == a.w.victim() {
				continue
			}
			for _, from := range a.names() {
				if f, err := a.ask(i, from, wire.Goodbye, &wire.GoodbyeNotice{Name: v.Name, Boot: v.Boot}); err == nil && f.Code == wire.CodeOK {
					gain = "believed"
				}
			}
		}
		return gain
	}},
	{name: "a forged founding", quick: true, settle: time.Second, run: func(a *attacker) string {
		v := forgedFounding(a)
		one := a.everyMember(wire.Chosen, func(int) any { return &v })
		v.Predecessors = []machine.ClusterID{a.know.cluster}
		two := a.everyMember(wire.Chosen, func(int) any { return &v })
		return gained(one || two, "adopted")
	}},
	{name: "a ballot of 2^64-1", settle: time.Second, run: func(a *attacker) string {
		group := make([]wire.GroupMember, 0, len(a.know.members))
		for _, m := range a.know.members {
			group = append(group, wire.GroupMember{Name: m.Name, Boot: m.Boot, Addr: m.Addr})
		}
		ok := false
		for _, word := range []wire.Word{wire.WordNone, wire.WordOperator, wire.WordComplete} {
			req := wire.PrepareRequest{Ballot: ballot, Size: 3, TTL: uint64(ttl / time.Millisecond), Word: word}
			if word != wire.WordNone {
				req.Group = group
			}
			ok = a.everyMember(wire.Prepare, func(int) any { return &req }) || ok
			ok = a.everyMember(wire.Accept, func(int) any {
				return &wire.AcceptRequest{Ballot: ballot, Value: forgedFounding(a), Word: word, Group: req.Group}
			}) || ok
		}
		return gained(ok, "promised")
	}},
	{name: "the claim of another cluster", quick: true, settle: time.Second, run: func(a *attacker) string {
		v := forgedFounding(a)
		for _, predecessors := range [][]machine.ClusterID{nil, {a.know.cluster}} {
			v.Predecessors = predecessors
			of := wire.LineageOf{Name: intruder.Name, Boot: intruder.Boot, Addr: "127.254.1.1:9", Founding: &v, Granted: true, Votes: true}
			a.everyMember(wire.Lineage, func(int) any { return &wire.LineageRequest{From: of} })
			for i := range a.w.houses {
				if t, err := a.dial(i, hello{kind: kindControl, id: v.Cluster}); err == nil {
					_, _ = t.call(wire.Lineage, wire.Marshal(&wire.LineageRequest{From: of}))
				}
			}
		}
		return ""
	}},
	{name: "reading", quick: true, legit: []string{guest, member}, run: func(a *attacker) string {
		f, err := a.ask(a.w.leader(), peer{}, wire.Who, nil)
		var who wire.WhoAnswer
		if err == nil && f.Code == wire.CodeOK && wire.Unmarshal(f.Body, &who) == nil && who.Founding != nil {
			return "cluster ID, voters, terms"
		}
		if s, err := a.session(peer{}); err == nil {
			if answer, err := s.status(a.know.key); err == nil && answer.Status.Held > 0 {
				return "holders and tokens"
			}
		}
		return ""
	}},

	{name: "a forged founding before the first", before: true, run: func(a *attacker) string {
		v := forgedFounding(a)
		return gained(a.everyMember(wire.Chosen, func(int) any { return &v }), "adopted")
	}},
	{name: "a forged founding that names the member", before: true, run: func(a *attacker) string {
		// A stranger can learn the raft ID by a Prepare of its own.
		id := name(0) + "#1"
		f, err := a.ask(0, peer{}, wire.Prepare, &wire.PrepareRequest{Ballot: wire.Ballot{Round: 1, Name: "intruder", Boot: 77}, Size: 3, TTL: uint64(ttl / time.Millisecond)})
		var promise wire.PrepareAnswer
		if err == nil && wire.Unmarshal(f.Body, &promise) == nil && promise.Raft != "" {
			id = promise.Raft
		}
		v := forgedFounding(a)
		v.Voters[2] = id
		return gained(a.everyMember(wire.Chosen, func(int) any { return &v }), "adopted")
	}},
	{name: "a ballot of 2^64-1 before the founding", before: true, run: func(a *attacker) string {
		return gained(a.everyMember(wire.Prepare, func(int) any {
			return &wire.PrepareRequest{Ballot: ballot, Size: 3, TTL: uint64(ttl / time.Millisecond)}
		}), "promised")
	}},
	{name: "gossip of another cluster before the founding", before: true, packet: true, run: func(a *attacker) string {
		m := metadata(func(m *meta) { m.Cluster = machine.ClusterID{6, 6, 6}; m.Voter = true })
		return a.haunts(func(n uint32) []byte { return gossipNode(peer{"ghost", 5}, "127.254.1.1:9", n, m) })
	}},
	{name: "founders that are not there", before: true, packet: true, run: func(a *attacker) string {
		m := metadata(func(m *meta) { m.Founder = true })
		return a.haunts(func(n uint32) []byte {
			return gossipNode(peer{fmt.Sprint("ghost", n%9), 5}, fmt.Sprintf("127.253.0.%d:9", 1+n%9), n, m)
		})
	}},
}

// haunts sends a packet to the first member now and then, for as long as the attack
// lasts.
func (a *attacker) haunts(message func(n uint32) []byte) string {
	a.openPackets()
	ended := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		for n := uint32(1); ; n++ {
			a.gossips(0, message(n))
			select {
			case <-ended:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	a.atEnd(func() { close(ended); sender.Wait() })
	return ""
}
