package raftstore

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

func TestAStoreAnswersAsRaftExpects(t *testing.T) {
	eachClass(t, func(t *testing.T, s *Store) {
		for name, index := range map[string]func() (uint64, error){"first": s.FirstIndex, "last": s.LastIndex} {
			if i, err := index(); i != 0 || err != nil {
				t.Errorf("%s index of an empty log: %d, %v", name, i, err)
			}
		}
		var log raft.Log
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

		full := &raft.Log{Index: 9, Term: 3, Type: raft.LogConfiguration, Data: []byte("d"), Extensions: []byte("e"), AppendedAt: time.Unix(5, 6)}
		must(t, s.StoreLog(full))
		s.cache.dropFrom(0)
		log = raft.Log{Extensions: []byte("left over"), Data: []byte("left over")}
		must(t, s.GetLog(9, &log))
		if !sameEntry(&log, full) {
			t.Errorf("stored %+v, got %+v", full, log)
		}
		must(t, s.DeleteRange(10, 9))
		must(t, s.DeleteRange(100, 200))
		must(t, s.StoreLogs(nil))
		if i, err := s.LastIndex(); i != 9 || err != nil {
			t.Errorf("last index %d, %v", i, err)
		}

		key, value := []byte("a key"), []byte("a value")
		must(t, s.Set(key, value))
		value[0] = 'X'
		got, err := s.Get(key)
		must(t, err)
		if string(got) != "a value" {
			t.Errorf("a value changed with its caller's bytes: %q", got)
		}
		if _, err := s.GetUint64(key); err == nil {
			t.Error("seven bytes are no number")
		}
		must(t, s.SetUint64(key, 1<<63))
		if n, err := s.GetUint64(key); n != 1<<63 || err != nil {
			t.Errorf("number %d, %v", n, err)
		}
		must(t, s.Close())
		must(t, s.Close())
		if err := s.StoreLogs(entries(10, 10, 3)); !errors.Is(err, errClosed) {
			t.Errorf("written after Close: %v", err)
		}
		if err := s.SetUint64([]byte("CurrentTerm"), 8); err != nil {
			t.Errorf("raft would panic: %v", err)
		}
	})
}

func TestStalledForShowsAHungWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, &faultyEngine{Engine: NewMemoryEngine(), slow: 12 * time.Second}, 8, 1<<20)
		time.Sleep(time.Hour)
		if d := s.StalledFor(); d != 0 {
			t.Errorf("idle, yet stalled for %v", d)
		}
		go s.StoreLogs(entries(1, 3, 1))
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
		must(t, <-waiter)
		if d := s.StalledFor(); d != 0 {
			t.Errorf("done, yet stalled for %v", d)
		}
	})
}

// unreadable is an engine on a disk that hangs also for readers.
type unreadable struct {
	Engine
	hang chan struct{} // nil: the disk answers
}

func (u *unreadable) Get(key []byte) ([]byte, error) {
	if u.hang != nil {
		<-u.hang
	}
	return u.Engine.Get(key)
}

func TestStalledForShowsAHungReadBeforeAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &unreadable{Engine: NewMemoryEngine()}
		s := newStore(t, disk, 8, 1<<20)
		disk.hang = make(chan struct{})
		done := make(chan error)
		go func() { done <- s.SetUint64(keyTerm, 5) }()
		time.Sleep(5 * time.Second)
		if d := s.StalledFor(); d != 5*time.Second {
			t.Errorf("stalled for %v, not 5s", d)
		}
		close(disk.hang)
		must(t, <-done)
	})
}

func TestAStoreRefusesAllWritesAfterAFailedWrite(t *testing.T) {
	writes := map[string]func(s *Store) error{
		"entry":     func(s *Store) error { return s.StoreLogs(entries(6, 6, 2)) },
		"overwrite": func(s *Store) error { return s.StoreLogs(entries(4, 4, 2)) },
		"truncate":  func(s *Store) error { return s.DeleteRange(4, 5) },
		"compact":   func(s *Store) error { return s.DeleteRange(1, 2) },
		"value":     func(s *Store) error { return s.Set([]byte("k"), []byte("v")) },
		"number":    func(s *Store) error { return s.SetUint64([]byte("k"), 3) },
		"vote": func(s *Store) error {
			term := s.SetUint64([]byte("LastVoteTerm"), 9)
			candidate := s.Set([]byte("LastVoteCand"), []byte("n9"))
			if candidate == nil {
				return term
			}
			return candidate
		},
	}
	first := maps.Clone(writes)
	first["term"] = func(s *Store) error { return s.SetUint64([]byte("CurrentTerm"), 9) }
	for name, write := range first {
		t.Run(name, func(t *testing.T) {
			engine := &faultyEngine{Engine: NewMemoryEngine()}
			s := newStore(t, engine, 8, 1<<20)
			must(t, s.StoreLogs(entries(1, 5, 1)))
			must(t, s.Failed())
			engine.took()

			engine.fail.Store(true)
			err := write(s)
			engine.fail.Store(false)
			if name == "term" {
				if err != nil {
					t.Errorf("raft would panic: %v", err)
				}
			} else if !errors.Is(err, errDisk) {
				t.Errorf("failed with %v", err)
			}
			if err := s.Failed(); !errors.Is(err, errDisk) {
				t.Errorf("Failed says %v", err)
			}
			if calls := engine.took(); len(calls) != 1 {
				t.Errorf("tried %q", calls)
			}

			for again, write := range writes {
				if err := write(s); !errors.Is(err, errDisk) {
					t.Errorf("%s after that: %v", again, err)
				}
			}
			must(t, s.SetUint64([]byte("CurrentTerm"), 10))
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
				var log raft.Log
				if err := s.GetLog(i, &log); err != nil || log.Term != 1 {
					t.Errorf("entry %d: %+v, %v", i, log, err)
				}
			}
			if vote := readVote(t, s); vote != "not found" {
				t.Errorf("vote %q", vote)
			}
			must(t, s.Close())
			if err := s.Failed(); !errors.Is(err, errDisk) {
				t.Errorf("after Close, Failed says %v", err)
			}
		})
	}
}

// A failed write may have reached the disk: the cache must not contradict the
// engine.
func TestAFailedWriteEmptiesTheCache(t *testing.T) {
	engine := &faultyEngine{Engine: NewMemoryEngine()}
	s := newStore(t, engine, 8, 1<<20)
	must(t, s.StoreLogs(entries(1, 5, 1)))
	must(t, engine.Engine.DeleteRange(3, 5)) // what the failing call below left
	engine.fail.Store(true)
	if err := s.StoreLogs(entries(6, 6, 1)); err == nil {
		t.Fatal("no failure")
	}
	var log raft.Log
	if err := s.GetLog(4, &log); err != raft.ErrLogNotFound {
		t.Errorf("entry 4: %+v, %v", log, err)
	}
}

func TestAStoreIsEmptyUntilItsFirstWrite(t *testing.T) {
	empty := func(s *Store) bool {
		t.Helper()
		empty, err := s.Empty()
		must(t, err)
		return empty
	}
	writes := map[string]func(s *Store) error{
		"an entry": func(s *Store) error { return s.StoreLogs(entries(1, 1, 1)) },
		"a term":   func(s *Store) error { return s.SetUint64([]byte("CurrentTerm"), 1) },
	}
	for name, write := range writes {
		s := NewInMemory()
		if !empty(s) {
			t.Error("a new store is not empty")
		}
		must(t, write(s))
		if empty(s) {
			t.Errorf("empty in spite of %s", name)
		}
	}
}

// A nil error of Close means that every write is on the disk: the store of a SyncBoot
// member counts after the host has gone down.
func TestCloseTellsOfAnEarlierFailedWrite(t *testing.T) {
	disk := &faultyEngine{Engine: NewMemoryEngine()}
	s, err := New(disk, 8, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	s.unflushed = true
	disk.fail.Store(true)
	if err := s.Set([]byte("key"), []byte("value")); err == nil {
		t.Fatal("a failed write returned nil")
	}
	if err := s.Close(); !errors.Is(err, errDisk) {
		t.Errorf("Close returned %v", err)
	}
}
