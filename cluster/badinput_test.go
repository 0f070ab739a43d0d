package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

func TestBadConfigIsRefusedByField(t *testing.T) {
	for _, tt := range []struct {
		field  string
		reason string
		change func(*Config)
	}{
		{"Config.Name", "exceed the limit of 64", func(c *Config) { c.Name = strings.Repeat("n", 65) }},
		{"Config.Name", "holds ' '", func(c *Config) { c.Name = "a b" }},
		{"Config.Name", "not valid UTF-8", func(c *Config) { c.Name = "\xff" }},
		{"Config.Cluster", "holds '/'", func(c *Config) { c.Cluster = "a/b" }},
		{"Config.Bind", "is not host:port", func(c *Config) { c.Bind = "127.0.0.1" }},
		{"Config.Bind", "no valid port", func(c *Config) { c.Bind = "127.0.0.1:70000" }},
		{"Config.Bind", "beyond loopback", func(c *Config) { c.Bind = "0.0.0.0:0" }},
		{"Config.Bind", "beyond loopback", func(c *Config) { c.Advertise = "192.0.2.1:7000" }},
		{"Config.Advertise", "not an IP address", func(c *Config) { c.Advertise = "host.example:7000" }},
		{"Config.Join", "needs a host and a port", func(c *Config) { c.Join = []string{":7000"} }},
		{"Config.Join", "could never be in a cluster", func(c *Config) { c.InitialSize = 0 }},
		{"Config.Founders", "together with InitialSize", func(c *Config) { c.Founders = []string{"a"} }},
		{"Config.Founders", "named twice", func(c *Config) { c.InitialSize, c.Founders = 0, []string{"a", "b", "a"} }},
		{"Config.InitialSize", "not in 0 to 64", func(c *Config) { c.InitialSize = -1 }},
		{"Config.Voters", "not 1, 3, 5 or 7", func(c *Config) { c.Voters = 2 }},
		{"Config.Voters", "not 1, 3, 5 or 7", func(c *Config) { c.Voters = 4 }},
		{"Config.Voters", "not 1, 3, 5 or 7", func(c *Config) { c.Voters = -1 }},
		{"Config.TTL", "below the least, 300ms", func(c *Config) { c.TTL = 299 * time.Millisecond }},
		{"Config.TTL", "below the least, 300ms", func(c *Config) { c.TTL = -time.Second }},
		{"Config.TTL", "above the most, 24h0m0s", func(c *Config) { c.TTL = 25 * time.Hour }},
		{"Config.TTL", "whole number of milliseconds", func(c *Config) { c.TTL = time.Second + 1 }},
		{"Config.Secret", "below the least, 16", func(c *Config) { c.Secret = []byte("short") }},
	} {
		cfg := Config{InitialSize: 1}
		tt.change(&cfg)
		n, err := Start(context.Background(), cfg)
		if err == nil {
			n.Stop()
		}
		var bad *ConfigError
		if !errors.As(err, &bad) || bad.Field != tt.field || !strings.Contains(bad.Reason, tt.reason) {
			t.Errorf("%s %s: got %v", tt.field, tt.reason, err)
		}
	}
}

func TestConfigDoesNotPrintTheSecret(t *testing.T) {
	cfg := Config{Secret: []byte("correct horse battery")}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, cfg); strings.Contains(s, "horse") || strings.Contains(s, fmt.Sprint(cfg.Secret)[1:10]) {
			t.Errorf("%s prints it: %s", format, s)
		}
	}
}

func TestPortInUseIsAConfigError(t *testing.T) {
	n, err := Start(context.Background(), Config{InitialSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop()
	_, err = Start(context.Background(), Config{InitialSize: 1, Bind: n.Addr()})
	var bad *ConfigError
	if !errors.As(err, &bad) || bad.Field != "Config.Bind" {
		t.Errorf("got %v", err)
	}
}

func TestDirInUseIsAConfigError(t *testing.T) {
	dir := t.TempDir()
	n, err := Start(context.Background(), Config{Name: "a", InitialSize: 1, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop()
	for _, cfg := range []Config{{Name: "a", InitialSize: 1, Dir: dir}, {Name: "b", InitialSize: 1, Dir: dir}} {
		_, err = Start(context.Background(), cfg)
		var bad *ConfigError
		if !errors.As(err, &bad) || bad.Field != "Config.Dir" || !strings.Contains(bad.Reason, "in use") {
			t.Errorf("got %v", err)
		}
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []Config{{Name: "b", InitialSize: 1, Dir: dir}, {Name: "a", Cluster: "other", InitialSize: 1, Dir: dir}} {
		_, err = Start(context.Background(), cfg)
		var bad *ConfigError
		if !errors.As(err, &bad) || bad.Field != "Config.Dir" || !strings.Contains(bad.Reason, "belongs to") {
			t.Errorf("got %v", err)
		}
	}
}

func TestASecondMemberOfOneNameIsRefused(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		cfg := b.config("n2")
		cfg.Bind, cfg.InitialSize = b.addr("intruder"), 0
		cfg.Network = b.networkOf("intruder")
		twin, err := Start(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		b.nodes["intruder"] = twin
		err = twin.Ready(b.within(10 * time.Second))
		time.Sleep(2 * time.Second)
		if err == nil {
			err = twin.Ready(b.within(10 * time.Second))
		}
		var bad *ConfigError
		if !errors.As(err, &bad) || bad.Field != "Config.Name" {
			t.Errorf("the twin got %v", err)
		}
		b.ready(b.nodes["n1"], b.nodes["n2"], b.nodes["n3"])
		if v := b.leader().leader.Load().raft.voters(); len(v) != 3 {
			t.Errorf("voters: %v", v)
		}
	})
}

func TestTwoClustersOfOneNameNeverMix(t *testing.T) {
	inBubble(t, func(b *bubble) {
		alone := func(c *Config) { c.InitialSize, c.Join = 1, nil }
		n1, n2 := b.start("n1", alone), b.start("n2", alone)
		b.ready(n1, n2)
		// n3 is told of both; it joins one, and the two stay apart.
		n3 := b.start("n3", func(c *Config) { c.InitialSize, c.Join = 0, []string{b.addr("n1"), b.addr("n2")} })
		b.ready(n3)
		time.Sleep(time.Minute)
		if n1.clusterID() == n2.clusterID() {
			t.Fatal("the clusters merged")
		}
		b.holder(n1, 1, "k")
		b.holder(n2, 1, "k")
		b.mu.Lock()
		events := strings.Join(b.events, "\n")
		b.mu.Unlock()
		if !strings.Contains(events, "conflict") {
			t.Error("nobody was told of the conflict")
		}
	})
}

func TestAMemberOfAnotherClusterIsRefusedLoudly(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		before := len(b.nodes["n1"].Members())
		n := b.start("x", func(c *Config) { c.Cluster, c.InitialSize = "other", 0 })
		if err := n.Ready(b.within(5 * time.Second)); !errors.Is(err, ErrNoQuorum) {
			t.Errorf("got %v", err)
		}
		if m := b.nodes["n1"].Members(); len(m) != before {
			t.Errorf("members: %v", m)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if !strings.Contains(strings.Join(b.events, "\n"), "conflict") {
			t.Error("nobody was told")
		}
	})
}

// Whatever arrives on the port, well-framed or not, the node lives and grants.
func TestGarbageOnThePortHarmsNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		stranger := b.networkOf("stranger")
		end, err := stranger.Listen(b.addr("stranger"))
		if err != nil {
			t.Fatal(err)
		}
		defer end.Close()
		r := rand.New(rand.NewPCG(1, 2))
		garbage := func(n int) []byte {
			p := make([]byte, n)
			for i := range p {
				p[i] = byte(r.Uint32())
			}
			return p
		}
		for range 50 {
			c, err := end.Dial(b.within(time.Second), nodes[0].Addr())
			if err != nil {
				t.Fatal(err)
			}
			c.Write(garbage(1 + r.IntN(500)))
			c.Close()
			end.WriteTo(garbage(1+r.IntN(1000)), nodes[0].Addr())
		}
		// A peer that knows the preamble, and speaks nonsense after it.
		p, err := port.Open(port.Config{
			Network: b.networkOf("peer"), Bind: b.addr("peer"), Cluster: "test",
			Self: port.Peer{Name: "peer", Boot: 1}, ClusterID: func() [16]byte { return nodes[0].clusterID() },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for i := range 400 {
			kind := []port.Kind{port.KindMember, port.KindControl, port.KindGossip}[i%3]
			c, err := p.Dial(b.within(5*time.Second), nodes[i%len(nodes)].Addr(), kind, port.Peer{})
			if err != nil {
				t.Fatal(err)
			}
			attach, _ := wire.AppendFrame(nil, wire.Frame{Type: wire.Attach, ID: 1, Body: wire.Marshal(&wire.AttachRequest{})})
			c.Write(attach)
			for range 5 {
				f := wire.Frame{Type: wire.Type(r.UintN(48)), ID: uint64(r.IntN(3)), Code: wire.Code(r.UintN(8)), Body: garbage(r.IntN(64))}
				if r.IntN(2) == 0 {
					f.Code = wire.CodeRequest
				}
				if r.IntN(4) == 0 {
					// What only a leader may propose.
					f = wire.Frame{Type: wire.Propose, ID: 9, Body: machine.AppendCommand(nil, machine.LeaderStart{Term: 1 << 60})}
				}
				frame, _ := wire.AppendFrame(nil, f)
				c.Write(frame)
			}
			if i%10 == 0 {
				io.ReadAll(io.LimitReader(c, 10))
			}
			c.Close()
		}
		if c, err := p.Dial(b.within(5*time.Second), nodes[0].Addr(), port.KindRaft, port.Peer{Name: "n1", Boot: 12345}); err == nil {
			c.Close()
			t.Error("raft of another generation was let in")
		}
		time.Sleep(5 * time.Second)
		b.ready(nodes...)
		b.holder(nodes[0], 1, "k")
		b.leader().leader.Load().table.view(func(m *machine.State) {
			if m.Term() >= 1<<60 {
				t.Error("a member began a term")
			}
			if err := m.Check(); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestSlowReaderLosesItsStream(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	r := newRPC(server, func(*request) {})
	r.start()
	body := make([]byte, 512<<10)
	var err error
	for range 64 {
		if err = r.notify(wire.Event, body); err != nil {
			break
		}
	}
	if !errors.Is(err, errSlowPeer) {
		t.Errorf("64 MiB were queued: %v", err)
	}
	<-r.stopped
	r.close()
}

// peer opens a stream to n as a member would, and attaches if it is one of that
// kind. What the test writes is not checked.
func (b *bubble) peer(n *Node, kind port.Kind) (c *port.Conn, write func(wire.Frame)) {
	b.t.Helper()
	p, err := port.Open(port.Config{
		Network: b.networkOf("peer"), Bind: b.addr("peer"), Cluster: "test",
		Self: port.Peer{Name: "peer", Boot: 1}, ClusterID: func() [16]byte { return n.clusterID() },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { p.Close() })
	if c, err = p.Dial(b.within(5*time.Second), n.Addr(), kind, port.Peer{}); err != nil {
		b.t.Fatal(err)
	}
	write = func(f wire.Frame) {
		frame, err := wire.AppendFrame(nil, f)
		if err != nil {
			b.t.Fatal(err)
		}
		c.Write(frame) // fails once the other side has had enough
	}
	if kind == port.KindMember {
		write(wire.Frame{Type: wire.Attach, ID: 1 << 60, Body: wire.Marshal(&wire.AttachRequest{})})
	}
	return c, write
}

// Reads that share an ID, or have none, cannot be given up: a peer that sends
// such loses its stream, and nothing of them stays with the leader.
func TestReadsWithoutAnIDOfTheirOwnAreRefused(t *testing.T) {
	for _, id := range []uint64{0, 7} {
		inBubble(t, func(b *bubble) {
			b.form()
			leader := b.leader()
			a, err := leader.link.Read(b.within(time.Second), replica.Query{Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			c, write := b.peer(leader, port.KindMember)
			for range 100 {
				write(wire.Frame{Type: wire.Read, ID: id, Body: wire.Marshal(&wire.Query{Key: "k", Version: a.Version})})
			}
			time.Sleep(time.Second)
			if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, io.EOF) {
				t.Logf("the stream ended: %v", err)
			}
			c.Close()
			time.Sleep(time.Second)
			ws := leader.leader.Load().watches
			ws.mu.Lock()
			defer ws.mu.Unlock()
			if n := len(ws.keys["k"]); n > 0 {
				t.Errorf("ID %d: %d reads wait for nobody", id, n)
			}
		})
	}
}

// A later version's notices mean nothing here, and do no harm; its requests are
// told so.
func TestFramesOfALaterVersion(t *testing.T) {
	for _, kind := range []port.Kind{port.KindMember, port.KindControl} {
		inBubble(t, func(b *bubble) {
			b.form()
			c, write := b.peer(b.leader(), kind)
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

// Of a verdict that only a later version knows it is not said that nothing
// happened.
func TestAVerdictThatIsNotKnownMeansUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{}
		n.ctx, n.cancel = context.WithCancelCause(context.Background())
		defer n.cancel(ErrStopped)
		k := newLink(n)
		for code, want := range map[wire.Code]bool{wire.CodeNotLeader: false, wire.CodeBusy: false, wire.CodeUnknown: true, 200: true} {
			k.up = answering{code: code}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, err := k.Propose(ctx, machine.Acquire{Session: sid(1), Seq: 1, Key: "k"})
			cancel()
			var e *replica.Error
			if !errors.As(err, &e) || e.Unknown != want {
				t.Errorf("code %d: %#v", code, err)
			}
		}
	})
}

// answering is a leader that has one answer to all commands.
type answering struct {
	upstream
	code wire.Code
}

func (a answering) propose(_ machine.Command, done func(machine.Outcome, wire.Code)) {
	done(machine.Outcome{}, a.code)
}
func (a answering) gone() <-chan struct{} { return nil }
