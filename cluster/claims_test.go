package cluster

import (
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/auth"
	"github.com/wardmote/wardmote/internal/gossip"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/proof"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// A peer without the voter role makes no request that founds, votes or tells of raft.
func TestVotersRequestsNeedTheVoterRole(t *testing.T) {
	n := &Node{}
	n.self.Refused = refused.New(slog.New(slog.DiscardHandler))
	mere := &port.Conn{Remote: port.Peer{Name: "m"}, Proved: auth.Identity{Name: "m"}}
	voter := &port.Conn{Remote: port.Peer{Name: "v"}, Proved: auth.Identity{Name: "v", Voter: true}}
	open := []wire.Type{wire.Who, wire.Goodbye, wire.Vouch, wire.Lineage}
	closed := []wire.Type{wire.Confirm, wire.Prepare, wire.Accept, wire.Chosen, wire.Invite, wire.Removed, wire.InConfig, wire.Retire, wire.Stand, wire.Progress, wire.Attest, 46}
	for _, q := range append(open, closed...) {
		if !n.admitsControl(voter, q) {
			t.Errorf("type %d of a voter is refused", q)
		}
	}
	for _, q := range open {
		if !n.admitsControl(mere, q) {
			t.Errorf("type %d of a member is refused", q)
		}
	}
	for _, q := range closed {
		if n.admitsControl(mere, q) {
			t.Errorf("type %d of a member without the role is admitted", q)
		}
	}
	if got := n.self.Refused.Counts()[refused.Role]; got != uint64(len(closed)) {
		t.Errorf("%d refusals counted", got)
	}
}

// A goodbye under a certificate without a name and without the voter role proves nothing of
// the process in the preamble.
func TestAGoodbyeNeedsANameOrTheVoterRole(t *testing.T) {
	for _, row := range []struct {
		proved auth.Identity
		counts bool
	}{
		{auth.Identity{}, false}, {auth.Identity{Name: "v"}, true}, {auth.Identity{Voter: true}, true},
	} {
		n := &Node{}
		n.self.Refused = refused.New(slog.New(slog.DiscardHandler))
		n.proof = proof.New(proof.Config{Ended: func(string, uint64) {}, Members: func() []member.Sighting { return nil }})
		v := port.Peer{Name: "v", Boot: 7}
		body := wire.Marshal(&wire.GoodbyeNotice{Name: v.Name, Boot: v.Boot})
		n.answerGoodbye(&port.Conn{Hello: port.Hello{From: v}, Proved: row.proved}, &stream.Request{Frame: wire.Frame{Type: wire.Goodbye, Body: body}})
		if n.proof.Ended(v.Name, v.Boot) != row.counts || (n.self.Refused.Counts()[refused.Role] == 0) != row.counts {
			t.Errorf("%+v: ended %t", row.proved, n.proof.Ended(v.Name, v.Boot))
		}
	}
}

// A process that answers a dial in a voter's name, with a later boot, ends no process by the
// claim under a certificate without a name and without the voter role: at the voter's address or
// at another one, and also in a refusal.
func TestALaterProcessNeedsANameOrTheVoterRole(t *testing.T) {
	for _, row := range []struct {
		proved auth.Identity
		counts bool
	}{
		{auth.Identity{}, false}, {auth.Identity{Name: "v"}, true}, {auth.Identity{Voter: true}, true},
	} {
		for _, refuses := range []bool{false, true} {
			n := &Node{}
			n.self.Refused = refused.New(slog.New(slog.DiscardHandler))
			n.proof = proof.New(proof.Config{Ended: func(string, uint64) {}, Members: func() []member.Sighting { return nil }})
			n.gossip = gossip.New(gossip.Config{})
			met := func(boot uint64, proved auth.Identity, refuses bool) {
				var err error
				peer := port.Peer{Name: "v", Boot: boot}
				c := &port.Conn{Remote: peer, Advertised: "a:1", Proved: proved}
				if refuses {
					c, err = nil, &port.RefusedError{Status: port.StatusRefused, Peer: peer, Advertised: "a:1", Claimed: proved.Name == "" && !proved.Voter}
				}
				n.noteHandshake(time.Now(), "a:1", c, err)
			}
			met(7, auth.Identity{Voter: true}, false)
			met(8, row.proved, refuses)
			if got := n.proof.Ended("v", 7); got != row.counts {
				t.Errorf("%+v, refuses %t: ended %t", row.proved, refuses, got)
			}
		}
	}
}

// A peer has few slow requests under way, on one stream and on many; the others are
// answered at once.
func TestSlowRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{}
		n.self.Refused = refused.New(slog.New(slog.DiscardHandler))
		block := make(chan struct{})
		var all []*slowly
		var streams []*stream.Stream
		codes := make(map[wire.Code]int)
		answers := make(chan wire.Code, 1000)
		for i := range 20 {
			c := &port.Conn{Remote: port.Peer{Name: string(rune('a' + i/4))}}
			sl := n.newSlowly(c)
			near, far := net.Pipe()
			server := stream.New(far, func(q *stream.Request) {
				sl.run(q, func() {
					<-block
					q.Answer(wire.CodeOK, nil)
				})
			})
			client := stream.New(near, func(*stream.Request) {})
			server.Start()
			client.Start()
			all, streams = append(all, sl), append(streams, server, client)
			for range 20 {
				if _, err := client.Begin(wire.Prepare, nil, func(f wire.Frame, _ error) { answers <- f.Code }); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Millisecond)
			n.slow.mu.Lock()
			if n.slow.all > maxSlow || n.slow.of[c.Remote.Name] > maxSlowOfMember || len(sl.under) > maxSlowOfStream {
				t.Errorf("%d under way, %d of the member, %d of the stream", n.slow.all, n.slow.of[c.Remote.Name], len(sl.under))
			}
			n.slow.mu.Unlock()
		}
		close(block)
		for range 400 {
			codes[<-answers]++
		}
		if codes[wire.CodeOK] != maxSlow || codes[wire.CodeBusy] != 400-maxSlow {
			t.Errorf("answers: %v", codes)
		}
		for _, sl := range all {
			sl.wait()
		}
		if n.slow.all != 0 || len(n.slow.of) != 0 {
			t.Errorf("places left: %+v", n.slow.of)
		}
		for _, s := range streams {
			s.Close()
		}
	})
}

// A notice that a voter has been removed is believed on the leader's word alone.
func TestAForgedRemovalRemovesNobody(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		leader := b.leader()
		for _, n := range nodes {
			id := n.seat.Current().ID()
			for _, from := range nodes {
				if from == n {
					continue
				}
				f, err := from.peers.Ask(b.within(10*time.Second), n.self.Process(), wire.Removed, wire.Marshal(&wire.RemovedNotice{Raft: id, Term: 1 << 60}))
				if err != nil || f.Code != wire.CodeNo {
					t.Errorf("%s told %s: code %v, %v", from.Name(), n.Name(), f.Code, err)
				}
			}
			if r := n.seat.Current(); r == nil || r.ID() != id {
				t.Errorf("%s has given up its vote", n.Name())
			}
		}
		if b.leader() != leader || len(b.voters()) != 3 {
			t.Errorf("voters %v", b.voters())
		}
	})
}

// A process with the voter role that says that it leads, while a voter is cut off from all
// others, moves no store aside: nobody bears witness for it.
func TestALoneLeadersWordRemovesNobody(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		liar := b.join("n4")
		victim := b.followers()[0]
		id, v := victim.seat.Current().ID(), *victim.founding.Value()
		const term = 1 << 40
		answers := func(t wire.Type) any {
			switch t {
			case wire.Attach:
				return &wire.AttachAnswer{Term: term, TTL: v.TTL, Members: 2, Voters: []string{liar.self.Addr}}
			case wire.Vouch:
				return &wire.VouchAnswer{Founding: v, Leader: liar.Name(), Term: term, Voters: []wire.VoterAt{{Raft: member.RaftID(liar.Name(), 1), Addr: liar.self.Addr}}}
			case wire.Who:
				return &wire.WhoAnswer{Name: liar.Name(), Boot: liar.self.Boot, Addr: liar.self.Addr, Founding: &v,
					Hint: wire.Hint{Term: term, Leader: liar.Name(), Addr: liar.self.Addr, Votes: true}}
			}
			return nil
		}
		asked := 0
		for _, kind := range []port.Kind{port.KindMember, port.KindControl} {
			liar.port.Handle(kind, func(c *port.Conn) {
				s := stream.New(c, func(q *stream.Request) {
					switch a := answers(q.Type); {
					case q.Type == wire.InConfig:
						asked++
						q.Answer(wire.CodeNo, nil)
					case a != nil:
						if q.Type == wire.Vouch {
							asked++
						}
						q.Answer(wire.CodeOK, wire.Marshal(a))
					default:
						q.Answer(wire.CodeNo, nil)
					}
				})
				s.Start()
				s.Wait()
			})
		}
		for _, n := range b.nodes {
			if n != victim && n != liar {
				b.net.Cut(b.host(n.Name()), b.host(victim.Name()))
			}
		}
		liar.gossip.Update(func(m *member.Metadata) { m.Leads = term })
		time.Sleep(3 * timing.OrphanedVoter)
		if r := victim.seat.Current(); r == nil || r.ID() != id {
			t.Error("the voter has given up its store")
		}
		name, _, attached := victim.link.Leader()
		if !attached || name != liar.Name() || asked == 0 {
			t.Errorf("the liar was not believed to lead: %q, %t, asked %d times", name, attached, asked)
		}
	})
}

// A member whose end gossip invents says on its own stream that it stays; a member that
// ends does not.
func TestAForgedEndIsAsked(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		n := nodes[0]
		forged := func() (list []member.Sighting) {
			for _, s := range n.gossip.Alive() {
				s.Meta.Ending, s.Meta.Leaving = true, true
				list = append(list, s)
			}
			return list
		}
		stays := func() (got int) {
			for _, s := range forged() {
				if n.stays(s) {
					got++
				}
			}
			return got
		}
		if stays() != 0 {
			t.Error("stays without a word")
		}
		n.askStaying(b.within(time.Minute), forged())
		if stays() == 0 {
			t.Error("two members that stay are believed to end")
		}
		time.Sleep(timing.ConfirmRound)
		if stays() != 0 || n.staying.any() {
			t.Error("the word is believed for ever")
		}
		for _, o := range nodes[1:] {
			o.gossip.Update(func(m *member.Metadata) { m.Ending = true })
		}
		n.askStaying(b.within(time.Minute), forged())
		if stays() != 0 {
			t.Error("members that end say that they stay")
		}
		// Nobody answers: the question is short.
		b.eventually("gossip tells", 10*time.Second, func() bool { return !n.othersStay() })
		for _, o := range nodes[1:] {
			b.net.Cut(b.host(n.Name()), b.host(o.Name()))
		}
		if begun := time.Now(); n.othersInsist(b.within(time.Minute)) || time.Since(begun) > timing.ConfirmRound {
			t.Errorf("took %v", time.Since(begun))
		}
	})
}

// A round of the leader answers few vouches of one stream, however many are asked: the
// list of voters in an answer is work.
func TestFewVouchesWaitForARound(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.thieves = true
		b.form()
		n := b.leader()
		p := b.stranger(n)
		defer p.Close()
		c, _ := b.strangeStream(p, n, port.KindControl)
		s := stream.New(c, func(*stream.Request) {})
		s.Start()
		defer s.Close()
		body := wire.Marshal(&wire.VouchRequest{Cluster: n.founding.Cluster()})
		const asked = 100
		for range 2 {
			answers := make(chan wire.Code, asked)
			for range asked {
				if _, err := s.Begin(wire.Vouch, body, func(f wire.Frame, _ error) { answers <- f.Code }); err != nil {
					t.Fatal(err)
				}
			}
			codes := make(map[wire.Code]int)
			for range asked {
				codes[<-answers]++
			}
			if codes[wire.CodeOK] != maxConfirmed || codes[wire.CodeBusy] != asked-maxConfirmed {
				t.Errorf("answers: %v", codes)
			}
		}
	})
}
