package sim

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/internal/machine"
)

// A shadow is a lock table of the run's own. It applies each entry of the log once, when
// the first replica applies the entry, checks that every other replica applies the same
// bytes at the same index, and tells the record of the consequences.
type shadow struct {
	w *town

	mu      sync.Mutex
	m       *machine.State
	last    uint64
	entries map[uint64][sha256.Size]byte
	over    bool // a successor of the cluster was founded: the indexes begin anew
	n       int  // entries since the last Check

	keys    map[request][]string
	granted map[machine.Token][]string
	by      map[machine.Token]request
	begun   term
	trouble error
	hooks   map[string]func(history.Fact) // by the kind of the fact; called once, without mu
}

// A term is the newest one by the log.
type term struct {
	number uint64
	at     time.Time // its first entry
}

// A request is named by its session and its seq there.
type request struct {
	session machine.SessionID
	seq     uint64
}

func newShadow(w *town) *shadow {
	return &shadow{
		w: w, m: machine.New(), entries: make(map[uint64][sha256.Size]byte),
		keys: make(map[request][]string), granted: make(map[machine.Token][]string), by: make(map[machine.Token]request), hooks: make(map[string]func(history.Fact)),
	}
}

// applied is called by every replica for every entry.
func (s *shadow) applied(index uint64, entry []byte, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	sum := sha256.Sum256(entry)
	if index <= s.last {
		if before, known := s.entries[index]; known && before != sum {
			if s.w.shape.complete {
				s.over = true // the log of a successor
				s.w.rec.Mark(history.Succeeded, "", "")
				return
			}
			s.w.breaks("log", "two replicas apply different entries at index %d", index)
			s.over = true
		}
		return
	}
	commands, err := machine.DecodeEntry(entry)
	if err != nil {
		s.w.breaks("log", "entry %d: %v", index, err)
		return
	}
	s.last = index
	s.entries[index] = sum
	s.m.Clock(uint64(max(at.UnixMilli(), 1)))
	n := 0
	for _, c := range commands {
		o, events := s.m.Apply(c)
		s.tell(index, &n, c, o, events)
	}
	if s.n++; s.n%64 == 0 && s.trouble == nil {
		if s.trouble = s.m.Check(); s.trouble != nil {
			s.w.breaks("log", "after entry %d: %v", index, s.trouble)
		}
	}
}

// tell records the consequences of a command.
func (s *shadow) tell(index uint64, n *int, c machine.Command, o machine.Outcome, events []machine.Event) {
	fact := func(kind string, id machine.SessionID, change func(*history.Fact)) {
		f := history.Fact{Index: index, N: *n, At: s.w.rec.Now(), Kind: kind}
		*n++
		if id != (machine.SessionID{}) {
			f.Session = id.Ref().String()[:8]
			if st, ok := s.m.Session(id); ok {
				f.Client, f.Node = st.Client, st.Node
			}
		}
		if change != nil {
			change(&f)
		}
		s.w.rec.Fact(f)
		switch kind {
		case history.Ending, history.Marked, history.Leads, "revoked", "contended":
			s.w.cover.soon()
		}
		if hook := s.hooks[kind]; hook != nil {
			delete(s.hooks, kind)
			go hook(f) // now, and not on raft's goroutine
		}
	}
	grant := func(r request, keys []string, token machine.Token, block uint32) {
		if by, known := s.by[token]; known && by == r {
			return // the answer to a second copy of the request
		}
		s.by[token] = r
		s.granted[token] = keys
		fact(history.Granted, r.session, func(f *history.Fact) {
			f.Keys, f.Token, f.Seq = keys, uint64(token), r.seq
			if block > 0 {
				f.Last = uint64(token) + uint64(block)
			}
		})
	}
	ask := func(r request, keys []string) {
		switch o.Code {
		case machine.Granted:
			grant(r, keys, o.Token, o.Block)
		case machine.Queued:
			s.keys[r] = keys
			fact(history.Queued, r.session, func(f *history.Fact) { f.Keys, f.Seq = keys, r.seq })
		}
	}
	switch c := c.(type) {
	case machine.LeaderStart:
		s.begun = term{c.Term, time.Now()}
		fact(history.Leads, machine.SessionID{}, func(f *history.Fact) { f.Term = c.Term })
	case machine.Open:
		if o.Code == machine.OK {
			fact(history.Opened, c.Session, nil)
		}
	case machine.Close:
		if o.Code == machine.OK || o.Code == machine.Unfinished {
			fact(history.Closed, c.Session, nil)
		}
	case machine.Silence:
		if o.Code == machine.OK {
			fact(history.Marked, c.Session, nil)
		}
	case machine.Hear:
		if o.Code == machine.OK {
			fact(history.Heard, c.Session, nil)
		}
	case machine.Acquire:
		keys := c.Keys
		if len(keys) == 0 {
			keys = []string{c.Key}
		}
		ask(request{c.Session, c.Seq}, keys)
	case machine.Upgrade:
		ask(request{c.Session, c.Seq}, s.granted[c.Token])
	case machine.Extend:
		if o.Code == machine.OK && o.Block > 0 {
			keys := s.granted[c.Token]
			fact(history.Extended, c.Session, func(f *history.Fact) { f.Keys, f.Last = keys, uint64(o.Token)+uint64(o.Block) })
		}
	}
	for _, e := range events {
		r := request{e.Session, e.Seq}
		switch e.Kind {
		case machine.EventGranted:
			grant(r, s.keys[r], e.Token, e.Block)
			delete(s.keys, r)
		case machine.EventContended:
			fact("contended", e.Session, func(f *history.Fact) { f.Keys, f.Token = []string{e.Key}, uint64(e.Token) })
		case machine.EventPart:
			fact(history.Assigned, e.Session, func(f *history.Fact) { f.Group = e.Key })
		case machine.EventRevoked:
			fact("revoked", e.Session, nil)
		case machine.EventEnding:
			fact(history.Ending, e.Session, func(f *history.Fact) { f.Text = reasonOf(e.Reason) })
		case machine.EventEnded:
			fact(history.Expired, e.Session, func(f *history.Fact) { f.Text = reasonOf(e.Reason) })
		}
	}
}

func reasonOf(r machine.Reason) string {
	return [...]string{machine.Expired: "expired", machine.Closed: "closed", machine.Broken: "broken", machine.Ended: "process ended", machine.Moved: "moved", machine.Revoked: "revoked"}[r]
}

// next returns a channel that gets the next fact of a kind.
func (s *shadow) next(kind string) <-chan history.Fact {
	told := make(chan history.Fact, 1)
	s.mu.Lock()
	s.hooks[kind] = func(f history.Fact) { told <- f }
	s.mu.Unlock()
	return told
}

// view runs f on the table.
func (s *shadow) view(f func(m *machine.State, begun term)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		f(s.m, s.begun)
	}
}

// left tells the record what is left in the table.
func (s *shadow) left() {
	s.view(func(m *machine.State, _ term) {
		if err := m.Check(); err != nil {
			s.w.breaks("log", "at the end: %v", err)
		}
		n := m.Counts()
		for what, n := range map[string]int{"sessions": n.Sessions, "grants": n.Grants, "waiters": n.Waiters, "answers": n.Answers} {
			s.w.rec.Left(history.Remains{What: what, N: int64(n)})
		}
	})
}
