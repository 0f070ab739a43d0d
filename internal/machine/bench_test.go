package machine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
)

// BenchmarkTreeOverMany is a request for a tree over fifty thousand held keys,
// and its withdrawal: neither looks at all keys.
func BenchmarkTreeOverMany(b *testing.B) {
	s := founded()
	a := session16("a")
	s.Apply(Open{Session: a, Client: "a", TTL: 1000})
	seq := uint64(0)
	for i := range MaxHeld - 1 {
		seq++
		s.Apply(Acquire{Session: a, Seq: seq, Key: fmt.Sprint("t/", i)})
	}
	b.ReportAllocs()
	for b.Loop() {
		seq++
		if out, _ := s.Apply(Acquire{Session: a, Seq: seq, Key: "t", Spec: Spec{Tree: true}}); out.Code != Queued {
			b.Fatal(out)
		}
		s.Apply(Withdraw{Session: a, Seq: seq})
	}
}

// BenchmarkReleaseOfManyKeys is a release that visits each waiter once per key, and
// does not look at all keys of the waiter each time.
func BenchmarkReleaseOfManyKeys(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		s, token, _ := manyKeys(b)
		b.StartTimer()
		s.Apply(Release{Session: session16("b"), Token: token})
	}
}

// crowd is a table of n keys, each held, over a hundred sessions.
func crowd(n int) *State {
	s := founded()
	for i := range 100 {
		s.Apply(Open{Session: SessionID{1, byte(i)}, Client: "client", Node: "node", TTL: 1000})
	}
	for i := range n {
		s.Apply(Acquire{Session: SessionID{1, byte(i % 100)}, Seq: uint64(i/100 + 1), Key: crowdKey(i)})
	}
	return s
}

func crowdKey(i int) string { return fmt.Sprintf("tenant/%08d/of/a/service/invoices", i) }

func BenchmarkAcquireRelease(b *testing.B) {
	s := crowd(100_000)
	id := SessionID{1, 7}
	seq := uint64(1 << 20)
	var seen []uint64
	b.ReportAllocs()
	for b.Loop() {
		seq++
		out, _ := s.Apply(Acquire{Session: id, Seq: seq, Key: "a key that nobody else wants", Seen: seen})
		s.Apply(Release{Session: id, Token: out.Token})
	}
}

// BenchmarkHandoff is a release with a grant to a waiter, and the next request.
func BenchmarkHandoff(b *testing.B) {
	s := crowd(0)
	x, y := SessionID{1, 1}, SessionID{1, 2}
	out, _ := s.Apply(Acquire{Session: x, Seq: 1, Key: "k"})
	s.Apply(Acquire{Session: y, Seq: 1, Key: "k"})
	token, seqs := out.Token, map[SessionID]uint64{x: 1, y: 1}
	b.ReportAllocs()
	for b.Loop() {
		seqs[x]++
		if out, _ := s.Apply(Release{Session: x, Token: token}); out.Code != OK {
			b.Fatal(out)
		}
		s.Apply(Acquire{Session: x, Seq: seqs[x], Key: "k"})
		x, y, token = y, x, token+1
	}
}

func BenchmarkWriteRestore(b *testing.B) {
	s := crowd(1_000_000)
	for _, bench := range []string{"write", "restore"} {
		b.Run(bench, func(b *testing.B) {
			data := image(s)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if bench == "write" {
					data = image(s)
				} else if _, err := Restore(bytes.NewReader(data)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(data))/1e6, "B/lock")
		})
	}
}

func BenchmarkCommand(b *testing.B) {
	c := Acquire{Session: SessionID{1}, Seq: 1 << 20, Key: crowdKey(1), Seen: []uint64{1<<20 - 1}}
	b.Run("append", func(b *testing.B) {
		var buf []byte
		var cmd Command = c
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendCommand(buf[:0], cmd)
		}
	})
	b.Run("decode", func(b *testing.B) {
		buf := EncodeCommand(c)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeCommand(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("entry of 1024", func(b *testing.B) {
		cmds := make([]Command, MaxCommands)
		for i := range cmds {
			c.Seq++
			binary.BigEndian.PutUint32(c.Session[4:], uint32(i))
			cmds[i] = c
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeEntry(EncodeCommands(cmds)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// largestGroup is a group of as many shards and callers as there may be, assigned in
// turn.
func largestGroup(tb testing.TB) (*State, []Move) {
	s := founded()
	for i := range MaxCallers {
		id := SessionID{1, byte(i), byte(i >> 8)}
		s.Apply(Open{Session: id, Client: fmt.Sprint("client ", i), Node: fmt.Sprint("node ", i%4), TTL: 1000})
		apply(tb, s, Enlist{Session: id, Seq: 1, Group: "g", Shards: MaxShards, Weight: 1}, OK)
	}
	moves := make([]Move, MaxShards)
	for i := range moves {
		moves[i] = Move{uint32(i), uint32(1 + i%MaxCallers)}
	}
	return s, moves
}

// BenchmarkAssign is an Assign that moves every shard of the largest group, with all the
// parts. BenchmarkGroup/move moves one shard, /end ends a session of the group, and /read
// describes the group.
func BenchmarkAssign(b *testing.B) {
	s, moves := largestGroup(b)
	b.ReportAllocs()
	for b.Loop() {
		for i := range moves {
			moves[i].Caller = 1 + moves[i].Caller%MaxCallers
		}
		if out, events := s.Apply(Assign{Term: 1, Group: "g", Version: s.GroupVersion("g"), Moves: moves}); out.Code != OK || len(events) != MaxCallers+1 {
			b.Fatal(out, len(events))
		}
	}
}

func BenchmarkGroup(b *testing.B) {
	s, moves := largestGroup(b)
	apply(b, s, Assign{Term: 1, Group: "g", Version: s.GroupVersion("g"), Moves: moves}, OK)
	b.Run("move", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			apply(b, s, Assign{Term: 1, Group: "g", Version: s.GroupVersion("g"), Moves: []Move{{7, uint32(1 + i%MaxCallers)}}}, OK)
		}
	})
	b.Run("end", func(b *testing.B) {
		id := SessionID{1, 1}
		for seq := uint64(2); b.Loop(); seq++ {
			apply(b, s, Delist{Session: id, Seq: seq - 1}, OK)
			apply(b, s, Enlist{Session: id, Seq: seq, Group: "g", Shards: MaxShards, Weight: 1}, OK)
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			s.Group("g")
		}
	})
	b.Run("reshard", func(b *testing.B) {
		for b.Loop() {
			s.heldShard("g", MaxShards)
		}
	})
	b.Run("reshard/each", func(b *testing.B) {
		for b.Loop() {
			s.heldShardOf("g", MaxShards)
		}
	})
}
