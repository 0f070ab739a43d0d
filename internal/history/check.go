package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

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
	found, _ := Judge(h)
	return found
}

// Judge is Check, and returns how many components of the history were too large for a
// search of Limits.Patience.
func Judge(h History) (found []Violation, undecided int) {
	h.sort()
	for _, check := range []func(*History) []Violation{
		overlaps, tokens, order, deadSessions, grantedOnce, once, shards, resized, waiters, watched, fenced, told, paused, lively, clean,
	} {
		found = append(found, check(&h)...)
	}
	for _, check := range []func(*History) ([]Violation, int){locking, cells} {
		more, skipped := check(&h)
		found = append(found, more...)
		undecided += skipped
	}
	slices.SortStableFunc(found, func(a, b Violation) int { return compare(a.At, b.At) })
	return found, undecided
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// seconds formats a duration, or a stamp, for people.
func seconds(ns int64) string { return time.Duration(ns).Round(time.Microsecond).String() }
