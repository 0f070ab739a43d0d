package raftstore

import (
	"bytes"
	"cmp"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// NewInMemory returns an empty Store that is forgotten with the process, terms
// and votes included: its raft ID must never be used again.
func NewInMemory() *Store {
	// The engine answers from memory already: a cache would only be a copy.
	s, err := New(NewMemoryEngine(), 0, 0)
	if err != nil {
		panic(err) // an empty engine has nothing that New could fail to read
	}
	return s
}

// NewMemoryEngine returns an empty engine in memory. Its Close keeps the
// contents, so that a test can open a second Store on the same engine.
func NewMemoryEngine() Engine { return &memoryEngine{values: make(map[string][]byte)} }

type memoryEngine struct {
	mu     sync.RWMutex
	logs   []raft.Log // by rising index, gaps allowed
	values map[string][]byte
}

// find returns the position of the entry at index, or the position at which the
// entry would be inserted.
func (e *memoryEngine) find(index uint64) (int, bool) {
	return slices.BinarySearchFunc(e.logs, index, func(log raft.Log, index uint64) int {
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

func (e *memoryEngine) GetLog(index uint64, log *raft.Log) error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	at, ok := e.find(index)
	if !ok {
		return raft.ErrLogNotFound
	}
	*log = e.logs[at]
	return nil
}

func (e *memoryEngine) StoreLogs(logs []*raft.Log) error {
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
	// A compaction moves no entry: the space in front is freed when append next
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
		return nil, ErrNotFound
	}
	return bytes.Clone(value), nil
}

func (e *memoryEngine) Set(key, value []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.values[string(key)] = append([]byte{}, value...)
	return nil
}

func (e *memoryEngine) Close() error { return nil }
