package machine

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// BenchmarkEndOfASession reports the CPU time of the longest step of the end of a session with as many
// keys as a session may have: with one waiter for each key, with readers, with waiters of
// its own, and right after a snapshot of a million other keys.
func BenchmarkEndOfASession(b *testing.B) {
	a, c := session16("a"), session16("c")
	key := func(i int) string { return fmt.Sprint("tenant/", i, "/of/a/service") }
	for name, fill := range map[string]func(s *State){
		"free": func(s *State) {
			for i := range MaxHeld {
				s.Apply(Acquire{Session: a, Seq: uint64(i + 1), Key: key(i)})
			}
		},
		"handed over": func(s *State) {
			for i := range MaxHeld {
				s.Apply(Acquire{Session: a, Seq: uint64(i + 1), Key: key(i)})
				s.Apply(Acquire{Session: c, Seq: uint64(i + 1), Key: key(i)})
			}
		},
		"waiters": func(s *State) {
			for i := range MaxHeld {
				s.Apply(Acquire{Session: c, Seq: uint64(i + 1), Key: key(i % 500)})
				s.Apply(Acquire{Session: a, Seq: uint64(i + 1), Key: key(i % 500)})
			}
		},
		"answers": func(s *State) {
			for i := range MaxHeld {
				s.Apply(Acquire{Session: a, Seq: uint64(i + 1), Key: key(i)})
			}
			for i := range MaxUnseen - MaxHeld {
				s.Apply(Acquire{Session: a, Seq: uint64(MaxHeld + i + 1), Key: key(i % MaxHeld), Try: true})
			}
		},
		"below a tree": func(s *State) {
			for i := range MaxHeld {
				s.Apply(Acquire{Session: a, Seq: uint64(i + 1), Key: key(i)})
			}
			for i := range 1000 {
				s.Apply(Acquire{Session: c, Seq: uint64(i + 1), Key: "tenant", Spec: Spec{Tree: true}})
			}
		},
		"snapshot of a million": func(s *State) {
			for i := range MaxHeld {
				s.Apply(Acquire{Session: a, Seq: uint64(i + 1), Key: key(i)})
			}
			for i := range 100 {
				s.Apply(Open{Session: SessionID{1, byte(i)}, Client: "client", Node: "node", TTL: 1000})
			}
			for i := range 1_000_000 {
				s.Apply(Acquire{Session: SessionID{1, byte(i % 100)}, Seq: uint64(i/100 + 1), Key: crowdKey(i)})
			}
			s.Snapshot()
		},
	} {
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var took []time.Duration
			for b.Loop() {
				b.StopTimer()
				s := founded()
				s.Apply(Open{Session: a, Client: "a", TTL: 1000})
				s.Apply(Open{Session: c, Client: "c", TTL: 1000})
				fill(s)
				b.StartTimer()
				var cmd Command = Close{Session: a}
				for out := (Outcome{Code: Unfinished}); out.Code == Unfinished; cmd = (EndSlice{Session: a}) {
					start := cpu(b)
					out, _ = s.Apply(cmd)
					took = append(took, cpu(b)-start)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)-1].Microseconds()), "longest-cpu-µs")
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-cpu-µs")
			b.ReportMetric(float64(len(took))/float64(b.N), "steps")
		})
	}
}
