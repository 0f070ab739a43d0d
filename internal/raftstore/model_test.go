package raftstore

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// model is a Store as two maps.
type model struct {
	logs   map[uint64]raft.Log
	values map[string][]byte
	vote   string
	ballot uint64 // the term of a vote without a candidate; 0: no such vote
}

func (m *model) bounds() (first, last uint64) {
	if len(m.logs) == 0 {
		return 0, 0
	}
	indexes := slices.Sorted(maps.Keys(m.logs))
	return indexes[0], indexes[len(indexes)-1]
}

// A Store and two maps answer the same random calls alike. The caches are so
// small that the calls reach every edge of a cache.
func TestAStoreAnswersAsTwoMaps(t *testing.T) {
	t.Parallel() // waits for the disk
	engines := map[string]func(dir string) func() (Engine, error){
		"bolt": func(dir string) func() (Engine, error) {
			return func() (Engine, error) { return openBolt(filepath.Join(dir, "raft.db"), Options{}) }
		},
		"segments": func(dir string) func() (Engine, error) {
			return func() (Engine, error) {
				bolt, err := openBolt(filepath.Join(dir, "raft.db"), Options{})
				if err != nil {
					return nil, err
				}
				return openSegments(bolt, dirDisk(filepath.Join(dir, logDir)), Options{}, 700, 700)
			}
		},
		"memory": func(string) func() (Engine, error) {
			engine := NewMemoryEngine()
			return func() (Engine, error) { return engine, nil }
		},
	}
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				dir, err := os.MkdirTemp(t.TempDir(), "")
				if err != nil {
					rt.Fatal(err)
				}
				runModel(rt, t, engine(dir))
			})
		})
	}
}

func runModel(rt *rapid.T, t *testing.T, open func() (Engine, error)) {
	must := func(err error) {
		if err != nil {
			rt.Fatal(err)
		}
	}
	reopen := func() *Store {
		engine, err := open()
		must(err)
		s, err := New(engine, rapid.IntRange(0, 6).Draw(rt, "cached"), rapid.SampledFrom([]int{100, 400, 1 << 20}).Draw(rt, "bytes"))
		must(err)
		return s
	}
	s := reopen()
	defer func() { s.Close() }()
	m := model{logs: map[uint64]raft.Log{}, values: map[string][]byte{}, vote: "not found"}
	store := func(from uint64, n int) {
		term := rapid.Uint64Range(1, 99).Draw(rt, "term")
		var logs []*raft.Log
		for i := range uint64(n) {
			data := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(rt, "data")
			log := &raft.Log{Index: from + i, Term: term, Data: data, Extensions: data[:len(data)/3], AppendedAt: time.Unix(int64(term), 0)}
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
			must(s.Close())
			s = reopen()
		},
		"": func(rt *rapid.T) {
			wantFirst, wantLast := m.bounds()
			first, err1 := s.FirstIndex()
			last, err2 := s.LastIndex()
			if err := errors.Join(err1, err2); err != nil || first != wantFirst || last != wantLast {
				rt.Fatalf("log from %d to %d, want %d to %d, %v", first, last, wantFirst, wantLast, err)
			}
			for i := range max(wantLast, 60) + 3 {
				var log raft.Log
				err := s.GetLog(i, &log)
				want, ok := m.logs[i]
				switch {
				case !ok && err != raft.ErrLogNotFound:
					rt.Fatalf("entry %d should not be there: %+v, %v", i, log, err)
				case ok && (err != nil || !sameEntry(&log, &want)):
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
			if vote := readVote(t, s); vote != m.vote {
				rt.Fatalf("vote %q, want %q", vote, m.vote)
			}
			size := 0
			for i := s.cache.first; i < s.cache.next; i++ {
				size += cost(s.cache.slot(i))
			}
			if size != s.cache.bytes || size > s.cache.limit || s.cache.next-s.cache.first > uint64(len(s.cache.ring)) {
				rt.Fatalf("the cache holds %d bytes in %d entries, counts %d", size, s.cache.next-s.cache.first, s.cache.bytes)
			}
		},
	}
	rt.Repeat(actions)
}
