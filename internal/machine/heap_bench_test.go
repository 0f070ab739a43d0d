package machine

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
)

// BenchmarkHeapOfAKey reports the heap of a plain exclusive key of at most 16 bytes, after a
// garbage collection: of a million keys that were acquired one by one, and of the same keys
// restored. Run it with -benchtime 1x.
func BenchmarkHeapOfAKey(b *testing.B) {
	const n = 1_000_000
	var data []byte
	for _, bench := range []struct {
		name string
		make func() *State
	}{
		{"acquired", func() *State {
			s := founded()
			for i := range n {
				if i%MaxHeld == 0 {
					s.Apply(Open{Session: heapSession(i), Client: "client", Node: "node", TTL: 1000})
				}
				id, seq := heapSession(i), uint64(i%MaxHeld)
				acquire := Acquire{Session: id, Seq: 1 + seq, Key: heapKey(i)}
				if seq > 0 {
					acquire.Seen = []uint64{seq}
				}
				apply(b, s, acquire, Granted)
			}
			return s
		}},
		{"restored", func() *State {
			s, err := Restore(bytes.NewReader(data))
			if err != nil {
				b.Fatal(err)
			}
			return s
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				before := heapInUse()
				s := bench.make()
				b.ReportMetric((heapInUse()-before)/n, "B/key")
				if data == nil {
					data = image(s)
				}
				b.ReportMetric(float64(len(data))/n, "snapshot-B/key")
				runtime.KeepAlive(s)
			}
		})
	}
}

func heapSession(i int) SessionID { return SessionID{1, byte(i / MaxHeld)} }

// heapKey returns a key of 16 bytes, in no order.
func heapKey(i int) string { return fmt.Sprintf("key-%012d", uint64(i)*0x9E3779B97F4A7C15%1e12) }

// BenchmarkHeapOfOthers reports the heap, and the bytes in a snapshot, of a session, of a
// waiter, of a shared holder and of an idle key with a value of 100 bytes, after a garbage
// collection. Run it with -benchtime 1x.
func BenchmarkHeapOfOthers(b *testing.B) {
	const n = 50_000
	holder, many := SessionID{1}, func(i int) SessionID { return SessionID{2, byte(i / 10_000)} }
	open := func(s *State, id SessionID) {
		// As many members as the quotas of one want.
		apply(b, s, Open{Session: id, Client: "client", Node: fmt.Sprint("node ", (id[1]+id[2])%8), TTL: 1000}, OK)
	}
	for _, bench := range []struct {
		name  string
		begin func(s *State)
		add   func(s *State, i int)
	}{
		{"session", func(*State) {}, func(s *State, i int) {
			open(s, SessionID{3, byte(i >> 16), byte(i >> 8), byte(i)})
		}},
		{"waiter", func(s *State) {
			open(s, holder)
			for k := range n / 10_000 {
				open(s, many(k*10_000))
				apply(b, s, Acquire{Session: holder, Seq: 1 + uint64(k), Key: heapKey(k)}, Granted)
			}
		}, func(s *State, i int) {
			apply(b, s, Acquire{Session: many(i), Seq: 1 + uint64(i%10_000), Key: heapKey(i / 10_000)}, Queued)
		}},
		{"shared holder", func(s *State) {
			for k := range n / 10_000 {
				open(s, many(k*10_000))
			}
		}, func(s *State, i int) {
			apply(b, s, Acquire{Session: many(i), Seq: 1 + uint64(i%10_000), Key: heapKey(i / 10_000), Spec: Spec{Mode: Shared}}, Granted)
		}},
		{"idle key with a value", func(s *State) { open(s, holder) }, func(s *State, i int) {
			seq := uint64(1 + i)
			acquire := Acquire{Session: holder, Seq: seq, Key: heapKey(i)}
			if i > 0 {
				acquire.Seen = []uint64{seq - 1}
			}
			out, _ := apply(b, s, acquire, Granted)
			apply(b, s, SetValue{Session: holder, Token: out.Token, Rev: 1, Value: bytes.Repeat([]byte{1}, 100)}, OK)
			apply(b, s, Release{Session: holder, Token: out.Token}, OK)
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				s := founded()
				bench.begin(s)
				before, size := heapInUse(), len(image(s))
				for i := range n {
					bench.add(s, i)
				}
				b.ReportMetric((heapInUse()-before)/n, "B/each")
				b.ReportMetric(float64(len(image(s))-size)/n, "snapshot-B/each")
				runtime.KeepAlive(s)
			}
		})
	}
}

// heapInUse returns the bytes of the heap after a garbage collection.
func heapInUse() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
