package termtest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// decided proposes the Expire of no session, and returns the verdict on the entry.
func decided(t *term.Term) <-chan wire.Code {
	code := make(chan wire.Code, 1)
	t.Decide(machine.Expire{Session: machine.SessionID{9}, Term: t.Number()}, func(_ machine.Outcome, c wire.Code) { code <- c })
	return code
}

func expiries(c *Cluster) int {
	return c.Sent(func(cmd machine.Command) bool { _, is := cmd.(machine.Expire); return is })
}

func TestFaultsOfTheLogDecideEntries(t *testing.T) {
	for _, x := range []struct {
		name      string
		faults    LogFaults
		code      wire.Code
		committed int
	}{
		{"entry unheard", LogFaults{Unheard: 1}, wire.CodeUnknown, 1},
		{"entry dropped", LogFaults{Dropped: 1}, wire.CodeUnknown, 0},
		{"entry refused", LogFaults{Refused: 1}, wire.CodeNotLeader, 0},
		{"entry late", LogFaults{Late: time.Second}, wire.CodeOK, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := New(t, Config{})
			told := ""
			c.SetLogFaults(x.faults, func(fault string) { told = fault })
			code := <-decided(c.Term())
			if code != x.code || expiries(c) != x.committed || told != x.name {
				t.Errorf("%s: %v, %d entries, told %q", x.name, code, expiries(c), told)
			}
			c.SetLogFaults(LogFaults{}, nil)
		})
	}
}

// An entry under way at an election is committed by the next leader, or never.
func TestAnEntryUnderWayIsInheritedOrLost(t *testing.T) {
	for _, inherited := range []float64{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			c := New(t, Config{})
			c.SetLogFaults(LogFaults{Late: time.Hour, Inherited: inherited}, nil)
			old := c.Term()
			code := decided(old)
			synctest.Wait()
			c.Depose()
			applied := c.Applied()
			if n := expiries(c); n != int(inherited) {
				t.Errorf("with a chance of %v, %d entries are inherited", inherited, n)
			}
			if _, is := applied[len(applied)-1].(machine.LeaderStart); !is {
				t.Errorf("the last entry is %T", applied[len(applied)-1])
			}
			if got := <-code; got != wire.CodeUnknown {
				t.Errorf("the leader of the past is told %v", got)
			}
			if n := expiries(c); n != int(inherited) {
				t.Errorf("%d entries at the end", n)
			}
			c.SetLogFaults(LogFaults{}, nil)
		})
	}
}

func TestAnswersToRoundsAreLateOrLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Config{})
		confirm := func() (ok bool, took time.Duration) {
			began, done := time.Now(), make(chan bool)
			c.Term().Confirm(func(ok bool) { done <- ok })
			ok = <-done
			return ok, time.Since(began)
		}
		if ok, took := confirm(); !ok || took != 0 {
			t.Errorf("without faults: %v after %v", ok, took)
		}
		c.SetLogFaults(LogFaults{LateRound: 500 * time.Millisecond}, nil)
		if ok, took := confirm(); !ok || took == 0 {
			t.Errorf("with late answers: %v after %v", ok, took)
		}
		c.SetLogFaults(LogFaults{LoseRound: 1}, nil)
		if ok, _ := confirm(); ok {
			t.Error("a round without answers confirms")
		}
	})
}

// A frozen member sends nothing, and hears at its thaw what arrived meanwhile.
func TestAFrozenMemberStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Config{})
		m := c.Join("n")
		m.SetClock(host.NewClock(time.Hour))
		key := m.NewKey()
		m.Claim(key)
		events := make(chan machine.Event, 10)
		ttl := uint64(DefaultTTL / time.Millisecond)
		if _, err := m.Propose(t.Context(), machine.Open{Session: key.ID(), Client: "c", Node: "n", Boot: m.Boot(), TTL: ttl}); err != nil {
			t.Fatal(err)
		}
		m.Attach(key.ID(), func(e machine.Event) { events <- e })
		o, err := m.Propose(t.Context(), machine.Acquire{Session: key.ID(), Seq: 1, Key: "k"})
		if err != nil || o.Code != machine.Granted {
			t.Fatalf("%+v, %v", o, err)
		}
		m.Freeze()
		asked := make(chan error, 1)
		go func() {
			_, err := m.Read(t.Context(), replica.Query{Key: "k"})
			asked <- err
		}()
		c.Must(machine.Ask{Session: key.ID(), Key: "k"})
		time.Sleep(time.Second)
		if len(events) != 0 || len(asked) != 0 {
			t.Errorf("%d events and %d answers reach a frozen member", len(events), len(asked))
		}
		m.Thaw()
		if e := <-events; e.Kind != machine.EventAsked {
			t.Errorf("told %+v", e)
		}
		if err := <-asked; err != nil {
			t.Error(err)
		}
		m.Detach(key.ID())
	})
}
