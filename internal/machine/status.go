package machine

// Grant is one holder of a key, as a reader sees it.
type Grant struct {
	Session SessionID
	Seq     uint64
	Token   Token
	Client  string
	Node    string
	Meta    []byte
}

// Waiter is one request in a key's queue, as a reader sees it.
type Waiter struct {
	Session SessionID
	Seq     uint64
	Client  string
	Node    string
}

// Status is a key's present state. The zero Status, but for Key, is that of a
// key nobody holds or waits for.
type Status struct {
	Key     string
	Holders []Grant
	Waiters []Waiter // in queue order; at most the number asked for
	Queue   int      // how many wait in all
	Version uint64   // the machine's command count when the key last changed; 0 for a free key
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
