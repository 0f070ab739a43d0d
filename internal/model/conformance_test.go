package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// A run of the real machine and the real term is a run of the model. In a run, a tick is
// one of the keeper's, and every event is at a multiple of it.
const runTick = timing.KeeperTick

// The TTLs of the runs. With the longer, several beats may be lost; with the shorter, a round
// may take longer than the leader waits before it marks a session.
const (
	longTTL  = 3 * time.Second
	shortTTL = time.Second
)

// runRules are the rules of the model, with the times of a run. The margin of a TTL is
// longer than a tick and shorter than two, so a lock is trusted for a part of the last
// tick but one.
func runRules(ttl time.Duration) sessions {
	r := allSessionRules()
	r.leaders, r.beats, r.grants = mostLeaders, mostBeats, 100
	r.ttl, r.margin, r.slow, r.fast = uint8(ttl/runTick), 1, 1, 1
	return r
}

// A recorder drives a cluster of package termtest and writes down everything visible.
type recorder struct {
	*termtest.Cluster
	t       *testing.T
	run     []observed
	terms   []*term.Term
	by      []*term.Subscriber
	deposed bool // the last leader but one may still serve
	doubted bool // the last leader does not know an entry's fate
	ttl     time.Duration

	key    machine.SessionKey
	opened bool
	trust  int // ticks left
	beats  []*sentBeat
	seen   int // of the applied commands
	seq    uint64
	token  machine.Token // of the client's lock
	other  machine.Token
}

// A sentBeat is a beat that the client wants to hear of.
type sentBeat struct {
	left    int  // of the trust that the confirmation gives, in ticks
	at      bool // a leader has it, and has not answered
	answers chan wire.Code
	from    int // the leader
}

var otherKey = machine.SessionKey{200}

func newRecorder(t *testing.T, ttl time.Duration) *recorder {
	r := &recorder{Cluster: termtest.New(t, termtest.Config{TTL: ttl}), t: t, ttl: ttl, key: machine.SessionKey{1}}
	r.join()
	r.Must(machine.Open{Session: otherKey.ID(), Client: "other", Node: "n", TTL: uint64(r.ttl / time.Millisecond)})
	r.seen = len(r.Applied())
	r.Proposals()
	r.HoldEntries()
	r.HoldRounds()
	return r
}

// join joins the new leader.
func (r *recorder) join() {
	tm := r.Term()
	by := &term.Subscriber{Node: "n", Event: func(machine.Event) {}}
	tm.Join(by)
	tm.Attach(by, nil, []machine.SessionKey{r.key, otherKey})
	r.terms, r.by = append(r.terms, tm), append(r.by, by)
}

// ticks is the TTL in ticks.
func (r *recorder) ticks() int { return int(r.ttl / runTick) }

func (r *recorder) note(format string, args ...any) {
	r.run = append(r.run, observed(fmt.Sprintf(format, args...)))
}

// settle waits until nothing moves, and writes down the commits, then the confirmations,
// then the proposals.
func (r *recorder) settle() {
	synctest.Wait()
	applied := r.Applied()
	for _, cmd := range applied[r.seen:] {
		switch c := cmd.(type) {
		case machine.Silence:
			r.entry(silence, c.Session)
		case machine.Hear:
			r.entry(hear, c.Session)
		case machine.Expire:
			r.entry(expire, c.Session)
		}
	}
	r.seen = len(applied)
	confirmed := make([]int, len(r.terms))
	r.beats = slices.DeleteFunc(r.beats, func(b *sentBeat) bool {
		select {
		case code := <-b.answers:
			if code == wire.CodeOK {
				confirmed[b.from]++
				r.trust = max(r.trust, b.left)
			} else {
				r.note("client A gives up a beat")
			}
			return true
		default:
			return false
		}
	})
	for i, n := range confirmed {
		if n > 0 {
			r.note("leader %d ends the round, confirming %d of client A", i+1, n)
			for range n {
				r.heard()
			}
		}
	}
	for _, p := range r.Proposals() {
		if int(p.Leader) != len(r.terms) || !r.living() {
			continue // nothing that the model asks about
		}
		switch c := p.Command.(type) {
		case machine.Silence:
			r.proposed("to mark", c.Session)
		case machine.Expire:
			r.proposed("to end", c.Session)
		}
	}
}

func (r *recorder) proposed(what string, id machine.SessionID) {
	if id == r.key.ID() {
		r.note("leader %d proposes %s the session of client A", len(r.terms), what)
	}
}

// heard takes a confirmation. The beats that could give no more trust are forgotten; the
// leaders may have them still.
func (r *recorder) heard() {
	r.note("client A hears the confirmation")
	r.beats = slices.DeleteFunc(r.beats, func(b *sentBeat) bool { return b.left <= r.trust })
}

func (r *recorder) entry(kind uint8, id machine.SessionID) {
	switch {
	case id != r.key.ID():
	case r.living():
		r.note("%s of client A is committed", entryNames[kind])
	case kind == expire: // the model asks for no more of a lost client's session
		r.note("the session of client A ends")
	}
}

func (r *recorder) living() bool { return r.opened && r.trust > 0 }

// pass lets a tick pass.
func (r *recorder) pass() {
	r.note("time passes")
	r.trust = max(0, r.trust-1)
	for _, b := range r.beats {
		b.left--
	}
	if !r.living() {
		r.beats, r.token = nil, 0
	}
	r.keepOther()
	time.Sleep(runTick)
	r.settle()
}

func (r *recorder) open() {
	r.opened, r.trust = true, r.ticks()-1
	r.Must(machine.Open{Session: r.key.ID(), Client: "a", Node: "n", TTL: uint64(r.ttl / time.Millisecond)})
	r.note("the session of client A is opened")
	r.note("client A hears the confirmation")
}

func (r *recorder) send() {
	r.beats = append(r.beats, &sentBeat{left: r.ticks() - 1, answers: make(chan wire.Code, 1)})
	r.note("client A sends a beat")
}

// maySend reports whether the model has room for a beat.
func (r *recorder) maySend() bool {
	if !r.living() || r.trust == r.ticks()-1 || len(r.beats) == mostBeats {
		return false
	}
	return len(r.beats) == 0 || r.beats[len(r.beats)-1].left < r.ticks()-1
}

// deliver hands a beat to leader i.
func (r *recorder) deliver(b *sentBeat, i int) {
	b.at, b.from = true, i
	r.note("leader %d receives a beat of client A", i+1)
	r.terms[i].Beat(r.by[i], r.key.ID(), func(c wire.Code) { b.answers <- c })
	r.settle()
}

// elect has the next leader begin; with stop, the earlier leader hears of the election at
// once.
func (r *recorder) elect(stop bool) {
	for r.Undecided() > 0 {
		r.Decide(termtest.Committed)
		r.settle()
	}
	r.ReleaseEntries()
	if stop {
		r.Lead()
	} else {
		r.Depose()
	}
	r.join()
	n := len(r.terms)
	place := (n - 1) % 2
	r.note("voters %s and %s elect %s", letter(place), letter(place+1), letter(place))
	r.note("leader %d starts", n)
	r.HoldEntries()
	r.deposed, r.doubted = !stop, false
	r.settle()
}

func (r *recorder) acquire(key machine.SessionKey) {
	if id, _ := r.Owner("key"); id != (machine.SessionID{}) {
		return
	}
	if key == r.key {
		r.note("client A asks for the key")
	}
	r.seq++
	o := r.Must(machine.Acquire{Session: key.ID(), Seq: r.seq, Key: "key"})
	if key == r.key {
		r.token = o.Token
		r.note("the key is granted to client A")
		r.note("client A hears of its grant")
	} else {
		r.other = o.Token
		r.note("the key is granted to the other")
	}
}

func (r *recorder) release(key machine.SessionKey, token *machine.Token) {
	if key == r.key {
		r.note("client A releases")
	}
	r.Must(machine.Release{Session: key.ID(), Token: *token})
	*token = 0
	if key == r.key {
		r.note("the Release of client A arrives")
	} else {
		r.note("the other releases")
	}
}

// random takes a random step.
func (r *recorder) random(rng *rand.Rand) {
	last := len(r.terms) - 1
	switch n := rng.IntN(100); {
	case n < 40:
		for range 1 + rng.IntN(3) {
			r.pass()
		}
	case n < 55:
		if r.maySend() {
			r.send()
		}
	case n < 70:
		i := last
		if r.deposed && rng.IntN(3) == 0 {
			i--
		}
		for _, b := range r.beats {
			if !b.at {
				r.deliver(b, i)
				return
			}
		}
	case n < 84:
		if r.AnswerHonestly() {
			r.settle()
		}
	case n < 92:
		fate := termtest.Committed
		if last+1 < mostLeaders && rng.IntN(4) == 0 {
			fate = termtest.Fate(rng.IntN(4))
		}
		if r.Undecided() > 0 {
			r.Decide(fate)
			r.doubted = r.doubted || fate != termtest.Committed
			r.settle()
		}
	case n < 94:
		if last+1 < mostLeaders {
			r.elect(rng.IntN(3) == 0)
		}
	default:
		switch {
		case r.token != 0:
			if r.living() && rng.IntN(3) == 0 {
				r.release(r.key, &r.token)
			}
		case r.other != 0:
			r.release(otherKey, &r.other)
		case r.living() && rng.IntN(2) == 0:
			r.acquire(r.key)
		default:
			r.acquire(otherKey)
		}
	}
}

// keepOther keeps the other's session open whatever the network does: the session is no
// part of the run.
func (r *recorder) keepOther() {
	for i := range r.terms {
		r.terms[i].Beat(r.by[i], otherKey.ID(), func(wire.Code) {})
	}
}

// record plays a random run, with the faults that the seed chooses.
func record(t *testing.T, seed uint64, ttl time.Duration) (run []observed) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 15))
		r := newRecorder(t, ttl)
		r.open()
		for range 150 {
			r.random(rng)
		}
		run = r.run
		r.end()
	})
	return run
}

// end lets everything go, so that the leaders can stop.
func (r *recorder) end() {
	r.ReleaseEntries()
	r.ReleaseRounds()
}

func accepted(t *testing.T, run []observed, ttl time.Duration) *acceptance {
	t.Helper()
	a := newAcceptance(runRules(ttl))
	if i := a.refused(run); i >= 0 {
		t.Fatalf("the model has no step for event %d of\n%s", i, lines(run[:i+1]))
	}
	return a
}

func lines(run []observed) string {
	var b strings.Builder
	for i, e := range run {
		fmt.Fprintf(&b, "%4d %s\n", i, e)
	}
	return b.String()
}

func TestRunsOfTheTermAreRunsOfTheModel(t *testing.T) {
	for seed := range uint64(testrounds.Rounds(20, 1000)) {
		ttl := longTTL
		if seed%2 != 0 {
			ttl = shortTTL
		}
		run := record(t, seed, ttl)
		a := accepted(t, run, ttl)
		t.Logf("seed %d: %d events, at most %d states at once", seed, len(run), a.largest)
	}
}

// passes lets n ticks pass.
func (r *recorder) passes(n int) {
	for range n {
		r.pass()
	}
}

// confirm answers the rounds under way, and the rounds that begin with the answers.
func (r *recorder) confirm() {
	for r.AnswerHonestly() {
		r.settle()
	}
}

// directed plays a run with a confirmed beat, a mark and its end, a deposed leader, and an
// expiry.
func directed(t *testing.T) (run []observed) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, longTTL)
		r.open()
		r.acquire(r.key)
		r.passes(9)
		r.send()
		r.deliver(r.beats[0], 0)
		r.confirm()
		r.passes(21) // the mark is proposed
		r.Decide(termtest.Committed)
		r.settle()
		r.send()
		r.deliver(r.beats[0], 0)
		r.Decide(termtest.Committed) // Hear
		r.settle()
		r.confirm()
		r.elect(false)
		r.passes(3)
		r.send()
		r.deliver(r.beats[0], 0) // in vain
		r.confirm()
		for range 60 {
			if r.Undecided() > 0 {
				r.Decide(termtest.Committed)
				r.settle()
			}
			r.pass()
		}
		r.acquire(otherKey)
		run = r.run
		r.end()
	})
	return run
}

// A beat that waits for a slow round meets the proposal of a mark.
func TestARoundThatEndsWhileAMarkIsInFlight(t *testing.T) {
	var run []observed
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, shortTTL)
		r.open()
		r.pass()
		r.confirm()
		r.send()
		r.deliver(r.beats[0], 0)
		for range 8 {
			if r.Undecided() == 0 {
				r.pass()
			}
		}
		if r.Undecided() == 0 {
			t.Fatal("no mark is in flight")
		}
		r.confirm()
		r.Decide(termtest.Committed)
		r.settle()
		r.Decide(termtest.Committed) // Hear
		r.settle()
		time.Sleep(timing.BeatsTogether) // since the last round: the beat's own
		r.settle()
		r.confirm()
		run = r.run
		r.end()
	})
	accepted(t, run, shortTTL)
	if last := run[len(run)-1]; last != "client A hears the confirmation" {
		t.Errorf("the run ends with %q:\n%s", last, lines(run))
	}
}

// The model is no sieve: a run that was doctored is refused, at the doctored event or later.
func TestADoctoredRunIsRefused(t *testing.T) {
	run := directed(t)
	accepted(t, run, longTTL)
	const (
		marked  = observed("the mark of client A is committed")
		heard   = observed("the end of the mark of client A is committed")
		expired = observed("the expiry of client A is committed")
		ended   = observed("the session of client A ends")
		got     = observed("leader 1 receives a beat of client A")
		yes     = observed("leader 1 ends the round, confirming 1 of client A")
		next    = observed("leader 2 starts")
		granted = observed("the key is granted to the other")
	)
	at := func(e observed, nth int) int {
		for i := range run {
			if run[i] == e {
				if nth--; nth == 0 {
					return i
				}
			}
		}
		t.Fatalf("the run has no %q:\n%s", e, lines(run))
		return -1
	}
	without := func(from, to int) []observed { return slices.Delete(slices.Clone(run), from, to) }
	with := func(i int, e ...observed) []observed { return slices.Insert(slices.Clone(run), i, e...) }
	for _, c := range []struct {
		name     string
		doctored []observed
	}{
		{"a living client's session expires", with(at(next, 1), expired)},
		{"a session ends while its client trusts", without(at(next, 1)+1, at(ended, 1))},
		{"a key is granted before its holder's session ends", with(at(ended, 1), granted)},
		{"a deposed leader confirms", with(at(got, 3)+1, yes)},
		{"a beat is confirmed that no leader has", without(at(got, 1), at(got, 1)+1)},
		{"a beat is confirmed while the session is marked", without(at(heard, 1), at(heard, 1)+1)},
		{"a beat is confirmed between the mark and its commit", with(at(marked, 1)+1, got, yes)},
		{"a mark is taken away that nobody set", without(at(marked, 1), at(marked, 1)+1)},
		{"a marked session is marked again", with(at(next, 1)+1, marked, marked)},
	} {
		if i := newAcceptance(runRules(longTTL)).refused(c.doctored); i < 0 {
			t.Errorf("%s: accepted\n%s", c.name, lines(c.doctored))
		} else {
			t.Logf("%s: refused at event %d, %q", c.name, i, c.doctored[i])
		}
	}
}
