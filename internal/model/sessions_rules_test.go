package model

import (
	"fmt"
	"strings"
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

func (r sessions) bounds() string {
	rates := "clients slow, leaders fast"
	if r.anyRate {
		rates = "any rate in any tick"
	}
	return fmt.Sprintf("%d clients and another, %d keys, %d grants, %d leaders, %d beats under way, %d doubts, TTL %d of %d to %d a tick, margin %d, %s",
		r.clients, r.keys, r.grants, r.leaders, r.beats, r.doubts, r.ttl, r.slow, r.fast, r.margin, rates)
}

// with returns the rules with a change.
func (r sessions) with(change func(*sessions)) sessions {
	change(&r)
	return r
}

func TestSessionsKeepTheirPromises(t *testing.T) {
	small := allSessionRules()
	name, all := "sessions.txt", []sessions{small}
	if testrounds.Full() {
		name = "sessions_full.txt"
		all = []sessions{
			small.with(func(r *sessions) { r.ttl, r.margin, r.grants = 15, 3, 3 }),
			small.with(func(r *sessions) { r.anyRate = true }),
			small.with(func(r *sessions) { r.doubts = 1 }),
			small.with(func(r *sessions) { r.beats, r.ttl, r.margin, r.leaders, r.holding = 2, 15, 3, 1, true }),
			small.with(func(r *sessions) { r.keys = 2 }),
			small.with(func(r *sessions) { r.leaders = 3 }),
			small.with(func(r *sessions) { r.clients, r.leaders, r.holding = 2, 1, true }),
		}
	}
	var text strings.Builder
	for _, r := range all {
		text.WriteString(holds(t, r.model(), r.bounds(), 100_000_000))
	}
	golden(t, name, text.String())
}

const (
	p1   = "P1"
	p2   = "P2"
	p3   = "P3"
	dead = "a dead session"
)

// These rules stand in for one another: each is taken out alone here, and no promise of
// this model breaks. The next test takes out two of them together. Taken out alone, a rule
// of these still breaks the promise that an ended lock never comes back.
func TestRulesThatStandInForAnother(t *testing.T) {
	name, rules := "sessions_twice.txt", []struct {
		name    string
		without func(r *sessions)
	}{
		{"a beat is confirmed while an Expire is in flight", func(r *sessions) { r.expiryHolds = false }},
	}
	if testrounds.Full() {
		name = "sessions_twice_full.txt"
		rules = append(rules, rules[0], rules[0])
		rules[1].name, rules[1].without = "a beat opens a window that is over", func(r *sessions) { r.spentStays = false }
		rules[2].name, rules[2].without = "a session is over with its last slice only", func(r *sessions) { r.endsForGood = false; r.keys = 2 }
	}
	var text strings.Builder
	for _, c := range rules {
		r := allSessionRules()
		r.holding = true
		c.without(&r)
		text.WriteString("# " + c.name + "\n" + holds(t, r.model(), r.bounds(), 10_000_000))
	}
	golden(t, name, text.String())
}

// Each rule alone is taken out.
func TestEachRuleOfSessionsIsNeeded(t *testing.T) {
	var text strings.Builder
	for _, c := range []struct {
		name    string
		without func(r *sessions)
		want    string
	}{
		{"trust counts from the answer to a beat", func(r *sessions) { r.fromSending = false; r.ttl, r.margin = 15, 3 }, p3},
		{"the first trust counts from the answer to the Open", func(r *sessions) { r.openFromSending, r.holding = false, false }, p3},
		{"the sleep of a host does not count", func(r *sessions) { r.sleepCounts = false }, p3},
		{"there is no margin for clocks of other rates", func(r *sessions) { r.margin = 0 }, p3},
		{"clocks differ by more than the margin", func(r *sessions) { r.slow = 3 }, p3},
		{"a grant is taken though the trust is over", func(r *sessions) { r.aliveAtGrant, r.holding = false, false }, p3},
		{"the context of a lock ends after its Release is sent", func(r *sessions) { r.endsFirst = false }, p3},
		{"a beat moves the deadline by less than a TTL", func(r *sessions) { r.fullTTL = false; r.ttl, r.margin = 15, 3 }, p3},
		{"a session is ended before its deadline", func(r *sessions) { r.due = false }, p3},
		{"a new leader gives no fresh TTL", func(r *sessions) { r.freshTTL = false }, p3},
		{"beats are confirmed without a round", func(r *sessions) { r.confirms = false }, p3},
		{"a round confirms beats that came after it began", func(r *sessions) { r.asksAfter = false }, p3},
		{"a leader does not ask its own voter", func(r *sessions) { r.leads = false }, p3},
		{"a beat is confirmed while an Expire is in flight, and opens a window that is over", func(r *sessions) { r.expiryHolds, r.spentStays = false, false }, p3},
		{"a beat is confirmed while a Silence is in flight", func(r *sessions) { r.markHolds = false }, p3},
		{"a beat of a marked session is confirmed", func(r *sessions) { r.silenceHolds = false }, p3},
		{"the TTL of a mark counts from earlier than its Apply", func(r *sessions) { r.markFull = false; r.ttl, r.margin = 15, 3 }, p3},
		{"an entry of the keeper counts in a later term", func(r *sessions) { r.termBound = false; r.leaders = 3 }, p3},
		{"a leader goes on after a doubt without a barrier", func(r *sessions) { r.barrier = false; r.doubts = 1 }, p3},
		{"a session is over with its last slice only, and a beat opens a window that is over", func(r *sessions) { r.endsForGood, r.spentStays = false, false; r.keys = 2 }, p3},
		{"a Release frees any grant of its session", func(r *sessions) { r.byToken = false; r.grants = 3 }, p3},
		{"a request of an ended session is granted", func(r *sessions) { r.openOnly = false }, dead},
		{"a held key is granted", func(r *sessions) { r.exclusive = false }, p1},
		{"a snapshot leaves the counter of tokens out", func(r *sessions) { r.keepsCounter = false }, p2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := allSessionRules()
			r.holding = true
			c.without(&r)
			fmt.Fprintf(&text, "# %s\n%s\n", c.name, breaks(t, r.model(), 3_000_000, c.want))
		})
	}
	golden(t, "sessions_rules.txt", text.String())
}
