package main

import (
	"strings"
	"testing"
	"time"
)

// steady returns a table of a steady cluster: ann is the scheduler.
func steady() *live {
	all := append(owning("ann", 10, 0, 1, 2, 3), owning("ben", 20, 4, 5, 6, 7)...)
	all = append(all, owning("cid", 30, 8, 9, 10, 11)...)
	l := &live{demo: &demo{board: boardAfter(append(all, event{Kind: elected, Member: "ann", Token: 40})...)}, done: make(map[byte]int)}
	return l
}

// next returns the key that has its effect now, or 0.
func (l *live) next() byte {
	for _, key := range l.waiting {
		if l.obstacle(key) == "" {
			return key
		}
	}
	return 0
}

// A key that cannot have its effect now waits for it, and says for what.
func TestKeysWait(t *testing.T) {
	l := steady()
	for _, key := range []byte("kip") {
		if got := l.obstacle(key); got != "" {
			t.Errorf("%c waits for %s in a steady cluster", key, got)
		}
	}
	l.board.apply(event{Kind: deposed, Member: "ann", Token: 40}, at(3000))
	l.press('k')
	if got := l.waits(); l.next() != 0 || got != "waiting: k, for a scheduler. Esc forgets it" {
		t.Errorf("next %c; %q", l.next(), got)
	}
	l.board.apply(event{Kind: elected, Member: "ben", Token: 41}, at(3000))
	if l.next() != 'k' {
		t.Errorf("k still waits for %s", l.obstacle('k'))
	}

	// With a dead process a pause must wait, and the restart that it waits for overtakes.
	l.board.apply(event{Kind: exited, Member: "ben"}, at(4000))
	l.board.apply(event{Kind: elected, Member: "cid", Token: 42}, at(4000))
	l.waiting = nil
	l.press('p')
	if got := l.waits(); l.next() != 0 || !strings.Contains(got, "three voters (2 are up: press r)") {
		t.Errorf("next %c; %q", l.next(), got)
	}
	l.press('r')
	if l.next() != 'r' {
		t.Errorf("r waits for %s", l.obstacle('r'))
	}
	l.press(escape)
	if len(l.waiting) > 0 {
		t.Error("Esc forgets nothing")
	}
}

func TestKeysThatMeanNothing(t *testing.T) {
	l := steady()
	l.press('x')
	l.press('r')
	if len(l.waiting) > 0 || len(l.latest) != 1 || !strings.HasSuffix(l.latest[0], "  r: nobody is dead") {
		t.Errorf("waiting %q, told %q", l.waiting, l.latest)
	}
	l.press('k')
	l.press('r') // after the kill somebody is dead
	for range 10 {
		l.press('k')
	}
	if got := string(l.waiting); got != "krkk" {
		t.Errorf("waiting %q: want a few, in order", got)
	}
}

// The hints lead through the demo.
func TestHintsLeadToTheFence(t *testing.T) {
	l := steady()
	want := func(part string) {
		t.Helper()
		if got := l.hint(); !strings.Contains(got, part) {
			t.Errorf("hint %q, want %q", got, part)
		}
	}
	want("Press k")
	l.done['k']++
	l.board.apply(event{Kind: exited, Member: "ann"}, at(3000))
	want("Nobody else is granted ann's locks")
	for shard := range 4 {
		l.board.apply(event{Kind: owns, Member: "ben", Shard: shard, Token: 50}, at(3000))
	}
	l.board.apply(event{Kind: elected, Member: "ben", Token: 51}, at(3000))
	want("Press r")
	l.board.started("ann", 104)
	l.board.apply(event{Kind: ready, Member: "ann"}, at(4000))
	l.board.apply(event{Kind: status, Member: "ann", Voter: true}, at(4000))
	if canPause {
		want("Press p")
	}
	l.board.row("ben").state = paused
	want("ben stands still")
	l.board.row("ben").state = running
	l.done['p']++
	want("Press i")
	l.done['i']++
	if got := l.hint(); got != "" {
		t.Errorf("hint %q after all", got)
	}
	l = &live{demo: &demo{board: newBoard(time.Now(), names)}}
	want("A new cluster")
}
