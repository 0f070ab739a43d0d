package timing

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The inequalities that the rest of the house relies on, each with its reason.
func TestInequalities(t *testing.T) {
	const leastTTL, longTTL = 300 * time.Millisecond, 24 * time.Hour // machine.MinTTL; more than any
	for _, c := range []struct {
		holds  bool
		reason string
	}{
		{LeaderLease <= LeastElection, "a leader that writes nothing steps down before its followers elect the next one; raft refuses less"},
		{LeaderLease+ToldContact < MostElection, "the same for a leader that writes, at the default TTL"},
		{LeaderLease-Attend >= 400*time.Millisecond, "a leader bears a stall of its own process of 400 ms"},
		{MostElection/10 >= Attend, "the moments of the grid come before raft's own timers"},
		{TransferStuck > 2*MostElection && TransferStuck >= MostElection+RaftIO, "a transfer whose target does not answer, or is not elected, is not taken for a stuck one"},
		{LeastElection/5 <= Attend, "the last heartbeats of two followers differ by no more than their looks, at the least timeout"},
		{MostElection/5 < ToldContact, "a server that answers every heartbeat counts as living"},
		{MostElection/5+200*time.Millisecond < LeaderLease, "a heartbeat that TCP sends again costs a leader nothing"},
		{Told > ToldContact && Told < RaftIO, "a message that may be needed again comes before an exchange would have failed"},
		{LeastElection <= MostElection, "the election timeout has room"},
		{MostElection < RaftIO, "an exchange that hangs does not end before an election can"},
		{MostElection < ColdElection, "a voter that never heard of a leader asks the others before it stands blindly"},
		{ColdLook <= MostColdLook && MostColdLook < LeastElection, "the voters meet before one of them stands blindly"},
		{2*Attend < LeastElection, "the silence of a leader is noticed soon after the election timeout"},
		{LateAnswer < LeastStagger, "a candidate that waits for the last answers stands before the next candidate"},
		{LeastStagger < MostStagger && MostStagger < LeastElection, "a second candidate stands before the first one's attempt counts as failed"},
		{LeastElection+2*Attend+2*LeastElection < 3*time.Second-3*time.Second/100-100*time.Millisecond-time.Second,
			"at a TTL of 3 s a silent leader and one failed attempt leave a holder its lock"},
		{TransferStuck > Transfer, "a transfer under way is not taken for a stuck one"},
		{Follows < LeastElection && 2*Follows < RaftIO/2, "a message that waits for the word of other voters neither outlasts an election nor looks like a server out of reach"},
		{Disproved > 2*(LeaderLease+MostElection), "a leader that a majority has disproved steps down before any of them answers it again"},
		{StoreStalled > RaftIO, "one slow write does not end leadership"},
		{StoreHung > StoreStalled, "leadership moves before the member gives up its vote"},
		{OrphanedVoter > 2*MostElection+RaftIO, "an ordinary election does not make a voter ask whether it was removed"},
		{VoterCheck < OrphanedVoter, "a voter looks more often than it can be orphaned"},
		{RaftStop < StoreHung, "raft is given up no later than its hung store"},
		{KeeperTick < ProcessStalled, "an ordinary tick does not look like a process that stood still"},
		{PlanRest < PlanQuiet && PlanQuiet < PlanMost, "callers that start together share a plan, and a steady trickle of callers does not put the plan off for ever"},
		{KeeperTick < leastTTL/2, "the keeper looks at least twice in the shortest TTL"},
		{LeastFounding >= 2*Seek, "members that are cut off by nothing meet before a founded cluster grants"},
		{LeastFounding >= time.Second, "package cluster's doc promises a founding wait of a second at least"},
		{JoinAlone <= Seek && Seek <= JoinUnfounded && JoinUnfounded <= JoinSettled, "the fewer members are seen, the more often Join is tried"},
		{FoundingTurn > FoundingRetry, "a proposer can retry before the next member proposes"},
		{FoundersPatience > 2*FoundingTurn, "two founders that fail to propose do not make the others found without the rest"},
		{GhostQuiet >= 3*GhostPatience, "the waits for listed processes that do not answer leave most of the time to foundings"},
		{FoundingYield > 2*ConfirmRound, "a ballot that asks for leaders ends before another member proposes"},
		{FloorAnswer < Dial, "a member that waits in vain for its token floor refuses before the proposer gives it up"},
		{FloorAsk < FloorFresh && FloorAgain < FloorAtMost && FloorAtMost < FloorTold, "an answer that took all of its time counts for a while, and pauses grow"},
		{Retirement > RaftStop+Dial, "a member's raft can stop while a ballot waits for the retirement"},
		{SuccessionPatience >= QuorumPatience(longTTL), "a cluster whose quorum only seems lost is not ended"},
		{Reconcile <= StableMember, "a member is seen by several looks before it may vote"},
		{StableMember < DeadInMemory, "a new member can vote before a dead one is given up"},
		{DeadInMemory < DeadDurable, "a member with a Dir is expected back"},
		{DeadInMemory > QuorumPatience(longTTL)+2*MostElection, "a voter is not replaced for the length of an election"},
		{VoterMissed > RaftIO && VoterMissed < DeadInMemory, "one exchange that hangs does not make a voter missed, and a voter is missed before it is given up"},
		{ReconcileAgain < Reconcile, "a failed change is tried again before the next look without news"},
		{FewerVoters > DeadInMemory, "a rolling restart, one member after the other, changes no number of voters"},
		{CandidateShy < CatchUp, "a candidate that failed is tried again before another one's time is up"},
		{ProgressAnswer <= Reconcile, "one silent server does not delay the next look"},
		{LeastAccept < MostAccept && DirectAgain < DirectMost, "pauses grow"},
		{10*DirectMost < JuryGone, "voters that are back in reach are asked many times before others take their place"},
		{HealthPatience >= 2*MostElection, "Health waits longer than most elections"},
		{ReadyPatience > DeadDurable+StableMember+Reconcile, "a new member waits for every repair that the cluster makes by itself"},
		{4*JoinSettled <= ListComplete, "a settled member looks up a name often enough to believe its list"},
		{TellAgain > QuorumPatience(longTTL) && TellAgain < Unfounded, "a lost quorum is told before it is told again, and a founding is no trouble at first"},
		{ChatterLeast < ChatterMost && TellAgain < ChatterMost, "trouble that lasts is told less and less often"},
		{SilenceSafeTTL > CrashSafeTTL, "silence is found out later than a crash"},
		{2*FrameLook < FrameYields && FrameYields < FrameWithin, "a frame that nobody could read for a while is not taken for a slow one"},
		{Handshake > Dial, "the accepting side does not hang up on a dialler that still waits"},
		{RenewWithin > Handshake && RenewWithin < StaleSecret/2 && StaleSecret < StreamAge/8, "a connection at its end can be replaced in time, and the dialling side ends it first"},
		{StreamWrite > AnswerLimit(longTTL), "a member leaves its leader before the stream breaks"},
		{KeepaliveTotal == 25*time.Second, "package transport's doc names 25 s"},
		{Resolve < Resolved, "a name is believed for longer than it takes to look it up"},
		{EstablishAgain < LeastElection, "a leader tries again before its followers stand"},
		{RunStops+Goodbye+GossipFarewell <= 10*time.Second, "package wardmote's doc promises ten seconds"},
		{RunCloses+StopLeaves < RunStops, "a member leaves although its client could not close"},
		{GossipFarewell < RaftStop, "gossip does not hold up the end of raft"},
	} {
		if !c.holds {
			t.Errorf("broken: %s", c.reason)
		}
	}
}

// The inequalities of the durations that derive from the TTL hold at every TTL.
func TestInequalitiesAtEveryTTL(t *testing.T) {
	for ttl := 300 * time.Millisecond; ttl < 20*time.Minute; ttl += ttl / 7 {
		for _, c := range []struct {
			holds  bool
			reason string
		}{
			{LeastBackoff < MostBackoff(ttl), "pauses grow"},
			{LeaderLease+LeaseMore(ttl) <= Election(ttl), "a leader that hears nothing steps down before its followers elect the next one"},
			{Heartbeat(ttl) >= Attend && 5*Heartbeat(ttl) <= Election(ttl), "a follower hears five heartbeats in its timeout"},
			{HeartbeatRest(ttl) >= Heartbeat(ttl)-Attend && HeartbeatRest(ttl) < Heartbeat(ttl), "a heartbeat leaves when it is due, and no moment of the grid earlier"},
			{bornSilence(ttl) >= 400*time.Millisecond, "a leader bears a silence of 400 ms"},
			{MostBackoff(ttl) < ConfirmRound, "a caller asks again before a round would time out"},
			{MostBackoff(ttl) <= max(ttl/4, 2*LeastBackoff), "a beat that is repeated leaves time for others before the trust ends"},
			{2*Suspect(ttl) < AnswerLimit(ttl), "the voters are asked before the leader is left"},
			{AnswerLimit(ttl)-Suspect(ttl) >= 100*time.Millisecond, "a leader has time to answer the question for a sign of life"},
			{AnswerLimit(ttl) < max(ttl/3, 201*time.Millisecond), "a silent leader is left before the next beat but one"},
			{RelayAfter(ttl) < AnswerLimit(ttl), "a relay is tried before other leaders are given up"},
			{SignOfLife < HoldFind(ttl), "a voter can hear the leader while it keeps a question"},
			{HoldFind(ttl) <= MostHold, "a voter keeps a question for as long as the asker waits"},
			{QuorumPatience(ttl) > 2*(2*Election(ttl))+MostBackoff(ttl), "one or two elections are no lost quorum"},
			{Spread(ttl, 300) <= MostBackoff(ttl), "hundreds of members dial within half a second"},
			{Spread(ttl, 1_000_000) <= max(MostBackoff(ttl), min(ttl/20, MostSpread)), "the dials of any number of members leave time for a beat"},
			{ttl < MostSpread*20 || Spread(ttl, 3500) == 3500*time.Millisecond, "a long TTL lets thousands of members dial one after the other"},
			{Spread(ttl, 3) <= 3*time.Millisecond, "few members lose no time"},
		} {
			if !c.holds {
				t.Errorf("broken at TTL %v: %s", ttl, c.reason)
			}
		}
	}
	if got := bornSilence(10 * time.Second); got != 725*time.Millisecond {
		t.Errorf("a leader bears a silence of %v at the default TTL, want 725 ms", got)
	}
	for ttl, want := range map[time.Duration]time.Duration{
		10 * time.Second: 3 * time.Second, 3 * time.Second: 900 * time.Millisecond, time.Second: 300 * time.Millisecond,
	} {
		if got := AnswerLimit(ttl); got != want {
			t.Errorf("AnswerLimit(%v) = %v, want %v", ttl, got, want)
		}
	}
}

func TestNewsAreTogetherInLargeClustersAlone(t *testing.T) {
	for members, want := range map[int]time.Duration{3: 0, FewMembers: 0, 1000: 50 * time.Millisecond, 1_000_000: Seek} {
		if got := News(members); got != want {
			t.Errorf("News(%d) = %v, want %v", members, got, want)
		}
	}
}

// bornSilence is the silence that costs a leader nothing, less a round trip. The last heartbeat
// before the silence may be as old as distance. The heartbeats extend the lease if a heartbeat
// is under way by then.
func bornSilence(ttl time.Duration) time.Duration {
	distance := HeartbeatRest(ttl) + Attend
	if LeaseMore(ttl) < distance {
		return LeaderLease - distance
	}
	return LeaderLease + LeaseMore(ttl) - distance
}

// The table in ARCHITECTURE.md lists every constant, and every duration that derives
// from the TTL.
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
	for _, file := range []string{"timing.go", "ttl.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for _, name := range n.Names {
					names = append(names, name.Name)
				}
			case *ast.FuncDecl:
				if n.Name.IsExported() {
					names = append(names, n.Name.Name)
				}
			}
			return true
		})
	}
	slices.SortFunc(names, strings.Compare)
	return names
}

func TestElectionFollowsTheTTL(t *testing.T) {
	for _, c := range []struct{ ttl, want time.Duration }{
		{0, LeastElection},
		{300 * time.Millisecond, LeastElection},
		{3 * time.Second, LeastElection},
		{6 * time.Second, 600 * time.Millisecond},
		{10 * time.Second, time.Second},
		{time.Hour, MostElection},
	} {
		if got := Election(c.ttl); got != c.want {
			t.Errorf("TTL %v: %v, want %v", c.ttl, got, c.want)
		}
	}
}

// A leader tells the number of members, and any number gives a period.
func TestSpreadOfAnyNumberOfMembers(t *testing.T) {
	for _, c := range []struct {
		members int
		want    time.Duration
	}{
		{math.MinInt, time.Millisecond},
		{0, time.Millisecond},
		{300, 300 * time.Millisecond},
		{10_000_000_000_000, 500 * time.Millisecond},
		{math.MaxInt, 500 * time.Millisecond},
	} {
		if got := Spread(10*time.Second, c.members); got != c.want {
			t.Errorf("%d members: %v, want %v", c.members, got, c.want)
		}
	}
}
