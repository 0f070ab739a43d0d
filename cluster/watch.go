package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// watches holds the reads that wait for a change.
type watches struct {
	l    *leader
	wake chan struct{} // size 1

	mu    sync.Mutex
	keys  map[string]map[*watch]struct{}
	dirty map[*watch]struct{}
	ended bool
}

type watch struct {
	q    replica.Query
	done func(replica.Answer, wire.Code)
}

func (w *watch) all() []string { return append(slices.Clone(w.q.Also), w.q.Key) }

func newWatches(l *leader) *watches {
	return &watches{l: l, wake: make(chan struct{}, 1), keys: make(map[string]map[*watch]struct{}), dirty: make(map[*watch]struct{})}
}

// add registers q and looks at once, in case the change came before.
func (ws *watches) add(q replica.Query, done func(replica.Answer, wire.Code)) (cancel func()) {
	w := &watch{q, done}
	ws.mu.Lock()
	if ws.ended {
		ws.mu.Unlock()
		done(replica.Answer{}, wire.CodeNotLeader)
		return func() {}
	}
	for _, key := range w.all() {
		if ws.keys[key] == nil {
			ws.keys[key] = make(map[*watch]struct{})
		}
		ws.keys[key][w] = struct{}{}
	}
	ws.dirty[w] = struct{}{}
	ws.mu.Unlock()
	ws.signal()
	return func() {
		ws.mu.Lock()
		waits := ws.removeLocked(w)
		ws.mu.Unlock()
		if waits {
			// Nobody waits for it, but its place on the stream must be freed.
			done(replica.Answer{}, wire.CodeNotLeader)
		}
	}
}

func (ws *watches) removeLocked(w *watch) bool {
	if _, ok := ws.keys[w.q.Key][w]; !ok {
		return false
	}
	delete(ws.dirty, w)
	for _, key := range w.all() {
		delete(ws.keys[key], w)
		if len(ws.keys[key]) == 0 {
			delete(ws.keys, key)
		}
	}
	return true
}

// changed marks the key's watches; raft's goroutine does no more than that.
func (ws *watches) changed(key string) {
	ws.mu.Lock()
	for w := range ws.keys[key] {
		ws.dirty[w] = struct{}{}
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
			ws.mu.Lock()
			ws.ended = true
			left := make(map[*watch]struct{})
			for _, waiting := range ws.keys {
				maps.Copy(left, waiting)
			}
			ws.keys, ws.dirty = nil, nil
			ws.mu.Unlock()
			for w := range left {
				w.done(replica.Answer{}, wire.CodeNotLeader)
			}
			return
		case <-ws.wake:
		}
		ws.mu.Lock()
		dirty := ws.dirty
		ws.dirty = make(map[*watch]struct{})
		ws.mu.Unlock()
		for w := range dirty {
			if ws.l.table.version(w.q) == w.q.Version {
				continue
			}
			ws.mu.Lock()
			waits := ws.removeLocked(w)
			ws.mu.Unlock()
			if waits {
				ws.l.readNow(w.q, w.done)
			}
		}
	}
}
