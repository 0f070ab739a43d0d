package consensus

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/judge"
)

// One exchange of 16 entries of 256 bytes over loopback, or of 64 of 2 KiB: over this package's
// transport and over raft's own, which it replaces.
func BenchmarkAppendEntries(b *testing.B) {
	b.Run("4KiB", func(b *testing.B) { benchmarkAppendEntries(b, 16, 256) })
	b.Run("128KiB", func(b *testing.B) { benchmarkAppendEntries(b, 64, 2<<10) })
}

func benchmarkAppendEntries(b *testing.B, entries, size int) {
	id := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n1#1"), Addr: []byte("n1#1")}
	args := &raft.AppendEntriesRequest{RPCHeader: id, Term: 5, PrevLogEntry: 7, PrevLogTerm: 5, LeaderCommitIndex: 7}
	for i := range entries {
		args.Entries = append(args.Entries, &raft.Log{Index: 8 + uint64(i), Term: 5, Data: make([]byte, size), AppendedAt: time.Now()})
	}
	listen := func(b *testing.B) net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { l.Close() })
		return l
	}
	answer := func(rpcs <-chan raft.RPC) {
		for rpc := range rpcs {
			rpc.Respond(&raft.AppendEntriesResponse{RPCHeader: id, Term: 5, LastLog: 23, Success: true}, nil)
		}
	}

	b.Run("own", func(b *testing.B) {
		l := listen(b)
		far := &transport{consume: make(chan raft.RPC), done: make(chan struct{}), stream: newStream("n2#1", nil, nil)}
		quiet := judgeFor(far)
		go answer(far.consume)
		go func() {
			c, err := l.Accept()
			if err == nil {
				quiet(c)
			}
		}()
		near := &transport{pool: newPool(func(string, time.Duration) (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) })}
		b.ReportAllocs()
		for b.Loop() {
			var resp raft.AppendEntriesResponse
			c, err := near.pool.get("n2#1")
			if err != nil {
				b.Fatal(err)
			}
			c.conn.SetDeadline(time.Now().Add(time.Second))
			if err = c.send(args); err == nil {
				err = c.receive(&resp)
			}
			near.pool.put(c, err)
			if err != nil || !resp.Success {
				b.Fatal(err)
			}
		}
		near.pool.close()
	})

	b.Run("raft", func(b *testing.B) {
		l := listen(b)
		quiet := hclog.New(&hclog.LoggerOptions{Output: io.Discard})
		far := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: layer{l}, MaxPool: maxPool, Timeout: time.Second, Logger: quiet})
		go answer(far.Consumer())
		near := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: layer{listen(b)}, MaxPool: maxPool, Timeout: time.Second, Logger: quiet})
		b.ReportAllocs()
		for b.Loop() {
			var resp raft.AppendEntriesResponse
			if err := near.AppendEntries("n2#1", raft.ServerAddress(l.Addr().String()), args, &resp); err != nil || !resp.Success {
				b.Fatal(err)
			}
		}
		near.Close()
		far.Close()
	})
}

type layer struct{ net.Listener }

func (layer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", string(addr), timeout)
}

// judgeFor serves connections with the judge of a follower of n1#1 in term 5.
func judgeFor(t *transport) func(net.Conn) {
	t.rules = follower{}
	return func(c net.Conn) { t.serve(c, judge.Sender{Name: "n1", Voter: true}) }
}

type follower struct{ judge.Raft }

func (follower) ID() string                    { return "n2#1" }
func (follower) Standing() (uint64, string)    { return 5, "n1#1" }
func (follower) CommitIndex() uint64           { return 7 }
func (follower) Base() (index, term uint64)    { return 0, 0 }
func (follower) TermAt(uint64) (uint64, bool)  { return 5, true }
func (follower) Latest() raft.Configuration    { return raft.Configuration{} }
func (follower) Committed() raft.Configuration { return raft.Configuration{} }
