package documents

import "time"

// EventBeat is how often a stream of events says that it lives, and EventSilence the time
// without a word after which its reader has lost the connection.
const (
	EventBeat    = 5 * time.Second
	EventSilence = 3 * EventBeat
)

// Dropped is the data of "dropped" in the stream events: events are gone for this reader.
type Dropped struct {
	Dropped uint64 `json:"dropped,omitempty"` // how many, if that is known
	Reason  string `json:"reason"`
}

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
