package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

var (
	_ raft.LogStore    = (*store)(nil)
	_ raft.StableStore = (*store)(nil)
)

// faultyEngine counts the transactions of an engine, and plays a bad disk.
type faultyEngine struct {
	storeEngine
	slow  time.Duration // each transaction takes it
	fail  atomic.Bool   // transactions fail, nothing is written
	done  func()        // runs when one is done, before it returns
	calls []string      // the transactions
	mu    sync.Mutex
}

var errStoreDisk = errors.New("input/output error")

func (e *faultyEngine) transact(name string, run func() error) error {
	e.mu.Lock()
	e.calls = append(e.calls, name)
	e.mu.Unlock()
	if e.slow > 0 {
		time.Sleep(e.slow)
	}
	if e.fail.Load() {
		return errStoreDisk
	}
	err := run()
	if e.done != nil {
		e.done()
	}
	return err
}

// took returns the transactions since the last call.
func (e *faultyEngine) took() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	calls := e.calls
	e.calls = nil
	return calls
}

func (e *faultyEngine) StoreLogs(logs []*raftLog) error {
	return e.transact(fmt.Sprintf("store %d", len(logs)), func() error { return e.storeEngine.StoreLogs(logs) })
}

func (e *faultyEngine) DeleteRange(from, to uint64) error {
	return e.transact(fmt.Sprintf("delete %d-%d", from, to), func() error { return e.storeEngine.DeleteRange(from, to) })
}

func (e *faultyEngine) Set(key, value []byte) error {
	return e.transact("set "+string(key), func() error { return e.storeEngine.Set(key, value) })
}

func storeOver(t testing.TB, engine storeEngine, entries, size int) *store {
	t.Helper()
	s, err := newStore(engine, newStoreCache(entries, size))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func storeMust(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func storeOpenBolt(t testing.TB, dir string) *store {
	t.Helper()
	s, err := openBoltStore(dir)
	storeMust(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// storeEachClass runs a test on both classes of store.
func storeEachClass(t *testing.T, run func(t *testing.T, s *store)) {
	t.Run("memory", func(t *testing.T) { run(t, newMemoryStore()) })
	t.Run("bolt", func(t *testing.T) { run(t, storeOpenBolt(t, t.TempDir())) })
}

func storeEntry(index, term uint64, data string) *raftLog {
	return &raftLog{Index: index, Term: term, Type: raft.LogCommand, Data: []byte(data), AppendedAt: time.Unix(int64(index), 7).UTC()}
}

func storeEntries(from, to, term uint64) []*raftLog {
	var logs []*raftLog
	for i := from; i <= to; i++ {
		logs = append(logs, storeEntry(i, term, fmt.Sprintf("%d in %d", i, term)))
	}
	return logs
}

func storeSameLog(a, b *raftLog) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Type == b.Type && bytes.Equal(a.Data, b.Data) &&
		bytes.Equal(a.Extensions, b.Extensions) && a.AppendedAt.Equal(b.AppendedAt)
}

// storeVoteOf returns the vote as raft reads it.
func storeVoteOf(t testing.TB, s *store) string {
	t.Helper()
	term, err1 := s.GetUint64([]byte("LastVoteTerm"))
	candidate, err2 := s.Get([]byte("LastVoteCand"))
	if (err1 == nil) != (err2 == nil) {
		t.Fatalf("half a vote: %v, %v", err1, err2)
	}
	if err1 != nil {
		return err1.Error()
	}
	return fmt.Sprintf("%d %s", term, candidate)
}

func TestStoreAnswersAsRaftExpects(t *testing.T) {
	storeEachClass(t, func(t *testing.T, s *store) {
		for name, index := range map[string]func() (uint64, error){"first": s.FirstIndex, "last": s.LastIndex} {
			if i, err := index(); i != 0 || err != nil {
				t.Errorf("%s index of an empty log: %d, %v", name, i, err)
			}
		}
		var log raftLog
		if err := s.GetLog(1, &log); err != raft.ErrLogNotFound {
			t.Errorf("no entry: %v is not raft's own error", err)
		}
		for _, key := range []string{"CurrentTerm", "LastVoteTerm", "LastVoteCand", "other"} {
			if v, err := s.Get([]byte(key)); v != nil || err == nil || err.Error() != "not found" {
				t.Errorf("no %s: %q, %v", key, v, err)
			}
			if v, err := s.GetUint64([]byte(key)); v != 0 || err == nil || err.Error() != "not found" {
				t.Errorf("no %s: %d, %v", key, v, err)
			}
		}
		if _, ok := any(s).(raft.MonotonicLogStore); ok {
			t.Error("raft would delete the whole log with each snapshot it installs")
		}

		full := &raftLog{Index: 9, Term: 3, Type: raft.LogConfiguration, Data: []byte("d"), Extensions: []byte("e"), AppendedAt: time.Unix(5, 6)}
		storeMust(t, s.StoreLog(full))
		s.cache.dropFrom(0)
		log = raftLog{Extensions: []byte("left over"), Data: []byte("left over")}
		storeMust(t, s.GetLog(9, &log))
		if !storeSameLog(&log, full) {
			t.Errorf("stored %+v, got %+v", full, log)
		}
		storeMust(t, s.DeleteRange(10, 9))
		storeMust(t, s.DeleteRange(100, 200))
		storeMust(t, s.StoreLogs(nil))
		if i, err := s.LastIndex(); i != 9 || err != nil {
			t.Errorf("last index %d, %v", i, err)
		}

		key, value := []byte("a key"), []byte("a value")
		storeMust(t, s.Set(key, value))
		value[0] = 'X'
		got, err := s.Get(key)
		storeMust(t, err)
		if string(got) != "a value" {
			t.Errorf("a value changed with its caller's bytes: %q", got)
		}
		if _, err := s.GetUint64(key); err == nil {
			t.Error("seven bytes are no number")
		}
		storeMust(t, s.SetUint64(key, 1<<63))
		if n, err := s.GetUint64(key); n != 1<<63 || err != nil {
			t.Errorf("number %d, %v", n, err)
		}
		storeMust(t, s.Close())
		storeMust(t, s.Close())
		if err := s.StoreLogs(storeEntries(10, 10, 3)); !errors.Is(err, errStoreClosed) {
			t.Errorf("written after Close: %v", err)
		}
		if err := s.SetUint64([]byte("CurrentTerm"), 8); err != nil {
			t.Errorf("raft would panic: %v", err)
		}
	})
}

// storeModel is what a store should be: a map each.
type storeModel struct {
	logs   map[uint64]raftLog
	values map[string][]byte
	vote   string
	ballot uint64 // 0: none
}

func (m *storeModel) bounds() (first, last uint64) {
	if len(m.logs) == 0 {
		return 0, 0
	}
	indexes := slices.Sorted(maps.Keys(m.logs))
	return indexes[0], indexes[len(indexes)-1]
}

// The same random calls on a store and on two maps, with caches so small that
// every edge of theirs is met.
func TestStoreIsAMap(t *testing.T) {
	open := map[string]func(rt *rapid.T, dir string, cache *storeCache) *store{
		"bolt": func(rt *rapid.T, dir string, cache *storeCache) *store {
			engine, err := openBoltEngine(filepath.Join(dir, "raft.db"))
			if err != nil {
				rt.Fatal(err)
			}
			s, err := newStore(engine, cache)
			if err != nil {
				rt.Fatal(err)
			}
			return s
		},
		"memory": func(rt *rapid.T, _ string, cache *storeCache) *store {
			s, err := newStore(&memoryEngine{}, cache)
			if err != nil {
				rt.Fatal(err)
			}
			return s
		},
	}
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { storeRunModel(rt, t, name, open) })
		})
	}
}

func storeRunModel(rt *rapid.T, t *testing.T, class string, open func(*rapid.T, string, *storeCache) *store) {
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		rt.Fatal(err)
	}
	cache := func() *storeCache {
		return newStoreCache(rapid.IntRange(0, 6).Draw(rt, "cached"), rapid.SampledFrom([]int{100, 400, 1 << 20}).Draw(rt, "bytes"))
	}
	s := open(rt, dir, cache())
	defer func() { s.Close() }()
	m := storeModel{logs: map[uint64]raftLog{}, values: map[string][]byte{}, vote: "not found"}
	must := func(err error) {
		if err != nil {
			rt.Fatal(err)
		}
	}
	store := func(from uint64, n int) {
		term := rapid.Uint64Range(1, 99).Draw(rt, "term")
		var logs []*raftLog
		for i := range uint64(n) {
			data := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(rt, "data")
			log := &raftLog{Index: from + i, Term: term, Data: data, Extensions: data[:len(data)/3], AppendedAt: time.Unix(int64(term), 0)}
			logs = append(logs, log)
			m.logs[log.Index] = *log
		}
		must(s.StoreLogs(logs))
	}
	remove := func(from, to uint64) {
		must(s.DeleteRange(from, to))
		for i := from; i <= to; i++ {
			delete(m.logs, i)
		}
	}
	keys := rapid.SampledFrom([]string{"CurrentTerm", "a", "b"})
	actions := map[string]func(*rapid.T){
		"append": func(rt *rapid.T) {
			_, last := m.bounds()
			store(last+1, rapid.IntRange(1, 5).Draw(rt, "n"))
		},
		"append after a gap": func(rt *rapid.T) {
			_, last := m.bounds()
			store(last+rapid.Uint64Range(2, 9).Draw(rt, "gap"), 2)
		},
		"overwrite": func(rt *rapid.T) {
			first, last := m.bounds()
			store(rapid.Uint64Range(max(first, 1), last+1).Draw(rt, "from"), rapid.IntRange(1, 3).Draw(rt, "n"))
		},
		"compact": func(rt *rapid.T) {
			if first, last := m.bounds(); first > 0 {
				remove(first, rapid.Uint64Range(first, last).Draw(rt, "to"))
			}
		},
		"truncate": func(rt *rapid.T) {
			if first, last := m.bounds(); first > 0 {
				remove(rapid.Uint64Range(first, last).Draw(rt, "from"), last)
			}
		},
		"delete": func(rt *rapid.T) {
			from := rapid.Uint64Range(0, 60).Draw(rt, "from")
			remove(from, rapid.Uint64Range(0, 60).Draw(rt, "to"))
		},
		"set": func(rt *rapid.T) {
			key, value := keys.Draw(rt, "key"), rapid.Uint64().Draw(rt, "value")
			must(s.SetUint64([]byte(key), value))
			m.values[key] = fmt.Append(nil, value)
		},
		"vote term": func(rt *rapid.T) {
			m.ballot = rapid.Uint64Range(1, 9).Draw(rt, "term")
			must(s.SetUint64([]byte("LastVoteTerm"), m.ballot))
		},
		"vote candidate": func(rt *rapid.T) {
			candidate := rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(rt, "candidate")
			err := s.Set([]byte("LastVoteCand"), []byte(candidate))
			if (err == nil) != (m.ballot != 0) {
				rt.Fatalf("candidate after term %d: %v", m.ballot, err)
			}
			if err == nil {
				m.vote, m.ballot = fmt.Sprintf("%d %s", m.ballot, candidate), 0
			}
		},
		"reopen": func(rt *rapid.T) {
			m.ballot = 0
			if class == "memory" {
				var err error
				s, err = newStore(s.engine, cache())
				must(err)
				return
			}
			must(s.Close())
			s = open(rt, dir, cache())
		},
		"": func(rt *rapid.T) {
			wantFirst, wantLast := m.bounds()
			first, err1 := s.FirstIndex()
			last, err2 := s.LastIndex()
			if err := errors.Join(err1, err2); err != nil || first != wantFirst || last != wantLast {
				rt.Fatalf("log from %d to %d, want %d to %d, %v", first, last, wantFirst, wantLast, err)
			}
			for i := range max(wantLast, 60) + 3 {
				var log raftLog
				err := s.GetLog(i, &log)
				want, ok := m.logs[i]
				switch {
				case !ok && err != raft.ErrLogNotFound:
					rt.Fatalf("entry %d should not be there: %+v, %v", i, log, err)
				case ok && (err != nil || !storeSameLog(&log, &want)):
					rt.Fatalf("entry %d is %+v, want %+v, %v", i, log, want, err)
				}
			}
			for _, key := range []string{"CurrentTerm", "a", "b"} {
				n, err := s.GetUint64([]byte(key))
				want, ok := m.values[key]
				if ok != (err == nil) || ok && string(fmt.Append(nil, n)) != string(want) {
					rt.Fatalf("%s is %d, want %s, %v", key, n, want, err)
				}
			}
			if vote := storeVoteOf(t, s); vote != m.vote {
				rt.Fatalf("vote %q, want %q", vote, m.vote)
			}
			size := 0
			for i := s.cache.first; i < s.cache.next; i++ {
				size += storeCacheCost(s.cache.slot(i))
			}
			if size != s.cache.bytes || size > s.cache.limit || s.cache.next-s.cache.first > uint64(len(s.cache.ring)) {
				rt.Fatalf("the cache holds %d bytes in %d entries, counts %d", size, s.cache.next-s.cache.first, s.cache.bytes)
			}
		},
	}
	rt.Repeat(actions)
}

func TestStoreForgetsHalfAVote(t *testing.T) {
	dir := t.TempDir()
	s := storeOpenBolt(t, dir)
	storeMust(t, s.SetUint64([]byte("LastVoteTerm"), 4))
	storeMust(t, s.Set([]byte("LastVoteCand"), []byte("old")))
	storeMust(t, s.SetUint64([]byte("CurrentTerm"), 5))
	storeMust(t, s.SetUint64([]byte("LastVoteTerm"), 5))
	if vote := storeVoteOf(t, s); vote != "4 old" {
		t.Errorf("vote %q before the candidate is stored", vote)
	}
	storeMust(t, s.Close()) // a crash
	s = storeOpenBolt(t, dir)
	if vote := storeVoteOf(t, s); vote != "4 old" {
		t.Errorf("vote %q after a crash between term and candidate", vote)
	}
	if term, err := s.GetUint64([]byte("CurrentTerm")); term != 5 || err != nil {
		t.Errorf("term %d, %v", term, err)
	}
	if err := s.Set([]byte("LastVoteCand"), []byte("new")); err == nil {
		t.Error("a candidate was paired with a term of before the crash")
	}
	if err := s.Failed(); err != nil {
		t.Errorf("nothing was written, yet failed: %v", err)
	}
	storeMust(t, s.SetUint64([]byte("LastVoteTerm"), 5))
	storeMust(t, s.Set([]byte("LastVoteCand"), []byte("new")))
	if vote := storeVoteOf(t, s); vote != "5 new" {
		t.Errorf("vote %q", vote)
	}
}

func TestStoreVoteIsTwoTransactions(t *testing.T) {
	engine := &faultyEngine{storeEngine: &memoryEngine{}}
	s := storeOver(t, engine, 8, 1<<20)
	vote := func() {
		storeMust(t, s.SetUint64([]byte("CurrentTerm"), 7))
		storeMust(t, s.SetUint64([]byte("LastVoteTerm"), 7))
		storeMust(t, s.Set([]byte("LastVoteCand"), []byte("n1#2")))
	}
	vote()
	if calls := engine.took(); !slices.Equal(calls, []string{"set CurrentTerm", "set LastVote"}) {
		t.Errorf("a vote took %q", calls)
	}
	vote()
	if calls := engine.took(); len(calls) > 0 {
		t.Errorf("the same again took %q", calls)
	}
	if got := s.stats(); got.Writes != 2 || got.Batches != 2 {
		t.Errorf("stats %+v", got)
	}
	// What a store says on its disk counts, not what it was told before.
	s = storeOver(t, engine, 8, 1<<20)
	vote()
	if calls := engine.took(); len(calls) > 0 {
		t.Errorf("the same after a restart took %q", calls)
	}
}

func TestStoreWritesOfOtherTermOrCandidateAreNotSkipped(t *testing.T) {
	engine := &faultyEngine{storeEngine: &memoryEngine{}}
	s := storeOver(t, engine, 8, 1<<20)
	storeMust(t, s.SetUint64([]byte("CurrentTerm"), 0))
	for _, vote := range []storeVote{{true, 1, []byte("a")}, {true, 2, []byte("a")}, {true, 2, []byte("b")}} {
		storeMust(t, s.SetUint64([]byte("LastVoteTerm"), vote.term))
		storeMust(t, s.Set([]byte("LastVoteCand"), vote.candidate))
	}
	if calls := engine.took(); len(calls) != 4 {
		t.Errorf("took %q", calls)
	}
}

func TestStoreShowsAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOver(t, &faultyEngine{storeEngine: &memoryEngine{}, slow: 12 * time.Second}, 8, 1<<20)
		time.Sleep(time.Hour)
		if d := s.StalledFor(); d != 0 {
			t.Errorf("idle, yet stalled for %v", d)
		}
		go s.StoreLogs(storeEntries(1, 3, 1))
		time.Sleep(5 * time.Second)
		waiter := make(chan error)
		go func() { waiter <- s.Set([]byte("k"), nil) }()
		synctest.Wait()
		if d := s.StalledFor(); d != 5*time.Second {
			t.Errorf("stalled for %v, not 5s", d)
		}
		if last, err := s.LastIndex(); last != 0 || err != nil {
			t.Errorf("a stalled write holds up or fools a reader: %d, %v", last, err)
		}
		time.Sleep(8 * time.Second)
		if d := s.StalledFor(); d != time.Second {
			t.Errorf("stalled for %v: the second write has run for 1s", d)
		}
		storeMust(t, <-waiter)
		if d := s.StalledFor(); d != 0 {
			t.Errorf("done, yet stalled for %v", d)
		}
		if got := s.stats(); got != (storeStats{Writes: 4, Batches: 2, Slowest: 12 * time.Second}) {
			t.Errorf("stats %+v", got)
		}
	})
}

func TestStoreFailsForGood(t *testing.T) {
	writes := map[string]func(s *store) error{
		"entry":     func(s *store) error { return s.StoreLogs(storeEntries(6, 6, 2)) },
		"overwrite": func(s *store) error { return s.StoreLogs(storeEntries(4, 4, 2)) },
		"truncate":  func(s *store) error { return s.DeleteRange(4, 5) },
		"compact":   func(s *store) error { return s.DeleteRange(1, 2) },
		"value":     func(s *store) error { return s.Set([]byte("k"), []byte("v")) },
		"number":    func(s *store) error { return s.SetUint64([]byte("k"), 3) },
		"vote": func(s *store) error {
			term := s.SetUint64([]byte("LastVoteTerm"), 9)
			candidate := s.Set([]byte("LastVoteCand"), []byte("n9"))
			if candidate == nil {
				return term
			}
			return candidate
		},
	}
	first := maps.Clone(writes)
	first["term"] = func(s *store) error { return s.SetUint64([]byte("CurrentTerm"), 9) }
	for name, write := range first {
		t.Run(name, func(t *testing.T) {
			engine := &faultyEngine{storeEngine: &memoryEngine{}}
			s := storeOver(t, engine, 8, 1<<20)
			storeMust(t, s.StoreLogs(storeEntries(1, 5, 1)))
			storeMust(t, s.Failed())
			engine.took()

			engine.fail.Store(true)
			err := write(s)
			engine.fail.Store(false)
			if name == "term" {
				if err != nil {
					t.Errorf("raft would panic: %v", err)
				}
			} else if !errors.Is(err, errStoreDisk) {
				t.Errorf("failed with %v", err)
			}
			if err := s.Failed(); !errors.Is(err, errStoreDisk) {
				t.Errorf("Failed says %v", err)
			}
			if calls := engine.took(); len(calls) != 1 {
				t.Errorf("tried %q", calls)
			}

			for again, write := range writes {
				if err := write(s); !errors.Is(err, errStoreDisk) {
					t.Errorf("%s after that: %v", again, err)
				}
			}
			storeMust(t, s.SetUint64([]byte("CurrentTerm"), 10))
			if err := s.StoreLogs(nil); err == nil {
				t.Error("nothing to store, but acknowledged")
			}
			if err := s.SetUint64([]byte("LastVoteTerm"), 11); err == nil {
				t.Error("half a vote acknowledged")
			}
			if calls := engine.took(); len(calls) != 0 {
				t.Errorf("the engine was asked again: %q", calls)
			}
			for i := uint64(1); i <= 5; i++ {
				var log raftLog
				if err := s.GetLog(i, &log); err != nil || log.Term != 1 {
					t.Errorf("entry %d: %+v, %v", i, log, err)
				}
			}
			if vote := storeVoteOf(t, s); vote != "not found" {
				t.Errorf("vote %q", vote)
			}
			storeMust(t, s.Close())
			if err := s.Failed(); !errors.Is(err, errStoreDisk) {
				t.Errorf("after Close, Failed says %v", err)
			}
		})
	}
}

// A write that failed may have reached the disk: the cache must not contradict.
func TestStoreTrustsOnlyTheEngineAfterAFailure(t *testing.T) {
	engine := &faultyEngine{storeEngine: &memoryEngine{}}
	s := storeOver(t, engine, 8, 1<<20)
	storeMust(t, s.StoreLogs(storeEntries(1, 5, 1)))
	storeMust(t, engine.storeEngine.DeleteRange(3, 5)) // what the failing call below left
	engine.fail.Store(true)
	if err := s.StoreLogs(storeEntries(6, 6, 1)); err == nil {
		t.Fatal("no failure")
	}
	var log raftLog
	if err := s.GetLog(4, &log); err != raft.ErrLogNotFound {
		t.Errorf("entry 4: %+v, %v", log, err)
	}
}

func TestStoreCutsCompactionsOnly(t *testing.T) {
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
			engine := &faultyEngine{storeEngine: &memoryEngine{}}
			s := storeOver(t, engine, 8, 1<<20)
			storeMust(t, s.StoreLogs(storeEntries(1, 5000, 1)))
			engine.took()
			storeMust(t, s.DeleteRange(test.from, test.to))
			if calls := engine.took(); !slices.Equal(calls, test.want) {
				t.Errorf("took %q, want %q", calls, test.want)
			}
		})
	}
	t.Run("over a gap", func(t *testing.T) {
		engine := &faultyEngine{storeEngine: &memoryEngine{}}
		s := storeOver(t, engine, 8, 1<<20)
		const far = 1 << 60
		storeMust(t, s.StoreLogs(storeEntries(1, 3, 1)))
		storeMust(t, s.StoreLogs(storeEntries(far, far+3, 1)))
		engine.took()
		storeMust(t, s.DeleteRange(1, far+1))
		if calls := engine.took(); len(calls) != 2 {
			t.Errorf("took %q", calls)
		}
		if first, err := s.FirstIndex(); first != far+2 || err != nil {
			t.Errorf("first index %d, %v", first, err)
		}
	})
}

// A compaction of 5 slices of a second each delays a write by one of them.
func TestStoreLetsWritesPassBetweenSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &faultyEngine{storeEngine: &memoryEngine{}}
		s := storeOver(t, engine, 8, 1<<20)
		storeMust(t, s.StoreLogs(storeEntries(1, 6*storeSlice, 1)))
		engine.slow = time.Second
		compacted := make(chan error)
		go func() { compacted <- s.DeleteRange(1, 5*storeSlice) }()
		time.Sleep(time.Second / 2)
		began := time.Now()
		storeMust(t, s.StoreLogs(storeEntries(6*storeSlice+1, 6*storeSlice+1, 1)))
		if d := time.Since(began); d > 3*time.Second/2 {
			t.Errorf("waited %v", d)
		}
		storeMust(t, <-compacted)
	})
}

func TestStoreCachesTheTail(t *testing.T) {
	cached := func(s *store) (got []uint64) {
		for i := uint64(0); i < 40; i++ {
			var log raftLog
			if s.cache.get(i, &log) {
				if log.Index != i {
					t.Errorf("entry %d is said to be %d", log.Index, i)
				}
				got = append(got, i)
			}
		}
		return got
	}
	expect := func(t *testing.T, s *store, what string, want ...uint64) {
		t.Helper()
		if got := cached(s); !slices.Equal(got, want) {
			t.Errorf("%s: caches %d, want %d", what, got, want)
		}
	}
	s := storeOver(t, &memoryEngine{}, 4, 1000)
	storeMust(t, s.StoreLogs(storeEntries(1, 10, 1)))
	expect(t, s, "the newest", 7, 8, 9, 10)
	storeMust(t, s.DeleteRange(1, 5))
	expect(t, s, "after a compaction", 7, 8, 9, 10)
	storeMust(t, s.DeleteRange(6, 8))
	expect(t, s, "after one that reaches it", 9, 10)
	storeMust(t, s.DeleteRange(10, 10))
	expect(t, s, "after a conflict", 9)
	storeMust(t, s.StoreLogs(storeEntries(10, 11, 2)))
	expect(t, s, "after what replaced it", 9, 10, 11)
	var log raftLog
	storeMust(t, s.GetLog(10, &log))
	if log.Term != 2 {
		t.Errorf("entry 10 is of term %d", log.Term)
	}
	storeMust(t, s.StoreLogs(storeEntries(10, 10, 3)))
	expect(t, s, "after an overwrite", 9, 10)
	storeMust(t, s.GetLog(11, &log))
	if log.Term != 2 {
		t.Errorf("entry 11 is of term %d", log.Term)
	}
	storeMust(t, s.StoreLogs(storeEntries(20, 21, 3)))
	expect(t, s, "after a gap", 20, 21)
	storeMust(t, s.StoreLog(storeEntry(22, 3, string(make([]byte, 800)))))
	expect(t, s, "bytes", 22)
	storeMust(t, s.StoreLog(storeEntry(23, 3, string(make([]byte, 2000)))))
	expect(t, s, "an entry that is too large")
	storeMust(t, s.GetLog(23, &log))
}

// Whoever reads in the middle of a write, when the engine has it already, finds
// what the engine has, or two reads could see an entry go back.
func TestStoreReadersNeverSeeTheCacheBehindTheEngine(t *testing.T) {
	engine := &faultyEngine{storeEngine: &memoryEngine{}}
	s := storeOver(t, engine, 64, 1<<20)
	storeMust(t, s.StoreLogs(storeEntries(1, 9, 1)))
	checks := 0
	engine.done = func() {
		for i := range uint64(15) {
			var want, got raftLog
			if err1, err2 := engine.storeEngine.GetLog(i, &want), s.GetLog(i, &got); err1 != err2 || !storeSameLog(&want, &got) {
				t.Errorf("entry %d is %+v, %v, and read as %+v, %v", i, want, err1, got, err2)
			}
		}
		checks++
	}
	storeMust(t, s.StoreLogs(storeEntries(10, 12, 1)))
	storeMust(t, s.DeleteRange(9, 12))
	storeMust(t, s.StoreLogs(storeEntries(9, 10, 2)))
	storeMust(t, s.StoreLogs(storeEntries(5, 11, 3)))
	storeMust(t, s.DeleteRange(1, 7))
	if checks != 5 {
		t.Errorf("%d checks", checks)
	}
}

func TestStoreBoltFileIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "data")
	s := storeOpenBolt(t, dir)
	storeMust(t, s.StoreLogs(storeEntries(1, 1, 1)))
	for path, want := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, filepath.Join(dir, "raft.db"): 0o600} {
		info, err := os.Stat(path)
		storeMust(t, err)
		if info.Mode() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
}

func TestStoreBoltInUse(t *testing.T) {
	dir := t.TempDir()
	storeMust(t, storeOpenBolt(t, dir).StoreLogs(storeEntries(1, 1, 1)))
	_, err := openBoltStore(dir)
	var typed *boltError
	if !errors.As(err, &typed) || !errors.Is(err, errStoreInUse) || errors.Is(err, errStoreDamaged) {
		t.Errorf("opened twice: %v", err)
	}
}

func TestStoreBoltCannotMakeDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	storeMust(t, os.WriteFile(file, nil, 0o600))
	_, err := openBoltStore(file)
	var typed *boltError
	if !errors.As(err, &typed) || errors.Is(err, errStoreInUse) || errors.Is(err, errStoreDamaged) {
		t.Errorf("a file for a directory: %v", err)
	}
}

// storeBoltSample returns the bytes of a file with some history: entries
// stored, overwritten and deleted, so that there are pages of every kind.
func storeBoltSample(t testing.TB, entries uint64) []byte {
	t.Helper()
	dir := t.TempDir()
	s, err := openBoltStore(dir)
	storeMust(t, err)
	storeMust(t, s.SetUint64([]byte("CurrentTerm"), 3))
	storeMust(t, s.SetUint64([]byte("LastVoteTerm"), 3))
	storeMust(t, s.Set([]byte("LastVoteCand"), []byte("n1#1")))
	storeMust(t, s.StoreLogs(storeEntries(1, entries, 1)))
	storeMust(t, s.DeleteRange(1, entries/4))
	storeMust(t, s.DeleteRange(entries/2, entries))
	storeMust(t, s.StoreLogs(storeEntries(entries/2, entries, 2)))
	storeMust(t, s.StoreLog(storeEntry(entries+1, 3, string(make([]byte, 20_000)))))
	storeMust(t, s.Close())
	data, err := os.ReadFile(filepath.Join(dir, "raft.db"))
	storeMust(t, err)
	return data
}

// storeDump opens a store with the given bytes and returns all that is in it.
func storeDump(t testing.TB, data []byte) (string, error) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	storeMust(t, err)
	defer os.RemoveAll(dir)
	storeMust(t, os.WriteFile(filepath.Join(dir, "raft.db"), data, 0o600))
	s, err := openBoltStore(dir)
	if err != nil {
		return "", err
	}
	defer s.Close()
	first, err := s.FirstIndex()
	storeMust(t, err)
	last, err := s.LastIndex()
	storeMust(t, err)
	term, err := s.GetUint64([]byte("CurrentTerm"))
	dump := fmt.Sprintln(first, last, term, err, storeVoteOf(t, s))
	for i := first; i <= last && first > 0; i++ {
		var log raftLog
		storeMust(t, s.GetLog(i, &log))
		log.AppendedAt = time.Time{} // the one thing without a checksum
		dump += fmt.Sprintln(log)
	}
	// Damage among the free pages would show now.
	storeMust(t, s.StoreLogs(storeEntries(last+1, last+50, 4)))
	storeMust(t, s.DeleteRange(first, last))
	return dump, nil
}

// However a file is damaged, opening it either says so or changes nothing.
func TestStoreBoltDamage(t *testing.T) {
	for _, entries := range []uint64{6, 150} {
		whole := storeBoltSample(t, entries)
		want, err := storeDump(t, whole)
		storeMust(t, err)
		expect := func(what string, data []byte, mustFail bool) {
			t.Helper()
			got, err := storeDump(t, data)
			switch {
			case err != nil && !errors.Is(err, errStoreDamaged):
				t.Errorf("%d entries, %s: %v", entries, what, err)
			case err == nil && mustFail:
				t.Errorf("%d entries, %s: opened", entries, what)
			case err == nil && got != want:
				t.Errorf("%d entries, %s: opened with other contents", entries, what)
			}
		}
		used := storeUsed(t, whole)
		for _, size := range []int{1, 100, 4095, 4096, 8192, 8193, 12288, used / 2, used - 4096, used - 1} {
			expect(fmt.Sprintf("cut to %d bytes", size), whole[:size], true)
		}
		expect("cut behind the last page", whole[:used], false)

		zeros := bytes.Repeat([]byte{0}, len(whole))
		expect("zeros", zeros, true)
		random := rand.New(rand.NewPCG(1, entries))
		for i := range zeros {
			zeros[i] = byte(random.Uint32())
		}
		expect("noise", zeros, true)

		// Both metas hold the numbers of pages; bbolt guards them by itself, and
		// falls back on the older one, so they are left alone here.
		flip := func(at, bit int) {
			data := bytes.Clone(whole)
			data[at] ^= 1 << bit
			expect(fmt.Sprintf("bit %d of byte %d (page %d, %d) flipped", bit, at, at/4096, at%4096), data, false)
		}
		for page := 2; page < used/4096; page++ { // headers and first elements
			for range 3 {
				flip(page*4096+random.IntN(48), random.IntN(8))
			}
		}
		for range 60 {
			flip(8192+random.IntN(used-8192), random.IntN(8))
		}
		for page := 2; page < used/4096; page++ {
			data := bytes.Clone(whole)
			clear(data[page*4096 : (page+1)*4096])
			expect(fmt.Sprintf("page %d lost", page), data, false)
			copy(data[page*4096:], data[2*4096:3*4096])
			expect(fmt.Sprintf("page %d is page 2", page), data, false)
			for _, lost := range []uint16{1, 2, 1 << 15} {
				data := bytes.Clone(whole)
				count := data[page*4096+10:]
				binary.NativeEndian.PutUint16(count, binary.NativeEndian.Uint16(count)-lost)
				expect(fmt.Sprintf("page %d lists %d less", page, lost), data, false)
				clear(count[:2])
				expect(fmt.Sprintf("page %d lists none", page), data, false)
			}
		}
		for meta := range 2 {
			data := bytes.Clone(whole)
			data[meta*4096+30] ^= 1
			if _, err := storeDump(t, data); err != nil && !errors.Is(err, errStoreDamaged) {
				t.Errorf("meta %d: %v", meta, err)
			}
		}
		data := bytes.Clone(whole)
		data[30] ^= 1
		data[4096+30] ^= 1
		expect("both metas", data, true)
	}
}

// storeUsed returns how many bytes of a file its newest state may use.
func storeUsed(t testing.TB, data []byte) int {
	t.Helper()
	path := filepath.Join(t.TempDir(), "raft.db")
	storeMust(t, os.WriteFile(path, data, 0o600))
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	storeMust(t, err)
	defer db.Close()
	var size int64
	storeMust(t, db.View(func(tx *bbolt.Tx) error { size = tx.Size(); return nil }))
	return int(size)
}

// FuzzStoreBoltFile writes anything anywhere into a file.
func FuzzStoreBoltFile(f *testing.F) {
	whole := storeBoltSample(f, 200)
	f.Add(uint32(8192), []byte{1}, uint32(0))
	f.Add(uint32(8192+8), []byte{1, 0, 255, 255}, uint32(0))
	f.Add(uint32(8192+10), []byte{0}, uint32(0))
	f.Add(uint32(16384), []byte{}, uint32(3))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32) {
		data := bytes.Clone(whole)
		copy(data[int(at)%len(data):], patch)
		data = data[:len(data)-int(cut)%len(data)]
		if _, err := storeDump(t, data); err != nil && !errors.Is(err, errStoreDamaged) {
			t.Error(err)
		}
	})
}

func TestStoreBoltRefusesAnotherProgramsFile(t *testing.T) {
	dir := t.TempDir()
	db, err := bbolt.Open(filepath.Join(dir, "raft.db"), 0o600, nil)
	storeMust(t, err)
	storeMust(t, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("users"))
		return err
	}))
	storeMust(t, db.Close())
	if _, err := openBoltStore(dir); !errors.Is(err, errStoreDamaged) {
		t.Errorf("opened: %v", err)
	}
}

// A crash between the two transactions that make a file leaves an empty one.
func TestStoreBoltOpensAFileJustBegun(t *testing.T) {
	dir := t.TempDir()
	db, err := bbolt.Open(filepath.Join(dir, "raft.db"), 0o600, nil)
	storeMust(t, err)
	storeMust(t, db.Close())
	storeMust(t, storeOpenBolt(t, dir).StoreLogs(storeEntries(1, 3, 1)))
}

// storeFSM is a state machine that counts.
type storeFSM struct{ applied atomic.Uint64 }

func (f *storeFSM) Apply(*raft.Log) any { return f.applied.Add(1) }
func (f *storeFSM) Snapshot() (raft.FSMSnapshot, error) {
	return storeFSMSnapshot(f.applied.Load()), nil
}
func (f *storeFSM) Restore(r io.ReadCloser) error {
	var n uint64
	_, err := fmt.Fscan(r, &n)
	f.applied.Store(n)
	return err
}

type storeFSMSnapshot uint64

func (s storeFSMSnapshot) Release() {}
func (s storeFSMSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := fmt.Fprintln(sink, uint64(s)); err != nil {
		return err
	}
	return sink.Close()
}

func storeRaftConfig() *raft.Config {
	config := raft.DefaultConfig()
	config.LocalID = "n1#1"
	config.HeartbeatTimeout, config.ElectionTimeout, config.LeaderLeaseTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	config.CommitTimeout = 5 * time.Millisecond
	config.TrailingLogs = 10
	config.NoLegacyTelemetry = true
	config.LogOutput = io.Discard
	return config
}

// storeRunRaft starts a single voter, waits until it leads, and has it apply n
// commands.
func storeRunRaft(t *testing.T, s *store, snapshots raftSnapshotStore, bootstrap bool, n int) (*raft.Raft, *storeFSM) {
	t.Helper()
	address, transport := raft.NewInmemTransport("n1#1")
	t.Cleanup(func() { transport.Close() })
	config, fsm := storeRaftConfig(), &storeFSM{}
	if bootstrap {
		storeMust(t, raft.BootstrapCluster(config, s, s, snapshots, transport, raft.Configuration{
			Servers: []raft.Server{{ID: "n1#1", Address: address}},
		}))
	}
	r, err := raft.NewRaft(config, fsm, s, s, snapshots, transport)
	storeMust(t, err)
	t.Cleanup(func() { r.Shutdown().Error() })
	if !<-r.LeaderCh() {
		t.Fatal("not elected")
	}
	for range n {
		storeMust(t, r.Apply([]byte("one"), time.Minute).Error())
	}
	storeMust(t, r.Barrier(time.Minute).Error())
	return r, fsm
}

func TestStoreRunsRaft(t *testing.T) {
	run := func(t *testing.T, s *store, snapshots raftSnapshotStore, reopen func() (*store, raftSnapshotStore)) {
		r, fsm := storeRunRaft(t, s, snapshots, true, 60)
		if n := fsm.applied.Load(); n != 60 {
			t.Errorf("applied %d", n)
		}
		storeMust(t, r.Snapshot().Error())
		if first, err := s.FirstIndex(); first < 50 || err != nil {
			t.Errorf("not compacted: first index %d, %v", first, err)
		}
		storeMust(t, r.Apply([]byte("one"), time.Minute).Error())
		term := r.CurrentTerm()
		if vote := storeVoteOf(t, s); vote != fmt.Sprintf("%d n1#1", term) {
			t.Errorf("vote %q in term %d", vote, term)
		}
		storeMust(t, r.Shutdown().Error())
		storeMust(t, s.Failed())

		s, snapshots = reopen()
		r, fsm = storeRunRaft(t, s, snapshots, false, 5)
		if n := fsm.applied.Load(); n != 66 {
			t.Errorf("applied %d after a restart", n)
		}
		if r.CurrentTerm() <= term {
			t.Errorf("term %d, and %d after a restart", term, r.CurrentTerm())
		}
		storeMust(t, r.Shutdown().Error())
		storeMust(t, s.Close())
	}
	t.Run("memory", func(t *testing.T) {
		s, snapshots := newMemoryStore(), newMemorySnapshots()
		run(t, s, snapshots, func() (*store, raftSnapshotStore) { return s, snapshots })
	})
	t.Run("bolt", func(t *testing.T) {
		dir := t.TempDir()
		open := func() (*store, raftSnapshotStore) {
			s := storeOpenBolt(t, dir)
			snapshots, err := openFileSnapshots(dir, nil)
			storeMust(t, err)
			return s, snapshots
		}
		s, snapshots := open()
		run(t, s, snapshots, func() (*store, raftSnapshotStore) {
			storeMust(t, s.Close())
			return open()
		})
	})
}

// A disk that fails under a leader ends its leadership, and raft does not panic
// while it tries on: it does not lead again.
func TestStoreFailureDeposesTheLeaderWithoutPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &faultyEngine{storeEngine: &memoryEngine{}}
		s := storeOver(t, engine, 8, 1<<20)
		r, _ := storeRunRaft(t, s, newMemorySnapshots(), true, 3)
		engine.fail.Store(true)
		if err := r.Apply([]byte("one"), time.Minute).Error(); !errors.Is(err, errStoreDisk) {
			t.Errorf("applied: %v", err)
		}
		engine.fail.Store(false)
		time.Sleep(time.Minute)
		if r.State() == raft.Leader {
			t.Error("leads with a failed store")
		}
		if err := s.Failed(); !errors.Is(err, errStoreDisk) {
			t.Errorf("Failed says %v", err)
		}
		storeMust(t, r.Shutdown().Error())
		time.Sleep(time.Minute)
	})
}

// BenchmarkStoreLogs compares the store with what is under it.
func BenchmarkStoreLogs(b *testing.B) {
	classes := map[string]func(b *testing.B) raftLogStore{
		"bolt/bare": func(b *testing.B) raftLogStore {
			s, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(b.TempDir(), "raft.db"), BoltOptions: boltOptions()})
			storeMust(b, err)
			b.Cleanup(func() { s.Close() })
			return s
		},
		"bolt/store":   func(b *testing.B) raftLogStore { return storeOpenBolt(b, b.TempDir()) },
		"memory/bare":  func(b *testing.B) raftLogStore { return raft.NewInmemStore() },
		"memory/store": func(b *testing.B) raftLogStore { return newMemoryStore() },
	}
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		for _, n := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				s := classes[name](b)
				logs := make([]*raftLog, n)
				data := make([]byte, 256)
				next := uint64(1)
				b.ReportAllocs()
				for b.Loop() {
					for i := range logs {
						logs[i] = &raftLog{Index: next, Term: 1, Data: data}
						next++
					}
					storeMust(b, s.StoreLogs(logs))
					if next > 20_000 {
						b.StopTimer()
						first, err := s.FirstIndex()
						storeMust(b, err)
						if next-first > 20_000 {
							storeMust(b, s.DeleteRange(first, next-10_000))
						}
						b.StartTimer()
					}
				}
			})
		}
	}
}

// BenchmarkStoreGetLog reads the newest entries, as replication does.
func BenchmarkStoreGetLog(b *testing.B) {
	s := storeOpenBolt(b, b.TempDir())
	storeMust(b, s.StoreLogs(storeEntries(1, 1000, 1)))
	for name, logs := range map[string]interface{ GetLog(uint64, *raftLog) error }{"cache": s, "engine": s.engine} {
		b.Run(name, func(b *testing.B) {
			var log raftLog
			for i := uint64(0); b.Loop(); i++ {
				storeMust(b, logs.GetLog(1+i%1000, &log))
			}
		})
	}
}
