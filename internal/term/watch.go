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
	wake    wakeup.One
	changes changes

	mu       sync.Mutex
	keys     map[string]map[*watch]struct{}             // by key
	groups   map[string]map[*watch]struct{}             // by group
	prefixes map[string]map[*watch]struct{}             // by prefix
	sessions map[machine.SessionRef]map[*watch]struct{} // by the session whose end is awaited
	lengths  map[int]int                                // number of prefixes of each length
	dirty    map[*watch]struct{}                        // registered since run looked last
	looks    uint64                                     // of run, so far
	ended    bool
}

// A watch is a read waiting for changes of keys and of a group, a scan waiting for changes of
// the keys with a prefix, or a read waiting for the end of a session.
type watch struct {
	session machine.SessionRef // zero: keys or prefix are watched
	keys    []string           // nil: prefix is watched
	group   string             // beside keys; empty: none
	prefix  string

	// look returns nil if there is nothing to tell yet, and otherwise the
	// answering function. Only the goroutine of run calls look.
	look func() (answer func())
	fail func(wire.Code)

	// Guarded by watches.mu.
	waits bool
	due   uint64 // the look of run for which the watch was taken last
}

func newWatches() *watches {
	return &watches{
		wake:     wakeup.NewOne(),
		keys:     make(map[string]map[*watch]struct{}),
		groups:   make(map[string]map[*watch]struct{}),
		prefixes: make(map[string]map[*watch]struct{}),
		sessions: make(map[machine.SessionRef]map[*watch]struct{}),
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
	ws.changes.watched.Add(1) // before the look
	for _, key := range w.keys {
		insert(ws.keys, key, w)
	}
	if w.group != "" {
		insert(ws.groups, w.group, w)
	}
	if w.awaitsEnd() {
		insert(ws.sessions, w.session, w)
	} else if w.keys == nil && insert(ws.prefixes, w.prefix, w) {
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
	ws.changes.watched.Add(-1)
	delete(ws.dirty, w)
	for _, key := range w.keys {
		erase(ws.keys, key, w)
	}
	if w.group != "" {
		erase(ws.groups, w.group, w)
	}
	if w.awaitsEnd() {
		erase(ws.sessions, w.session, w)
	} else if n := len(w.prefix); w.keys == nil && erase(ws.prefixes, w.prefix, w) {
		if ws.lengths[n]--; ws.lengths[n] == 0 {
			delete(ws.lengths, n)
		}
	}
	return true
}

// insert reports whether w is the first watch of key.
func insert[K comparable](m map[K]map[*watch]struct{}, key K, w *watch) bool {
	if m[key] == nil {
		m[key] = make(map[*watch]struct{})
	}
	m[key][w] = struct{}{}
	return len(m[key]) == 1
}

// erase reports whether w was the last watch of key.
func erase[K comparable](m map[K]map[*watch]struct{}, key K, w *watch) bool {
	delete(m[key], w)
	if len(m[key]) > 0 {
		return false
	}
	delete(m, key)
	return true
}

// changed notes the change of a key.
func (ws *watches) changed(key string) {
	if ws.changes.key(key) {
		ws.wake.Wake()
	}
}

// groupChanged notes the change of a group.
func (ws *watches) groupChanged(name string) {
	if ws.changes.group(name) {
		ws.wake.Wake()
	}
}

// taken returns the watches to be looked at, each once: the new ones, and the watches of
// everything that has changed.
func (ws *watches) taken() (due []*watch) {
	c := ws.changes.take()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.looks++
	take := func(some map[*watch]struct{}) {
		for w := range some {
			if w.due != ws.looks {
				w.due = ws.looks
				due = append(due, w)
			}
		}
	}
	takeAll := func(by map[string]map[*watch]struct{}) {
		for _, some := range by {
			take(some)
		}
	}
	take(ws.dirty)
	ws.dirty = make(map[*watch]struct{})
	if c.all {
		takeAll(ws.keys)
		takeAll(ws.groups)
		takeAll(ws.prefixes)
		for _, some := range ws.sessions {
			take(some)
		}
		return due
	}
	for key := range c.keys {
		take(ws.keys[key])
	}
	for name := range c.groups {
		take(ws.groups[name])
	}
	for ref := range c.sessions {
		take(ws.sessions[ref])
	}
	// Prefixes are looked up by the few lengths in use. Of many lengths and keys, a look at
	// each scan is less work.
	if c.scans || len(c.keys)*len(ws.lengths) > maxChanged {
		takeAll(ws.prefixes)
		return due
	}
	seen := make(map[string]struct{})
	for key := range c.keys {
		for n := range ws.lengths {
			if n > len(key) {
				continue
			}
			if _, ok := seen[key[:n]]; !ok {
				seen[key[:n]] = struct{}{}
				take(ws.prefixes[key[:n]])
			}
		}
	}
	return due
}

// awaitsEnd reports whether w waits for the end of a session.
func (w *watch) awaitsEnd() bool { return w.session != machine.SessionRef{} }

// sessionEnded notes the end of a session.
func (ws *watches) sessionEnded(id machine.SessionID) {
	if ws.changes.session(id) {
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
		for _, w := range ws.taken() {
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
	for _, some := range ws.sessions {
		maps.Copy(waiting, some)
	}
	for w := range waiting {
		w.waits = false
	}
	ws.keys, ws.groups, ws.prefixes, ws.sessions, ws.lengths, ws.dirty = nil, nil, nil, nil, nil, nil
	ws.mu.Unlock()
	for w := range waiting {
		w.fail(wire.CodeNotLeader)
	}
}
