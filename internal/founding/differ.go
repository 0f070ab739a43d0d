package founding

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file tells founders that are configured differently, on both sides and at
// each ballot again. A difference is taken back once a ballot shows none.
// All are taken back when this member has entered a cluster all the same.

// terms are the parts of a configuration in which founders must agree.
type terms struct {
	size     int
	founders []string
	voters   int
	ttl      uint64 // milliseconds; a difference is told, and the largest TTL wins
	complete bool
}

func (r *Runner) terms() terms {
	return terms{
		size: r.cfg.InitialSize, founders: r.cfg.Founders, voters: r.cfg.Voters,
		ttl: uint64(r.cfg.TTL / time.Millisecond), complete: r.cfg.Complete != nil && !r.cfg.Record.Durable(),
	}
}

func termsOf(req wire.PrepareRequest) terms {
	return terms{
		size: req.Size, founders: req.Founders, voters: req.Voters, ttl: req.TTL, complete: req.Complete,
	}
}

// prepareRequest is this member's request to promise a ballot without a word.
//
// The first token will be as high at least, floor being the answer of the own
// TokenFloor. The members refuse a first token that is too high now:
// a value accepted by some of them, and refused by others for ever, would hold every
// later ballot.
func (r *Runner) prepareRequest(b wire.Ballot, floor uint64) wire.PrepareRequest {
	t := r.terms()
	return wire.PrepareRequest{Ballot: b, Size: t.size, Founders: t.founders, Voters: t.voters, TTL: t.ttl, Complete: t.complete,
		Floor: floorOf(r.cfg.Self.Clock.Wall(), max(floor, r.cfg.Record.Get().Token), nil, nil)}
}

// declares reports whether the terms are those of a declared founder. A member
// that only joins has no opinion on the number of first members.
func (t terms) declares() bool { return t.size > 0 || len(t.founders) > 0 }

// exclude reports whether members with these terms cannot found together: their
// majorities would be counted from different numbers.
func exclude(a, b terms) bool {
	return a.size != b.size || !slices.Equal(a.founders, b.founders) || a.voters != b.voters || a.complete != b.complete
}

// differences tells a member with the terms own about a member with the terms
// theirs. The result is empty if there is nothing to tell.
func differences(theirs, own terms) string {
	if !theirs.declares() || !own.declares() {
		return ""
	}
	var texts []string
	if theirs.size != own.size {
		texts = append(texts, fmt.Sprintf("it expects %d first members, this member %d", theirs.size, own.size))
	}
	if theirs.voters != own.voters {
		texts = append(texts, fmt.Sprintf("it is set to %s voters, this member to %s", number(theirs.voters), number(own.voters)))
	}
	if !slices.Equal(theirs.founders, own.founders) {
		texts = append(texts, fmt.Sprintf("its Founders are %q, this member's %q", theirs.founders, own.founders))
	}
	if theirs.ttl != own.ttl {
		texts = append(texts, fmt.Sprintf("its TTL is %v, this member's %v", milliseconds(theirs.ttl), milliseconds(own.ttl)))
	}
	if theirs.complete != own.complete {
		texts = append(texts, fmt.Sprintf("its Join is complete: %t, this member's: %t", theirs.complete, own.complete))
	}
	return strings.Join(texts, "; ")
}

func milliseconds(n uint64) time.Duration { return time.Duration(min(n, 1<<40)) * time.Millisecond }

// number is the text of a number of voters: 0 lets the members choose.
func number(n int) string {
	if n == 0 {
		return "an automatic number of"
	}
	return fmt.Sprint(n)
}

// maxTold bounds the processes remembered as told.
const maxTold = 256

// tell passes a difference on to Config.Conflict, and takes an earlier one back
// when there is none.
func (r *Runner) tell(with member.Process, detail string) {
	at := member.Process{Name: with.Name, Boot: with.Boot} // asked or asking, it is the same process
	r.mu.Lock()
	told := r.told[at]
	switch {
	case detail == "":
		delete(r.told, at)
	case len(r.told) < maxTold:
		r.told[at] = true
	}
	r.mu.Unlock()
	if detail != "" || told {
		r.cfg.Conflict(with, detail)
	}
}

// settle takes all differences back.
func (r *Runner) settle() {
	r.mu.Lock()
	told := slices.Collect(maps.Keys(r.told))
	clear(r.told)
	r.mu.Unlock()
	for _, p := range told {
		r.cfg.Conflict(p, "")
	}
}
