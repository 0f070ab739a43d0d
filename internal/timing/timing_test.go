package timing

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The inequalities that the rest of the house relies on, each with its reason.
func TestInequalities(t *testing.T) {
	const leastTTL = 300 * time.Millisecond // machine.MinTTL
	for _, c := range []struct {
		holds  bool
		reason string
	}{
		{LeaderLease <= Election, "a leader steps down before its followers elect the next one"},
		{Election < RaftIO, "an exchange that hangs does not end before an election can"},
		{TransferStuck > Transfer, "a transfer under way is not taken for a stuck one"},
		{StoreStalled > RaftIO, "one slow write does not end leadership"},
		{StoreHung > StoreStalled, "leadership moves before the member gives up its vote"},
		{OrphanedVoter > 2*Election+RaftIO, "an ordinary election does not make a voter ask whether it was removed"},
		{VoterCheck < OrphanedVoter, "a voter looks more often than it can be orphaned"},
		{RaftStop < StoreHung, "raft is given up no later than its hung store"},
		{KeeperTick < ProcessStalled, "an ordinary tick does not look like a process that stood still"},
		{KeeperTick < leastTTL/2, "the keeper looks at least twice in the shortest TTL"},
		{ConfirmRound < AnswerLimit, "a round that fails is answered before the member leaves its leader"},
		{LeastFounding >= 2*Seek, "members that are cut off by nothing meet before a founded cluster grants"},
		{LeastFounding >= time.Second, "package cluster's doc promises a founding wait of a second at least"},
		{JoinAlone <= Seek && Seek <= JoinUnfounded && JoinUnfounded <= JoinSettled, "the fewer members are seen, the more often Join is tried"},
		{FoundingTurn > FoundingRetry, "a proposer can retry before the next member proposes"},
		{Reconcile <= StableMember, "a member is seen by several looks before it may vote"},
		{StableMember < DeadInMemory, "a new member can vote before a dead one is given up"},
		{DeadInMemory < DeadDurable, "a member with a Dir is expected back"},
		{DeadInMemory > QuorumPatience+2*Election, "a voter is not replaced for the length of an election"},
		{CandidateShy < CatchUp, "a candidate that failed is tried again before another one's time is up"},
		{ProgressAnswer <= Reconcile, "one silent server does not delay the next look"},
		{Dial < AnswerLimit, "a dial that fails leaves time for another address"},
		{LeastBackoff < MostBackoff && LeastAccept < MostAccept, "pauses grow"},
		{MostBackoff < ConfirmRound, "a caller asks again before a round would time out"},
		{QuorumPatience > 2*(2*Election)+MostBackoff, "one or two elections are no lost quorum"},
		{HealthPatience > 2*(2*Election)-Election, "Health waits longer than most elections"},
		{Handshake > Dial, "the accepting side does not hang up on a dialler that still waits"},
		{StreamWrite > AnswerLimit, "a member leaves its leader before the stream breaks"},
		{KeepaliveTotal == 25*time.Second, "package transport's doc names 25 s"},
		{Resolve < Resolved, "a name is believed for longer than it takes to look it up"},
		{EstablishAgain < Election, "a leader tries again before its followers stand"},
		{GossipFarewell < RaftStop, "gossip does not hold up the end of raft"},
	} {
		if !c.holds {
			t.Errorf("broken: %s", c.reason)
		}
	}
}

// The table in ARCHITECTURE.md lists every constant.
func TestArchitectureShowsTheTable(t *testing.T) {
	doc, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]bool)
	for _, m := range regexp.MustCompile("`timing\\.([A-Za-z]+)`").FindAllStringSubmatch(string(doc), -1) {
		shown[m[1]] = true
	}
	names := constants(t)
	for _, name := range names {
		if !shown[name] {
			t.Errorf("ARCHITECTURE.md does not show timing.%s", name)
		}
		delete(shown, name)
	}
	for name := range shown {
		t.Errorf("ARCHITECTURE.md shows timing.%s, which does not exist", name)
	}
}

func constants(t *testing.T) (names []string) {
	f, err := parser.ParseFile(token.NewFileSet(), "timing.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			for _, name := range v.Names {
				names = append(names, name.Name)
			}
		}
		return true
	})
	slices.SortFunc(names, strings.Compare)
	return names
}
