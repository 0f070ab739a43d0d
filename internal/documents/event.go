package documents

import "time"

// Event is the data of an event of the stream events.
type Event struct {
	Seq    Number    `json:"seq"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	Node   string    `json:"node,omitempty"`
	Key    string    `json:"key,omitempty"`
	Token  Number    `json:"token,omitempty"`
	Client string    `json:"client,omitempty"`
	Detail string    `json:"detail,omitempty"`
	Next   string    `json:"next,omitempty"` // the action of an operator
}
