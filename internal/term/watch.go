package term

import (
	"context"
	"iter"
	"maps"
	"slices"
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
	keys     map[string]*place             // by key
	groups   map[string]*place             // by group
	prefixes map[string]*place             // by prefix
	sessions map[machine.SessionRef]*place // by the session whose end is awaited
	lengths  map[int]int                   // number of prefixes of each length
	dirty    map[*watch]struct{}           // registered since run took the changes last
	backlog  backlog                       // to be looked at
	ended    bool
}

// A watch is a read waiting for changes of a key and of a group, a scan waiting for changes of
// the keys with a prefix, or a read waiting for the end of a session.
type watch struct {
	from    string // the member that asks; "": this node
	subject subject
	name    string             // the key or the prefix
	group   string             // beside a key; empty: none
	session machine.SessionRef // whose end is awaited

	// look returns nil if there is nothing to tell yet, and otherwise the
	// answering function. Only the goroutine of run calls look.
	look func() (answer func())
	fail func(wire.Code)

	// Guarded by watches.mu.
	waits bool
	due   bool  // in the backlog
	at    place // in keys, prefixes or sessions
	atToo place // in groups
}

// subject says what a watch waits for.
type subject uint8

const (
	aKey subject = iota
	aPrefix
	aSession
)

// backlog has the watches to be looked at, one of each member in turn. An answer that tells of
// thousands of waiters takes milliseconds, and a member may have thousands of such reads: the
// next answer of another member comes after one of them.
type backlog struct {
	of    map[string][]*watch // by member
	turns []string            // the members with watches, the next one first
}

func (b *backlog) push(w *watch) {
	if len(b.of[w.from]) == 0 {
		b.turns = append(b.turns, w.from)
	}
	b.of[w.from] = append(b.of[w.from], w)
}

// pop returns nil if there is none.
func (b *backlog) pop() *watch {
	if len(b.turns) == 0 {
		return nil
	}
	from := b.turns[0]
	b.turns = b.turns[1:]
	list := b.of[from]
	w := list[0]
	list[0] = nil
	if b.of[from] = list[1:]; len(list) > 1 {
		b.turns = append(b.turns, from)
	} else {
		delete(b.of, from)
	}
	return w
}

// A place is a watch's place in the list of the watches with the same key, group, prefix or
// session: an index has the first place of each list. A map for each list would cost the
// leader three times as much for a read that waits.
type place struct {
	of            *watch
	before, after *place
}

func newWatches() *watches {
	return &watches{
		wake:     wakeup.NewOne(),
		keys:     make(map[string]*place),
		groups:   make(map[string]*place),
		prefixes: make(map[string]*place),
		sessions: make(map[machine.SessionRef]*place),
		lengths:  make(map[int]int),
		dirty:    make(map[*watch]struct{}),
		backlog:  backlog{of: make(map[string][]*watch)},
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
	w.at.of, w.atToo.of = w, w
	switch w.subject {
	case aKey:
		insert(ws.keys, w.name, &w.at)
	case aPrefix:
		if insert(ws.prefixes, w.name, &w.at) {
			ws.lengths[len(w.name)]++
		}
	case aSession:
		insert(ws.sessions, w.session, &w.at)
	}
	if w.group != "" {
		insert(ws.groups, w.group, &w.atToo)
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
	switch w.subject {
	case aKey:
		erase(ws.keys, w.name, &w.at)
	case aPrefix:
		if n := len(w.name); erase(ws.prefixes, w.name, &w.at) {
			if ws.lengths[n]--; ws.lengths[n] == 0 {
				delete(ws.lengths, n)
			}
		}
	case aSession:
		erase(ws.sessions, w.session, &w.at)
	}
	if w.group != "" {
		erase(ws.groups, w.group, &w.atToo)
	}
	return true
}

// insert puts p first in the list of key, and reports whether the list was empty.
func insert[K comparable](lists map[K]*place, key K, p *place) (first bool) {
	p.after = lists[key]
	lists[key] = p
	if p.after == nil {
		return true
	}
	p.after.before = p
	return false
}

// erase takes p off the list of key, and reports whether the list is empty now.
func erase[K comparable](lists map[K]*place, key K, p *place) (last bool) {
	switch {
	case p.before != nil:
		p.before.after = p.after
	case p.after != nil:
		lists[key] = p.after
	default:
		delete(lists, key)
		return true
	}
	if p.after != nil {
		p.after.before = p.before
	}
	p.before, p.after = nil, nil
	return false
}

// all yields the watches of the list that begins with p. The yielded watch may be removed.
func (p *place) all(yield func(*watch) bool) {
	for p != nil {
		next := p.after
		if !yield(p.of) {
			return
		}
		p = next
	}
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

// take moves the watches to be looked at to the backlog, each once: the new ones, and the
// watches of everything that has changed.
func (ws *watches) take() {
	c := ws.changes.take()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	take := func(some iter.Seq[*watch]) {
		for w := range some {
			if !w.due {
				w.due = true
				ws.backlog.push(w)
			}
		}
	}
	takeAll := func(lists map[string]*place) {
		for _, list := range lists {
			take(list.all)
		}
	}
	take(maps.Keys(ws.dirty))
	ws.dirty = make(map[*watch]struct{})
	if c.all {
		takeAll(ws.keys)
		takeAll(ws.groups)
		takeAll(ws.prefixes)
		for _, list := range ws.sessions {
			take(list.all)
		}
		return
	}
	for key := range c.keys {
		take(ws.keys[key].all)
	}
	for name := range c.groups {
		take(ws.groups[name].all)
	}
	for ref := range c.sessions {
		take(ws.sessions[ref].all)
	}
	// Prefixes are looked up by the few lengths in use. Of many lengths and keys, a look at
	// each scan is less work.
	if c.scans || len(c.keys)*len(ws.lengths) > maxChanged {
		takeAll(ws.prefixes)
		return
	}
	seen := make(map[string]struct{})
	for key := range c.keys {
		for n := range ws.lengths {
			if n > len(key) {
				continue
			}
			if _, ok := seen[key[:n]]; !ok {
				seen[key[:n]] = struct{}{}
				take(ws.prefixes[key[:n]].all)
			}
		}
	}
}

// next takes the next watch out of the backlog; nil: there is none. A later change puts the
// watch there again.
func (ws *watches) next() *watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := ws.backlog.pop(); w != nil; w = ws.backlog.pop() {
		if w.due = false; w.waits {
			return w
		}
	}
	return nil
}

// sessionEnded notes the end of a session.
func (ws *watches) sessionEnded(id machine.SessionID) {
	if ws.changes.session(id) {
		ws.wake.Wake()
	}
}

// run answers watches until ctx ends, and then fails all watches.
func (ws *watches) run(ctx context.Context) {
	defer ws.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ws.wake:
		}
		ws.take()
		work := 0
		for w := ws.next(); w != nil && ctx.Err() == nil; w = ws.next() {
			work++
			if answer := w.look(); answer != nil && ws.remove(w) {
				answer()
				work += workPerAnswer
			}
			if work < workPerTake {
				continue
			}
			// What came meanwhile gets its turns, too.
			work = 0
			select {
			case <-ws.wake:
				ws.take()
			default:
			}
		}
	}
}

// A look is little work, and an answer may be much. Between two looks at what has changed, which
// take time for each watch of a change, come a few answers, or some hundred looks.
const (
	workPerAnswer = 64
	workPerTake   = 256
)

// close fails every waiting and every later watch with CodeNotLeader.
func (ws *watches) close() {
	ws.mu.Lock()
	ws.ended = true
	var waiting []*watch
	for _, lists := range []iter.Seq[*place]{maps.Values(ws.keys), maps.Values(ws.prefixes), maps.Values(ws.sessions)} {
		for list := range lists {
			waiting = slices.AppendSeq(waiting, list.all)
		}
	}
	for _, w := range waiting {
		w.waits = false
	}
	ws.keys, ws.groups, ws.prefixes, ws.sessions, ws.lengths, ws.dirty = nil, nil, nil, nil, nil, nil
	ws.mu.Unlock()
	for _, w := range waiting {
		w.fail(wire.CodeNotLeader)
	}
}
