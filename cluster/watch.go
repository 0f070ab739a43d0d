package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// watches holds the reads and scans that wait for a change.
type watches struct {
	l    *leader
	wake chan struct{} // size 1

	mu       sync.Mutex
	keys     map[string]map[*watch]struct{} // by key
	prefixes map[string]map[*watch]struct{} // by prefix, and
	lengths  map[int]int                    // how many prefixes there are of each length
	dirty    map[*watch]struct{}
	changes  int // since every scan was last looked at
	ended    bool
}

// A watch is one read or scan that waits.
type watch struct {
	keys   []string // or
	prefix string

	// look returns what answers it if there is something to tell now. It is
	// called by one goroutine.
	look func() (answer func())
	fail func(wire.Code)

	waits bool // guarded by watches.mu
}

func newWatches(l *leader) *watches {
	return &watches{
		l:        l,
		wake:     make(chan struct{}, 1),
		keys:     make(map[string]map[*watch]struct{}),
		prefixes: make(map[string]map[*watch]struct{}),
		lengths:  make(map[int]int),
		dirty:    make(map[*watch]struct{}),
	}
}

// read waits until the version of q is another.
func (ws *watches) read(q replica.Query, done func(replica.Answer, wire.Code)) (cancel func()) {
	return ws.add(&watch{
		keys: append(slices.Clone(q.Also), q.Key),
		look: func() func() {
			if ws.l.table.version(q) == q.Version {
				return nil
			}
			return func() { ws.l.readNow(q, done) }
		},
		fail: func(c wire.Code) { done(replica.Answer{}, c) },
	})
}

// scan waits until there is something to tell.
func (ws *watches) scan(q replica.Scan, done func(replica.Scanned, wire.Code)) (cancel func()) {
	return ws.add(&watch{
		prefix: q.Prefix,
		look: func() func() {
			a := ws.l.table.scan(q)
			if !tells(a) {
				q.Since = a.Version
				return nil
			}
			return func() { ws.l.scanned(a, done) }
		},
		fail: func(c wire.Code) { done(replica.Scanned{}, c) },
	})
}

// tells reports whether a says more than that nothing has happened.
func tells(a replica.Scanned) bool { return len(a.Keys) > 0 || a.Lost || a.More }

// add registers w and has it looked at once, in case the change came before.
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
	ws.signal()
	return func() {
		if ws.remove(w) {
			// Nobody waits for it, but its place on the stream must be freed.
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

// insert reports whether w is the first of key.
func insert(m map[string]map[*watch]struct{}, key string, w *watch) bool {
	if m[key] == nil {
		m[key] = make(map[*watch]struct{})
	}
	m[key][w] = struct{}{}
	return len(m[key]) == 1
}

// erase reports whether w was the last of key.
func erase(m map[string]map[*watch]struct{}, key string, w *watch) bool {
	delete(m[key], w)
	if len(m[key]) > 0 {
		return false
	}
	delete(m, key)
	return true
}

// changed marks the key's watches; raft's goroutine does no more than that. The
// prefixes in use are looked up by their lengths, of which there are few, so
// that a key costs the same however many prefixes are watched.
func (ws *watches) changed(key string) {
	ws.mu.Lock()
	for w := range ws.keys[key] {
		ws.dirty[w] = struct{}{}
	}
	for n := range ws.lengths {
		if n <= len(key) {
			for w := range ws.prefixes[key[:n]] {
				ws.dirty[w] = struct{}{}
			}
		}
	}
	// What is remembered of changes is of all keys. A scan of a quiet prefix
	// would fall behind it, and have to begin anew, if it were not moved on.
	if ws.changes++; ws.changes >= machine.MaxChanges/4 {
		ws.changes = 0
		for _, waiting := range ws.prefixes {
			maps.Copy(ws.dirty, waiting)
		}
	}
	news := len(ws.dirty) > 0
	ws.mu.Unlock()
	if news {
		ws.signal()
	}
}

func (ws *watches) signal() {
	select {
	case ws.wake <- struct{}{}:
	default:
	}
}

func (ws *watches) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			ws.end()
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

// end fails those that wait, and those that come.
func (ws *watches) end() {
	ws.mu.Lock()
	ws.ended = true
	left := make(map[*watch]struct{})
	for _, by := range []map[string]map[*watch]struct{}{ws.keys, ws.prefixes} {
		for _, waiting := range by {
			maps.Copy(left, waiting)
		}
	}
	for w := range left {
		w.waits = false
	}
	ws.keys, ws.prefixes, ws.lengths, ws.dirty = nil, nil, nil, nil
	ws.mu.Unlock()
	for w := range left {
		w.fail(wire.CodeNotLeader)
	}
}
