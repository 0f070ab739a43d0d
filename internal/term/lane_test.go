package term_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/wire"
)

// decideEntry commits the entry in flight, and waits until the next one is in flight.
func (s *stage) decideEntry() {
	s.Decide(termtest.Committed)
	synctest.Wait()
}

// A member with ten thousand waiting commands, and a leader with as many of its own, keep
// a request of another member for an entry or two.
func TestARequestIsInTheNextEntryOrTheOneAfter(t *testing.T) {
	for _, own := range []bool{false, true} {
		onStage(t, func(s *stage) {
			s.SetCheck(false)
			s.open(1)
			s.HoldEntries()
			const crowd = 10_000
			for i := range crowd {
				s.Term().ProposeOf("noisy", machine.Acquire{Session: sid(1), Seq: uint64(i + 1), Key: fmt.Sprint("k", i)}, func(machine.Outcome, wire.Code) {})
				if own {
					s.Term().Decide(machine.Silence{Session: sid(9), Term: s.Term().Number()}, func(machine.Outcome, wire.Code) {})
				}
				if i == 0 {
					synctest.Wait() // in flight
				}
			}
			for seq := uint64(crowd + 1); seq < crowd+4; seq++ {
				quiet := false
				s.Term().ProposeOf("quiet", machine.Acquire{Session: sid(1), Seq: seq, Key: "q"}, func(machine.Outcome, wire.Code) { quiet = true })
				s.decideEntry() // was in flight
				s.decideEntry()
				if own && !quiet {
					s.decideEntry()
				}
				if !quiet {
					t.Fatalf("request %d, with %t own commands, waits for longer", seq-crowd, own)
				}
			}
			if n, _ := s.Term().Lane("noisy"); n == 0 {
				t.Error("the crowd is gone: the test shows nothing")
			}
			s.ReleaseEntries()
			synctest.Wait()
		})
	}
}

// Two members with requests for a thousand keys each, of which two fill an entry, pay for
// each with the turns after it: many others with small commands do not wait for them.
func TestACostlyCommandIsPaidFor(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.HoldEntries()
		const quiets, each, sets = 30, 100, 40
		keys := make([]string, machine.MaxKeys)
		for i := range keys {
			keys[i] = fmt.Sprintf("%04d", i)
		}
		seq := uint64(0)
		propose := func(member string, cmd machine.Acquire, done *int) {
			seq++
			cmd.Session, cmd.Seq = sid(1), seq
			s.Term().ProposeOf(member, cmd, func(machine.Outcome, wire.Code) { *done++ })
		}
		costly, quiet := 0, 0
		propose("first", machine.Acquire{Key: "first"}, &costly)
		synctest.Wait() // in flight
		for range sets {
			propose("noisy 1", machine.Acquire{Keys: keys}, &costly)
			propose("noisy 2", machine.Acquire{Keys: keys}, &costly)
		}
		for i := range each {
			for member := range quiets {
				propose(fmt.Sprint("quiet ", member), machine.Acquire{Key: fmt.Sprint("q", member, "/", i)}, &quiet)
			}
		}
		// Of the commands alone, the quiet ones fill three entries.
		entries := 0
		s.decideEntry()
		for costly = 0; quiet < quiets*each; entries++ {
			s.decideEntry()
		}
		if entries > 5 {
			t.Errorf("%d entries for %d small commands beside %d sets", entries, quiet, costly)
		}
		for costly < 2*sets {
			before := costly
			s.decideEntry()
			if costly == before {
				t.Fatalf("after %d sets an entry has none", costly)
			}
		}
		s.ReleaseEntries()
		synctest.Wait()
	})
}

// Members with the same crowds are served alike, to a command, whatever the size of their
// commands.
func TestMembersGetEqualParts(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.HoldEntries()
		members := []struct {
			name  string
			value int
			bytes int // decided
		}{{"1 KiB", 1 << 10, 0}, {"4 KiB", 4 << 10, 0}, {"16 KiB", 16 << 10, 0}, {"64 KiB", 64 << 10, 0}}
		first := true
		for i := range members {
			m := &members[i]
			for n := 0; n < 6<<20; n += m.value {
				s.Term().ProposeOf(m.name, machine.SetValue{Session: sid(1), Token: 1, Rev: 1, Value: make([]byte, m.value)},
					func(machine.Outcome, wire.Code) { m.bytes += m.value })
				if first {
					synctest.Wait() // in flight
					first = false
				}
			}
		}
		for range 20 {
			s.decideEntry()
		}
		for _, m := range members[1:] {
			if d := m.bytes - members[0].bytes; d > 192<<10 || d < -192<<10 {
				t.Errorf("%s: %d bytes, and %d of %s", m.name, m.bytes, members[0].bytes, members[0].name)
			}
		}
		s.ReleaseEntries()
		synctest.Wait()
	})
}

// No number of crowds fills the queue for another member, or for the leader itself.
func TestCrowdsTogetherRefuseNobodyElse(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.HoldEntries()
		for i := range term.MaxProposals + 1 {
			s.Term().ProposeOf(fmt.Sprint("noisy ", i%8), machine.Acquire{Session: sid(1), Seq: uint64(i + 1), Key: "k"}, func(machine.Outcome, wire.Code) {})
			if i == 0 {
				synctest.Wait() // in flight
			}
		}
		code := wire.Code(0)
		s.Term().ProposeOf("noisy 1", opening(3), func(_ machine.Outcome, c wire.Code) { code = c })
		if code != wire.CodeBusy {
			t.Errorf("one more of a crowd: %v", code)
		}
		if member, n := s.Term().Noisiest(); !strings.HasPrefix(member, "noisy ") || n != term.MaxProposals/8 {
			t.Errorf("%q is the noisiest, with %d commands", member, n)
		}
		quiet, own := make(chan wire.Code, 1), make(chan wire.Code, 1)
		s.Term().ProposeOf("quiet", opening(2), func(_ machine.Outcome, c wire.Code) { quiet <- c })
		s.Term().Decide(machine.Silence{Session: sid(1), Term: s.Term().Number()}, func(_ machine.Outcome, c wire.Code) { own <- c })
		s.Decide(termtest.Dropped)
		s.ReleaseEntries()
		if c := verdict(quiet); c != wire.CodeOK {
			t.Errorf("the other member: %v", c)
		}
		if c := verdict(own); c != wire.CodeOK {
			t.Errorf("the leader: %v", c)
		}
	})
}

// The bytes of a member are bounded, so that of a few members with large values none
// keeps the others out.
func TestTheBytesOfAMemberAreBounded(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.HoldEntries()
		value := make([]byte, machine.MaxValue)
		large := machine.SetValue{Session: sid(1), Token: 1, Rev: 1, Value: value}
		accepted, codes := 0, make(map[wire.Code]int)
		for i := range 2 * term.MaxLaneBytes / machine.MaxValue {
			if s.Term().ProposeOf("noisy", large, func(_ machine.Outcome, c wire.Code) { codes[c]++ }) != 0 {
				accepted++
			}
			if i == 0 {
				synctest.Wait() // in flight
			}
		}
		if most := term.MaxLaneBytes/machine.MaxValue + 1; accepted > most || accepted < most-2 {
			t.Errorf("%d accepted, %v", accepted, codes)
		}
		quiet := make(chan wire.Code, 1)
		s.Term().ProposeOf("quiet", large, func(_ machine.Outcome, c wire.Code) { quiet <- c })
		s.ReleaseEntries()
		if c := verdict(quiet); c != wire.CodeOK {
			t.Errorf("the other member: %v", c)
		}
	})
}

// A command that its caller takes back leaves the queue, and its place goes to another. The
// others keep their order. A command in an entry stays.
func TestACommandTakenBackLeavesTheQueue(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.HoldEntries()
		codes := make(map[uint64][]wire.Code)
		places := make(map[uint64]uint64)
		propose := func(seq uint64) bool {
			places[seq] = s.Term().ProposeOf("m", machine.Acquire{Session: sid(1), Seq: seq, Key: "k"}, func(_ machine.Outcome, c wire.Code) {
				codes[seq] = append(codes[seq], c)
			})
			return places[seq] != 0
		}
		propose(1)
		synctest.Wait() // in flight
		for seq := uint64(2); propose(seq); seq++ {
		}
		last := uint64(len(places)) // refused
		if n, _ := s.Term().Lane("m"); n != term.MaxLane || !slices.Equal(codes[last], []wire.Code{wire.CodeBusy}) {
			t.Fatalf("%d commands wait, %v", n, codes[last])
		}
		back := []uint64{1, 2, 7, 8, last - 1}
		for _, seq := range back {
			s.Term().TakeBackOf("m", places[seq])
			s.Term().TakeBackOf("m", places[seq]) // a second time
		}
		s.Term().TakeBackOf("m", 1<<60)
		s.Term().TakeBackOf("nobody", places[3])
		if n, _ := s.Term().Lane("m"); n != term.MaxLane-len(back)+1 {
			t.Errorf("%d commands wait", n)
		}
		for i := range back[1:] {
			if !propose(last + 1 + uint64(i)) {
				t.Errorf("no room for %d of the places", i)
			}
		}
		if propose(1 << 40) {
			t.Error("more room than before")
		}
		s.ReleaseEntries()
		synctest.Wait()
		var seqs []uint64
		for _, c := range s.Applied() {
			if c, ok := c.(machine.Acquire); ok {
				seqs = append(seqs, c.Seq)
			}
		}
		if !slices.IsSorted(seqs) {
			t.Error("another order")
		}
		for seq, c := range codes {
			want := wire.CodeOK
			applied := slices.Contains(seqs, seq)
			if seq == last || seq == 1<<40 || seq != 1 && slices.Contains(back, seq) {
				want = wire.CodeBusy
			}
			if !slices.Equal(c, []wire.Code{want}) || applied != (want == wire.CodeOK) {
				t.Errorf("seq %d: %v, applied: %t", seq, c, applied)
			}
		}
	})
}

// Callers that come and go while an entry waits for a disk leave no memory behind.
func TestCommandsTakenBackTakeNoMemory(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.HoldEntries()
		s.Term().ProposeOf("m", opening(2), func(machine.Outcome, wire.Code) {})
		synctest.Wait() // in flight
		busy, kept := 0, make(map[uint64]bool)
		for i := range uint64(5000) {
			place := s.Term().ProposeOf("m", machine.Acquire{Session: sid(1), Seq: i + 1, Key: "k"}, func(_ machine.Outcome, c wire.Code) {
				switch c {
				case wire.CodeOK:
					kept[i] = true
				case wire.CodeBusy:
					busy++
				}
			})
			if i%100 == 0 {
				continue
			}
			s.Term().TakeBackOf("m", place)
			if n, places := s.Term().Lane("m"); places > 3*n+200 {
				t.Fatalf("%d places for %d commands", places, n)
			}
		}
		s.ReleaseEntries()
		synctest.Wait()
		if len(kept) != 50 || busy != 4950 {
			t.Errorf("%d commands kept, %d taken back", len(kept), busy)
		}
	})
}

// The member's notice that nobody waits takes a command out of the leader's queue. Its
// request is answered, so that it is not counted as under way for ever.
func TestANoticeTakesACommandBack(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(2)
		p := s.connect(key(1))
		mine := opening(1)
		mine.Node, mine.Boot = "n2", 7
		if f := p.ask(wire.Propose, machine.AppendCommand(nil, mine)); f.Code != wire.CodeOK {
			t.Fatal(f.Code)
		}
		s.HoldEntries()
		codes := make([]wire.Code, 201)
		var ids []uint64
		for seq := range codes[1:] {
			seq++
			id, err := p.Begin(wire.Propose, machine.AppendCommand(nil, machine.Acquire{Session: sid(1), Seq: uint64(seq), Key: fmt.Sprint("k", seq)}),
				func(f wire.Frame, _ error) { codes[seq] = f.Code })
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
			if seq == 1 {
				synctest.Wait() // in flight
			}
		}
		for seq := range codes[1:] {
			seq++
			if seq%3 != 0 {
				p.Notify(wire.Cancel, wire.Marshal(ids[seq-1]))
			}
		}
		p.Notify(wire.Cancel, wire.Marshal(uint64(1<<40)))
		synctest.Wait()
		if n, _ := s.Term().Lane("n2"); n != 66 {
			t.Errorf("%d commands wait", n)
		}
		s.ReleaseEntries()
		synctest.Wait()
		for seq, c := range codes {
			want := wire.CodeBusy
			if seq == 1 || seq%3 == 0 {
				want = wire.CodeOK
			}
			if seq > 0 && (c != want || s.held(fmt.Sprint("k", seq)) != (want == wire.CodeOK)) {
				t.Errorf("seq %d: %v", seq, c)
			}
		}
		// The list of places follows the queue.
		for seq := uint64(1000); seq < 1100; seq++ {
			if f := p.ask(wire.Propose, machine.AppendCommand(nil, machine.Acquire{Session: sid(1), Seq: seq, Key: "k1"})); f.Code != wire.CodeOK {
				t.Fatal(f.Code)
			}
		}
	})
}

// Debts keep no entry empty: while commands wait, each entry has some, and all entries together
// are at least half full.
func TestDebtsKeepNoEntryEmpty(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.HoldEntries()
		const members, each, size = 30, 10, 60 << 10
		decided := 0
		for i := range members * each {
			s.Term().ProposeOf(fmt.Sprint("m", i%members), machine.SetValue{Session: sid(1), Token: 1, Rev: 1, Value: make([]byte, size)},
				func(machine.Outcome, wire.Code) { decided++ })
			if i == 0 {
				synctest.Wait() // in flight
			}
		}
		s.decideEntry()
		entries := 0
		for ; decided < members*each; entries++ {
			before := decided
			s.decideEntry()
			if decided == before {
				t.Fatalf("after %d commands an entry has none", before)
			}
		}
		if most := 2 * members * each * size / (512 << 10); entries > most {
			t.Errorf("%d entries, of %d", entries, most)
		}
		s.ReleaseEntries()
		synctest.Wait()
	})
}

// A member that sends one costly command at a time does not begin anew with each: the
// others, whose commands wait, are paid first.
func TestADebtOutlastsTheCommands(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.HoldEntries()
		keys := make([]string, machine.MaxKeys)
		for i := range keys {
			keys[i] = fmt.Sprintf("%04d", i)
		}
		seq, sets := uint64(0), 0
		propose := func(member string, cmd machine.Acquire, done func()) {
			seq++
			cmd.Session, cmd.Seq = sid(1), seq
			s.Term().ProposeOf(member, cmd, func(machine.Outcome, wire.Code) { done() })
		}
		var costly func()
		costly = func() { // again as soon as it is answered
			propose("noisy", machine.Acquire{Keys: keys}, func() { sets++; costly() })
		}
		quiet := 0
		propose("quiet", machine.Acquire{Key: "first"}, func() {})
		synctest.Wait() // in flight
		costly()
		const members, each = 9, 1000
		for i := range members * each {
			propose(fmt.Sprint("quiet ", i%members), machine.Acquire{Key: fmt.Sprint("q", i)}, func() { quiet++ })
		}
		s.decideEntry()
		for quiet < members*each {
			s.decideEntry()
		}
		// Nine entries' worth of commands, and half of an entry for each set: a tenth of the
		// whole is two sets.
		if sets > 4 {
			t.Errorf("%d sets beside %d commands", sets, quiet)
		}
		costly = func() {}
		s.ReleaseEntries()
		synctest.Wait()
	})
}

// A leader that ends a large session slice by slice has a command of almost a whole entry
// waiting at all times. A member's command for which the rest has no room gets the next entry,
// and the members behind it do not wait for the last slice.
func TestSlicesOfAnEndLetLargeCommandsThrough(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.open(2)
		seq := uint64(0)
		for i := range 5 {
			keys := make([]string, 1000)
			for j := range keys {
				keys[j] = fmt.Sprintf("%d/%03d", i, j)
			}
			seq++
			s.Term().ProposeOf("large", machine.Acquire{Session: sid(2), Seq: seq, Keys: keys}, func(machine.Outcome, wire.Code) {})
		}
		synctest.Wait()
		s.HoldEntries()
		s.Term().ProposeOf("large", machine.Close{Session: sid(2)}, func(machine.Outcome, wire.Code) {})
		synctest.Wait() // in flight
		set, plain := false, false
		keys := make([]string, 60)
		for i := range keys {
			keys[i] = fmt.Sprintf("set/%02d", i)
		}
		s.Term().ProposeOf("a", machine.Acquire{Session: sid(1), Seq: 1, Keys: keys}, func(machine.Outcome, wire.Code) { set = true })
		s.Term().ProposeOf("b", machine.Acquire{Session: sid(1), Seq: 2, Key: "plain"}, func(machine.Outcome, wire.Code) { plain = true })
		for range 3 {
			s.decideEntry()
		}
		if !set || !plain {
			t.Errorf("after three entries: the set decided %t, the plain request %t", set, plain)
		}
		s.decideEntry()
		if n := s.Counts().Sessions; n != 2 {
			t.Errorf("%d sessions: the end is over, and the test shows nothing", n)
		}
		s.ReleaseEntries()
		synctest.Wait()
	})
}
