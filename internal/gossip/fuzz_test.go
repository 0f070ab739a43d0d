package gossip

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// nowhere is a Port that reaches nobody.
type nowhere struct{ Port }

func (nowhere) Addr() string              { return self.Addr }
func (nowhere) Send([]byte, string) error { return nil }
func (nowhere) Drop(string, uint64)       {}
func (nowhere) Dial(context.Context, member.Process) (net.Conn, error) {
	return nil, errors.New("nobody")
}

// fuzzed runs a Gossip without keys, so that every input reaches the checks, and
// memberlist if it passes them.
func fuzzed(f *testing.F) *Gossip {
	f.Helper()
	own := self
	own.Log = slog.New(slog.DiscardHandler)
	g := New(Config{
		Self: own, Port: nowhere{}, Watcher: &diary{},
		Cluster:  func() machine.ClusterID { return machine.ClusterID{1} },
		Peers:    func() []string { return nil },
		Remember: func([]string) error { return nil },
	})
	if err := g.Start(); err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Run(ctx)
	}()
	f.Cleanup(func() {
		cancel()
		<-done
		g.Stop()
	})
	return g
}

// bounded fails if the inputs so far hold too much memory.
func bounded(t *testing.T, g *Gossip, n int) {
	if n%1000 != 0 {
		return
	}
	var m runtime.MemStats
	if runtime.ReadMemStats(&m); m.HeapAlloc > 200<<20 {
		runtime.GC() // the tests collect rarely
		runtime.ReadMemStats(&m)
	}
	if m.HeapAlloc > 200<<20 {
		t.Errorf("%d MiB are in use", m.HeapAlloc>>20)
	}
	if all := len(g.All()); all > maxKnown {
		t.Errorf("%d members", all)
	}
}

// No packet makes memberlist panic or grow.
func FuzzPacket(f *testing.F) {
	label := append([]byte{244, 4}, "test"...)
	a := aliveAt(member.Process{Name: "x", Boot: 1, Addr: "10.0.0.3:7000"}, 1, member.Metadata{Leads: 5, Voter: true})
	me := gossipName(self.Process())
	ping := map[string]any{"SeqNo": 1, "Node": me, "SourceAddr": []byte{10, 0, 0, 3}, "SourcePort": 7000, "SourceNode": "x.1"}
	for kind, m := range map[byte]any{
		msgAlive: a, msgDead: &forgedDead{5, "x.1", "x.1"}, msgSuspect: &forgedDead{5, me, "x.1"}, msgPing: ping, msgIndirectPing: ping,
		msgAck: map[string]any{"SeqNo": 1, "Payload": []byte("x")}, msgNack: map[string]any{"SeqNo": 1},
	} {
		f.Add(slices.Concat([]byte{kind}, wire.Marshal(m)))
	}
	f.Add([]byte{msgCompound, 2, 0, 1, 0, 1, 3, 3})
	f.Add([]byte{msgCRC, 0, 0, 0, 0, 1})
	g := fuzzed(f)
	n := 0
	f.Fuzz(func(t *testing.T, b []byte) {
		g.Packet(slices.Concat(label, b), "10.0.0.3:7000", time.Now())
		g.Packet(slices.Clone(b), "10.0.0.3:7000", time.Now())
		for len(g.transport.packets) > 0 {
			runtime.Gosched() // so that the input's paths count as its own
		}
		n++
		bounded(t, g, n)
	})
}

// No stream makes memberlist panic or grow.
func FuzzStream(f *testing.F) {
	label := append([]byte{244, 4}, "test"...)
	entry := map[string]any{"Name": "x.1", "Addr": []byte{10, 0, 0, 3}, "Port": 7000, "Vsn": []byte{1, 5, 2, 0, 0, 0}, "State": 0, "Incarnation": 7}
	f.Add(pushPull(1, 0, entry), true)
	f.Add(pushPull(1<<20, 0, entry), true)
	f.Add(pushPull(0, 1<<30), true)
	f.Add(slices.Concat([]byte{msgPing}, wire.Marshal(map[string]any{"SeqNo": 1, "Node": ""})), true)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, false)
	g := fuzzed(f)
	n := 0
	f.Fuzz(func(t *testing.T, b []byte, framed bool) {
		if framed {
			frame := binary.BigEndian.AppendUint32(nil, uint32(len(label)))
			frame = append(frame, label...)
			frame = binary.BigEndian.AppendUint32(frame, uint32(len(b)))
			b = append(frame, b...)
		}
		here, there := net.Pipe()
		defer there.Close()
		_ = there.SetDeadline(time.Now().Add(time.Second))
		go g.Accept(here, "x", netip.Addr{})
		go func() {
			_, _ = there.Write(b)
			_ = there.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // an answer, or memberlist waits for more
		}()
		_, _ = io.Copy(io.Discard, there)
		n++
		bounded(t, g, n)
	})
}
