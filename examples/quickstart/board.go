package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// board is what the parent knows of the members, made of their events alone. One
// goroutine has it.
type board struct {
	began      time.Time
	firstGrant time.Time // zero: none yet
	rows       []*row
	scheduler  holding
	owners     [shards]holding
	jobs       int     // that schedulers ran
	refusals   []event // of the fence
	broken     string  // a promise that an event shows to be broken
}

// holding says who holds what under which token. Of two that say so at a time the
// larger token is right: the other's event of its loss is still on its way, or
// its process is stopped.
type holding struct {
	member string // "" for nobody
	token  fence.Token
}

func (h *holding) take(member string, t fence.Token) {
	if t > h.token {
		*h = holding{member, t}
	}
}

func (h *holding) drop(member string, t fence.Token) {
	if h.member == member && h.token == t {
		h.member = "" // the token stays, as the highest that was seen
	}
}

// row is one member.
type row struct {
	name      string
	pid       int
	addr      string
	state     state
	ready     bool
	voter     bool
	leads     bool
	writes    int // since its process started
	preparing map[int]bool
}

type state string

const (
	starting state = "starting"
	running  state = "running"
	paused   state = "paused"
	dead     state = "dead"
)

func newBoard(began time.Time, names []string) *board {
	b := &board{began: began}
	for _, name := range names {
		b.rows = append(b.rows, &row{name: name, state: dead, preparing: make(map[int]bool)})
	}
	return b
}

func (b *board) row(name string) *row {
	i := slices.IndexFunc(b.rows, func(r *row) bool { return r.name == name })
	return b.rows[i]
}

// started notes that a process of that member was started.
func (b *board) started(name string, pid int) {
	*b.row(name) = row{name: name, pid: pid, state: starting, preparing: make(map[int]bool)}
}

// apply takes in an event that came now. It returns what there is to tell of it,
// and whether that is one of the many that go with shards.
func (b *board) apply(e event, now time.Time) (line string, minor bool) {
	r := b.row(e.Member)
	switch e.Kind {
	case listening:
		r.addr = e.Detail
		return fmt.Sprintf("%s listens at %s (process %d)", r.name, r.addr, r.pid), false
	case ready:
		r.ready = true
		if r.state == starting {
			r.state = running
		}
		return r.name + " is ready: the cluster grants locks, and it may ask for them", true
	case status:
		r.voter, r.leads, r.writes = e.Voter, e.Leads, e.Writes
	case elected:
		b.granted(now)
		b.scheduler.take(r.name, e.Token)
		return fmt.Sprintf("%s is elected scheduler, token %s", r.name, short(e.Token)), false
	case deposed:
		b.scheduler.drop(r.name, e.Token)
		return fmt.Sprintf("%s is scheduler no more: %s", r.name, e.Detail), false
	case job:
		b.jobs++
	case owns:
		b.granted(now)
		b.owners[e.Shard].take(r.name, e.Token)
		return fmt.Sprintf("%s owns shard %d", r.name, e.Shard), true
	case gave:
		b.owners[e.Shard].drop(r.name, e.Token)
		return fmt.Sprintf("%s owns shard %d no more: %s", r.name, e.Shard, e.Detail), true
	case preparing:
		r.preparing[e.Shard] = true
	case refused:
		b.refusals = append(b.refusals, e)
		if e.Trusted && b.broken == "" {
			b.broken = fmt.Sprintf("%s trusted its lock of shard %d, token %d, when the fence had seen %d", r.name, e.Shard, e.Token, e.Seen)
		}
		return fmt.Sprintf("the fence REFUSES %s's write to shard %d: token %s, seen %s", r.name, e.Shard, short(e.Token), short(e.Seen)), false
	case failed:
		return fmt.Sprintf("%s gives up: %s", r.name, e.Detail), false
	case exited:
		r.state, r.ready, r.voter, r.leads = dead, false, false, false
		b.scheduler.drop(r.name, b.scheduler.token)
		for i := range b.owners {
			b.owners[i].drop(r.name, b.owners[i].token)
		}
		return fmt.Sprintf("%s's process is gone: %s", r.name, e.Detail), false
	}
	return "", true
}

func (b *board) granted(now time.Time) {
	if b.firstGrant.IsZero() {
		b.firstGrant = now
	}
}

// short is a token's end, which is what differs.
func short(t fence.Token) string {
	const digits = 6
	if s := t.String(); len(s) > digits {
		return "…" + s[len(s)-digits:]
	}
	return t.String()
}

// shardsOf lists the shards that a member owns, as far as anybody said.
func (b *board) shardsOf(name string) []int {
	var out []int
	for shard, h := range b.owners {
		if h.member == name {
			out = append(out, shard)
		}
	}
	return out
}

// highest is the largest token that a member holds anything under.
func (b *board) highest(name string) fence.Token {
	var t fence.Token
	for _, h := range append(b.owners[:], b.scheduler) {
		if h.member == name {
			t = max(t, h.token)
		}
	}
	return t
}

// up is how many members run and vote. With fewer than all of them, the next loss
// may leave no majority.
func (b *board) up() int {
	n := 0
	for _, r := range b.rows {
		if r.state == running && r.voter {
			n++
		}
	}
	return n
}

// settled reports whether all members are up, one is the scheduler, and the
// shards are divided evenly.
func (b *board) settled() bool {
	if b.up() != len(b.rows) || b.scheduler.member == "" {
		return false
	}
	for _, r := range b.rows {
		if !r.ready || len(b.shardsOf(r.name)) != shards/len(b.rows) {
			return false
		}
	}
	return true
}

// allOwned reports whether each shard has an owner, and none of them is but.
func (b *board) allOwned(but string) bool {
	return !slices.ContainsFunc(b.owners[:], func(h holding) bool { return h.member == "" || h.member == but })
}

// division says who owns how many shards.
func (b *board) division() string {
	var parts []string
	for _, r := range b.rows {
		parts = append(parts, fmt.Sprintf("%s %d", r.name, len(b.shardsOf(r.name))))
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
