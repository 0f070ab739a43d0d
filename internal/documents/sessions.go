package documents

import "time"

// Sessions is the document sessions.json: a page of the open sessions, in the order of
// their Refs.
type Sessions struct {
	Head
	Sessions []Session `json:"sessions"`
	More     bool      `json:"more"`
	After    string    `json:"after,omitempty"` // the last Ref of this page
}

// Session is an open session.
type Session struct {
	Ref    string            `json:"ref"` // for the action end-session; proves nothing
	Client string            `json:"client"`
	Node   string            `json:"node"`
	Self   bool              `json:"self,omitempty"`
	TTL    Duration          `json:"ttl"`
	Opened *time.Time        `json:"opened,omitempty"`
	Age    *Duration         `json:"age,omitempty"`  // since Opened
	Left   *Duration         `json:"left,omitempty"` // only a leader knows
	Ending bool              `json:"ending,omitempty"`
	Keys   int               `json:"keys"`
	Waits  int               `json:"waits"`
	Meta   map[string]string `json:"meta,omitempty"`
}
