package raftstore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// faultyEngine lists the transactions of an engine, and plays a bad disk.
type faultyEngine struct {
	Engine
	slow  time.Duration // each transaction takes it
	fail  atomic.Bool   // transactions fail, nothing is written
	done  func()        // runs when one is done, before it returns
	calls []string      // the transactions
	mu    sync.Mutex
}

var errDisk = errors.New("input/output error")

func (e *faultyEngine) transact(name string, run func() error) error {
	e.mu.Lock()
	e.calls = append(e.calls, name)
	e.mu.Unlock()
	if e.slow > 0 {
		time.Sleep(e.slow)
	}
	if e.fail.Load() {
		return errDisk
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

func (e *faultyEngine) StoreLogs(logs []*raft.Log) error {
	return e.transact(fmt.Sprintf("store %d", len(logs)), func() error { return e.Engine.StoreLogs(logs) })
}

func (e *faultyEngine) DeleteRange(from, to uint64) error {
	return e.transact(fmt.Sprintf("delete %d-%d", from, to), func() error { return e.Engine.DeleteRange(from, to) })
}

func (e *faultyEngine) Set(key, value []byte) error {
	return e.transact("set "+string(key), func() error { return e.Engine.Set(key, value) })
}
