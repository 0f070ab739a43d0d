package machine

import (
	"slices"
	"unicode/utf8"
)

// session is the table's part for one client, as in an image. The session's grants,
// waiters and answers are in the other tables, and index finds them there. A session
// with an epoch older than the table's belongs to an image, and is cloned before a
// change.
type session struct {
	epoch   uint64
	id      SessionID
	client  string
	node    string
	boot    uint64 // of the node's process
	dir     DirID  // of the node's process; zero: it has none
	ttl     uint64
	meta    string
	opened  uint64 // the leader's clock when it was opened
	silent  bool
	revoked bool   // by EndSession: the client has not answered yet
	ending  Reason // the session is ending for this reason: see ending.go; 0: it is open
	begun   bool   // a slice was taken: index.rest has what is left
	spent   spans  // seqs that can never be granted anew

	second   uint64 // of the clock, in which the session last took tokens in blocks,
	reserved uint64 // and how many in that second: see reserve

	// index is shared by all clones and not part of an image: with a million
	// grants it would be too large to copy.
	index *index
}

// editSession returns an open session for writing.
func (s *State) editSession(o *session) *session {
	if o.epoch != s.sessions.epoch {
		c := *o
		c.epoch = s.sessions.epoch
		c.spent = slices.Clone(o.spent)
		o = &c
		s.sessions.set(o.id, o)
	}
	return o
}

func validName(name string) bool { return len(name) <= MaxName && utf8.ValidString(name) }

func (s *State) open(c Open) Outcome {
	switch {
	case c.Session == (SessionID{}):
		return bad("Session", 0)
	case c.Client == "" || !validName(c.Client):
		return bad("Client", MaxName)
	case !validName(c.Node):
		return bad("Node", MaxName)
	case len(c.Meta) > MaxMeta:
		return bad("Meta", MaxMeta)
	}
	// Before the rest is checked: the bound may have fallen below it since the first
	// copy.
	if o := s.sessions.get(c.Session); o != nil {
		if o.node != c.Node || o.boot != c.Boot || o.dir != c.Dir {
			return bad("Session", 0) // the session of another process
		}
		if o.ending != 0 {
			return Outcome{Code: NoSession}
		}
		return Outcome{Code: OK}
	}
	if out := checkTTL(c.TTL, s.bound); out.Code != 0 {
		return out
	}
	if s.hasEnded(c.Node, c.Dir, c.Boot) {
		return Outcome{Code: NodeEnded}
	}
	if out := s.roomForSession(c.Node); out.Code != 0 {
		return out
	}
	o := &session{
		epoch:  s.sessions.epoch,
		id:     c.Session,
		client: c.Client,
		node:   c.Node,
		boot:   c.Boot,
		dir:    c.Dir,
		ttl:    c.TTL,
		meta:   c.Meta,
		opened: s.at,
		index:  newIndex(c.Session),
	}
	s.sessions.set(c.Session, o)
	s.joinNode(o)
	s.refs.add(refEntry(c.Session))
	if c.Dir != (DirID{}) {
		s.processes.add(o.processEntry())
	}
	return Outcome{Code: OK}
}

// markSilent sets or removes a session's mark of Silence.
func (s *State) markSilent(id SessionID, silent bool) Outcome {
	o := s.openSession(id)
	if o == nil {
		return Outcome{Code: NoSession}
	}
	if o.revoked && !silent {
		return Outcome{Code: NoSession}
	}
	if o.silent != silent {
		s.editSession(o).silent = silent
	}
	return Outcome{Code: OK}
}
