package machine

// Grant is one holder of a key, as a reader sees it.
type Grant struct {
	Session     SessionID // zero if Delayed
	Seq         uint64
	Token       Token
	Client      string
	Node        string
	Mode        Mode
	Of          uint32
	Tree        bool
	Keys        int    // how many are held under the token
	At          uint64 // unix milliseconds of the granting leader's clock, for people to read
	Asked       bool   // to let go
	Broken      bool   // taken away; the holder has not answered yet
	Delayed     bool   // the session expired; the key is taken until its delay is over
	Delay       uint64 // milliseconds; asked for, or running
	Meta        []byte
	SessionMeta []byte

	// Told by the leader, which alone knows.
	Left  uint64 // milliseconds until the session expires if it is not heard again
	Beats uint64 // of the session that this leader has acknowledged
}

// Waiter is one request in a key's queue, as a reader sees it.
type Waiter struct {
	Session  SessionID
	Seq      uint64
	Client   string
	Node     string
	Mode     Mode
	Of       uint32
	Tree     bool
	Keys     int // how many it waits for together
	Upgrade  bool
	Priority int8
	Passed   uint8  // by how many
	At       uint64 // like a Grant's: when it came
	Meta     []byte
}

// Status is a key's present state. The zero Status, but for Key, is that of a
// key nobody holds or waits for and about which nothing is remembered.
type Status struct {
	Key     string
	Holders []Grant  // in the order of their tokens; at most the number asked for
	Held    int      // how many hold in all
	Waiters []Waiter // in queue order; at most the number asked for
	Queue   int      // how many wait in all
	Last    Token    // nobody was granted the key after this: the last token, or what is forgotten
	Value   string   // only if asked for
	Unclean bool     // the last exclusive holder did not release
	Version uint64   // the machine's command count when the key last changed; 0 if nothing is remembered
}

// SessionStatus is a session's present state.
type SessionStatus struct {
	ID     SessionID
	Client string
	Node   string
	TTL    uint64 // milliseconds
	Silent bool   // marked by Silence
	Grants int
	Waits  int
}
