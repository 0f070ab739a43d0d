package term_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/wire"
)

func (s *stage) propose(cmd machine.Command) <-chan wire.Code {
	ch := make(chan wire.Code, 1)
	s.Term().Propose(s.owner(), cmd, func(_ machine.Outcome, c wire.Code) { ch <- c })
	return ch
}

func TestTheFateOfAnEntryIsTold(t *testing.T) {
	for _, fate := range []termtest.Fate{termtest.Committed, termtest.Unheard, termtest.Dropped} {
		onStage(t, func(s *stage) {
			s.HoldEntries()
			ch := s.propose(opening(1))
			synctest.Wait()
			behind := s.propose(opening(2))
			s.Decide(fate)
			s.ReleaseEntries()
			want := wire.CodeUnknown
			if fate == termtest.Committed {
				want = wire.CodeOK
			}
			if c := verdict(ch); c != want || s.alive(1) != (fate != termtest.Dropped) {
				t.Errorf("fate %v: code %v, applied: %t", fate, c, s.alive(1))
			}
			if c := verdict(behind); c != wire.CodeOK {
				t.Errorf("the entry behind: %v", c)
			}
			select {
			case <-s.Term().Doubt():
				if fate == termtest.Committed {
					t.Error("doubt, though the fate is known")
				}
			default:
				if fate != termtest.Committed {
					t.Error("no doubt, though the fate is unknown")
				}
			}
			old := s.Term()
			s.Lead()
			late := make(chan wire.Code, 1)
			old.Propose(own(old), opening(3), func(_ machine.Outcome, c wire.Code) { late <- c })
			if c := verdict(late); c != wire.CodeNotLeader || s.alive(3) {
				t.Errorf("after the term: %v", c)
			}
		})
	}
}

func TestAStoreThatDoesNotAnswerIsDoubted(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetStalled(time.Second)
		time.Sleep(time.Second)
		select {
		case <-s.Term().Doubt():
			t.Error("doubt after a second")
		default:
		}
		s.SetStalled(4 * time.Second)
		time.Sleep(2 * tick)
		select {
		case <-s.Term().Doubt():
		default:
			t.Error("no doubt after four seconds")
		}
		s.SetStalled(0)
	})
}

// Commands arriving while an entry is in flight share the next entry.
func TestCommandsGatherWhileAnEntryIsInFlight(t *testing.T) {
	onStage(t, func(s *stage) {
		s.HoldEntries()
		first := s.propose(opening(1))
		synctest.Wait()
		var rest []<-chan wire.Code
		for id := byte(2); id < 50; id++ {
			rest = append(rest, s.propose(opening(id)))
		}
		s.Decide(termtest.Committed)
		if c := verdict(first); c != wire.CodeOK {
			t.Errorf("first: %v", c)
		}
		for _, ch := range rest {
			if c := verdict(ch); c != 0 {
				t.Errorf("answered %v before the second entry", c)
			}
		}
		s.Decide(termtest.Committed)
		for i, ch := range rest {
			if c := verdict(ch); c != wire.CodeOK {
				t.Errorf("command %d of the second entry: %v", i, c)
			}
		}
	})
}

// While an entry is in flight, for however long its disk takes, the commands
// queuing behind are bounded by their bytes.
func TestCommandsThatWaitForAnEntryAreBounded(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		token := s.acquire(1, 1, "k")
		s.HoldEntries()
		codes := make(map[wire.Code]int) // never counted by two goroutines together
		value := make([]byte, machine.MaxValue)
		const commands = 3000 // of 64 KiB each
		for i := range commands {
			s.Term().Propose(s.owner(), machine.SetValue{Session: sid(1), Token: token, Rev: uint64(i + 1), Value: value},
				func(_ machine.Outcome, c wire.Code) { codes[c]++ })
			synctest.Wait() // the first is in flight
		}
		if n := codes[wire.CodeBusy]; n < commands/2 || n > commands-term.MaxLaneBytes/(2*machine.MaxValue) {
			t.Errorf("%d of %d refused", n, commands)
		}
		s.Decide(termtest.Dropped)
		s.ReleaseEntries() // the rest goes through
		synctest.Wait()
		if codes[wire.CodeUnknown] != 1 || codes[wire.CodeOK]+codes[wire.CodeBusy] != commands-1 {
			t.Errorf("verdicts %v", codes)
		}
	})
}

// A member with thousands of waiting commands costs the others no more than their
// turn: an entry takes from the members in turn, and the leader's own commands first.
// Each member's commands stay in their order.
func TestAMemberWithThousandsOfCommandsIsOneOfTwo(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.HoldEntries()
		const crowd = 5000
		var order []string // of the verdicts, by the one goroutine that decides
		crowdEnd, quiet := 0, 0
		for i := range crowd {
			s.Term().ProposeOf("noisy", machine.Acquire{Session: sid(1), Seq: uint64(i + 1), Key: fmt.Sprint("k", i)}, func(o machine.Outcome, c wire.Code) {
				crowdEnd++
				order = append(order, fmt.Sprint("noisy ", i))
			})
			if i == 0 {
				synctest.Wait() // in flight
			}
		}
		for i := range 10 {
			s.Term().ProposeOf("quiet", machine.Acquire{Session: sid(1), Seq: uint64(crowd + i + 1), Key: fmt.Sprint("q", i)}, func(machine.Outcome, wire.Code) {
				quiet++
				order = append(order, fmt.Sprint("quiet ", i))
			})
		}
		decided := 0
		s.Term().Decide(machine.Bound{Term: s.Term().Number(), TTL: 3000}, func(machine.Outcome, wire.Code) { decided++ })
		s.Decide(termtest.Committed) // the first command of the crowd, alone
		synctest.Wait()
		if crowdEnd != 1 || quiet != 0 {
			t.Fatalf("%d of the crowd, %d of the other", crowdEnd, quiet)
		}
		s.Decide(termtest.Committed)
		synctest.Wait()
		if quiet != 10 || decided != 1 || crowdEnd < 2 {
			t.Errorf("after the next entry: %d of the crowd, %d of the other, %d of the leader", crowdEnd, quiet, decided)
		}
		s.ReleaseEntries()
		synctest.Wait()
		noisy, q := 0, 0
		for _, o := range order {
			switch o {
			case fmt.Sprint("noisy ", noisy):
				noisy++
			case fmt.Sprint("quiet ", q):
				q++
			default:
				t.Fatalf("%q comes after %d and %d", o, noisy, q)
			}
		}
		if noisy != crowd {
			t.Errorf("%d of the crowd", noisy)
		}
	})
}

// A command that finds no room in an entry is the first of the next one, however much
// another member keeps sending.
func TestALargeCommandWaitsForOneEntry(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.HoldEntries()
		const crowd = 40
		var order []string
		propose := func(member string, cmd machine.Command) {
			s.Term().ProposeOf(member, cmd, func(machine.Outcome, wire.Code) { order = append(order, member) })
		}
		for i := range crowd {
			propose("noisy", machine.SetValue{Session: sid(1), Token: 1, Rev: 1, Value: make([]byte, machine.MaxValue)})
			if i == 0 {
				synctest.Wait() // in flight
			}
		}
		keys := make([]string, machine.MaxKeyBytes/machine.MaxKey)
		for i := range keys {
			keys[i] = fmt.Sprintf("%0*d", machine.MaxKey, i)
		}
		propose("quiet", machine.Acquire{Session: sid(1), Seq: 1, Keys: keys})
		s.ReleaseEntries()
		synctest.Wait()
		if at := slices.Index(order, "quiet"); len(order) != crowd+1 || at > 10 {
			t.Errorf("the large command is number %d of %d", at, len(order))
		}
	})
}

// A member may have a quarter of the places, so the crowd of one member refuses nobody
// else.
func TestACrowdRefusesOnlyItself(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.HoldEntries()
		codes := make(map[wire.Code]int)
		for i := range term.MaxLane + 100 {
			s.Term().ProposeOf("noisy", machine.Acquire{Session: sid(1), Seq: uint64(i + 1), Key: "k"}, func(_ machine.Outcome, c wire.Code) { codes[c]++ })
			if i == 0 {
				synctest.Wait() // in flight
			}
		}
		if codes[wire.CodeBusy] != 99 {
			t.Errorf("%v", codes)
		}
		ch := make(chan wire.Code, 1)
		s.Term().ProposeOf("quiet", opening(2), func(_ machine.Outcome, c wire.Code) { ch <- c })
		s.Decide(termtest.Dropped)
		s.ReleaseEntries()
		if c := verdict(ch); c != wire.CodeOK {
			t.Errorf("the other member: %v", c)
		}
	})
}

// checkedLog compares the commands expected by the table with the commands decoded
// by every other voter.
type checkedLog struct {
	soloLog
	t       *testing.T
	entries int
}

func (l *checkedLog) Commit(entry []byte) (any, wire.Code) {
	l.entries++
	expected, commands := l.table.Expected()
	if len(entry) == 0 || &expected[0] != &entry[0] {
		l.t.Error("the entry is not expected")
	}
	decoded, err := machine.DecodeEntry(entry)
	if err != nil || len(decoded) != len(commands) {
		l.t.Fatalf("%d commands decoded, %d expected, %v", len(decoded), len(commands), err)
	}
	if !bytes.Equal(machine.EncodeCommands(decoded), entry) && !strings.Contains(fmt.Sprintf("%T", decoded[0]), "Unknown") {
		l.t.Errorf("encoded anew, the entry differs: %+v", decoded)
	}
	for i := range decoded {
		if !reflect.DeepEqual(decoded[i], commands[i]) {
			l.t.Errorf("expected %#v, decoded %#v", commands[i], decoded[i])
		}
	}
	return l.soloLog.Commit(entry)
}

// The leader's table applies the very commands decoded by the other voters, even if
// a command of this process differs from its encoded form, or exceeds a limit of
// the encoding.
func TestTheLeaderAppliesTheCommandsThatOthersDecode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := term.NewTable()
		log := &checkedLog{soloLog: soloLog{table}, t: t}
		table.Apply(machine.EncodeCommands([]machine.Command{
			machine.LeaderStart{Term: 1}, machine.Found{Cluster: machine.ClusterID{1}, Floor: 1, TTL: 60_000},
			machine.Raise{Term: 1, Format: machine.MaxFormat}, machine.Lift{Term: 1},
		}), time.Now())
		tm := term.New(term.Config{Log: log, Table: table, Term: 1, Logger: slog.New(slog.DiscardHandler)})
		tm.Start()
		defer tm.Stop()
		n := 0
		for _, cmd := range []machine.Command{
			machine.Open{Session: sid(1), Client: "c", Node: "n", TTL: 3000},
			machine.Acquire{Session: sid(1), Seq: 1, Key: "k", Keys: []string{}},
			machine.Acquire{Session: sid(1), Seq: 2, Keys: []string{"a", "b"}, Spec: machine.Spec{Meta: "m"}, Seen: []uint64{}},
			machine.Acquire{Session: sid(1), Seq: 3, Key: "over", Seen: make([]uint64, machine.MaxSeen+1)},
			machine.Acquire{Session: sid(1), Seq: 4, Key: strings.Repeat("x", machine.MaxKey+1)},
			machine.SetValue{Session: sid(1), Token: 1, Rev: 1, Value: []byte{}},
			machine.Expire{Session: sid(1), Term: 1},
			machine.Unknown{Raw: "from the future"},
			nil,
		} {
			tm.Decide(cmd, func(machine.Outcome, wire.Code) { n++ })
			synctest.Wait()
		}
		if n != 9 || log.entries != 9 {
			t.Errorf("%d answers, %d entries", n, log.entries)
		}
		if bytes, _ := table.Expected(); bytes != nil {
			t.Error("an entry is still expected")
		}
	})
}

func TestACommandThatSomeVoterMayNotReadIsRefused(t *testing.T) {
	next := func(c machine.Command) int {
		if _, ok := c.(machine.Ask); ok {
			return machine.MaxFormat + 1
		}
		return machine.Format(c)
	}
	onStageWith(t, termtest.Config{Format: next}, func(s *stage) {
		s.open(1)
		before := len(s.Applied())
		if c := verdict(s.propose(machine.Ask{Session: sid(1), Key: "k"})); c != wire.CodeVersion || len(s.Applied()) != before {
			t.Errorf("%v", c)
		}
		if c := verdict(s.propose(machine.Acquire{Session: sid(1), Seq: 1, Key: "k"})); c != wire.CodeOK {
			t.Errorf("%v", c)
		}
	})
}

// A few bytes can be much work for every voter. So an entry is bounded by the work too,
// and a member pays for its own with its turn.
func TestAnEntryIsBoundedByItsWork(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.HoldEntries()
		const crowd = 40
		sets, quiet := 0, 0
		for i := range crowd {
			keys := make([]string, machine.MaxKeys)
			for j := range keys {
				keys[j] = fmt.Sprintf("%02d/%04d", i, j)
			}
			s.Term().ProposeOf("noisy", machine.Acquire{Session: sid(1), Seq: uint64(i + 1), Keys: keys}, func(o machine.Outcome, c wire.Code) {
				if c == wire.CodeOK && o.Code == machine.Granted {
					sets++
				}
			})
			if i == 0 {
				synctest.Wait() // in flight
			}
		}
		for i := range 10 {
			s.Term().ProposeOf("quiet", machine.Acquire{Session: sid(1), Seq: uint64(1000 + i), Key: fmt.Sprint("q", i)}, func(machine.Outcome, wire.Code) { quiet++ })
		}
		s.Decide(termtest.Committed)
		synctest.Wait()
		for before := sets; sets < crowd; before = sets {
			s.Decide(termtest.Committed)
			synctest.Wait()
			if n := sets - before; n == 0 || n > machine.MaxCost/machine.MaxKeys {
				t.Fatalf("%d sets in one entry", n)
			}
			if quiet != 10 {
				t.Fatalf("%d commands of the other member in its first entry", quiet)
			}
		}
	})
}

// Costs are estimates, and hosts differ: an entry that took long here makes the next ones
// smaller, and quick ones larger again.
func TestASlowEntryMakesTheNextOnesSmaller(t *testing.T) {
	p := term.NewProposer()
	p.NoteApplied(machine.MaxCost, 2, 20*time.Millisecond)
	if most := p.Most(); most != machine.MaxCost/2 {
		t.Errorf("%d after a slow entry", most)
	}
	p.NoteApplied(100, 1, time.Second)
	if most := p.Most(); most != machine.MaxCost/2 {
		t.Errorf("%d after a slow command", most)
	}
	for range 20 {
		p.NoteApplied(1, 2, time.Second)
	}
	if most := p.Most(); most == 0 || most > machine.MaxCost/100 {
		t.Errorf("%d after many slow entries", most)
	}
	for range 20 {
		p.NoteApplied(1, 2, time.Microsecond)
	}
	if most := p.Most(); most != machine.MaxCost {
		t.Errorf("%d after many quick entries", most)
	}
}

// The ends of thousands of sessions, which the leader proposes itself, leave every second
// entry to the members.
func TestTheLeadersOwnCommandsStopNobody(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.HoldEntries()
		own, member := 0, 0
		const crowd = 10 * machine.MaxCommands
		for i := range crowd {
			s.Term().Decide(machine.Silence{Session: sid(1), Term: s.Term().Number()}, func(machine.Outcome, wire.Code) { own++ })
			if i == 0 {
				synctest.Wait() // in flight
			}
		}
		for i := range 10 {
			s.Term().ProposeOf("member", machine.Acquire{Session: sid(1), Seq: uint64(i + 1), Key: fmt.Sprint("k", i)}, func(machine.Outcome, wire.Code) { member++ })
		}
		for range 3 {
			s.Decide(termtest.Committed)
			synctest.Wait()
		}
		if member != 10 || own < machine.MaxCommands {
			t.Errorf("after three entries %d commands of the member and %d of the leader", member, own)
		}
		s.ReleaseEntries()
		synctest.Wait()
		if own != crowd {
			t.Errorf("%d of the leader's own", own)
		}
	})
}
