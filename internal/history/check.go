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

// Searches counts the searches for an order of calls: one for the calls about some keys that
// no other calls meet.
type Searches struct {
	All       int
	Undecided int // took longer than Limits.Patience, and found nothing
}

// mostUndecided is the share of searches that may be undecided: one of so many, and one more.
const mostUndecided = 1000

// Enough reports whether so many searches were decided that those without a result hide
// little.
func (s Searches) Enough() bool { return (s.Undecided-1)*mostUndecided <= s.All }

// Add returns the sum of both counts.
func (s Searches) Add(o Searches) Searches {
	return Searches{s.All + o.All, s.Undecided + o.Undecided}
}

func (s Searches) String() string {
	return fmt.Sprintf("%d of %d searches undecided", s.Undecided, s.All)
}

// Judge is Check, and counts the searches. The caller reports those that are undecided, and
// fails a run without Enough others.
func Judge(h History) (found []Violation, made Searches) {
	h.sort()
	for _, check := range []func(*History) []Violation{
		overlaps, tokens, order, deadSessions, grantedOnce, once, shards, resized, waiters, watched, fenced, told, paused, lively, served, clean,
	} {
		found = append(found, check(&h)...)
	}
	for _, check := range []func(*History) ([]Violation, Searches){locking, cells} {
		more, n := check(&h)
		found = append(found, more...)
		made = made.Add(n)
	}
	slices.SortStableFunc(found, func(a, b Violation) int { return compare(a.At, b.At) })
	return found, made
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// seconds formats a duration, or a stamp, for people.
func seconds(ns int64) string { return time.Duration(ns).Round(time.Microsecond).String() }
