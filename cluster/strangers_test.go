package cluster

import (
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// stranger opens a port on a host of its own. The port claims to belong to the
// cluster of n.
func (b *bubble) stranger(n *Node) *port.Port {
	b.t.Helper()
	p, err := port.Open(port.Config{
		Network: b.networkOf("stranger"), Bind: b.addr("stranger"), Cluster: "test",
		Self: port.Peer{Name: "stranger", Boot: 1}, ClusterID: func() [16]byte { return n.founding.Cluster() },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// strangeStream opens a stream to n as a member would, and attaches to a member
// stream. write writes a frame, and does not fail when n has closed the stream.
func (b *bubble) strangeStream(p *port.Port, n *Node, kind port.Kind) (c *port.Conn, write func(wire.Frame)) {
	b.t.Helper()
	c, err := p.Dial(b.within(5*time.Second), n.Addr(), kind, port.Peer{})
	if err != nil {
		b.t.Fatal(err)
	}
	write = func(f wire.Frame) {
		frame, err := wire.AppendFrame(nil, f)
		if err != nil {
			b.t.Fatal(err)
		}
		c.Write(frame)
	}
	if kind == port.KindMember {
		write(wire.Frame{Type: wire.Attach, ID: 1 << 60, Body: wire.Marshal(&wire.AttachRequest{})})
	}
	return c, write
}

// Bytes, packets and frames of any content arrive at the ports. The nodes live on
// and grant, and nobody has begun a term.
func TestGarbageOnThePortHarmsNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.thieves = true
		nodes := b.form()
		r := rand.New(rand.NewPCG(1, 2))
		garbage := func(n int) []byte {
			p := make([]byte, n)
			for i := range p {
				p[i] = byte(r.Uint32())
			}
			return p
		}
		end, err := b.networkOf("far").Listen(b.addr("far"))
		if err != nil {
			t.Fatal(err)
		}
		defer end.Close()
		for range 50 {
			c, err := end.Dial(b.within(time.Second), nodes[0].Addr())
			if err != nil {
				t.Fatal(err)
			}
			c.Write(garbage(1 + r.IntN(500)))
			c.Close()
			end.WriteTo(garbage(1+r.IntN(1000)), nodes[0].Addr())
		}
		// A stranger knows the preamble, and then speaks nonsense.
		p := b.stranger(nodes[0])
		defer p.Close()
		for i := range 400 {
			kind := []port.Kind{port.KindMember, port.KindControl, port.KindGossip}[i%3]
			c, write := b.strangeStream(p, nodes[i%len(nodes)], kind)
			for range 5 {
				f := wire.Frame{Type: wire.Type(r.UintN(48)), ID: uint64(r.IntN(3)), Code: wire.Code(r.UintN(8)), Body: garbage(r.IntN(64))}
				if r.IntN(2) == 0 {
					f.Code = wire.CodeRequest
				}
				if r.IntN(4) == 0 {
					// Only a leader may propose this command.
					f = wire.Frame{Type: wire.Propose, ID: 9, Body: machine.AppendCommand(nil, machine.LeaderStart{Term: 1 << 60})}
				}
				write(f)
			}
			if i%10 == 0 {
				c.SetReadDeadline(time.Now().Add(time.Second))
				io.ReadAll(io.LimitReader(c, 10))
			}
			c.Close()
		}
		time.Sleep(5 * time.Second)
		b.ready(nodes...)
		b.hold(nodes[0], 1, "k")
		b.tables(func(name string, m *machine.State) {
			if m.Term() >= 1<<60 {
				t.Errorf("%s: a member began a term", name)
			}
			if err := m.Check(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	})
}

// A raft without a configuration votes for any candidate. So no stream of raft is
// let in for another generation, or to a member without a raft.
func TestRaftStreamsOfOtherGenerationsAreRefused(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		b.join("thin", thin)
		p := b.stranger(nodes[0])
		defer p.Close()
		for _, name := range []string{"n1", "thin"} {
			c, err := p.Dial(b.within(5*time.Second), b.addr(name), port.KindRaft, port.Peer{Name: name, Boot: 12345})
			if err == nil {
				c.Close()
				t.Errorf("%s let raft of another generation in", name)
			}
		}
	})
}

// Reads with a shared ID, or without an ID, cannot be cancelled. The sender of such
// a read loses its stream; the leader lives on.
func TestReadsWithoutAnIDOfTheirOwnAreRefused(t *testing.T) {
	for _, id := range []uint64{0, 7} {
		inBubble(t, func(b *bubble) {
			b.form()
			leader := b.leader()
			a, err := leader.link.Read(b.within(time.Second), replica.Query{Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			p := b.stranger(leader)
			defer p.Close()
			c, write := b.strangeStream(p, leader, port.KindMember)
			defer c.Close()
			for range 100 {
				write(wire.Frame{Type: wire.Read, ID: id, Body: wire.Marshal(&replica.Query{Key: "k", Version: a.Version})})
			}
			c.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := io.Copy(io.Discard, c); isTimeout(err) {
				t.Errorf("ID %d: the stream stays open", id)
			}
			b.hold(leader, 1, "k")
		})
	}
}

func isTimeout(err error) bool {
	e, ok := err.(interface{ Timeout() bool })
	return ok && e.Timeout()
}

// Notices of a later version mean nothing here and do no harm. Requests of a later
// version are answered as unknown.
func TestFramesOfALaterVersion(t *testing.T) {
	for _, kind := range []port.Kind{port.KindMember, port.KindControl} {
		inBubble(t, func(b *bubble) {
			b.form()
			p := b.stranger(b.leader())
			defer p.Close()
			c, write := b.strangeStream(p, b.leader(), kind)
			defer c.Close()
			write(wire.Frame{Type: 200, Body: []byte("?")})
			write(wire.Frame{Type: 200, ID: 5, Body: []byte("?")})
			write(wire.Frame{Type: 201, ID: 6, Code: 77, Body: []byte("an answer to nothing")})
			c.SetReadDeadline(time.Now().Add(5 * time.Second))
			for {
				f, err := wire.ReadFrame(c)
				if err != nil {
					t.Fatal(err)
				}
				if f.ID == 5 && f.Code == wire.CodeBad {
					return
				}
			}
		})
	}
}

// Only a leader ends a delay. No client can, on any node, and no stream. The
// commands of clients go through on every node.
func TestForgedCommandsOfALeaderAreRefused(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		leader := b.leader()
		b.open(leader, 1)
		token := b.propose(leader, delayed(1, 1, "k", time.Hour)).Token
		time.Sleep(5 * time.Second) // session 1 expires
		b.thieves = true
		forged := machine.EndDelay{Token: token, Term: leader.currentTerm().Number()}
		for _, n := range nodes {
			if out, err := n.link.Propose(b.within(5*time.Second), forged); err == nil {
				t.Errorf("%s: %+v", n.Name(), out)
			}
		}
		p := b.stranger(leader)
		defer p.Close()
		c, write := b.strangeStream(p, leader, port.KindMember)
		defer c.Close()
		write(wire.Frame{Type: wire.Propose, ID: 5, Body: machine.AppendCommand(nil, forged)})
		for f := (wire.Frame{}); f.ID != 5; {
			var err error
			if f, err = wire.ReadFrame(c); err != nil {
				t.Fatal(err)
			}
			if f.ID == 5 && f.Code != wire.CodeBad {
				t.Errorf("the stream got %v", f.Code)
			}
		}
		tableOf(leader).View(func(m *machine.State) {
			if st := m.Status("k", 1); st.Held != 1 || !st.Holders[0].Delayed {
				t.Errorf("%+v", st)
			}
		})
		accepted := func(n *Node, c machine.Command) machine.Outcome {
			t.Helper()
			o := b.propose(n, c)
			if o.Code != machine.OK && o.Code != machine.Granted {
				t.Errorf("%#v: %+v", c, o)
			}
			return o
		}
		b.open(nodes[0], 2)
		accepted(nodes[0], machine.Break{Session: sid(2), Key: "k", Token: token})
		held := accepted(nodes[0], shared(2, 1, "k", ""))
		accepted(nodes[0], machine.Ask{Session: sid(2), Key: "k", Token: held.Token}) // in a delay there is nobody to ask
		up := accepted(nodes[0], machine.Upgrade{Session: sid(2), Seq: 2, Token: held.Token})
		accepted(nodes[0], machine.SetValue{Session: sid(2), Token: up.Token, Rev: 1, Value: []byte("v")})
		accepted(nodes[0], machine.Downgrade{Session: sid(2), Token: up.Token})
	})
}
