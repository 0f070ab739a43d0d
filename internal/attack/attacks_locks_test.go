package attack

import (
	"fmt"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	imember "github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// An attack is one way to do harm.
type attack struct {
	name string
	// run attacks, and returns the gain: the part of the attack that succeeded as far
	// as the attacker can see, or "".
	run    func(a *attacker) (gain string)
	settle time.Duration // until harm shows, once a member has admitted the attacker
	quick  bool          // part of the plain run
	legit  []string      // the attackers that may do this
	packet bool          // settle also without an admitted stream
	before bool          // the town is not founded yet
	lasts  bool          // the attacker's streams stay open while the town is examined
	heavy  bool          // leaves memory in use, so that the next attack needs a new town
}

// lockAttacks act for the session of another client.
var lockAttacks = []attack{
	{name: "release a held lock", quick: true, run: func(a *attacker) string {
		v := a.know.victim
		return a.commands(machine.Release{Session: v.Session, Token: v.Token})
	}},
	{name: "withdraw a granted request", run: func(a *attacker) string {
		v := a.know.victim
		return a.commands(machine.Withdraw{Session: v.Session, Seq: v.Seq})
	}},
	{name: "share an exclusive lock", run: func(a *attacker) string {
		v := a.know.victim
		return a.commands(machine.Downgrade{Session: v.Session, Token: v.Token})
	}},
	{name: "write a holder's value", run: func(a *attacker) string {
		v := a.know.victim
		return a.commands(machine.SetValue{Session: v.Session, Token: v.Token, Rev: 9, Value: []byte("forged")})
	}},
	{name: "close another's session", quick: true, run: func(a *attacker) string {
		return a.commands(machine.Close{Session: a.know.victim.Session})
	}},
	{name: "expire another's session", run: func(a *attacker) string {
		return a.commands(machine.Expire{Session: a.know.victim.Session, Term: a.know.term})
	}},
	{name: "forget another's process", run: func(a *attacker) string {
		v := a.know.process(a.w.victim())
		return a.commands(machine.Forget{Node: v.Name, Boot: v.Boot}, machine.Forget{Node: v.Name, Boot: v.Boot, Dir: ownDir.ID()})
	}},
	{name: "pose as a later process of another's name", settle: 2 * time.Second, run: func(a *attacker) string {
		v := a.know.process(a.w.victim())
		for _, c := range []machine.Forget{{}, {Dir: ownDir.ID()}} {
			if o, err := a.forget(v, ownDir, c.Dir); err == nil && o.Code == machine.OK {
				return "sessions ended"
			}
		}
		return ""
	}},
	{name: "a leader's own commands", run: func(a *attacker) string {
		return a.commands(machine.LeaderStart{Term: a.know.term + 9}, machine.Found{Cluster: [16]byte{9}, Floor: 1 << 52, TTL: 1},
			machine.Bound{Term: a.know.term, TTL: 1}, machine.EndDelay{Token: a.know.victim.Token, Term: a.know.term},
			machine.Reshard{Term: a.know.term, Group: "g"})
	}},
	{name: "open a session in another's name", run: func(a *attacker) string {
		s, err := a.session(peer{})
		if err != nil {
			return ""
		}
		v := a.know.process(a.w.victim())
		key, id := newSession()
		_, _ = s.call(wire.Attach, attachBody(nil, nil, key))
		o, err := s.propose(machine.Open{Session: id, Client: "c", Node: v.Name, Boot: v.Boot, TTL: uint64(ttl / time.Millisecond)})
		if err == nil && o.Code == machine.OK {
			return "opened"
		}
		return ""
	}},
	{name: "beat in another's session", quick: true, run: func(a *attacker) string {
		id := a.know.victim.Session
		for _, from := range a.names() {
			s, err := a.session(from, id)
			if err != nil {
				continue
			}
			if f, err := s.call(wire.Beat, id[:]); err == nil && f.Code == wire.CodeOK {
				return "the dead would hold on"
			}
		}
		return ""
	}},
	{name: "detach another's session", run: func(a *attacker) string {
		id := a.know.victim.Session
		for _, from := range a.names() {
			if s, err := a.session(from); err == nil {
				_ = s.send(wire.Detach, id[:])
			}
		}
		// The holder must hear an Ask all the same: its client may watch for one. The
		// notice itself shows nothing to the sender.
		return ""
	}},
	{name: "another's departure", settle: time.Second, run: func(a *attacker) string {
		v := a.know.process(a.w.victim())
		for _, from := range a.names() {
			s, err := a.session(from)
			if err != nil {
				continue
			}
			if f, err := s.call(wire.Depart, wire.Marshal(&wire.DepartRequest{Name: v.Name, Boot: v.Boot})); err == nil && f.Code == wire.CodeOK {
				return "a vote taken"
			}
		}
		return ""
	}},
	{name: "another's description", settle: 2 * time.Second, run: func(a *attacker) string {
		for _, change := range []func(*meta){func(m *meta) { m.Leaving = true }, func(m *meta) { m.Thin = true }} {
			for _, from := range a.names() {
				if s, err := a.session(from); err == nil {
					m := meta{Version: imember.ProtocolVersion, Cluster: a.know.cluster, Generation: 1, TTL: uint64(ttl / time.Millisecond), Durable: true, Voter: true}
					change(&m)
					_ = s.send(wire.Describe, wire.Marshal(&m))
				}
			}
		}
		return ""
	}},
	{name: "100,000 requests on one stream", settle: 2 * time.Second, lasts: true, heavy: true, run: func(a *attacker) string {
		s, err := a.session(peer{})
		if err != nil {
			return ""
		}
		key, id := newSession()
		_, _ = s.call(wire.Attach, attachBody(nil, nil, key))
		if _, err := s.propose(machine.Open{Session: id, Client: "c", Node: intruder.Name, Boot: intruder.Boot, TTL: uint64(ttl / time.Millisecond)}); err != nil {
			return ""
		}
		go func() { // ends with the stream
			for {
				if _, err := wire.ReadFrame(s); err != nil {
					return
				}
			}
		}()
		for n := range 100_000 {
			if s.send(wire.Propose, machine.EncodeCommand(machine.Acquire{Session: id, Seq: uint64(n + 1), Key: fmt.Sprint("flood-", n)})) != nil {
				break
			}
		}
		return ""
	}},
}

// names are the processes in whose name an attacker speaks: its own, and the
// victim's.
func (a *attacker) names() []peer { return []peer{intruder, a.know.process(a.w.victim())} }

// commands proposes commands on streams of its own name and of the victim's, and
// tells which were carried out.
func (a *attacker) commands(all ...machine.Command) string {
	for _, from := range a.names() {
		s, err := a.session(from)
		if err != nil {
			continue
		}
		for _, c := range all {
			if o, err := s.propose(c); err == nil && o.Code == machine.OK {
				return fmt.Sprintf("%T carried out", c)
			}
		}
	}
	return ""
}
