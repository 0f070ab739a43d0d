package documents

import "time"

// Event is the data of an event of the stream events.
type Event struct {
	Seq    Number    `json:"seq"`
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind"`
	Member string    `json:"member,omitempty"`
	Key    string    `json:"key,omitempty"`
	Token  Number    `json:"token,omitempty"`
	Client string    `json:"client,omitempty"`
	Detail string    `json:"detail,omitempty"`
	Next   string    `json:"next,omitempty"` // the action of an operator
}
