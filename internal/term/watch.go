package term

import (
	"context"
	"maps"
	"sync"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// watches holds the reads and scans waiting for a change.
type watches struct {
	wake wakeup.One

	mu       sync.Mutex
	keys     map[string]map[*watch]struct{} // by key
	prefixes map[string]map[*watch]struct{} // by prefix
	lengths  map[int]int                    // number of prefixes of each length
	dirty    map[*watch]struct{}
	changes  int // since every scan was last looked at
	ended    bool
}

// A watch is a read waiting for changes of keys, or a scan waiting for changes of
// the keys with a prefix.
type watch struct {
	keys   []string // nil: prefix is watched
	prefix string

	// look returns nil if there is nothing to tell yet, and otherwise the
	// answering function. Only the goroutine of run calls look.
	look func() (answer func())
	fail func(wire.Code)

	waits bool // guarded by watches.mu
}

func newWatches() *watches {
	return &watches{
		wake:     wakeup.NewOne(),
		keys:     make(map[string]map[*watch]struct{}),
		prefixes: make(map[string]map[*watch]struct{}),
		lengths:  make(map[int]int),
		dirty:    make(map[*watch]struct{}),
	}
}

// add registers w and has w looked at once, because the change may have come
// already. cancel removes w and calls fail, unless w was answered before.
func (ws *watches) add(w *watch) (cancel func()) {
	ws.mu.Lock()
	if ws.ended {
		ws.mu.Unlock()
		w.fail(wire.CodeNotLeader)
		return func() {}
	}
	w.waits = true
	for _, key := range w.keys {
		insert(ws.keys, key, w)
	}
	if w.keys == nil && insert(ws.prefixes, w.prefix, w) {
		ws.lengths[len(w.prefix)]++
	}
	ws.dirty[w] = struct{}{}
	ws.mu.Unlock()
	ws.wake.Wake()
	return func() {
		if ws.remove(w) {
			// Nobody reads the answer, but the stream counts the read until an
			// answer comes.
			w.fail(wire.CodeNotLeader)
		}
	}
}

// remove reports whether w still waited.
func (ws *watches) remove(w *watch) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if !w.waits {
		return false
	}
	w.waits = false
	delete(ws.dirty, w)
	for _, key := range w.keys {
		erase(ws.keys, key, w)
	}
	if n := len(w.prefix); w.keys == nil && erase(ws.prefixes, w.prefix, w) {
		if ws.lengths[n]--; ws.lengths[n] == 0 {
			delete(ws.lengths, n)
		}
	}
	return true
}

// insert reports whether w is the first watch of key.
func insert(m map[string]map[*watch]struct{}, key string, w *watch) bool {
	if m[key] == nil {
		m[key] = make(map[*watch]struct{})
	}
	m[key][w] = struct{}{}
	return len(m[key]) == 1
}

// erase reports whether w was the last watch of key.
func erase(m map[string]map[*watch]struct{}, key string, w *watch) bool {
	delete(m[key], w)
	if len(m[key]) > 0 {
		return false
	}
	delete(m, key)
	return true
}

// changed marks the watches of a key. Raft's goroutine does no more. Prefixes
// are looked up by the few lengths in use, so that a changed key costs the same
// for any number of watched prefixes.
func (ws *watches) changed(key string) {
	ws.mu.Lock()
	maps.Copy(ws.dirty, ws.keys[key])
	for n := range ws.lengths {
		if n <= len(key) {
			maps.Copy(ws.dirty, ws.prefixes[key[:n]])
		}
	}
	// The table remembers a number of changes of all keys together. A scan of a
	// quiet prefix would fall behind and have to list anew, so every scan
	// is moved on in time.
	if ws.changes++; ws.changes >= machine.MaxChanges/4 {
		ws.changes = 0
		for _, waiting := range ws.prefixes {
			maps.Copy(ws.dirty, waiting)
		}
	}
	news := len(ws.dirty) > 0
	ws.mu.Unlock()
	if news {
		ws.wake.Wake()
	}
}

// run answers watches until ctx ends, and then fails all watches.
func (ws *watches) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			ws.close()
			return
		case <-ws.wake:
		}
		ws.mu.Lock()
		dirty := ws.dirty
		ws.dirty = make(map[*watch]struct{})
		ws.mu.Unlock()
		for w := range dirty {
			if answer := w.look(); answer != nil && ws.remove(w) {
				answer()
			}
		}
	}
}

// close fails every waiting and every later watch with CodeNotLeader.
func (ws *watches) close() {
	ws.mu.Lock()
	ws.ended = true
	waiting := make(map[*watch]struct{})
	for _, by := range []map[string]map[*watch]struct{}{ws.keys, ws.prefixes} {
		for _, some := range by {
			maps.Copy(waiting, some)
		}
	}
	for w := range waiting {
		w.waits = false
	}
	ws.keys, ws.prefixes, ws.lengths, ws.dirty = nil, nil, nil, nil
	ws.mu.Unlock()
	for w := range waiting {
		w.fail(wire.CodeNotLeader)
	}
}
