package raftstore

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestOnlyACompactionIsCutIntoSlices(t *testing.T) {
	tests := []struct {
		name     string
		from, to uint64
		want     []string
	}{
		{"compaction", 1, 2500, []string{"delete 1-1024", "delete 1025-2048", "delete 2049-2500"}},
		{"compaction of whole slices", 1, 2048, []string{"delete 1-1024", "delete 1025-2048"}},
		{"from before the first", 0, 1025, []string{"delete 1-1024", "delete 1025-1025"}},
		{"short", 1, 10, []string{"delete 1-10"}},
		{"conflict", 100, 5000, []string{"delete 100-5000"}},
		{"conflict and beyond", 100, 9000, []string{"delete 100-9000"}},
		{"conflict at the first entry", 1, 5000, []string{"delete 1-5000"}},
		{"everything and beyond", 0, 9000, []string{"delete 0-9000"}},
		{"middle", 100, 4000, []string{"delete 100-4000"}},
		{"behind the end", 5001, 6000, nil},
		{"nothing", 6, 5, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			engine := &faultyEngine{Engine: NewMemoryEngine()}
			s := newStore(t, engine, 8, 1<<20)
			must(t, s.StoreLogs(entries(1, 5000, 1)))
			engine.took()
			must(t, s.DeleteRange(test.from, test.to))
			if calls := engine.took(); !slices.Equal(calls, test.want) {
				t.Errorf("took %q, want %q", calls, test.want)
			}
		})
	}
	t.Run("over a gap", func(t *testing.T) {
		engine := &faultyEngine{Engine: NewMemoryEngine()}
		s := newStore(t, engine, 8, 1<<20)
		const far = 1 << 60
		must(t, s.StoreLogs(entries(1, 3, 1)))
		must(t, s.StoreLogs(entries(far, far+3, 1)))
		engine.took()
		must(t, s.DeleteRange(1, far+1))
		if calls := engine.took(); len(calls) != 2 {
			t.Errorf("took %q", calls)
		}
		if first, err := s.FirstIndex(); first != far+2 || err != nil {
			t.Errorf("first index %d, %v", first, err)
		}
	})
}

// A compaction of 5 slices, a second each, delays a write by a single slice.
func TestWritesPassBetweenTheSlicesOfACompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &faultyEngine{Engine: NewMemoryEngine()}
		s := newStore(t, engine, 8, 1<<20)
		must(t, s.StoreLogs(entries(1, 6*maxSlice, 1)))
		engine.slow = time.Second
		compacted := make(chan error)
		go func() { compacted <- s.DeleteRange(1, 5*maxSlice) }()
		time.Sleep(time.Second / 2)
		began := time.Now()
		must(t, s.StoreLogs(entries(6*maxSlice+1, 6*maxSlice+1, 1)))
		if d := time.Since(began); d > 3*time.Second/2 {
			t.Errorf("waited %v", d)
		}
		must(t, <-compacted)
	})
}
