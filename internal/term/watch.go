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
	look func() (answer func() (bytes int))
	fail func(wire.Code)

	// Guarded by watches.mu.
	waits         bool
	ahead, behind *watch // in due
	due           *line  // of the backlog; nil: in none
	at            place  // in keys, prefixes or sessions
	atToo         place  // in groups
}

// subject says what a watch waits for.
type subject uint8

const (
	aKey subject = iota
	aPrefix
	aSession
)

// backlog has the watches to be looked at, those of each member in turn. An answer that tells of
// thousands of waiters takes milliseconds, and a member may have thousands of such reads: the
// next answers of another member come after one of them.
type backlog struct {
	of    map[string]*line // by member
	turns []*line          // the next one first
}

// line is a member's part of the backlog, a list of watches. A watch leaves it when its read
// is cancelled: nothing but waiting reads takes memory here.
type line struct {
	from        string
	first, last *watch
}

func (b *backlog) push(w *watch) {
	l := b.of[w.from]
	if l == nil {
		l = &line{from: w.from}
		b.of[w.from] = l
		b.turns = append(b.turns, l)
	}
	w.due, w.ahead = l, l.last
	if l.last == nil {
		l.first = w
	} else {
		l.last.behind = w
	}
	l.last = w
}

// unlink takes w out of its line.
func (b *backlog) unlink(w *watch) {
	l := w.due
	if l == nil {
		return
	}
	if w.ahead == nil {
		l.first = w.behind
	} else {
		w.ahead.behind = w.behind
	}
	if w.behind == nil {
		l.last = w.ahead
	} else {
		w.behind.ahead = w.ahead
	}
	w.due, w.ahead, w.behind = nil, nil, nil
}

// next returns the first watch of the member whose turn it is, nil if there is none.
func (b *backlog) next() *watch {
	for len(b.turns) > 0 {
		l := b.turns[0]
		if l.first != nil {
			return l.first
		}
		b.turns = b.turns[1:]
		delete(b.of, l.from)
	}
	return nil
}

// pass ends the turn of a member.
func (b *backlog) pass() {
	if len(b.turns) > 1 {
		b.turns = append(b.turns[1:], b.turns[0])
	}
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
		backlog:  backlog{of: make(map[string]*line)},
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
	ws.backlog.unlink(w)
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
// watches of everything that has changed. It returns how many there are, those that were in
// the backlog before included.
func (ws *watches) take() (seen int) {
	c := ws.changes.take()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	take := func(some iter.Seq[*watch]) {
		for w := range some {
			if seen++; w.due == nil {
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
		return seen
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
		return seen
	}
	prefixes := make(map[string]struct{})
	for key := range c.keys {
		for n := range ws.lengths {
			if n > len(key) {
				continue
			}
			if _, ok := prefixes[key[:n]]; !ok {
				prefixes[key[:n]] = struct{}{}
				take(ws.prefixes[key[:n]].all)
			}
		}
	}
	return seen
}

// sessionEnded notes the end of a session.
func (ws *watches) sessionEnded(id machine.SessionID) {
	if ws.changes.session(id) {
		ws.wake.Wake()
	}
}

// next takes the next watch out of the backlog; nil: there is none. A later change puts the
// watch there again. Done says that the turn of a member is over.
func (ws *watches) next(done bool) *watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if done {
		ws.backlog.pass()
	}
	w := ws.backlog.next()
	if w != nil {
		ws.backlog.unlink(w)
	}
	return w
}

// The work of the goroutine that answers, in looks: a look that tells nothing takes a
// microsecond mostly, and an answer takes as long for each answerPart bytes. A turn is one large
// answer, or some dozens of small ones. Between two looks at what has changed, which take time
// for each watch of a change, come some turns, and more if many watches were seen in the last.
const (
	answerPart  = 256
	workPerTurn = 64
	workPerTake = 4 * workPerTurn
	seenPerWork = 16
)

// run answers watches until ctx ends, and then fails all watches.
func (ws *watches) run(ctx context.Context) {
	defer ws.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ws.wake:
		}
		rest, turn := max(workPerTake, ws.take()/seenPerWork), workPerTurn
		for w := ws.next(false); w != nil && ctx.Err() == nil; w = ws.next(turn <= 0) {
			if turn <= 0 {
				turn = workPerTurn
			}
			work := 1
			if answer := w.look(); answer != nil && ws.remove(w) {
				work += answer() / answerPart
			}
			turn, rest = turn-work, rest-work
			if rest > 0 {
				continue
			}
			// What came meanwhile gets its turns, too.
			rest = workPerTake
			select {
			case <-ws.wake:
				rest = max(rest, ws.take()/seenPerWork)
			default:
			}
		}
	}
}

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
	ws.backlog = backlog{}
	ws.mu.Unlock()
	for _, w := range waiting {
		w.fail(wire.CodeNotLeader)
	}
}
