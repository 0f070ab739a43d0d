package survival

import "testing"

const (
	twoLeaders  = "one cluster has two leaders"
	killed      = "a living cluster is ended"
	stillTrusts = "still trusts"
	strays      = "stays for ever in a cluster that grants nothing"
)

// Each rule of a succession, taken out alone. Where a rule is about safety, the
// test does not ask for liveness, and so finds the two clusters.
func TestEachRuleOfSuccessionIsNeeded(t *testing.T) {
	for _, c := range []struct {
		name     string
		scenario succession
		without  func(u *succession)
		want     string
	}{
		{"the group is every voter that the proposer knows", away(), func(u *succession) { u.voice = knownVoters }, twoClusters},
		{"a majority of the listed addresses answers", away(), func(u *succession) { u.whole = false }, twoClusters},
		{"a promise counts by name", beside(), func(u *succession) { u.sameProcess = false }, twoClusters},
		{"a voter promises and votes on", beside(), func(u *succession) {
			u.retires = false
			u.restarts, u.changes, u.cut, u.cutsMost = 0, 0, 0, unlimited
			u.cuts = []mask{0b0001, 0b0010, 0b0100, 0b1000}
		}, twoClusters},
		{"a member accepts after it has found a cluster", beside(), func(u *succession) { u.again = false }, twoClusters},
		{"the new voters alone accept", beside(), func(u *succession) { u.allAccept = false }, twoClusters},
		{"a voter of a living cluster retires", all(), func(u *succession) { u.spares = false }, killed},
		{"a voter asks for a majority of the voters in the last committed entry", all(), func(u *succession) { u.newest = false }, deadEnd},
		{"an accepted value is not repeated", rivals(), func(u *succession) { u.repeats, u.size = false, 1 }, twoClusters},
		{"an accepted value is repeated though its voters are lost", rivals(), func(u *succession) { u.supersedes = false }, deadEnd},
		{"members enter a cluster that they agreed to end", fresh(), func(u *succession) { u.shuns = false }, twoClusters},
		{"a successor grants at once", all(), func(u *succession) { u.silence = false }, stillTrusts},
		{"a silent cluster grants beside members of another", apart(), func(u *succession) { u.holds = false }, twoClusters},
		{"a successor stays beside its predecessor's leader", apart(), func(u *succession) { u.dissolves = false }, strays},
		{"a silent cluster stays beside the leader of a stranger", apart(), func(u *succession) { u.siblings = false }, strays},
		{"a member stays in a cluster that cannot answer", apart(), func(u *succession) { u.follows = false }, deadEnd},
		{"a member leaves a cluster that cannot answer for its successor only", fresh(), func(u *succession) {
			u.strangers = false
			u.slots, u.listed, u.restarts, u.cutsMost = 3, 0b111, 2, 0
			u.proposers[1] = 0b010
		}, deadEnd},
		{"a voter with a Dir votes without asking for successors", returned(), func(u *succession) { u.asks = false }, twoClusters},
		{"a successor knows its own predecessor only", descended(), func(u *succession) { u.ancestry = false }, twoClusters},
		{"two voters change in one step", all(), func(u *succession) {
			u.oneByOne = false
			u.slots, u.ballots, u.restarts = 4, 0, 0
			u.cuts = []mask{0b1001, 0b0100}
			u.cutsMost = 2
		}, twoLeaders},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.without(&c.scenario)
			breaks(t, c.scenario, c.want)
		})
	}
}

// Each word from outside, made false. The rules do not bear a false word: these are
// the remaining cases.
func TestFalseWordsBreakTheRules(t *testing.T) {
	for _, c := range []struct {
		name     string
		scenario succession
		falsely  func(u *succession)
		want     string
	}{
		{"an incomplete list is called complete", away(), func(u *succession) { u.listed = 0b00111 }, twoClusters},
		{"one address leads to two processes", away(), func(u *succession) { u.shared = [2]mask{0b01001, 0b10010} }, twoClusters},
		{"a deleted process still runs", away(), func(u *succession) { u.ghosts, u.listed = 0b11000, 0b00111 }, twoClusters},
		{"AssumeGone is shorter than the cut", apart(), func(u *succession) { u.healing = false }, twoClusters},
		{"disks called gone come back while nobody of the successor is up", returned(), func(u *succession) {
			u.alone, u.slots, u.ballots = true, 3, 1
		}, stillTrusts},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.falsely(&c.scenario)
			breaks(t, c.scenario, c.want)
		})
	}
}

func breaks(t *testing.T, u succession, want string) {
	t.Helper()
	m := u.model()
	if want == twoClusters || want == stillTrusts {
		m.heal = nil
	}
	mustBreak(t, m, 1_000_000, want)
}
