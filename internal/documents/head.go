package documents

import (
	"encoding/json"
	"strconv"
	"time"
)

// Source says where the data of a document comes from.
type Source string

const (
	// SourceCluster: the leader answered, confirmed by a majority of the voters.
	SourceCluster Source = "cluster"

	// SourceTable: the applied table of this member, which votes. The data is complete,
	// and as old as Age says.
	SourceTable Source = "table"

	// SourceOwn: this member does not vote, and tells only of its own clients.
	SourceOwn Source = "own"
)

// Head begins every document.
type Head struct {
	Node   string    `json:"node"` // the member that answered
	At     time.Time `json:"at"`   // of the answer, by that member's clock
	Source Source    `json:"source"`
	Age    Duration  `json:"age"`             // of the data; 0 from the cluster
	Index  Number    `json:"index,omitempty"` // SourceTable: the last entry applied

	// Quorum says that the member reaches a leader. Without a quorum Reason describes the
	// trouble, and Next is the action against the trouble.
	Quorum bool   `json:"quorum"`
	Reason string `json:"reason,omitempty"`
	Next   string `json:"next,omitempty"`
}

// Duration is a time.Duration, as text such as "1.5s".
type Duration time.Duration

// String returns d as text.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText returns d as text.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the text of a time.Duration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// Number is a number of 64 bits: a token, an index, a term. In JSON it is a string.
type Number uint64

// MarshalJSON returns n as a string of digits.
func (n Number) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, strconv.FormatUint(uint64(n), 10)), nil
}

// UnmarshalJSON reads a string of digits.
func (n *Number) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	v, err := strconv.ParseUint(s, 10, 64)
	*n = Number(v)
	return err
}

// Failure is the answer to a request for a document that cannot be answered.
type Failure struct {
	Error string `json:"error"`
	Code  string `json:"code"` // as in Action
}
