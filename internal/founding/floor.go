package founding

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
)

// This file asks Config.TokenFloor for the highest token that the protected resources
// have seen.
//
// Every member with a TokenFloor asks its own, the proposer before a ballot and each
// other member before a promise and before an acceptance. A member whose TokenFloor
// fails takes no part. The first token of a founding is above every answer of the
// members that promised (floorOf), and no member accepts a first token that is not
// above its own answer (checkFloor). So whichever quorum chooses the founding, the
// first token is above the answer of every member of that quorum.
//
// An answer that is ahead of the founder's clock counts at once, up to a day: the
// first token is above the answer, and nobody waits until the clock has caught up.
// Tokens rise without the clock, and a wait of hours would stop all locks to protect
// nothing. An answer further ahead counts nowhere, and the member takes no part: a
// token of next year is a wrong clock, here or on the host that founded before, or a
// broken mark, and would spend tokens that nobody can give back.
//
// A resource knows only the tokens that were shown to it. A former holder may have a
// higher token, and may be paused before the claim. So where the clock is behind the
// answer, the first token is above it by unseen more.
//
// The answer counts for timing.FloorFresh. What the resources see meanwhile is less
// than unseen.

// unseen is the number of tokens that a former cluster may have granted above the
// highest token told: a day of grants at 50,000 a second, more than one group commits.
const unseen = uint64(1) << 32

// NoFloor begins the part of Progress about a TokenFloor that does not answer.
const NoFloor = "Recovery.TokenFloor "

// floorTrouble says why there is no floor.
type floorTrouble struct {
	kind   floorKind
	detail string // for this member's operator: others are told the kind alone
}

type floorKind string

const (
	floorFails  floorKind = "fails"
	floorBlocks floorKind = "has not answered"
	floorAhead  floorKind = "returns a token too far ahead of the clock"
)

func (t *floorTrouble) Error() string { return NoFloor + string(t.kind) + t.detail }

// refusal returns the text for other members. An error of a database may have names and
// addresses that are none of their business.
func (t *floorTrouble) refusal() string { return "its " + NoFloor + string(t.kind) }

// floorAsker asks a TokenFloor, one call at a time, on the goroutine of run.
type floorAsker struct {
	ask   func(ctx context.Context) (uint64, error) // nil: there is no floor
	limit func() uint64                             // the highest answer that counts
	warn  func(*floorTrouble)

	wanted wakeup.One
	ended  wakeup.All // a call has ended

	mu      sync.Mutex
	token   uint64 // the newest answer
	at      time.Time
	trouble *floorTrouble // of the last call; nil: it was answered
	noted   time.Time     // when the trouble came
	failed  int           // calls without an answer, in a row
	next    time.Time     // no call before
	begun   time.Time     // of the call under way; zero: none
	warned  map[floorKind]time.Time
}

func newFloorAsker(ask func(ctx context.Context) (uint64, error), limit func() uint64, warn func(*floorTrouble)) *floorAsker {
	return &floorAsker{ask: ask, limit: limit, warn: warn, wanted: wakeup.NewOne(), warned: make(map[floorKind]time.Time)}
}

// get returns an answer that is fresh, and waits for one until ctx ends, for
// timing.FloorAnswer at most. The pauses between failing calls grow, and within a
// pause get returns the last trouble at once.
func (f *floorAsker) get(ctx context.Context) (uint64, *floorTrouble) {
	if f.ask == nil {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timing.FloorAnswer)
	defer cancel()
	for {
		ended := f.ended.Wait()
		f.mu.Lock()
		token, trouble := f.token, f.trouble
		fresh := !f.at.IsZero() && time.Since(f.at) < timing.FloorFresh
		pausing := time.Now().Before(f.next)
		f.mu.Unlock()
		switch {
		case trouble == nil && fresh:
			return token, nil
		case trouble != nil && pausing:
			return 0, trouble
		}
		f.wanted.Wake()
		select {
		case <-ended:
		case <-ctx.Done():
			trouble := &floorTrouble{kind: floorBlocks}
			if f.blocks() {
				f.tell(trouble) // the call may never return
			}
			return 0, trouble
		}
	}
}

// blocks reports whether a call is under way for longer than anybody waits for it.
func (f *floorAsker) blocks() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.begun.IsZero() && time.Since(f.begun) >= timing.FloorAnswer
}

// tell warns of a trouble, and of each kind once in a while.
func (f *floorAsker) tell(t *floorTrouble) {
	f.mu.Lock()
	last := f.warned[t.kind]
	first := last.IsZero() || time.Since(last) > timing.FloorTold
	if first {
		f.warned[t.kind] = time.Now()
	}
	f.mu.Unlock()
	if first {
		f.warn(t)
	}
}

// run calls TokenFloor when somebody waits for the answer. It returns when ctx has
// ended and the last call has returned.
func (f *floorAsker) run(ctx context.Context) {
	for {
		select {
		case <-f.wanted:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		f.mu.Lock()
		idle := f.trouble != nil && now.Before(f.next) || f.trouble == nil && !f.at.IsZero() && now.Sub(f.at) < timing.FloorFresh
		if !idle {
			f.begun = now
		}
		f.mu.Unlock()
		if idle {
			continue // the wake-up of somebody whom the last call has answered
		}
		token, trouble := f.call(ctx)
		if ctx.Err() != nil {
			return
		}
		f.note(now, token, trouble)
		f.ended.Wake()
	}
}

// call calls TokenFloor once.
func (f *floorAsker) call(ctx context.Context) (uint64, *floorTrouble) {
	ctx, cancel := context.WithTimeout(ctx, timing.FloorAsk)
	defer cancel()
	token, err := f.ask(ctx)
	switch limit := f.limit(); {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return 0, &floorTrouble{floorBlocks, fmt.Sprintf(" within %v: %v", timing.FloorAsk, err)}
	case err != nil:
		return 0, &floorTrouble{floorFails, fmt.Sprintf(": %v", err)}
	case token > limit+maxAhead:
		return 0, &floorTrouble{floorAhead, fmt.Sprintf(": %d is %v ahead, a day at most is believed. Set the clock of this host right; "+
			"if the clock is right, no founding with a right clock has granted this token: correct the function or the mark in the resource", token, aheadOf(token, limit))}
	}
	return token, nil
}

// note keeps the result of a call that began at the given time.
func (f *floorAsker) note(began time.Time, token uint64, trouble *floorTrouble) {
	f.mu.Lock()
	f.begun, f.trouble = time.Time{}, trouble
	if trouble == nil {
		f.token, f.at, f.failed = token, began, 0
		f.mu.Unlock()
		return
	}
	pause := min(timing.FloorAgain<<min(f.failed, 10), timing.FloorAtMost)
	f.failed++
	f.noted = time.Now()
	f.next = f.noted.Add(pause/2 + rand.N(pause/2))
	f.mu.Unlock()
	f.tell(trouble)
}

// text says why there is no floor, or "". Trouble of an earlier attempt to found is not
// told: a founding that is tried asks again and again.
func (f *floorAsker) text() string {
	if f.blocks() {
		return (&floorTrouble{kind: floorBlocks}).Error()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble == nil || time.Since(f.noted) > 2*timing.FloorAtMost {
		return ""
	}
	return f.trouble.Error()
}

// tokenFloor returns the answer of this member's TokenFloor, 0 without one.
func (r *Runner) tokenFloor(ctx context.Context) (uint64, *floorTrouble) { return r.floors.get(ctx) }

// warnFloor warns of a TokenFloor without an answer.
func (r *Runner) warnFloor(t *floorTrouble) {
	next := "let the protected resource answer: this member founds nothing without, and asks again"
	if t.kind == floorAhead {
		next = "see Health for the way out: this member founds nothing meanwhile"
	}
	r.cfg.Self.Log.Warn("the token floor is not known", "error", clip(t.Error()), "next", next)
}

// highest returns the highest token that this member knows without a TokenFloor: by
// its clock, from its record, and from the clusters of which it was a member.
func (r *Runner) highest() uint64 {
	r.mu.Lock()
	seen := r.spent
	r.mu.Unlock()
	if own := r.value.Load(); own != nil {
		seen = max(seen, own.Floor)
	}
	return max(seen, tokenOf(r.cfg.Self.Clock.Wall()), r.cfg.Record.Get().Token)
}
