package documents

// Shards is the document shards.json: the names of Spread with their owners.
type Shards struct {
	Head
	Groups []Group `json:"groups"`
	More   bool    `json:"more"` // further names were left out: ask with name=
}

// Group is a name of Spread.
type Group struct {
	Name     string  `json:"name"`
	Shards   int     `json:"shards"`
	Resizing int     `json:"resizing,omitempty"` // the number of shards that the name is being resized to
	Owners   []Owner `json:"owners"`
	Orphans  string  `json:"orphans,omitempty"` // the shards without an owner, as "3,7-9"
}

// Owner is a caller of Spread and its shards.
type Owner struct {
	Client   string            `json:"client"`
	Node     string            `json:"node"`
	Self     bool              `json:"self,omitempty"`
	Session  string            `json:"session,omitempty"`
	Shards   string            `json:"shards"` // owned, as "0-3,9"
	Owned    int               `json:"owned"`
	Assigned int               `json:"assigned"` // by the plan
	Weight   int               `json:"weight"`
	Succeeds string            `json:"succeeds,omitempty"`
	Absent   bool              `json:"absent,omitempty"`
	Next     bool              `json:"next,omitempty"`
	Meta     map[string]string `json:"meta,omitempty"`
}
