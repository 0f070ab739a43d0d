package documents

import "time"

// Locks is the document locks.json: a page of the keys that begin with Prefix and have
// holders or waiters, in ascending order.
type Locks struct {
	Head
	Prefix string `json:"prefix"`
	Keys   []Key  `json:"keys"`

	// More says that there are further keys: ask again with after=After.
	More  bool   `json:"more"`
	After string `json:"after,omitempty"` // the last key of this page

	// Total is the number of keys with Prefix; left out if nobody has counted them.
	Total *int `json:"total,omitempty"`
}

// Key is the state of a key.
type Key struct {
	Key     string   `json:"key"`
	Holders []Holder `json:"holders"` // the first ones, in the order of their tokens
	Holding int      `json:"holding"` // the number of holders
	Waiters []Waiter `json:"waiters"` // the first ones, in the order in which they will be served
	Queue   int      `json:"queue"`   // the number of waiters
	Token   Number   `json:"token"`   // of the last grant
	Clean   bool     `json:"clean"`   // the last exclusive holder released the key by itself

	Permits     int  `json:"permits,omitempty"`  // held
	Capacity    int  `json:"capacity,omitempty"` // permits of the key
	CapacitySet bool `json:"capacitySet,omitempty"`
}

// Holder is a holder of a key.
type Holder struct {
	Client     string            `json:"client"`
	Node       string            `json:"node"` // the member on which the client runs
	Self       bool              `json:"self,omitempty"`
	Session    string            `json:"session,omitempty"` // Session.Ref
	Token      Number            `json:"token"`
	Mode       string            `json:"mode"` // exclusive, shared, permit
	Permits    int               `json:"permits,omitempty"`
	Tree       bool              `json:"tree,omitempty"`
	Keys       int               `json:"keys,omitempty"`     // the number of keys under the token, if more than 1
	Acquired   *time.Time        `json:"acquired,omitempty"` // by the leader's clock of that time
	Age        *Duration         `json:"age,omitempty"`      // since Acquired
	Left       *Duration         `json:"left,omitempty"`     // how long the cluster keeps the grant without a further beat; only a leader knows
	Asked      bool              `json:"asked,omitempty"`
	Broken     bool              `json:"broken,omitempty"`
	Sticky     bool              `json:"sticky,omitempty"` // the client keeps the key between its locks
	Delayed    bool              `json:"delayed,omitempty"`
	Meta       map[string]string `json:"meta,omitempty"`
	ClientMeta map[string]string `json:"clientMeta,omitempty"`
}

// Waiter is a waiter of a key.
type Waiter struct {
	Client   string            `json:"client"`
	Node     string            `json:"node"`
	Self     bool              `json:"self,omitempty"`
	Session  string            `json:"session,omitempty"`
	Position int               `json:"position"` // the number of holders and waiters before
	Mode     string            `json:"mode"`
	Permits  int               `json:"permits,omitempty"`
	Tree     bool              `json:"tree,omitempty"`
	Keys     int               `json:"keys,omitempty"`
	Upgrade  bool              `json:"upgrade,omitempty"`
	Priority int               `json:"priority,omitempty"`
	Passed   int               `json:"passed,omitempty"`
	Since    *time.Time        `json:"since,omitempty"`
	Age      *Duration         `json:"age,omitempty"` // since Since
	Meta     map[string]string `json:"meta,omitempty"`
}
