package raftstore

import (
	"slices"
	"testing"

	"github.com/hashicorp/raft"
)

func TestTheCacheHoldsTheTailOfTheLog(t *testing.T) {
	cached := func(s *Store) (got []uint64) {
		for i := uint64(0); i < 40; i++ {
			var log raft.Log
			if s.cache.get(i, &log) {
				if log.Index != i {
					t.Errorf("entry %d is said to be %d", log.Index, i)
				}
				got = append(got, i)
			}
		}
		return got
	}
	expect := func(t *testing.T, s *Store, when string, want ...uint64) {
		t.Helper()
		if got := cached(s); !slices.Equal(got, want) {
			t.Errorf("%s: caches %d, want %d", when, got, want)
		}
	}
	s := newStore(t, NewMemoryEngine(), 4, 1000)
	must(t, s.StoreLogs(entries(1, 10, 1)))
	expect(t, s, "the newest", 7, 8, 9, 10)
	must(t, s.DeleteRange(1, 5))
	expect(t, s, "after a compaction", 7, 8, 9, 10)
	must(t, s.DeleteRange(6, 8))
	expect(t, s, "after one that reaches it", 9, 10)
	must(t, s.DeleteRange(10, 10))
	expect(t, s, "after a conflict", 9)
	must(t, s.StoreLogs(entries(10, 11, 2)))
	expect(t, s, "after when replaced it", 9, 10, 11)
	var log raft.Log
	must(t, s.GetLog(10, &log))
	if log.Term != 2 {
		t.Errorf("entry 10 is of term %d", log.Term)
	}
	must(t, s.StoreLogs(entries(10, 10, 3)))
	expect(t, s, "after an overwrite", 9, 10)
	must(t, s.GetLog(11, &log))
	if log.Term != 2 {
		t.Errorf("entry 11 is of term %d", log.Term)
	}
	must(t, s.StoreLogs(entries(20, 21, 3)))
	expect(t, s, "after a gap", 20, 21)
	must(t, s.StoreLog(entry(22, 3, string(make([]byte, 800)))))
	expect(t, s, "bytes", 22)
	must(t, s.StoreLog(entry(23, 3, string(make([]byte, 2000)))))
	expect(t, s, "an entry that is too large")
	must(t, s.GetLog(23, &log))
}

// A reader in the middle of a write, when the engine has changed already, finds
// the same entries as the engine. Otherwise two reads could see an entry go back
// to an earlier state.
func TestNoReaderFindsTheCacheBehindTheEngine(t *testing.T) {
	engine := &faultyEngine{Engine: NewMemoryEngine()}
	s := newStore(t, engine, 64, 1<<20)
	must(t, s.StoreLogs(entries(1, 9, 1)))
	checks := 0
	engine.done = func() {
		for i := range uint64(15) {
			var want, got raft.Log
			if err1, err2 := engine.Engine.GetLog(i, &want), s.GetLog(i, &got); err1 != err2 || !sameEntry(&want, &got) {
				t.Errorf("entry %d is %+v, %v, and read as %+v, %v", i, want, err1, got, err2)
			}
		}
		checks++
	}
	must(t, s.StoreLogs(entries(10, 12, 1)))
	must(t, s.DeleteRange(9, 12))
	must(t, s.StoreLogs(entries(9, 10, 2)))
	must(t, s.StoreLogs(entries(5, 11, 3)))
	must(t, s.DeleteRange(1, 7))
	if checks != 5 {
		t.Errorf("%d checks", checks)
	}
}
