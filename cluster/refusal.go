package cluster

import "time"

// Refusal is a kind of connections or messages that this member has refused, for
// security's sake or because a bound was reached. A refusal has changed nothing.
type Refusal struct {
	Kind   string    `json:"kind"`             // docs/refused.md explains each kind
	Count  uint64    `json:"count,string"`     // since the start of the process
	From   string    `json:"from,omitempty"`   // the side refused last: a member's name or an address
	Detail string    `json:"detail,omitempty"` // of the latest refusal, in words
	At     time.Time `json:"at"`               // of the latest refusal
	Next   string    `json:"next,omitempty"`   // an operator's next action, if the count grows
}

// refusals lists the refusals so far, by kind.
func (n *Node) refusals() (list []Refusal) {
	for _, t := range n.self.Refused.Totals() {
		list = append(list, Refusal{Kind: string(t.Kind), Count: t.Count, From: t.From, Detail: t.Detail, At: t.At, Next: t.Next})
	}
	return list
}
