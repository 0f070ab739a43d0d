package machine

// State is the lock table, a function of the command history: two States with the
// same commands are equal, down to the bytes of their images. A State is not safe
// for concurrent use. An Image may be written while the State goes on applying
// commands.
//
// These invariants hold between any two commands, and Check verifies them:
//
//   - I1: no two holders of a key conflict: it has one exclusive holder, or
//     shared ones, or permits; and no key above or below a held tree is held, unless
//     both are shared. No more permits are held than the capacity, unless it was
//     lowered since: then nobody is granted permits until few enough are held.
//   - I2: a token is larger than every token granted before it.
//   - I3: holders and waiters belong to open sessions, except the grants of
//     expired sessions whose delay runs.
//   - I4: every waiter has to wait: after the founding wait, and while there are
//     tokens, every waiter conflicts with a holder or with a waiter before it, or its
//     session is revoked or ending, or a queue in which it stands was put off: see
//     visit.go. A key about which the table knows nothing has no record.
//   - I5: waiters stand in commit order, except where a priority, a delay's
//     waiver, a named successor or an upgrade put one before others; all queues
//     agree on one order. A queue has at most MaxWaiters.
//   - I6: no waiter has been passed more than MaxPassed times.
//   - I7: no waiter waits, directly or through other waits, for a grant that its
//     own caller keeps.
//   - I8: a request, named by session and seq, is in one state at most: it holds,
//     waits or is remembered as answered; and its seq is spent. A request for
//     several keys is in the same state at all of them.
//   - I9: nobody holds before the founding wait is over.
//   - I10: memory is bounded: MaxHeld keys, MaxHeldBytes of them, MaxUnseen outcomes and
//     MaxGaps gaps among the spent seqs of a session, MaxPutOff visits that are put off, the idle keys, the values, and sizes
//     as in the limits.
//   - I12: no session is open, and not ending, for a process that Forget named last of its node,
//     unless that Forget has left sessions for the next one.
//   - I14: a revoked session is marked silent, and its waiters and callers are about to leave.
//   - I15: everything that is left of an ending session, and the waiters and callers
//     of a revoked one, will be in a slice, once.
//   - I13: a group is consistent: its callers are open sessions, or absent and without
//     one; each shard is assigned to one caller, which is in the group and of the
//     present number, or to nobody; a caller stands by for one that leads; and the sizes
//     are within the limits.
//   - I11: indexes and sums agree with the tables from which they are derived.
type State struct {
	header

	// The tables of an image. A key has a record while held or waited for, and for
	// as long as the table remembers the key.
	keys     keyTable
	sessions table[SessionID, *session]
	sets     table[requestID, []string] // the keys of requests for several; a list is never changed
	answers  table[requestID, *answer]  // outcomes that are in no record; an answer is never changed
	groups   table[string, *group]      // by name

	refs      ordered              // derived from the sessions: see refEntry
	processes ordered              // derived from the sessions: see processEntry
	lineage   lineage              // derived from the waiters
	owners    owners               // derived from the grants
	nodes     map[string]*nodeLoad // derived from the sessions, by node
	delays    map[Token]string     // derived: grants of expired sessions, and their keys
	groupSums groupSums            // derived from the groups
	changes   changes              // not derived: a restored State begins with none
	ending    int                  // derived: sessions that are ending
	awaited   map[queues][]string  // derived from later: where the visits go on, in the order of the list
	slice     int                  // MaxSlice; tests make it smaller
	admits    int                  // MaxAdmitted; tests make it smaller
	quota     nodeQuota
	formats   formats // that this State reads

	searched int // steps of the latest searches for cycles: not derived, and decides nothing: see Cost

	step step // of the command being applied
}

// header is the part of a State that is not in a table.
type header struct {
	cluster   ClusterID
	founded   bool
	lifted    bool   // the founding wait is over
	term      uint64 // the present leader's
	bound     uint64 // largest TTL of a session, in milliseconds
	last      Token  // granted or reserved last, or one below the first to grant
	commands  uint64 // applied so far
	format    uint64 // 1 to MaxFormat
	at        uint64 // unix milliseconds by the leaders' clocks, never falling; bounds the blocks of tokens, and decides nothing else
	second    uint64 // of the clock at, in which the last block of tokens was reserved,
	reserved  uint64 // and the tokens of blocks in that second, up to MaxReserved
	idles     uint64 // keys that have become idle so far
	forgotten Token  // the largest last token of a forgotten key

	ended []endedBoot // processes that have ended, by node; a list is never changed
	later []visit     // queues that must be looked at: see visit.go; an element is never changed
}

// step is the work of one command.
type step struct {
	events    []Event
	touched   []string             // keys that changed
	revisit   []visit              // queues that must be looked at: see admit.go
	noted     map[queues]struct{}  // the queues in revisit, but for the first: see note
	admitting bool                 // the queues in revisit are being looked at
	putOff    bool                 // some were put off: see visit.go
	blocked   map[requestID]string // of waiters for several keys: a key that was not free
	groups    []string             // groups that changed
	recalls   int                  // holders below trees that were told: see recallBelow
}

// New returns the table of a cluster that is not founded yet.
func New() *State {
	s := &State{
		header:  header{format: 1},
		lineage: make(lineage),
		nodes:   make(map[string]*nodeLoad),
		quota:   defaultQuota,
		delays:  make(map[Token]string),
		slice:   MaxSlice,
		admits:  MaxAdmitted,
		awaited: make(map[queues][]string),
		formats: formats{max: MaxFormat},
		step:    step{blocked: make(map[requestID]string), noted: make(map[queues]struct{})},
	}
	s.sessions.hash = hashSession
	s.sets.hash = hashRequest
	s.answers.hash = hashRequest
	s.groups.hash = hashKey
	s.keys.working = make(map[string]int)
	return s
}

// requestID names an Acquire or an Upgrade.
type requestID struct {
	session SessionID
	seq     uint64
}

// Cluster returns the cluster for which this table was founded, if it was.
func (s *State) Cluster() (id ClusterID, founded bool) { return s.cluster, s.founded }

// Lifted reports whether the founding wait is over.
func (s *State) Lifted() bool { return s.lifted }

// Term returns the term of the last LeaderStart.
func (s *State) Term() uint64 { return s.term }

// Bound returns the largest TTL that a session may ask for, in milliseconds; 0
// before founding.
func (s *State) Bound() uint64 { return s.bound }

// LastToken returns the largest token granted so far; before the first grant, the
// number below the floor.
func (s *State) LastToken() Token { return s.last }

// Commands returns the number of commands applied, refused ones included.
func (s *State) Commands() uint64 { return s.commands }

// Clock sets the leader's wall clock, in unix milliseconds, at which the
// following commands were put in the log. The table stores the clock with
// grants, for people to read; the clock bounds the blocks of tokens (see reserve) and
// decides nothing else, and an earlier time than before is ignored.
func (s *State) Clock(at uint64) { s.at = max(s.at, at) }

// Counts are sizes of the table.
type Counts struct {
	Keys     int // held, waited for or remembered
	Grants   int // holders, one for each of their keys
	Waiters  int // in queues, one for each of their keys
	Sessions int // open or ending
	Ending   int // sessions that are ending
	Answers  int // remembered until their sessions have seen them
	Values   int // lasting ones
	Groups   int // with callers, being resized, or remembered for their numbers

	Capacities int // set by SetCapacity
}

// Summary counts the parts of the table that people ask for.
type Summary struct {
	Commands uint64 // applied so far
	Keys     int    // held or waited for
	Grants   int    // holders, one for each of their keys
	Waits    int    // in queues, one for each of their keys
	Sessions int    // open
	Values   int    // lasting ones
	Groups   int    // with callers, or being resized
	Shards   int    // of these groups
}

// Summary returns the present summary, in constant time.
func (s *State) Summary() Summary {
	return Summary{
		Commands: s.commands,
		Keys:     s.keys.used,
		Grants:   s.keys.grants,
		Waits:    s.keys.waiters,
		Sessions: s.sessions.n,
		Values:   s.keys.lasting,
		Groups:   s.groupSums.active,
		Shards:   s.groupSums.shards,
	}
}

// Counts returns the present sizes, in constant time.
func (s *State) Counts() Counts {
	return Counts{
		Keys:     s.keys.n,
		Grants:   s.keys.grants,
		Waiters:  s.keys.waiters,
		Sessions: s.sessions.n,
		Ending:   s.ending,
		Answers:  s.answers.n,
		Values:   s.keys.lasting,
		Groups:   s.groups.n,

		Capacities: s.keys.capacities,
	}
}
