package survival

import (
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// A and B found with three or with two voters, C comes late, and any of them may
// forget everything at any moment.
func TestThreeFounders(t *testing.T) {
	f := threeFounders()
	f.restarts = testrounds.Bound(1, 3)
	f.proposers[0] = mask(testrounds.Bound(0b001, 0b111))
	mustHold(t, f.model(), 2_000_000)
}

// The voters change after the founding: the two become three, and shrink again.
func TestThreeFoundersWhoseVotersChange(t *testing.T) {
	f := threeFounders()
	f.restarts, f.changes = testrounds.Bound(1, 3), 2
	f.proposers = [2]mask{0b001, 0b110}
	mustHold(t, f.model(), 2_000_000)
}

// A, B, C and D found while E is cut off. Then E founds with every founder
// with the first founding forgotten.
func TestFiveFounders(t *testing.T) {
	f := fiveFounders()
	f.restarts = testrounds.Bound(2, 4)
	mustHold(t, f.model(), 2_000_000)
}

// Three of five founders are a bare majority. They may found if all have a Dir.
func TestFiveFoundersWithDirs(t *testing.T) {
	f := fiveFounders()
	f.durable, f.absent = 0b01110, 0b10000
	f.restarts = testrounds.Bound(1, 2)
	f.groups = [2]mask{0b01110, 0b01111}
	f.proposers = [2]mask{0b00010, 0b00001}
	mustHold(t, f.model(), 2_000_000)
}

func threeFounders() founders { return allFounderRules(3) }

// fiveFounders confines the ballots, as five founders, each proposing to all, are
// too many states: A's ballot does not reach E, and E's ballot does not reach A.
func fiveFounders() founders {
	f := allFounderRules(5)
	f.proposers = [2]mask{0b00001, 0b10000}
	f.groups = [2]mask{0b01111, 0b11110}
	return f
}

const (
	twoClusters = "two clusters grant"
	deadEnd     = "no cluster grants though"
)

// Each rule of a founding, taken out alone.
func TestEachRuleOfFoundingIsNeeded(t *testing.T) {
	for _, c := range []struct {
		name    string
		without func(f *founders)
		want    string
	}{
		{"a bare majority in memory", func(f *founders) {
			*f = fiveFounders()
			f.restarts, f.covers, f.groups = 1, false, [2]mask{0b00111, 0b11110}
		}, twoClusters},
		{"an accepted value is not repeated", func(f *founders) { f.repeats, f.restarts = false, 0 }, deadEnd},
		{"an accepted value is repeated though its voters are lost", func(f *founders) { f.supersedes = false }, deadEnd},
		{"founded members do not answer Prepare, adoption only from a leader", func(f *founders) { f.answers = false }, deadEnd},
		{"a founding is adopted by name, not by raft ID", func(f *founders) { f.byRaftID = false }, deadEnd},
		{"a founding is passed on by any member", func(f *founders) { f.byLeader = false }, deadEnd},
		{"a member that is no founder votes", func(f *founders) {
			f.slots, f.changes, f.restarts, f.foundersVote = 4, 1, 1, false
			f.proposers = [2]mask{0b001, 0b100}
		}, twoClusters},
		{"two voters of three shrink to one", func(f *founders) {
			f.changes, f.restarts, f.neverOne = 1, 1, false
		}, twoClusters},
		{"a lost Dir counts as never lost", func(f *founders) {
			*f = fiveFounders()
			f.lostDir, f.durable, f.restarts = true, 0b11111, 1
			f.groups = [2]mask{0b00111, 0b11110}
		}, twoClusters},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := threeFounders()
			f.restarts = 1
			f.proposers = [2]mask{0b001, 0b010}
			c.without(&f)
			mustBreak(t, f.model(), 2_000_000, c.want)
		})
	}
}
