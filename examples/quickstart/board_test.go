package main

import (
	"slices"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// boardAfter returns a board of three voters after events.
func boardAfter(events ...event) *board {
	b := newBoard(at(0), names)
	for i, name := range names {
		b.started(name, 101+i)
		b.apply(event{Kind: ready, Member: name}, at(1000))
		b.apply(event{Kind: status, Member: name, Voter: true, Leads: name == "ben", Writes: 7 * i}, at(1000))
	}
	for _, e := range events {
		b.apply(e, at(2500))
	}
	return b
}

func owning(member string, token int, owned ...int) []event {
	var out []event
	for i, shard := range owned {
		out = append(out, event{Kind: owns, Member: member, Shard: shard, Token: fence.Token(token + i)})
	}
	return out
}

func TestLargerTokenIsTheOwner(t *testing.T) {
	b := boardAfter(owning("ann", 10, 0, 1)...)
	// ann is stopped and sends no event of its loss.
	b.apply(event{Kind: owns, Member: "ben", Shard: 1, Token: 20}, at(0))
	if got := b.shardsOf("ann"); !slices.Equal(got, []int{0}) {
		t.Errorf("ann owns %v, want [0]", got)
	}
	// ann wakes up. Its late events do not change ben's grant.
	b.apply(event{Kind: gaveUp, Member: "ann", Shard: 1, Token: 11}, at(0))
	b.apply(event{Kind: owns, Member: "ann", Shard: 1, Token: 11}, at(0))
	if got := b.shardsOf("ben"); !slices.Equal(got, []int{1}) {
		t.Errorf("ben owns %v, want [1]", got)
	}
	b.apply(event{Kind: exited, Member: "ben"}, at(0))
	if got := b.owners[1].member; got != "" {
		t.Errorf("%s owns shard 1, whose owner is dead", got)
	}
}

func TestDeadSchedulerIsNoScheduler(t *testing.T) {
	b := boardAfter(event{Kind: elected, Member: "ann", Token: 30})
	b.apply(event{Kind: exited, Member: "ann"}, at(0))
	if b.scheduler.member != "" || b.votersUp() != 2 {
		t.Errorf("scheduler %q, %d up, want none and 2", b.scheduler.member, b.votersUp())
	}
	b.apply(event{Kind: elected, Member: "cid", Token: 29}, at(0))
	if b.scheduler.member != "" {
		t.Error("cid is scheduler under a token that is not larger than the last scheduler's")
	}
}

func TestBalancedNeedsVotersSchedulerAndEvenShards(t *testing.T) {
	all := append(owning("ann", 10, 0, 1, 2, 3), owning("ben", 20, 4, 5, 6, 7)...)
	all = append(all, owning("cid", 30, 8, 9, 10, 11)...)
	all = append(all, event{Kind: elected, Member: "ann", Token: 40})
	if b := boardAfter(all...); !b.balanced() || !b.allOwned("") || b.allOwned("cid") {
		t.Errorf("balanced %t, all owned %t, all owned by others than cid %t; want true, true, false",
			b.balanced(), b.allOwned(""), b.allOwned("cid"))
	}
	for name, e := range map[string]event{
		"a voter is missing":    {Kind: status, Member: "cid"},
		"a process is dead":     {Kind: exited, Member: "cid"},
		"no scheduler":          {Kind: deposed, Member: "ann", Token: 40},
		"a shard without owner": {Kind: gaveUp, Member: "cid", Shard: 8, Token: 30},
		"unevenly divided":      {Kind: owns, Member: "ann", Shard: 8, Token: 50},
	} {
		if boardAfter(append(all, e)...).balanced() {
			t.Errorf("balanced, although: %s", name)
		}
	}
}

func TestTrustedStaleLockBreaksThePromise(t *testing.T) {
	if b := boardAfter(event{Kind: refused, Member: "ann", Shard: 3, Token: 10, Seen: 20}); b.broken != "" {
		t.Errorf("broken: %s", b.broken)
	}
	if b := boardAfter(event{Kind: refused, Member: "ann", Shard: 3, Token: 10, Seen: 20, Trusted: true}); b.broken == "" {
		t.Error("not broken, though a lock was trusted after the next grant")
	}
}

func TestElapsedCountsFromTheStart(t *testing.T) {
	if got := elapsed(boardAfter(), at(0).Add(90*time.Second)); got != "90.0s" {
		t.Errorf("elapsed %q, want 90.0s", got)
	}
}
