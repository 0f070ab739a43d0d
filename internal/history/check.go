package history

import "fmt"

// Violation is a promise that the history breaks.
type Violation struct {
	Check string   `json:"check"`           // the checker
	Key   string   `json:"key,omitempty"`   // the key, id, shard or resource concerned
	At    int64    `json:"at,omitempty"`    // when the promise was broken, as far as known
	Text  string   `json:"text"`            // one sentence
	IDs   []string `json:"ids,omitempty"`   // the ops, holds and runs concerned
	Until int64    `json:"until,omitempty"` // of the stretch that is worth reading
}

func (v Violation) String() string {
	if v.Key == "" {
		return fmt.Sprintf("%s: %s", v.Check, v.Text)
	}
	return fmt.Sprintf("%s: %q: %s", v.Check, v.Key, v.Text)
}

// Check judges h. A sound history has no violations. The order of the records in h does not
// matter, except as Write says.
func Check(h History) []Violation {
	v, _ := Judge(h)
	return v
}

// Judge is Check, and returns how many components of the history were too large for the
// search of Limits.Patience.
func Judge(h History) (violations []Violation, undecided int) {
	h.sort()
	return violations, undecided
}
