package survival

import (
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// Each scenario confines the exploration to the executions in question, and
// is explored completely: with all rules no two clusters grant, and no calm end
// is dead.

// all is the cluster of A, B and C, with a list of exactly their names. Processes
// restart, and a process is cut off, as often as the explorer likes.
func all() succession {
	u := allSuccessionRules()
	u.slots, u.listed, u.first = 3, 0b111, processesOf(0, 1, 2)
	u.ballots, u.restarts, u.changes = 1, unlimited, unlimited
	u.cuts, u.cutsMost = []mask{0b001, 0b010, 0b100}, testrounds.Bound(1, unlimited)
	return u
}

// away has C cut off for good, with A and B wandering to C's side one by one,
// while D and E take their places.
func away() succession {
	u := all()
	u.slots, u.listed, u.proposers[0] = 5, 0b11111, 0b00100
	u.cut, u.cutsMost = 0b00100, 0
	u.restarting = 0b00011
	return u
}

// beside has A cut off for good beside the living cluster of B, C and D. Their
// processes restart, and their answers to A's ballot cross the cut.
func beside() succession {
	u := all()
	u.slots, u.listed, u.first, u.proposers[0] = 4, 0b1111, processesOf(1, 2, 3), 0b0001
	u.cut, u.cutsMost, u.moves, u.size = 0b0001, 0, false, 1
	return u
}

// shrinking has five voters becoming three, while two are cut off.
func shrinking() succession {
	u := all()
	u.slots, u.listed, u.first, u.proposers[0] = 5, 0b11111, processesOf(0, 1, 2, 3, 4), 0b00001
	u.restarts, u.changes = testrounds.Bound(1, 2), testrounds.Bound(1, 3)
	u.cuts, u.cutsMost, u.atomic = []mask{0b00011, 0b00100}, 2, true
	return u
}

// rivals has two proposers. The second may end the successor of the first.
func rivals() succession {
	u := all()
	u.ballots, u.proposers = 2, [2]mask{0b001, 0b010}
	u.restarts, u.changes = testrounds.Bound(1, 3), 1
	u.cuts, u.cutsMost = []mask{0b100}, 1
	return u
}

// fresh has five members without any cluster, and two proposers.
func fresh() succession {
	u := all()
	u.slots, u.listed, u.first = 5, 0b11111, 0
	u.ballots, u.proposers = 2, [2]mask{0b00001, 0b01000}
	u.restarts, u.changes = testrounds.Bound(0, 1), 0
	u.cuts, u.cutsMost = []mask{0b11000}, 1
	return u
}

// apart has AssumeGone on both sides of a cut, healed before a silence ends.
func apart() succession {
	u := all()
	u.voice, u.healing = assumeGone, true
	u.slots, u.listed = 4, 0b1111
	u.ballots, u.proposers = 2, [2]mask{0b0001, 0b1000}
	u.restarts, u.changes = 1, 1
	u.cuts, u.cutsMost = []mask{0b1100}, 1
	return u
}

// gone has AssumeGone where the silent are gone indeed.
func gone() succession {
	u := all()
	u.voice = assumeGone
	u.slots, u.listed = 4, 0b1111
	u.restarts, u.crashes, u.cutsMost = 1, 2, 0
	return u
}

// disks has members with a Dir. Members crash and start again, and operators call
// the missing members gone, whose Dir is lost.
func disks() succession {
	u := all()
	u.voice, u.dirs = recovery, true
	u.slots, u.listed = 4, 0b1111
	u.ballots, u.proposers = 2, [2]mask{0b0100, 0b1000}
	u.restarts, u.crashes, u.changes, u.cutsMost = 0, testrounds.Bound(2, unlimited), 2, 0
	return u
}

// returned is disks with a false word: the disks called gone come back,
// while a member of some successor is up.
func returned() succession {
	u := disks()
	u.returns, u.inTurn = true, true
	u.crashes, u.changes = 4, 1
	return u
}

// descended is returned with a second successor. Some members of the second have
// never heard of the first.
func descended() succession {
	u := returned()
	u.size, u.changes = 1, 2
	u.restarts, u.restarting = 2, 0b0100
	u.crashes, u.crashing = 3, 0b1011
	return u
}

func TestSuccession(t *testing.T) {
	for _, c := range []struct {
		name     string
		scenario succession
	}{
		{"a complete list of three", all()},
		{"the voters wander to the other side of a cut", away()},
		{"a ballot beside a living cluster", beside()},
		{"five voters become three", shrinking()},
		{"two rival proposers", rivals()},
		{"a first founding with a complete list", fresh()},
		{"silence assumed to be death, on both sides of a cut", apart()},
		{"silence that is death", gone()},
		{"operators who recover from lost disks", disks()},
		{"lost disks that come back", returned()},
		{"a successor of a successor", descended()},
	} {
		t.Run(c.name, func(t *testing.T) { mustHold(t, c.scenario.model(), 2_000_000) })
	}
}

// Without any voice, restarts of all members of a dead cluster, in turn, end in a
// founding.
func TestWithoutAnyVoice(t *testing.T) {
	u := all()
	u.voice, u.ballots = noVoice, 0
	mustHold(t, u.model(), 1_000_000)
}

// A test without findings may have looked at nothing. In descended, two
// successions one after the other are completed.
func TestSecondSuccessionIsReached(t *testing.T) {
	const found = "the second succession"
	m := descended().model()
	m.heal = nil
	m.wrong = func(s lifeState) string {
		if s.clusters[3].lifted && s.clusters[3].ends>>2&1 != 0 && s.clusters[2].lifted {
			return found
		}
		return ""
	}
	mustBreak(t, m, 1_000_000, found)
}

// A fourth and a fifth member, new voters among them. These take a minute.
func TestMoreMembers(t *testing.T) {
	if testrounds.Bound(0, 1) == 0 {
		t.Skip("WARDMOTE_FULL is not set")
	}
	four := all()
	four.slots, four.listed, four.proposers[0] = 4, 0b1111, 0b0100
	four.cuts, four.cutsMost = []mask{0b0100, 0b0011}, 1
	t.Run("four", func(t *testing.T) { mustHold(t, four.model(), 2_000_000) })
	five := away()
	five.cut, five.cutsMost, five.cuts = 0, 1, []mask{0b00100}
	five.restarting, five.atomic = 0xff, true
	t.Run("five", func(t *testing.T) { mustHold(t, five.model(), 2_000_000) })
}
