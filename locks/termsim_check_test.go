package locks

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
)

// A book judges a term simulation by what the holders see, and by the committed log. A
// book collects what it finds, so that a test can demand to find something.
type book struct {
	ttl time.Duration

	mu         sync.Mutex
	violations []string
	grants     int
	held       map[string][]*holding
	last       map[string]*highest // by key
	sessions   map[machine.SessionID]*watched
	requests   map[request]machine.Token  // the token of each granted request
	over       map[machine.SessionID]bool // sessions that were closed, or have expired
	seen       map[string]int             // situations
	frozen     map[*simMember]bool
}

// A holding is a lock as its holder knows it.
type holding struct {
	l         *Lock
	by        *simMember
	shared    bool
	frozen    bool // the holder's process stands still
	overtaken bool // the key was granted meanwhile
}

// highest is the highest token that a call has returned.
type highest struct {
	token  fence.Token
	shared bool
}

// watched is a session whose beats are acknowledged.
type watched struct {
	by      *simMember
	trusted time.Time // the end of the trust that an acknowledged beat gives
	ended   time.Time // when the session expired; zero: not yet
}

type request struct {
	session machine.SessionID
	seq     uint64
}

func newBook(ttl time.Duration) *book {
	return &book{
		ttl:      ttl,
		held:     make(map[string][]*holding),
		last:     make(map[string]*highest),
		sessions: make(map[machine.SessionID]*watched),
		requests: make(map[request]machine.Token),
		over:     make(map[machine.SessionID]bool),
		seen:     make(map[string]int),
		frozen:   make(map[*simMember]bool),
	}
}

// violated notes a broken promise. The caller holds mu.
func (b *book) violated(format string, args ...any) {
	b.violations = append(b.violations, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// see counts a situation.
func (b *book) see(situation string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[situation]++
}

// wokeUp reports whether a lock was lost while its host was asleep. Err tells so at once, and
// the context ends at the next look at the clock.
func wokeUp(l *Lock) bool {
	var lost *LostError
	return errors.As(l.Err(), &lost) && lost.Reason == HostSlept
}

// granted notes a lock that a call has just returned. When the call returns, the context of
// every lock in conflict with a lower token has ended, unless its process stands still or
// its host has just woken up.
func (b *book) granted(by *simMember, l *Lock, shared bool) *holding {
	if l.Context(); l.Err() != nil {
		return nil // the process stood still between the grant and its return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.ctx.Err() != nil {
		return nil
	}
	b.grants++
	h := &holding{l: l, by: by, shared: shared, frozen: b.frozen[by]}
	key := l.Key()
	b.held[key] = slices.DeleteFunc(b.held[key], func(o *holding) bool { return !o.frozen && o.l.ctx.Err() != nil })
	for _, o := range b.held[key] {
		switch older := o.l.Token() < l.Token(); {
		case shared && o.shared:
		case o.l.Token() == l.Token():
			b.violated("one holder: %q has token %d twice", key, l.Token())
		case older && o.frozen:
			o.overtaken = true
			b.seen["a frozen holder is overtaken"]++
		case older && wokeUp(o.l):
			b.seen["a sleeping holder is overtaken"]++
		case older:
			b.violated("loss told first: %q is granted under token %d while the context of token %d lives", key, l.Token(), o.l.Token())
		case h.frozen:
		default:
			b.violated("tokens rise: %q is held under token %d, after a grant of token %d", key, l.Token(), o.l.Token())
		}
	}
	switch top := b.last[key]; {
	case top == nil || top.token < l.Token():
		b.last[key] = &highest{token: l.Token(), shared: shared}
	case top.token > l.Token() && !(top.shared && shared) && !h.frozen:
		b.violated("tokens rise: %q is granted under token %d, after a grant of token %d", key, l.Token(), top.token)
	}
	// The first grant that a request returns has the token that the log has for the request;
	// further locks of a sticky grant have tokens of its block.
	if r := (request{l.g.s.id, l.g.seq}); b.requests[r] == 0 {
		b.requests[r] = machine.Token(l.Token())
	}
	b.held[key] = append(b.held[key], h)
	return h
}

// freeze notes that a process stands still.
func (b *book) freeze(m *simMember) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.frozen[m] = true
	for _, list := range b.held {
		for _, h := range list {
			if h.by == m && h.l.ctx.Err() == nil {
				h.frozen = true
			}
		}
	}
}

// thawed judges the locks of a process that goes on: Err is right at once, and the context
// of a lock that is another's ends before found is called.
func (b *book) thawed(m *simMember) (found func()) {
	b.mu.Lock()
	delete(b.frozen, m)
	var overtaken []*holding
	for _, list := range b.held {
		for _, h := range list {
			if h.by != m || !h.frozen {
				continue
			}
			h.frozen = false
			if h.overtaken {
				overtaken = append(overtaken, h)
			}
		}
	}
	b.mu.Unlock()
	for _, h := range overtaken {
		if h.l.Err() == nil {
			b.mu.Lock()
			b.violated("a stopped holder finds out: Err of token %d is nil after a freeze, and %q was granted meanwhile", h.l.Token(), h.l.Key())
			b.mu.Unlock()
		}
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, h := range overtaken {
			if h.l.ctx.Err() == nil {
				b.violated("a stopped holder finds out: the context of token %d lives on after a freeze", h.l.Token())
			}
		}
	}
}

func (b *book) watch(id machine.SessionID) *watched {
	w := b.sessions[id]
	if w == nil {
		w = new(watched)
		b.sessions[id] = w
	}
	return w
}

// acknowledged notes the answer to a beat: its client trusts its locks up to a moment, and
// no leader may end the session before.
func (b *book) acknowledged(id machine.SessionID, m *simMember, sent time.Time, slept time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.watch(id)
	w.by = m
	until := sent.Add(time.Duration(float64(b.ttl-margin(b.ttl))/m.rate) - slept)
	if until.After(w.trusted) {
		w.trusted = until
	}
	if !w.ended.IsZero() && w.ended.Before(until) {
		b.violated("beats: a beat gives trust for %v more than its session had", until.Sub(w.ended))
	}
}

// asleep notes that a host was suspended: its clients trust their locks for less.
func (b *book) asleep(m *simMember, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.sessions {
		if w.by == m {
			w.trusted = w.trusted.Add(-d)
		}
	}
}

// applied reads the committed log.
func (b *book) applied(c machine.Command, o machine.Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ok := o.Code == machine.OK || o.Code == machine.Unfinished
	switch c := c.(type) {
	case machine.Expire:
		if !ok {
			b.seen["a verdict comes too late"]++
			return
		}
		b.seen["a session expires"]++
		b.over[c.Session] = true
		if w := b.watch(c.Session); w.ended.IsZero() {
			w.ended = time.Now()
			if w.ended.Before(w.trusted) {
				b.violated("beats: a session expires %v before the end of its client's trust", w.trusted.Sub(w.ended))
			}
		}
	case machine.Silence:
		if ok {
			b.seen["a session is marked"]++
		}
	case machine.Hear:
		if ok {
			b.seen["a mark is taken away"]++
		}
	case machine.EndSession:
		if ok {
			b.seen["a session is ended by an operator"]++
		}
	case machine.EndSlice:
		b.seen["a session ends in slices"]++
	case machine.AdmitSlice:
		b.seen["waiters are granted in slices"]++
	case machine.Break:
		if ok {
			b.seen["a lock is broken"]++
		}
	case machine.EndDelay:
		if ok {
			b.seen["a delay ends"]++
		}
	case machine.Extend:
		if ok && o.Block > 0 {
			b.seen["a block is extended"]++
		}
	case machine.Close:
		b.seen["a session is closed"]++
		b.over[c.Session] = true
	case machine.Open:
		if ok && b.over[c.Session] {
			// A late copy opens the session again, for nobody: the table remembers none of its
			// requests, and copies of these may be granted, to nobody.
			maps.DeleteFunc(b.requests, func(r request, _ machine.Token) bool { return r.session == c.Session })
		}
	case machine.Acquire:
		if o.Code != machine.Granted {
			return
		}
		r := request{c.Session, c.Seq}
		before, again := b.requests[r]
		switch {
		case again && before != o.Token:
			b.violated("exactly once: one request was granted tokens %d and %d", before, o.Token)
		case again:
			b.seen["a request arrives twice"]++
		}
		b.requests[r] = o.Token
	}
}
