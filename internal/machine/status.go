package machine

// Grant is a holder of a key, for readers.
type Grant struct {
	Spec
	Session     SessionID // zero if Delayed
	Seq         uint64
	Token       Token
	Client      string
	Node        string
	Keys        int    // number of keys held under the token
	At          uint64 // unix milliseconds of the granting leader's clock, for people to read
	Asked       bool   // to release
	Broken      bool   // taken away; the holder has not answered yet
	Delayed     bool   // the session expired; the key is taken until its Delay is over
	Ending      bool   // the session is ending, and the key is about to be free
	SessionMeta string

	// Only the leader knows these, and fills them in.
	Left  uint64 // milliseconds until the session expires if it is not heard again
	Beats uint64 // of the session that this leader has acknowledged
}

// Waiter is a request in a key's queue, for readers.
type Waiter struct {
	Spec
	Session SessionID
	Seq     uint64
	Client  string
	Node    string
	Keys    int // number of keys for which it waits together
	Upgrade bool
	Passed  uint8  // number of waiters that passed it
	Behind  uint32 // number of holders and waiters before it, at this key
	At      uint64 // like a Grant's: when it came
}

// Status is a key's present state. A free key without memory has the zero Status
// except for Key and Last.
type Status struct {
	Key     string
	Holders []Grant  // in the order of their tokens; at most the number asked for
	Held    int      // number of all holders
	Waiters []Waiter // in queue order; at most the number asked for
	Queue   int      // number of all waiters
	Last    Token    // the key was granted under no token after this: its last token, or the last forgotten one
	Value   string   // only if asked for
	Unclean bool     // the last exclusive holder did not release
	Permits int      // held
	Of      int      // the capacity of the permits; 0 if the key has none
	Fixed   bool     // the capacity was set by SetCapacity
	Version uint64   // the machine's command count when the key last changed; 0 if nothing is remembered
}

// SessionStatus is a session's present state.
type SessionStatus struct {
	ID      SessionID
	Client  string
	Node    string
	Boot    uint64 // of the node's process
	TTL     uint64 // milliseconds
	Opened  uint64 // like a Grant's At
	Silent  bool   // marked by Silence
	Revoked bool   // by EndSession
	Ending  bool   // the session is over for its client, and its keys are being freed
	Grants  int
	Keys    int // of the grants
	Waits   int
	Meta    string
}
