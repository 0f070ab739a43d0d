package term_test

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/wire"
)

func TestASessionEndsATTLAfterItsLastBeat(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		time.Sleep(time.Second)
		if c := verdict(s.beat(1)); c != wire.CodeOK {
			t.Fatal(c)
		}
		heard := time.Now()
		time.Sleep(ttl - time.Millisecond)
		if !s.alive(1) {
			t.Errorf("ended %v after its last beat", time.Since(heard))
		}
		time.Sleep(2 * tick)
		if s.alive(1) {
			t.Error("not ended")
		}
	})
}

func TestANewLeaderGivesEverySessionAWholeTTL(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		time.Sleep(ttl / 2)
		s.Lead()
		time.Sleep(ttl - time.Millisecond)
		if !s.alive(1) {
			t.Fatal("the new leader ended a session before a TTL of its own")
		}
		time.Sleep(2 * tick)
		if s.alive(1) {
			t.Error("not ended")
		}
	})
}

// A dead session ends in bounded time however often leaders change: the TTL of the
// mark runs on.
func TestFlappingLeadersDoNotKeepADeadSession(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		start := time.Now()
		untilSilent()
		for s.alive(1) {
			s.Lead()
			time.Sleep(ttl / 2)
			if time.Since(start) > 4*ttl {
				t.Fatal("still there")
			}
		}
		if took := time.Since(start); took < ttl || took > ttl*5/3+ttl/2+time.Second {
			t.Errorf("ended after %v", took)
		}
	})
}

// Leaders changing too fast to mark a session hand the age of its silence on. A
// session with a beat under each leader lives.
func TestLeadersTooShortForAMarkDoNotKeepADeadSession(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.open(2)
		start := time.Now()
		for s.alive(1) {
			s.Lead()
			for range 2 {
				time.Sleep(ttl / 8)
				s.beat(2)
			}
			if time.Since(start) > 4*ttl {
				t.Fatal("still there")
			}
		}
		if took := time.Since(start); took < ttl || took > ttl*5/3+ttl/2+time.Second {
			t.Errorf("ended after %v", took)
		}
		if !s.alive(2) {
			t.Error("a session that beats has ended")
		}
	})
}

// Any voter counts a marked session's TTL from its own Apply of the mark: not from
// an earlier moment, and not from a later moment.
func TestAMarkedSessionEndsATTLAfterItsMarkUnderAnyLeader(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		for !s.proposed(machine.Silence{Session: sid(1), Term: 1}) {
			time.Sleep(time.Millisecond)
		}
		marked := time.Now()
		time.Sleep(ttl / 6) // the leader of the mark would end the session a third of a TTL after the mark
		s.Lead()
		time.Sleep(time.Until(marked.Add(ttl - 2*time.Millisecond)))
		if !s.alive(1) {
			t.Fatalf("ended %v after its mark", time.Since(marked))
		}
		time.Sleep(2 * tick)
		if s.alive(1) {
			t.Errorf("lives %v after its mark", time.Since(marked))
		}
	})
}

// A snapshot does not tell when a mark was applied, so the mark's TTL counts from
// the restoring.
func TestAMarkOfASnapshotCountsFromItsRestoring(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		untilSilent()
		time.Sleep(ttl / 6)
		s.LeadFromSnapshot()
		restored := time.Now()
		time.Sleep(ttl - 2*time.Millisecond)
		if !s.alive(1) {
			t.Fatalf("ended %v after the restoring", time.Since(restored))
		}
		time.Sleep(2 * tick)
		if s.alive(1) {
			t.Error("not ended")
		}
	})
}

func TestADeposedLeadersExpiryFreesNothing(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		untilSilent()
		s.HoldEntries()
		time.Sleep(ttl / 2) // term 1 has proposed the expiry
		s.Must(machine.LeaderStart{Term: 2})
		s.Decide(termtest.Committed) // behind the start of term 2
		synctest.Wait()
		if !s.alive(1) {
			t.Error("a deposed leader's verdict ended a session")
		}
	})
}

// The leader's process stops for ten seconds: no tick, and beats lie unread.
func TestALeaderThatStoodStillWaitsLonger(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		time.Sleep(time.Second)
		resume := s.Pause()
		time.Sleep(10 * time.Second)
		resume()
		time.Sleep(2 * tick)
		if !s.alive(1) {
			t.Fatal("ended by a leader that was not there to hear it")
		}
		if c := verdict(s.beat(1)); c != wire.CodeOK {
			t.Errorf("the first beat after it: %v", c)
		}
		time.Sleep(ttl + 2*tick)
		if s.alive(1) {
			t.Error("never ended")
		}
	})
}

// A late copy of a session's Open may stand in one entry with the end of the session.
// In either order, the keeper counts for the sessions of the table.
func TestASessionThatEndsAndOpensInOneEntry(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.Must(machine.Close{Session: sid(1)}, opening(1), machine.Silence{Session: sid(1), Term: 1})
		if st, marked := s.session(1); !st || !marked {
			t.Fatalf("open %t, marked %t", st, marked)
		}
		time.Sleep(5 * ttl)
		if s.alive(1) {
			t.Error("a session that nobody beats for never ends")
		}
	})
	onStage(t, func(s *stage) {
		s.Must(opening(1), machine.Close{Session: sid(1)})
		before := len(s.Applied())
		time.Sleep(5 * ttl)
		if after := s.Applied(); len(after) > before {
			t.Errorf("proposed for a session that is gone: %v", after[before:])
		}
	})
}

func (s *stage) session(id byte) (open, marked bool) {
	s.View(func(m *machine.State) {
		var st machine.SessionStatus
		st, open = m.Session(sid(id))
		marked = st.Silent
	})
	return open, marked
}

var soloVoters = []string{"v"}

// soloLog is the log of a single voter, with commits at once.
type soloLog struct{ table *term.Table }

func (l soloLog) ID() string             { return "v" }
func (l soloLog) Voters() []string       { return soloVoters }
func (l soloLog) Leads(uint64) bool      { return true }
func (l soloLog) Stalled() time.Duration { return 0 }
func (l soloLog) Commit(entry []byte) (any, wire.Code) {
	return l.table.Apply(entry, time.Now()), wire.CodeOK
}

// Sessions open while the term starts: the keeper must know each session, or the
// session would never end. The table is large, so entries come while the keeper
// reads the table.
func TestNoSessionEscapesTheKeeperAtTheStart(t *testing.T) {
	table := term.NewTable()
	apply := func(commands ...machine.Command) {
		for i, o := range table.Apply(machine.EncodeCommands(commands), time.Now()).([]machine.Outcome) {
			if o.Code != machine.OK {
				t.Errorf("%+v: %+v", commands[i], o)
			}
		}
	}
	open := func(n int) machine.Command {
		o := machine.Open{Client: "c", Node: fmt.Sprint("n", n/machine.MaxNodeSessions), TTL: 60_000}
		binary.BigEndian.PutUint64(o.Session[:], uint64(n)+1)
		return o
	}
	apply(machine.LeaderStart{Term: 1}, machine.Found{Cluster: machine.ClusterID{1}, Floor: 1, TTL: 60_000})
	const before = 20_000
	for n := 0; n < before; n += machine.MaxCommands {
		var batch []machine.Command
		for i := range machine.MaxCommands {
			batch = append(batch, open(n+i))
		}
		apply(batch...)
	}
	stop, running := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1 << 20; ; n++ {
			apply(open(n))
			if n == 1<<20 {
				close(running)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	<-running
	tm := term.New(term.Config{Log: soloLog{table}, Table: table, Term: 1, Logger: slog.New(slog.DiscardHandler)})
	tm.Start()
	close(stop)
	wg.Wait()
	sessions, want := 0, 0
	sessions, _ = tm.Counted()
	table.View(func(m *machine.State) { want = m.Counts().Sessions })
	if sessions != want {
		t.Errorf("the keeper counts for %d sessions of %d", sessions, want)
	}
	tm.Stop()
}
