package machine

// State is the lock table. It is a value of its command history: two States
// that applied the same commands are the same, down to the bytes of their
// images. A State is not safe for concurrent use; an Image taken from it may be
// written while the State goes on applying.
//
// What is always true of it, between any two commands, and checked by Check:
//
//   - I1: a key has at most one holder, and a grant is of one key.
//   - I2: a token is larger than every token granted before it.
//   - I3: holders and waiters belong to open sessions.
//   - I4: nobody waits who could be granted: once the founding wait is lifted,
//     and while there are tokens, a key with waiters has a holder. A key with
//     neither has no record.
//   - I5: a queue stands in commit order, and holds at most MaxWaiters.
//   - I6: reserved for the bypass bound of priorities.
//   - I7: reserved for cycles of waits.
//   - I8: a request, named by session and seq, is in one place at most: it
//     holds, waits or is remembered as refused; and its seq is spent.
//   - I9: before the founding wait is lifted nobody holds.
//   - I10: what a session remembers is bounded: MaxUnseen outcomes, MaxGaps
//     gaps among its spent seqs, sizes as in the limits.
//   - I11: indexes and counts agree with the tables that they are derived from.
type State struct {
	cluster  ClusterID
	founded  bool
	lifted   bool
	term     uint64
	bound    uint64 // largest TTL of a session, in milliseconds
	last     Token  // granted last, or one below the first to grant
	commands uint64 // applied so far

	// The tables an image consists of. A key has a record while somebody holds
	// it or waits for it.
	keys     table[string, *record]
	sessions table[SessionID, *session]
	refusals table[request, *Outcome] // outcomes that are in no record

	// Derived from the tables, and from nothing else.
	grants  int
	waiters int

	// Of the command being applied.
	events  []Event
	touched []string
}

// New returns the table of a cluster not yet founded.
func New() *State {
	s := &State{}
	s.keys.hash = hashKey
	s.sessions.hash = hashSession
	s.refusals.hash = hashRequest
	return s
}

// request names an Acquire.
type request struct {
	session SessionID
	seq     uint64
}

// record is the state of a key. It belongs to an image as soon as its epoch is
// older than the table's, and is then cloned before it is changed.
type record struct {
	epoch   uint64
	version uint64 // command count at the last change
	holder  grant  // with token 0, nobody
	queue   []waiter
}

func (r *record) held() bool { return r.holder.token != 0 }

// grant is the holder's part of a record.
type grant struct {
	session SessionID
	seq     uint64
	token   Token
	meta    string
	unseen  bool // the client has not said that it knows
	waited  bool // answered Queued first, so only an event told the client
}

// waiter is one request in a queue.
type waiter struct {
	session SessionID
	seq     uint64
	since   uint64 // command count when it came
	meta    string
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

// Counts are sizes of the table.
type Counts struct {
	Keys     int // with a holder or a waiter
	Grants   int
	Waiters  int
	Sessions int // open
	Refusals int // remembered until their sessions have seen them
}

// Counts returns the present sizes at no cost.
func (s *State) Counts() Counts {
	return Counts{
		Keys:     s.keys.n,
		Grants:   s.grants,
		Waiters:  s.waiters,
		Sessions: s.sessions.n,
		Refusals: s.refusals.n,
	}
}

// Owner is the holder of key and its token; zero if nobody holds it.
func (s *State) Owner(key string) (SessionID, Token) {
	if r, ok := s.keys.get(key); ok {
		return r.holder.session, r.holder.token
	}
	return SessionID{}, 0
}

// Version is the command count at which key's holder or queue last changed; 0
// if nobody holds or waits.
func (s *State) Version(key string) uint64 {
	if r, ok := s.keys.get(key); ok {
		return r.version
	}
	return 0
}

// Status describes key, listing at most the given number of its waiters. The
// caller owns the result.
func (s *State) Status(key string, waiters int) Status {
	st := Status{Key: key}
	r, ok := s.keys.get(key)
	if !ok {
		return st
	}
	st.Version = r.version
	st.Queue = len(r.queue)
	if g := &r.holder; r.held() {
		owner, _ := s.sessions.get(g.session)
		st.Holders = []Grant{{
			Session: g.session,
			Seq:     g.seq,
			Token:   g.token,
			Client:  owner.client,
			Node:    owner.node,
			Meta:    bytesOf(g.meta),
		}}
	}
	if n := min(waiters, len(r.queue)); n > 0 {
		st.Waiters = make([]Waiter, n)
		for i, w := range r.queue[:n] {
			owner, _ := s.sessions.get(w.session)
			st.Waiters[i] = Waiter{Session: w.session, Seq: w.seq, Client: owner.client, Node: owner.node}
		}
	}
	return st
}

// bytesOf returns a copy that the caller may change, nil for nothing.
func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}
