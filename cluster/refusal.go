package cluster

import "time"

// Refusal is a kind of connections or messages that this member has refused, for
// security's sake or because a bound was reached. A refusal has changed nothing.
type Refusal struct {
	Kind   string    // docs/refused.md explains each kind
	Count  uint64    // since the start of the process
	From   string    // the side refused last: a member's name or an address
	Detail string    // of the latest refusal, in words
	At     time.Time // of the latest refusal
	Next   string    // an operator's next action, if the count grows
}

// refusals lists the refusals so far, by kind.
func (n *Node) refusals() (list []Refusal) {
	for _, t := range n.self.Refused.Totals() {
		list = append(list, Refusal{Kind: string(t.Kind), Count: t.Count, From: t.From, Detail: t.Detail, At: t.At, Next: t.Next})
	}
	return list
}
