package term_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// A loneLog is the log of a single voter. The test may stop it at two places.
type loneLog struct {
	table *term.Table

	mu     sync.Mutex
	commit <-chan struct{} // not nil: Commit waits
	leads  <-chan struct{} // not nil: Leads waits
}

func (l *loneLog) set(commit, leads <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commit, l.leads = commit, leads
}

func (l *loneLog) ID() string       { return "v" }
func (l *loneLog) Voters() []string { return []string{"v"} }

func (l *loneLog) Leads(uint64) bool {
	l.mu.Lock()
	gate := l.leads
	l.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return true
}

func (l *loneLog) Commit(entry []byte) (any, wire.Code) {
	l.mu.Lock()
	gate := l.commit
	l.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return l.table.Apply(entry, time.Now()), wire.CodeOK
}

func (l *loneLog) Stalled() time.Duration { return 0 }

// newLoneTerm establishes a Term on a loneLog.
func newLoneTerm(t *testing.T) (*term.Term, *loneLog) {
	t.Helper()
	l := &loneLog{table: term.NewTable()}
	tm, err := term.Establish(term.Config{
		Log: l, Table: l.table, Term: 1, Logger: slog.New(slog.DiscardHandler), Alone: true,
		Ask: func(_ context.Context, _ string, _ uint64, answer func(bool)) { answer(true) },
	}, func() error { return nil }, &wire.Founding{Cluster: machine.ClusterID{1}, Floor: 1, TTL: uint64(ttl / time.Millisecond)}, func() int { return machine.MaxFormat })
	if err != nil {
		t.Fatal(err)
	}
	return tm, l
}

// done returns done of Propose, and a channel with the code.
func done() (func(machine.Outcome, wire.Code), <-chan wire.Code) {
	ch := make(chan wire.Code, 1)
	return func(_ machine.Outcome, c wire.Code) { ch <- c }, ch
}

func beatOf(tm *term.Term, by *term.Subscriber, id byte) <-chan wire.Code {
	ch := make(chan wire.Code, 1)
	tm.Beat(by, sid(id), func(c wire.Code) { ch <- c })
	return ch
}

// An order to end a session is applied while the Term stops: no beat that came behind the
// order is acknowledged, wherever Stop, the entry and a round meet.
func TestNoBeatIsAcknowledgedWhileTheTermStops(t *testing.T) {
	for range 30 { // the round after the one under way runs in about half of the runs
		synctest.Test(t, func(t *testing.T) {
			tm, log := newLoneTerm(t)
			by := own(tm)
			time.Sleep(2 * timing.KeeperTick)
			for _, id := range []byte{1, 8, 9} {
				f, opened := done()
				tm.Propose(by, opening(id), f)
				if c := <-opened; c != wire.CodeOK {
					t.Fatal(c)
				}
			}
			commits, rounds := make(chan struct{}), make(chan struct{})
			log.set(commits, rounds)
			beatOf(tm, by, 8) // has a round, which hangs
			f, ordered := done()
			tm.Propose(by, machine.EndSession{Session: sid(9), Ref: sid(1).Ref()}, f)
			synctest.Wait()
			behind := beatOf(tm, by, 1)
			// A command that waits for the next entry stops Stop on its way.
			stops := make(chan struct{})
			tm.Propose(by, machine.Ask{Session: sid(9), Key: "k"}, func(machine.Outcome, wire.Code) { <-stops })
			stopped := make(chan struct{})
			go func() { defer close(stopped); tm.Stop() }()
			synctest.Wait()
			close(commits)
			if c := <-ordered; c != wire.CodeOK {
				t.Fatal(c)
			}
			synctest.Wait()
			close(rounds)
			c := verdict(behind)
			close(stops)
			<-stopped
			if c == 0 {
				c = <-behind
			}
			if c != wire.CodeNotLeader {
				t.Errorf("a beat behind the order was answered %v", c)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// A round whose context has ended confirms nothing, also of a leader that is the only voter.
func TestARoundOfAStoppedTermConfirmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm, log := newLoneTerm(t)
		rounds := make(chan struct{})
		log.set(nil, rounds)
		verdicts := make(chan bool, 1)
		tm.Confirm(func(ok bool) { verdicts <- ok })
		synctest.Wait()
		stopped := make(chan struct{})
		go func() { defer close(stopped); tm.Stop() }()
		synctest.Wait()
		close(rounds)
		if <-verdicts {
			t.Error("confirmed after Stop was called")
		}
		<-stopped
	})
}

// While the table applies a long entry, beats are received, confirmed and answered over a
// stream, with the summary in the answer; also while other requests wait for the table.
func TestBeatsDoNotWaitForTheTable(t *testing.T) {
	tm, log := newLoneTerm(t)
	defer tm.Stop()
	by := own(tm)
	for _, id := range []byte{1, 9} {
		f, opened := done()
		tm.Propose(by, opening(id), f)
		if c := <-opened; c != wire.CodeOK {
			t.Fatal(c)
		}
	}
	if c := <-beatOf(tm, by, 1); c != wire.CodeOK { // the first beat routes the session's events
		t.Fatal(c)
	}
	var waits sync.WaitGroup
	log.table.Locked(func() {
		for _, f := range []func(){
			func() { tm.Granting(func(wire.Code) {}) },
			func() {
				tm.Propose(by, machine.EndSession{Session: sid(9), Ref: sid(8).Ref()}, func(machine.Outcome, wire.Code) {})
			},
			func() { tm.Attach(by, keys(2), keys(3)) },
		} {
			begun := make(chan struct{})
			waits.Go(func() { close(begun); f() })
			<-begun
		}
		late := time.After(10 * time.Second)
		for range 100 {
			answered := make(chan []byte, 1)
			go tm.Beat(by, sid(1), func(c wire.Code) { answered <- tm.EncodedSummary(c) })
			select {
			case body := <-answered:
				var s wire.Summary
				if err := wire.Unmarshal(body, &s); err != nil || s.Sessions != 2 || s.Term != 1 {
					t.Errorf("%+v, %v", s, err)
				}
			case <-late:
				t.Error("a beat waits for the table")
				return
			}
		}
	})
	waits.Wait()
}
