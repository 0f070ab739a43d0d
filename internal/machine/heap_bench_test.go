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
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
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
				before := heap()
				s := bench.make()
				b.ReportMetric((heap()-before)/n, "B/key")
				if data == nil {
					data = image(s)
				}
				runtime.KeepAlive(s)
			}
		})
	}
}

func heapSession(i int) SessionID { return SessionID{1, byte(i / MaxHeld)} }

// heapKey returns a key of 16 bytes, in no order.
func heapKey(i int) string { return fmt.Sprintf("key-%012d", uint64(i)*0x9E3779B97F4A7C15%1e12) }
