package term

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

func newIdleTerm() *Term {
	return &Term{subscribers: make(map[*Subscriber]*shown), streams: make(map[member.Process]map[*Subscriber]*shown)}
}

// A map that was large takes little once it is small.
func TestAMapFollowsItsSize(t *testing.T) {
	var f fitMap[int, int]
	if f.has(1) || f.len() != 0 {
		t.Error("an empty map has something")
	}
	f.delete(1)
	for _, left := range []int{3, 0, 900} {
		for i := range 1000 {
			f.set(i, 2*i)
		}
		for i := left; i < 1000; i++ {
			f.delete(i)
		}
		for i := range 1000 {
			if f.has(i) != (i < left) || i < left && f.m[i] != 2*i {
				t.Fatalf("%d of %d: %v, %d", i, left, f.has(i), f.m[i])
			}
		}
		if f.len() != left || f.peak > max(leastPeak, 4*left+4) {
			t.Errorf("%d of 1,000 are left, with memory for %d", f.len(), f.peak)
		}
	}
}

// Open sessions that no bound counts are looked through for ended ones early, and those within
// the bound late.
func TestSessionsBeyondTheBoundAreSweptEarly(t *testing.T) {
	for _, room := range []bool{true, false} {
		asked := 0
		k := newShown(func(int) bool { asked++; return room }, 1)
		for i := range 2 * keysTogether {
			k.opened(machine.SessionID{byte(i), byte(i >> 8)})
		}
		if early := k.sweep < wire.MaxAttach; k.beyond == room || early == room || k.open.len() != 2*keysTogether {
			t.Errorf("with room %v: beyond %v, swept at %d, %d kept", room, k.beyond, k.sweep, k.open.len())
		}
		if asked > 2 {
			t.Errorf("the bound was asked %d times", asked)
		}
	}
}

// For a newer stream of a process its own oldest one ends, and no stream of another process that
// has taken the name; each once.
func TestStreamsGiveWayToTheirOwnProcess(t *testing.T) {
	tm := newIdleTerm()
	join := func(signer string) *Subscriber {
		s := &Subscriber{Node: "n2", Boot: 7, Stop: func() {}}
		tm.joins++
		tm.add(s, &shown{joined: tm.joins, signer: signer, beyond: true})
		return s
	}
	join("victim")
	tm.add(&Subscriber{Node: "n2", Boot: 6, Stop: func() {}}, &shown{signer: "poser", beyond: true})
	var posers []*Subscriber
	for range mostBeyond + 3 {
		posers = append(posers, join("poser"))
	}
	last := posers[len(posers)-1]
	for i := range 3 {
		if got := tm.displace(last); got != posers[i] {
			t.Errorf("displaced %p, want %p, the poser's stream %d", got, posers[i], i+1)
		}
	}
	if got := tm.displace(last); got != nil {
		t.Errorf("displaced %p, want none", got)
	}
	tm.subscribers[last].beyond = false
	if got := tm.displace(last); got != nil {
		t.Errorf("a stream within the bound displaced %p", got)
	}
}

// Whoever takes the name and boot of a process does not have that process refused: events that
// wait for other signers do not count.
func TestEventsOfAnothersStreamsDoNotCount(t *testing.T) {
	tm := newIdleTerm()
	join := func(signer string, waiting int64) *Subscriber {
		s := &Subscriber{Node: "n2", Boot: 7, Later: func(func() machine.Event) {}}
		s.retold.Store(waiting)
		tm.add(s, &shown{signer: signer})
		return s
	}
	join("poser", 2*maxRetold)
	victim := join("victim", 0)
	if !tm.mayRetell(victim, 2*maxRetold) {
		t.Error("a process is refused for a poser's events")
	}
	if tm.mayRetell(join("victim", 0), 1) || tm.mayRetell(join("poser", 0), 1) {
		t.Error("a process's events on its own streams do not count")
	}
}

// A stream that takes nothing any more gives way to the next stream of its process, and to
// no other's. One that takes its events stays.
func TestAStuckStreamGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := newIdleTerm()
		tm.table, tm.created = NewTable(), time.Now()
		var stopped []string
		join := func(name, signer string) *Subscriber {
			s := &Subscriber{Node: "n2", Boot: 7, Later: func(func() machine.Event) {}, Stop: func() { stopped = append(stopped, name) }}
			tm.add(s, &shown{signer: signer})
			return s
		}
		old, next, poser := join("old", "own"), join("next", "own"), join("poser", "poser")
		if !tm.mayRetell(old, 2*maxRetold) {
			t.Fatal("a stream alone is refused")
		}
		limit := timing.AnswerLimit(tm.table.Bound())
		time.Sleep(limit - time.Millisecond)
		if tm.mayRetell(next, 1) || len(stopped) > 0 {
			t.Fatalf("the first stream may still take its events, and %v is stopped", stopped)
		}
		old.took.Store(int64(time.Since(tm.created))) // it takes one
		time.Sleep(limit - time.Millisecond)
		if tm.mayRetell(next, 1) || len(stopped) > 0 {
			t.Fatalf("the first stream takes its events, and %v is stopped", stopped)
		}
		time.Sleep(time.Millisecond)
		if !tm.mayRetell(poser, 1) || len(stopped) > 0 {
			t.Fatalf("a poser has %v stopped", stopped)
		}
		for range 2 {
			if tm.mayRetell(next, 1) {
				t.Error("the events of the stuck stream do not count while it is there")
			}
		}
		if !slices.Equal(stopped, []string{"old"}) {
			t.Errorf("stopped %v", stopped)
		}
	})
}

// A sweep gives back the bytes of what it forgets.
func TestASweepIsCounted(t *testing.T) {
	at := func(k *shown, n int) {
		for i := range n {
			k.opened(machine.SessionID{byte(i), byte(i >> 8)})
		}
	}
	kept := 0
	tm := newIdleTerm()
	tm.table = &Table{m: machine.New()}
	s := &Subscriber{Keep: func(n int) bool { kept = n; return true }}
	k := newShown(s.Keep, 1)
	tm.add(s, k)
	at(k, wire.MaxAttach)
	if kept == 0 {
		t.Fatal("nothing is counted")
	}
	tm.sweepShown(s)
	if k.open.len() != 0 || kept != 0 {
		t.Errorf("%d sessions are kept, %d bytes are counted", k.open.len(), kept)
	}
}
