package term

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
)

// rounds asks the voters whether this leader has been replaced, round after
// round for as long as anybody wants to know. One round is under way at a time;
// questions arriving meanwhile share the next round. Beats are in no hurry: they
// share a round with the beats of timing.BeatsTogether, unless another question begins the
// round before. So thousands of sessions cost the voters no more than some
// hundred rounds a second, and the first beat after a rest waits for nobody.
//
// The verdicts of beats are told by the goroutine that runs the rounds, and all others by
// a second goroutine: an answer to a reader takes work, a member may have a hundred
// thousand questions under way, and no beat of another member may wait for such answers.
//
// A round begins at t0 and asks every voter of the configuration whether the
// voter's term is not above the leader's. A majority of yes means: until t0 no
// other leader had been elected. Proof:
//
//   - The first leader elected above term T had votes from a majority of this
//     configuration or of an adjacent configuration: T's first entry is committed,
//     so at most a single change is open.
//   - This majority shares a voter with the majority of the round.
//   - Raft stores and publishes a higher term before voting in the term.
//   - So had the election come before t0, the shared voter's term would have
//     been above T when the voter was asked.
//
// Not raft.VerifyLeader: VerifyLeader counts non-voters, and counts answers to
// questions asked before the beat came, so a deposed leader can pass.
type rounds struct {
	ask func(context.Context) bool // a round

	took timing.Latest // of the rounds with a majority

	mu      sync.Mutex
	waiting questions
	stopped bool
	wake    wakeup.One // a question
	beats   wakeup.One // a question that can wait

	verdicts []verdict  // not told yet
	decided  wakeup.One // there are verdicts
}

// questions wait for a round.
type questions struct{ beats, others []func(ok bool) }

// verdict is the outcome of a round, with the questions to be answered by it.
type verdict struct {
	done []func(ok bool)
	ok   bool
}

func newRounds(ask func(context.Context) bool) *rounds {
	return &rounds{ask: ask, wake: wakeup.NewOne(), beats: wakeup.NewOne(), decided: wakeup.NewOne()}
}

// add calls done with the verdict of a round beginning after now. done must not
// block. After run has ended the verdict is false.
func (r *rounds) add(done func(ok bool)) { r.question(&r.waiting.others, done, r.wake) }

// addBeat is add for a question that can wait for others, with a verdict that waits for
// no other's.
func (r *rounds) addBeat(done func(ok bool)) { r.question(&r.waiting.beats, done, r.beats) }

func (r *rounds) question(list *[]func(bool), done func(ok bool), wake wakeup.One) {
	r.mu.Lock()
	stopped := r.stopped
	if !stopped {
		*list = append(*list, done)
	}
	r.mu.Unlock()
	if stopped {
		done(false)
		return
	}
	wake.Wake()
}

// take removes and returns the waiting questions. With stop, later questions fail.
func (r *rounds) take(stop bool) (waiting questions) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting, r.waiting = r.waiting, questions{}
	r.stopped = r.stopped || stop
	return waiting
}

// run runs rounds until ctx ends, and then answers false to every question. All verdicts
// have been told when run returns.
func (r *rounds) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := make(chan struct{})
	defer close(ended)
	wg.Go(func() { r.tell(ended) })
	var began time.Time // the last round
	for {
		select {
		case <-ctx.Done():
			r.decide(r.take(true), false)
			return
		case <-r.wake:
		case <-r.beats:
			r.rest(ctx, timing.BeatsTogether-time.Since(began))
		}
		waiting := r.take(false)
		if len(waiting.beats)+len(waiting.others) == 0 {
			continue
		}
		began = time.Now()
		ok := r.ask(ctx)
		if ok {
			r.took.Add(time.Since(began))
		}
		r.decide(waiting, ok)
	}
}

// decide tells the beats their verdict, and has tell tell the others.
func (r *rounds) decide(q questions, ok bool) {
	for _, done := range q.beats {
		done(ok)
	}
	if len(q.others) == 0 {
		return
	}
	r.mu.Lock()
	r.verdicts = append(r.verdicts, verdict{q.others, ok})
	r.mu.Unlock()
	r.decided.Wake()
}

// tell tells verdicts until ended is closed and none is left.
func (r *rounds) tell(ended <-chan struct{}) {
	for last := false; !last; {
		select {
		case <-r.decided:
		case <-ended:
			last = true
		}
		r.mu.Lock()
		verdicts := r.verdicts
		r.verdicts = nil
		r.mu.Unlock()
		for _, v := range verdicts {
			for _, done := range v.done {
				done(v.ok)
			}
		}
	}
}

// rest waits for d, for a question without patience, or for the end of ctx.
func (r *rounds) rest(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-r.wake:
	case <-t.C:
	}
}

// round is confirmTerm, counted.
func (t *Term) round(ctx context.Context) bool {
	begun := time.Now()
	ok := t.confirmTerm(ctx)
	if ok {
		t.cfg.Meter.Rounds.Observe(time.Since(begun))
	} else if ctx.Err() == nil {
		t.cfg.Meter.RoundsFailed.Inc()
	}
	return ok
}

// confirmTerm is a round. confirmTerm reports true if a majority of the voters says
// "my term is not above this leader's" and the configuration does not change
// meanwhile. A single voter asks nobody. Once ctx has ended, the answer is false: the Term
// has stopped, or the round has taken too long.
func (t *Term) confirmTerm(ctx context.Context) bool {
	before := t.cfg.Log.Voters()
	if !t.cfg.Log.Leads(t.cfg.Term) {
		return false
	}
	if len(before) == 1 && before[0] == t.cfg.Log.ID() {
		return ctx.Err() == nil
	}
	ctx, cancel := context.WithTimeout(ctx, timing.ConfirmRound)
	defer cancel()
	answers := make(chan bool, len(before))
	for _, voter := range before {
		if voter == t.cfg.Log.ID() {
			answers <- true
		} else {
			t.cfg.Ask(ctx, voter, t.cfg.Term, func(ok bool) { answers <- ok })
		}
	}
	yes, need := 0, len(before)/2+1
	for asked := len(before); yes < need && asked > 0; asked-- {
		select {
		case ok := <-answers:
			if ok {
				yes++
			}
		case <-ctx.Done():
			return false
		}
	}
	after := t.cfg.Log.Voters()
	return yes >= need && t.cfg.Log.Leads(t.cfg.Term) && slices.Equal(before, after) && ctx.Err() == nil
}
