package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/wire"
)

// rounds asks the voters, again and again while somebody wants to know,
// whether this leader has been replaced. One round is under way at a time;
// what arrives meanwhile shares the next.
//
// A round begins at t0 and asks every voter of the configuration whether its
// term is not above the leader's. A majority of yes means: until t0 no other
// leader had been elected. For the first leader elected above term T had
// votes from a majority of this configuration or of one adjacent to it (T's
// first entry is committed, so at most one change is open); that majority
// shares a voter with ours; raft stores and publishes a higher term before it
// votes in it; so had the election come before t0, that voter's term would
// have been above T when it was asked.
//
// Not raft.VerifyLeader: it counts non-voters, and answers to questions asked
// before the beat came, so a deposed leader can pass it.
type rounds struct {
	ask func(context.Context) bool // one round

	mu      sync.Mutex
	waiting []func(bool)
	stopped bool
	wake    chan struct{} // size 1
}

const roundTimeout = time.Second

func newRounds(ask func(context.Context) bool) *rounds {
	return &rounds{ask: ask, wake: make(chan struct{}, 1)}
}

// add has done called with the verdict of a round that begins after now. done
// must not block.
func (r *rounds) add(done func(ok bool)) {
	r.mu.Lock()
	stopped := r.stopped
	if !stopped {
		r.waiting = append(r.waiting, done)
	}
	r.mu.Unlock()
	if stopped {
		done(false)
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run runs rounds until ctx ends, and then fails those that wait.
func (r *rounds) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			r.mu.Lock()
			r.stopped = true
			waiting := r.waiting
			r.waiting = nil
			r.mu.Unlock()
			for _, done := range waiting {
				done(false)
			}
			return
		case <-r.wake:
		}
		r.mu.Lock()
		waiting := r.waiting
		r.waiting = nil
		r.mu.Unlock()
		if len(waiting) == 0 {
			continue
		}
		ok := r.ask(ctx)
		for _, done := range waiting {
			done(ok)
		}
	}
}

// confirmTerm is one round: does a majority of the voters say that their term
// is not above this leader's? A leader alone has nobody to ask.
func (l *leader) confirmTerm(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	before, ok := l.leading()
	if !ok {
		return false
	}
	answers := make(chan bool, len(before))
	asked, yes, need := 0, 0, len(before)/2+1
	for _, voter := range before {
		if voter == l.raft.id {
			yes++
			continue
		}
		asked++
		l.n.control.begin(ctx, voter, wire.Confirm, wire.Marshal(&wire.ConfirmRequest{Term: l.term, Voter: voter}),
			func(f wire.Frame, err error) { answers <- err == nil && f.Code == wire.CodeOK })
	}
	for yes < need && asked > 0 {
		select {
		case ok := <-answers:
			asked--
			if ok {
				yes++
			}
		case <-ctx.Done():
			return false
		}
	}
	if yes < need {
		return false
	}
	after, ok := l.leading()
	if !ok || len(after) != len(before) {
		return false
	}
	for i := range after {
		if after[i] != before[i] {
			return false
		}
	}
	return true
}

// leading returns the voters of the latest configuration, sorted, if this
// node's raft still leads in l's term.
func (l *leader) leading() (voters []string, ok bool) {
	voters = l.raft.voters()
	return voters, l.raft.leads(l.term)
}
