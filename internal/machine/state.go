package machine

import (
	"sort"
	"strings"
)

// State is the lock table. It is a value of its command history: two States
// that applied the same commands are the same, down to the bytes of their
// images. A State is not safe for concurrent use; an Image taken from it may be
// written while the State goes on applying.
//
// What is always true of it, between any two commands, and checked by Check:
//
//   - I1: no two holders of a key conflict: it has one exclusive holder, or
//     shared ones, or no more permits than the capacity they all name; and
//     nobody holds above or below a tree, unless both share.
//   - I2: a token is larger than every token granted before it.
//   - I3: holders and waiters belong to open sessions, save the grants of
//     expired sessions whose delay runs.
//   - I4: nobody waits who could be granted: once the founding wait is lifted,
//     and while there are tokens, every waiter conflicts with a holder or with a
//     waiter before it. A key about which there is nothing to say has no record.
//   - I5: waiters stand in commit order, save those that a priority, a delay's
//     waiver, a named successor or an upgrade put before others; all queues
//     agree on one order. A queue holds at most MaxWaiters.
//   - I6: no waiter has been passed more than MaxPassed times.
//   - I7: no waiter waits, by whatever way round, for a grant that its caller
//     holds on to.
//   - I8: a request, named by session and seq, is in one place at most: it
//     holds, waits or is remembered as answered; and its seq is spent. One for
//     several keys is in the same place at all of them.
//   - I9: before the founding wait is lifted nobody holds.
//   - I10: what is remembered is bounded: MaxUnseen outcomes and MaxGaps gaps
//     among the spent seqs of a session, the keys that nobody holds or waits for,
//     their values, and sizes as in the limits.
//   - I11: indexes and counts agree with the tables that they are derived from.
type State struct {
	cluster   ClusterID
	founded   bool
	lifted    bool
	term      uint64
	bound     uint64 // largest TTL of a session, in milliseconds
	last      Token  // granted last, or one below the first to grant
	commands  uint64 // applied so far
	format    uint64 // 1 to MaxFormat: see Raise
	at        uint64 // unix milliseconds by the leaders' clocks, never falling; decides nothing
	idles     uint64 // keys that have come to rest so far
	forgotten Token  // the largest last token of a key that was forgotten

	// The tables an image consists of. A key has a record while somebody holds
	// it or waits for it, and for as long as it is remembered.
	keys     table[string, *record]
	sessions table[SessionID, *session]
	sets     table[request, []string] // the keys of requests for several; never changed
	answers  table[request, *answer]  // outcomes that are in no record; never changed

	// Derived from the tables, and from nothing else.
	grants         int               // holders in records, delays included
	waiters        int               // in queues
	trees          int               // among both
	conditions     int               // among the waiters
	busy           ordered           // keys that are held or waited for
	below          [4]ordered        // keys that are below another, by path: see spots
	under          map[Token]*branch // who waits while it holds on to a grant, by the first token of that
	delays         map[Token]string  // grants of expired sessions, and their first key
	past           fifo              // records at rest without a value,
	fading         fifo              // with one that may fade
	kept           int               // how many values there are that may not fade,
	keptSize       int               // and their bytes
	fadingSize     int               // bytes of the values in fading
	heldFading     int               // values that may fade, of keys that do not rest,
	heldFadingSize int               // and their bytes

	// What changed lately. Not derived: a restored State has none of it.
	changes changes

	// Of the command being applied.
	events  []Event
	touched []string
	dirty   []string           // keys whose queues must be looked at
	stuck   map[request]string // of those that wait for several: a key that was not free
}

// New returns the table of a cluster not yet founded.
func New() *State {
	s := &State{
		under:  make(map[Token]*branch),
		delays: make(map[Token]string),
		stuck:  make(map[request]string),
		format: 1,
	}
	s.keys.hash = hashKey
	s.sessions.hash = hashSession
	s.sets.hash = hashRequest
	s.answers.hash = hashRequest
	return s
}

// request names an Acquire or an Upgrade.
type request struct {
	session SessionID
	seq     uint64
}

// answer is the outcome of a request that is in no record: refused, or an upgrade
// that was granted.
type answer struct {
	out  Outcome
	key  string // the request's first, if it was granted or refused late
	late bool   // answered Queued first, so only an event told the client
}

// record is the state of a key. It belongs to an image as soon as its epoch is
// older than the table's, and is then cloned before it is changed.
type record struct {
	epoch   uint64
	version uint64   // command count at the last change
	last    Token    // granted last; 0 if never
	in      spots    // derived
	ghosts  int      // derived: how many of holders are delays that run
	rest    uint64   // number among the keys that came to rest; 0 while held or waited for
	holders []grant  // in the order of their tokens
	queue   []waiter // in the order in which they are served
	value   string
	fade    bool // the value may be forgotten
	unclean bool // the last exclusive holder did not release
}

// grant is a holder's part of a record.
type grant struct {
	session   SessionID // zero if the session expired and the delay runs
	seq       uint64    // of the Acquire
	token     Token
	former    Token  // before the last upgrade; 0 if there was none
	first     Token  // that it was granted under, if it was upgraded: its name in an Under
	rev       uint64 // of the last SetValue
	full      bool   // which was refused
	at        uint64
	delay     uint64
	of        uint32
	mode      Mode
	tree      bool
	set       bool // one of several keys: see sets
	unseen    bool // the client has not said that it knows
	waited    bool // answered Queued first, so only an event told the client
	asked     bool // the holder was told that it is asked to let go,
	contended bool // that somebody waits,
	broken    bool // that the grant is taken away
	meta      string
	ghost     *ghost // whose it was, if the session expired
}

// ghost is what remains of a session that expired, while a grant's delay runs.
type ghost struct{ client, node string }

// waiter is one request in a queue. An upgrade waits in its key's queue while its
// grant is among the holders.
type waiter struct {
	session     SessionID
	seq         uint64
	since       uint64 // command count when it came
	order       uint64 // its since, or that of the waiter it was put before
	at          uint64
	delay       uint64
	ifToken     Token
	upgrade     Token // the grant to be upgraded; 0 if this is an Acquire
	of          uint32
	mode        Mode
	tree        bool
	set         bool
	conditional bool
	priority    int8
	passed      uint8
	meta        string
	under       []Token // first tokens of grants; never changed
}

// Cluster tells which cluster this table was founded for, if it was.
func (s *State) Cluster() (id ClusterID, founded bool) { return s.cluster, s.founded }

// Lifted reports whether the founding wait is over.
func (s *State) Lifted() bool { return s.lifted }

// Term is the present leader's, as of the last LeaderStart.
func (s *State) Term() uint64 { return s.term }

// Bound is the largest TTL that a session may ask for, in milliseconds; 0
// before founding.
func (s *State) Bound() uint64 { return s.bound }

// LastToken is the largest token granted so far. Before the first grant it is
// one below the floor.
func (s *State) LastToken() Token { return s.last }

// Commands is the number of commands applied, whatever their outcome.
func (s *State) Commands() uint64 { return s.commands }

// Clock tells the leader's wall clock, in unix milliseconds, when the commands
// that follow were put in the log. It is written down with grants, for people to
// read, and decides nothing.
func (s *State) Clock(at uint64) {
	if s.format > 1 {
		s.at = max(s.at, at)
	}
}

// Format is what the table does: see Raise.
func (s *State) Format() int { return int(s.format) }

// Counts are sizes of the table.
type Counts struct {
	Keys     int // that are held, waited for or remembered
	Grants   int // holders, one for each of its keys
	Waiters  int // in queues, one for each of its keys
	Sessions int // open
	Answers  int // remembered until their sessions have seen them
	Values   int // that may not fade
}

// Counts returns the present sizes at no cost.
func (s *State) Counts() Counts {
	return Counts{
		Keys:     s.keys.n,
		Grants:   s.grants,
		Waiters:  s.waiters,
		Sessions: s.sessions.n,
		Answers:  s.answers.n,
		Values:   s.kept,
	}
}

// Owner is the first holder of key and its token; zero if nobody holds it.
func (s *State) Owner(key string) (SessionID, Token) {
	if r, ok := s.keys.get(key); ok && len(r.holders) > 0 {
		return r.holders[0].session, r.holders[0].token
	}
	return SessionID{}, 0
}

// Version is the command count at which key's holders, queue or value last
// changed; 0 if nothing is remembered of it.
func (s *State) Version(key string) uint64 {
	if r, ok := s.keys.get(key); ok {
		return r.version
	}
	return 0
}

// Status describes key, listing at most the given number of its holders and of
// its waiters, without its value. The caller owns the result.
func (s *State) Status(key string, most int) Status {
	st := Status{Key: key, Last: s.forgotten}
	r, ok := s.keys.get(key)
	if !ok {
		return st
	}
	st.Version = r.version
	st.Held, st.Queue = len(r.holders), len(r.queue)
	st.Unclean = r.unclean
	if r.last > 0 {
		st.Last = r.last
	}
	if n := min(most, len(r.holders)); n > 0 {
		st.Holders = make([]Grant, n)
		for i := range n {
			st.Holders[i] = s.grantStatus(&r.holders[i])
		}
	}
	if n := min(most, len(r.queue)); n > 0 {
		st.Waiters = make([]Waiter, n)
		for i := range n {
			st.Waiters[i] = s.waiterStatus(&r.queue[i])
		}
	}
	return st
}

func (s *State) grantStatus(g *grant) Grant {
	st := Grant{
		Seq:    g.seq,
		Token:  g.token,
		Mode:   g.mode,
		Of:     g.of,
		Tree:   g.tree,
		Keys:   s.width(g.session, g.seq, g.set),
		At:     g.at,
		Asked:  g.asked,
		Broken: g.broken,
		Delay:  g.delay,
		Meta:   bytesOf(g.meta),
	}
	if g.ghost != nil {
		st.Client, st.Node, st.Delayed = g.ghost.client, g.ghost.node, true
		return st
	}
	owner, _ := s.sessions.get(g.session)
	st.Session, st.Client, st.Node = g.session, owner.client, owner.node
	st.SessionMeta = bytesOf(owner.meta)
	return st
}

func (s *State) waiterStatus(w *waiter) Waiter {
	owner, _ := s.sessions.get(w.session)
	return Waiter{
		Session:  w.session,
		Seq:      w.seq,
		Client:   owner.client,
		Node:     owner.node,
		Mode:     w.mode,
		Of:       w.of,
		Tree:     w.tree,
		Keys:     s.width(w.session, w.seq, w.set),
		Upgrade:  w.upgrade != 0,
		Priority: w.priority,
		Passed:   w.passed,
		At:       w.at,
		Meta:     bytesOf(w.meta),
	}
}

// width is the number of keys of a request.
func (s *State) width(id SessionID, seq uint64, set bool) int {
	if !set {
		return 1
	}
	keys, _ := s.sets.get(request{id, seq})
	return len(keys)
}

// Value is what was left with key; empty if nothing was.
func (s *State) Value(key string) string {
	if r, ok := s.keys.get(key); ok {
		return r.value
	}
	return ""
}

// Behind returns whom a session's request waits for at its first key, in number;
// false if it does not wait.
func (s *State) Behind(id SessionID, seq uint64) (uint32, bool) {
	o, ok := s.sessions.get(id)
	if !ok {
		return 0, false
	}
	at, ok := o.index.refs[seq]
	if !ok || at.state != waiting {
		return 0, false
	}
	r, _ := s.keys.get(at.key)
	return r.behind(r.position(id, seq)), true
}

// Keys returns, in ascending order, at most n keys from first on that begin with
// prefix and that somebody holds or waits for.
func (s *State) Keys(prefix, first string, n int) []string {
	var keys []string
	for key := range s.busy.from(first, prefix) {
		if len(keys) == n {
			break
		}
		keys = append(keys, key)
	}
	return keys
}

// Changes returns keys that begin with prefix and changed after version, at most
// n and each once, and the version up to which that is all. It is not ok if so
// old a version is not remembered: list the keys anew. So must who gets his own
// version back: one command changed more than n keys.
func (s *State) Changes(prefix string, version uint64, n int) (keys []string, upTo uint64, ok bool) {
	c := &s.changes
	if version < c.start {
		return nil, 0, false
	}
	found := make(map[string]bool)
	i := sort.Search(len(c.ring), func(i int) bool { return c.i(i).version > version })
	for ; i < len(c.ring); i++ {
		e := c.i(i)
		if !strings.HasPrefix(e.key, prefix) || found[e.key] {
			continue
		}
		if len(keys) == n {
			// All of e's command comes next time, some of it again.
			return keys, e.version - 1, true
		}
		found[e.key] = true
		keys = append(keys, e.key)
	}
	return keys, s.commands, true
}

// bytesOf returns a copy that the caller may change, nil for nothing.
func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}
