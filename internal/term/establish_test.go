package term_test

import (
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/wire"
)

// The first leader of a founded cluster grants nothing for a TTL, and then
// tells the waiting clients.
func newest() int { return machine.MaxFormat }

func TestTheFoundingWaitEndsAfterATTL(t *testing.T) {
	onStageWith(t, termtest.Config{Founding: true}, func(s *stage) {
		s.open(1)
		ready := make(chan wire.Code, 1)
		s.Term().Granting(func(c wire.Code) { ready <- c })
		s.Must(machine.Acquire{Session: sid(1), Seq: 1, Key: "k"})
		time.Sleep(ttl / 2)
		<-s.beat(1)
		time.Sleep(ttl/2 - time.Millisecond)
		if c := verdict(ready); c != 0 || s.Term().Lifted() || s.held("k") {
			t.Fatalf("%v, lifted: %t, granted: %t", c, s.Term().Lifted(), s.held("k"))
		}
		time.Sleep(2 * tick)
		if c := verdict(ready); c != wire.CodeOK || !s.Term().Lifted() || !s.held("k") {
			t.Fatalf("%v, lifted: %t, granted: %t", c, s.Term().Lifted(), s.held("k"))
		}
		s.Term().Granting(func(c wire.Code) { ready <- c })
		if c := verdict(ready); c != wire.CodeOK {
			t.Errorf("asked later: %v", c)
		}
	})
}

// A lower bound of TTLs, committed during the wait, does not end the wait earlier.
func TestTheFoundingWaitIsNotCutShort(t *testing.T) {
	onStageWith(t, termtest.Config{Founding: true}, func(s *stage) {
		s.Must(machine.Bound{Term: 1, TTL: machine.MinTTL})
		time.Sleep(ttl - time.Millisecond)
		if s.Term().Lifted() {
			t.Error("lifted early")
		}
		time.Sleep(2 * tick)
		if !s.Term().Lifted() {
			t.Error("not lifted")
		}
	})
}

// The wait goes on for as long as MayLift says no; and a
// failed end of the wait is proposed again.
func TestTheFoundingWaitEndsOnlyIfItMay(t *testing.T) {
	var may atomic.Bool
	onStageWith(t, termtest.Config{Founding: true, MayLift: may.Load}, func(s *stage) {
		time.Sleep(3 * ttl)
		if s.Term().Lifted() {
			t.Fatal("lifted")
		}
		s.HoldEntries()
		may.Store(true)
		time.Sleep(2 * tick)
		s.Decide(termtest.Dropped)
		s.ReleaseEntries()
		time.Sleep(2 * tick)
		if !s.Term().Lifted() {
			t.Error("not lifted")
		}
	})
}

func TestThoseThatWaitForGrantsAreAnsweredWhenTheTermEnds(t *testing.T) {
	onStageWith(t, termtest.Config{Founding: true}, func(s *stage) {
		old := s.Term()
		codes := make(chan wire.Code, 2)
		old.Granting(func(c wire.Code) { codes <- c })
		s.Lead()
		old.Granting(func(c wire.Code) { codes <- c })
		for range 2 {
			if c := verdict(codes); c != wire.CodeNotLeader {
				t.Errorf("%v", c)
			}
		}
	})
}

// After a doubt, the leader establishes the same term anew, behind a barrier.
func TestALeaderThatDoubtedLeadsAgainInItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := term.NewTable()
		cfg := term.Config{Log: soloLog{table}, Table: table, Term: 4, Logger: slog.New(slog.DiscardHandler)}
		founding := &wire.Founding{Cluster: machine.ClusterID{1}, Floor: 5, TTL: 3000}
		barriers := 0
		barrier := func() error { barriers++; return nil }
		for range 2 {
			tm, err := term.Establish(cfg, barrier, founding, newest)
			if err != nil {
				t.Fatal(err)
			}
			if tm.Number() != 4 || tm.Bound() != 3000 || tm.Format() != machine.MaxFormat {
				t.Errorf("term %d, bound %d, format %d", tm.Number(), tm.Bound(), tm.Format())
			}
			tm.Stop()
			select {
			case <-tm.Done():
			default:
				t.Error("not done after Stop")
			}
		}
		if barriers != 2 {
			t.Errorf("%d barriers", barriers)
		}
		cfg.Term = 3
		if _, err := term.Establish(cfg, barrier, founding, newest); err == nil {
			t.Error("an older term was established")
		}
	})
}

// refusingLog is a log unfit for establishing a term.
type refusingLog struct {
	soloLog
	stalled time.Duration
	leads   func() bool
	code    wire.Code
}

func (l *refusingLog) Stalled() time.Duration { return l.stalled }
func (l *refusingLog) Leads(uint64) bool      { return l.leads() }
func (l *refusingLog) Commit(entry []byte) (any, wire.Code) {
	outcomes, _ := l.soloLog.Commit(entry)
	return outcomes, l.code
}

func TestATermIsNotEstablishedWithoutItsConditions(t *testing.T) {
	yes := func() bool { return true }
	asked := 0
	once := func() bool { asked++; return asked == 1 }
	founding := &wire.Founding{Cluster: machine.ClusterID{1}, Floor: 5, TTL: 3000}
	fine := func() error { return nil }
	for _, c := range []struct {
		claim    string
		log      refusingLog
		barrier  func() error
		founding *wire.Founding
		beyond   bool
	}{
		{"the store does not answer", refusingLog{stalled: 4 * time.Second, leads: yes, code: wire.CodeOK}, fine, founding, false},
		{"the barrier fails", refusingLog{leads: yes, code: wire.CodeOK}, func() error { return errors.New("no") }, founding, false},
		{"raft does not lead", refusingLog{leads: func() bool { return false }, code: wire.CodeOK}, fine, founding, false},
		{"raft leads no more at the end", refusingLog{leads: once, code: wire.CodeOK}, fine, founding, false},
		{"the founding is not known", refusingLog{leads: yes, code: wire.CodeOK}, fine, nil, false},
		{"the first entry's fate is unknown", refusingLog{leads: yes, code: wire.CodeUnknown}, fine, founding, false},
		{"the table has parted", refusingLog{leads: yes, code: wire.CodeOK}, fine, founding, true},
	} {
		table := term.NewTable()
		if c.beyond {
			table.Apply(machine.EncodeCommands([]machine.Command{
				machine.LeaderStart{Term: 1}, machine.Found{Cluster: machine.ClusterID{1}, Floor: 1, TTL: 3000},
				machine.Raise{Term: 1, Format: machine.MaxFormat + 1},
			}), time.Now())
			if err := table.Parted(); !errors.Is(err, term.ErrBeyond) {
				t.Errorf("parted: %v", err)
			}
		}
		log := c.log
		log.table = table
		cfg := term.Config{Log: &log, Table: table, Term: 2, Logger: slog.New(slog.DiscardHandler)}
		if _, err := term.Establish(cfg, c.barrier, c.founding, newest); err == nil {
			t.Errorf("established though %s", c.claim)
		}
	}
}

// A founding at the ends of its numbers still founds the table: a cluster whose Found is
// refused would never grant, and with a Dir not after a restart either.
func TestAnyFoundingFoundsTheTable(t *testing.T) {
	for _, v := range []wire.Founding{
		{Cluster: machine.ClusterID{1}},
		{Cluster: machine.ClusterID{1}, Floor: math.MaxUint64, TTL: math.MaxUint64},
		{Cluster: machine.ClusterID{1}, Floor: uint64(machine.MaxToken) + 1, TTL: 1},
	} {
		table := term.NewTable()
		commands := term.OpeningCommands(term.Config{Table: table, Term: 1}, &v, machine.MaxFormat)
		for i, o := range table.Apply(machine.EncodeCommands(commands), time.Now()).([]machine.Outcome) {
			if o.Code != machine.OK {
				t.Errorf("%+v: %#v: %+v", v, commands[i], o)
			}
		}
	}
}
