package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// board is the parent's view of the members, built from their events alone. A board
// belongs to the goroutine that drives the demo.
type board struct {
	began      time.Time
	firstGrant time.Time // zero before the first grant
	rows       []*row
	scheduler  grant
	owners     [shards]grant
	jobs       int     // number of jobs that schedulers ran
	refusals   []event // the fence's refusals
	broken     string  // the first broken promise, as text

	moved time.Time         // the latest change of an owner
	told  map[string]string // the shards of each member in the last line about them
}

// grant is a member's grant of a key, under token. If two members report a grant of
// one key, the larger token is right: the other member's event of its loss is on
// the way, or the other process is stopped.
type grant struct {
	member string // "" for nobody
	token  fence.Token
}

func (h *grant) begin(member string, t fence.Token) {
	if t > h.token {
		*h = grant{member, t}
	}
}

func (h *grant) end(member string, t fence.Token) {
	if h.member == member && h.token == t {
		h.member = "" // the token stays, as the highest token seen
	}
}

// row is the view of a member.
type row struct {
	name      string
	pid       int
	addr      string
	page      string // the address of the live page, or ""
	state     state
	ready     bool
	voter     bool
	leads     bool
	writes    int // since the start of the process
	preparing map[int]bool

	// trustUntil is the end of the member's trust in its locks if no further beat is
	// confirmed. It is zero before the first lock, and stays after the last.
	trustUntil time.Time
}

type state string

const (
	starting state = "starting"
	running  state = "running"
	paused   state = "paused"
	cutOff   state = "cut off"
	dead     state = "dead"
)

func newBoard(began time.Time, names []string) *board {
	b := &board{began: began, told: make(map[string]string)}
	for _, name := range names {
		b.rows = append(b.rows, &row{name: name, state: dead, preparing: make(map[int]bool)})
	}
	return b
}

func (b *board) row(name string) *row {
	i := slices.IndexFunc(b.rows, func(r *row) bool { return r.name == name })
	return b.rows[i]
}

// started resets the row of a member to a new process.
func (b *board) started(name string, pid int) {
	*b.row(name) = row{name: name, pid: pid, state: starting, preparing: make(map[int]bool)}
	delete(b.told, name)
}

// settled is the time without a change of an owner after which the owners are told.
const settled = 300 * time.Millisecond

// changedOwners returns a line about the owners of the shards, once after each burst of
// changes, or "".
func (b *board) changedOwners(now time.Time) string {
	if b.moved.IsZero() || now.Sub(b.moved) < settled {
		return ""
	}
	b.moved = time.Time{}
	var parts []string
	for _, r := range b.rows {
		if owned := summed(b.shardsOf(r.name)); owned != b.told[r.name] {
			b.told[r.name] = owned
			if r.state == dead {
				continue // its process owns nothing, and its locks are not free yet
			}
			if owned == "" {
				owned = "nothing"
			}
			parts = append(parts, r.name+" owns "+owned)
		}
	}
	return strings.Join(parts, ", ")
}

// apply changes the board by an event received at now. It returns a line about the
// event for the user, or "". Only the terminal shows minor lines. Shards are told by
// changedOwners.
func (b *board) apply(e event, now time.Time) (line string, minor bool) {
	r := b.row(e.Member)
	switch e.Kind {
	case listening:
		r.addr = e.Detail
		return fmt.Sprintf("%s listens at %s (process %d)", r.name, r.addr, r.pid), false
	case serving:
		r.page = e.Detail
	case ready:
		r.ready = true
		if r.state == starting {
			r.state = running
		}
		return r.name + " is ready: the cluster grants locks", true
	case status:
		r.voter, r.leads, r.writes = e.Voter, e.Leads, e.Writes
		// A report of no trust says nothing about when the trust ended.
		if e.Trust > 0 {
			r.trustUntil = now.Add(e.Trust)
		}
	case elected:
		b.granted(now)
		b.scheduler.begin(r.name, e.Token)
		return fmt.Sprintf("%s is elected scheduler, token %s", r.name, short(e.Token)), false
	case deposed:
		b.scheduler.end(r.name, e.Token)
		return fmt.Sprintf("%s is no longer scheduler: %s", r.name, e.Detail), false
	case job:
		b.jobs++
	case owns:
		b.granted(now)
		b.owners[e.Shard].begin(r.name, e.Token)
		b.moved = now
	case gaveUp:
		b.owners[e.Shard].end(r.name, e.Token)
		b.moved = now
	case preparing:
		r.preparing[e.Shard] = true
	case refused:
		b.refusals = append(b.refusals, e)
		if e.Trusted && b.broken == "" {
			b.broken = fmt.Sprintf("%s trusted its lock of shard %d, token %d, when the fence had seen %d", r.name, e.Shard, e.Token, e.Seen)
		}
		return fmt.Sprintf("the fence REFUSES %s's write to shard %d: token %s, but it has seen %s", r.name, e.Shard, short(e.Token), short(e.Seen)), false
	case failed:
		return fmt.Sprintf("%s gives up: %s", r.name, e.Detail), false
	case exited:
		r.state, r.ready, r.voter, r.leads = dead, false, false, false
		b.scheduler.end(r.name, b.scheduler.token)
		for i := range b.owners {
			b.owners[i].end(r.name, b.owners[i].token)
		}
		b.moved = now
		return fmt.Sprintf("%s's process is gone: %s", r.name, e.Detail), false
	}
	return "", true
}

func (b *board) granted(now time.Time) {
	if b.firstGrant.IsZero() {
		b.firstGrant = now
	}
}

// short returns the last digits of a token. The first digits are the same in all
// tokens of a cluster.
func short(t fence.Token) string {
	const digits = 6
	if s := t.String(); len(s) > digits {
		return "…" + s[len(s)-digits:]
	}
	return t.String()
}

// shardsOf returns the shards that a member owns.
func (b *board) shardsOf(name string) []int {
	var out []int
	for shard, h := range b.owners {
		if h.member == name {
			out = append(out, shard)
		}
	}
	return out
}

// highest returns the largest token of a member's grants, or 0.
func (b *board) highest(name string) fence.Token {
	var t fence.Token
	for _, h := range append(b.owners[:], b.scheduler) {
		if h.member == name {
			t = max(t, h.token)
		}
	}
	return t
}

// votersUp returns the number of members that run and vote. If a member is missing,
// the next loss may leave no majority.
func (b *board) votersUp() int {
	n := 0
	for _, r := range b.rows {
		if r.state == running && r.voter {
			n++
		}
	}
	return n
}

// balanced reports whether all members run and vote, there is a scheduler, and the
// shards are divided evenly.
func (b *board) balanced() bool {
	if b.votersUp() != len(b.rows) || b.scheduler.member == "" {
		return false
	}
	for _, r := range b.rows {
		if !r.ready || len(b.shardsOf(r.name)) != shards/len(b.rows) {
			return false
		}
	}
	return true
}

// allOwned reports whether each shard has an owner other than except.
func (b *board) allOwned(except string) bool {
	return !slices.ContainsFunc(b.owners[:], func(h grant) bool { return h.member == "" || h.member == except })
}

// division returns the shards of each member, as text.
func (b *board) division() string {
	var parts []string
	for _, r := range b.rows {
		if owned := summed(b.shardsOf(r.name)); owned != "" {
			parts = append(parts, r.name+" owns "+owned)
		}
	}
	return strings.Join(parts, ", ")
}

func (b *board) writes() int {
	n := 0
	for _, r := range b.rows {
		n += r.writes
	}
	return n
}
