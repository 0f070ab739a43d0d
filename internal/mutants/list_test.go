//go:build mutants

package mutants

import (
	"slices"
	"testing"
)

// A promise is a row in VERIFICATION.md.
type promise string

const (
	oneHolder    promise = "one holder"
	risingTokens promise = "tokens only rise"
	lossFirst    promise = "loss is told first"
	stoppedFinds promise = "a stopped holder finds out"
	noSilence    promise = "no silence"
	fair         promise = "first come, first served"
	exactlyOnce  promise = "exactly once"
	cheap        promise = "holding is cheap"
	safe         promise = "closed"
	hardToKill   promise = "hard to kill"
	noCircle     promise = "no circle of waits"
)

var promises = []promise{oneHolder, risingTokens, lossFirst, stoppedFinds, noSilence, fair, exactlyOnce, cheap, safe, hardToKill, noCircle}

// allMutants are the mutants of all lists.
func allMutants() []mutant {
	return slices.Concat(sessionMutants, tableMutants, processMutants, clusterMutants, leaderMutants, shardMutants, stickyMutants, basicMutants, guardMutants, roomMutants)
}

// A suite looks for broken promises without knowing the bug.
type suite struct {
	pkg, run string
	env      []string
	sees     []string // the packages that run in it
	root     bool     // needs network namespaces
}

var suites = map[string]suite{
	"model": {
		pkg: "internal/model", run: "^TestRunsOfTheTermAreRunsOfTheModel$|^TestADoctoredRunIsRefused$", env: []string{"WARDMOTE_FULL=tenth"},
		sees: []string{"internal/term", "internal/machine"},
	},
	"term": {
		pkg: "locks", run: "^TestTermSimulation$", env: []string{"WARDMOTE_SIM=60s", "WARDMOTE_SEED="},
		sees: []string{"internal/term", "internal/machine", "locks"},
	},
	"sim": {
		pkg: "internal/sim", run: "^TestSim$", env: []string{"WARDMOTE_SIM=3m", "WARDMOTE_SIM_FIRST=1", "WARDMOTE_SEED=", "WARDMOTE_SIM_FILE="},
		sees: []string{"internal/term", "internal/machine", "locks", "internal/consensus", "internal/link"},
	},
	"storm": {
		pkg: "internal/storm", run: "^TestAStormBreaksNoPromise$", env: []string{"WARDMOTE_STORM=", "WARDMOTE_SEED=", "WARDMOTE_STORM_KEEP="},
		sees: []string{"internal/term", "internal/machine", "locks", "internal/consensus", "internal/link"},
	},

	// Directed schedules, of clusters in a bubble and of real processes.
	"sim, the old leader wakes": {
		pkg: "internal/sim", run: "^TestDirectedPhases$/^the_old_leader_wakes$", env: []string{"WARDMOTE_FULL=1", "WARDMOTE_SEED="},
	},
	"storm, an old leader wakes":   {pkg: "internal/storm", run: "AnOldLeaderThatWakes", env: []string{"WARDMOTE_FULL=1"}, root: true},
	"storm, the next leader waits": {pkg: "internal/storm", run: "ANextLeaderWaits", env: []string{"WARDMOTE_FULL=1"}, root: true},
	"storm, a holder is cut off":   {pkg: "internal/storm", run: "AHolderThatIsCutOff", env: []string{"WARDMOTE_FULL=1"}, root: true},
}

// The fifteen mistakes that other lock services have made, or nearly: each is planted.
var classics = []string{
	"expired after half a TTL", "tokens of the wall clock", "token counter not restored", "an idle key takes its token along", "the last comes first",
	"loss told late", "trust from the answer", "host sleep ignored", "release by owner", "second queue entry on a resend",
	"one permit too many", "reader beside a writer", "a voter's own time in the table", "acknowledged before the flush",
	"an emptied directory keeps its raft ID",
}

// Each mutant names a promise, a rule and its tests, and has a name of its own.
func TestTheListIsSound(t *testing.T) {
	names := make(map[string]bool)
	of := make(map[promise]int)
	for _, m := range allMutants() {
		if err := m.check(); err != nil {
			t.Error(err)
		}
		if names[m.name] {
			t.Errorf("two mutants are called %s", m.name)
		}
		names[m.name] = true
		of[m.promise]++
	}
	for _, name := range classics {
		if !names[name] {
			t.Errorf("%s is not planted any more", name)
		}
	}
	for _, p := range promises {
		if of[p] < 3 {
			t.Errorf("%s has %d mutants: a promise that hardly any bug breaks is hardly tested", p, of[p])
		}
	}
}
