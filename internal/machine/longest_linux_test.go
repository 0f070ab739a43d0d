package machine

import (
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpu returns the time that this thread has run.
func cpu(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// BenchmarkLongestApply reports the CPU time of the costliest commands, each alone in its
// entry. 5 ms is the most that a leader's entry should take.
func BenchmarkLongestApply(b *testing.B) {
	makers := []func(testing.TB) []costly{costlyCommands, treeCommands, longSteps, crowds}
	for m, maker := range makers {
		for i, tt := range maker(b) {
			b.Run(strings.ReplaceAll(tt.name, " ", "_"), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				var took []time.Duration
				cost := 0
				for b.Loop() {
					b.StopTimer()
					again := makers[m](b)[i]
					cost = again.s.Cost(again.c)
					runtime.GC() // otherwise the command pays for the garbage of the table's making
					b.StartTimer()
					start := cpu(b)
					again.s.Apply(again.c)
					took = append(took, cpu(b)-start)
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)-1].Microseconds()), "longest-cpu-µs")
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-cpu-µs")
				b.ReportMetric(float64(cost), "cost")
			})
		}
	}
}

// BenchmarkSnapshotPause takes snapshots of a million locks while commands are applied, and
// writes each. It reports the CPU time of the longest Snapshot, and of the longest Apply until
// the snapshot is written: a command copies what it is the first to change.
func BenchmarkSnapshotPause(b *testing.B) {
	s := crowd(1_000_000)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var pause, longest time.Duration
	seq := uint64(1 << 20)
	for b.Loop() {
		start := cpu(b)
		image := s.Snapshot()
		pause = max(pause, cpu(b)-start)
		written := make(chan error)
		go func() {
			_, err := image.WriteTo(io.Discard)
			written <- err
		}()
		for busy := true; busy; {
			select {
			case err := <-written:
				if err != nil {
					b.Fatal(err)
				}
				busy = false
			default:
			}
			seq++
			id := SessionID{1, byte(seq % 100)}
			start := cpu(b)
			out, _ := s.Apply(Acquire{Session: id, Seq: seq, Key: crowdKey(2_000_000 + int(seq%2000))})
			s.Apply(Release{Session: id, Token: out.Token})
			longest = max(longest, cpu(b)-start)
		}
	}
	b.ReportMetric(float64(pause.Microseconds()), "longest-snapshot-cpu-µs")
	b.ReportMetric(float64(longest.Microseconds()), "longest-apply-cpu-µs")
}
