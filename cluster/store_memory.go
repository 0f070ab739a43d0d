package cluster

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
)

// newMemoryStore returns an empty store that forgets everything with the
// process: terms and votes too, so its raft ID must never be used again.
func newMemoryStore() *store {
	// The engine answers from memory already: a cache would only keep a copy.
	s, err := newStore(&memoryEngine{}, newStoreCache(0, 0))
	if err != nil {
		panic(err) // an empty engine has nothing that could fail to be read
	}
	return s
}

// memoryEngine keeps log and values in memory. Close keeps them, too.
type memoryEngine struct {
	mu     sync.RWMutex
	logs   []raftLog // by rising index, gaps allowed
	values map[string][]byte
}

// find returns where the entry at index is or would be.
func (e *memoryEngine) find(index uint64) (int, bool) {
	return slices.BinarySearchFunc(e.logs, index, func(log raftLog, index uint64) int {
		return cmp.Compare(log.Index, index)
	})
}

func (e *memoryEngine) FirstIndex() (uint64, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if len(e.logs) == 0 {
		return 0, nil
	}
	return e.logs[0].Index, nil
}

func (e *memoryEngine) LastIndex() (uint64, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if len(e.logs) == 0 {
		return 0, nil
	}
	return e.logs[len(e.logs)-1].Index, nil
}

func (e *memoryEngine) GetLog(index uint64, log *raftLog) error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	at, ok := e.find(index)
	if !ok {
		return errRaftLogNotFound
	}
	*log = e.logs[at]
	return nil
}

func (e *memoryEngine) StoreLogs(logs []*raftLog) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, log := range logs {
		if at, ok := e.find(log.Index); ok {
			e.logs[at] = *log
		} else {
			e.logs = slices.Insert(e.logs, at, *log)
		}
	}
	return nil
}

func (e *memoryEngine) DeleteRange(min, max uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	from, _ := e.find(min)
	to, ok := e.find(max)
	if ok {
		to++
	}
	if from >= to {
		return nil
	}
	if from > 0 {
		e.logs = slices.Delete(e.logs, from, to)
		return nil
	}
	// A compaction moves nothing: the space in front goes when append next
	// needs a larger array.
	clear(e.logs[:to])
	e.logs = e.logs[to:]
	return nil
}

func (e *memoryEngine) Get(key []byte) ([]byte, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	value, ok := e.values[string(key)]
	if !ok {
		return nil, errStoreNotFound
	}
	return bytes.Clone(value), nil
}

func (e *memoryEngine) Set(key, value []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.values == nil {
		e.values = make(map[string][]byte)
	}
	e.values[string(key)] = append([]byte{}, value...)
	return nil
}

func (e *memoryEngine) Close() error { return nil }
