package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// voter describes a voter by its troubles: "" works, and letters say not present
// (p), not reached (r), not current (c), leaving (l).
func voter(name, troubles string) wire.VoterState {
	has := func(s string) bool { return strings.Contains(troubles, s) }
	return wire.VoterState{
		Raft: name + "#1", Addr: name + ":7000",
		Present: !has("p"), Reached: !has("p") && !has("r"), Current: !has("c"), Leaving: has("l"),
	}
}

func setOf(wanted int, voters ...wire.VoterState) wire.VoterSet {
	return wire.VoterSet{Wanted: wanted, Voters: voters}
}

func TestVotersAreCounted(t *testing.T) {
	ok := voter("a", "")
	for _, tt := range []struct {
		set   wire.VoterSet
		want  VoterHealth
		whole bool
	}{
		{setOf(0), VoterHealth{}, false},
		{setOf(1, ok), VoterHealth{1, 1, 1, 1, 0}, true},
		{setOf(3, ok), VoterHealth{3, 1, 1, 1, 0}, false},
		{setOf(3, ok, ok), VoterHealth{3, 2, 2, 2, 0}, false},
		{setOf(3, ok, ok, ok), VoterHealth{3, 3, 3, 3, 1}, true},
		{setOf(3, ok, ok, voter("c", "p")), VoterHealth{3, 2, 2, 2, 0}, false},
		{setOf(3, ok, ok, voter("c", "r")), VoterHealth{3, 3, 2, 2, 0}, false},
		{setOf(3, ok, ok, voter("c", "c")), VoterHealth{3, 3, 3, 2, 0}, false},
		{setOf(3, ok, ok, voter("c", "l")), VoterHealth{3, 3, 3, 3, 0}, false},
		{setOf(3, ok, ok, ok, voter("d", "l")), VoterHealth{3, 4, 4, 4, 0}, false},
		{setOf(3, ok, ok, ok, ok, ok), VoterHealth{3, 5, 5, 5, 2}, true}, // on the way from five to three
		{setOf(5, ok, ok, ok, ok, ok), VoterHealth{5, 5, 5, 5, 2}, true},
		{setOf(5, ok, ok, ok, ok, voter("e", "r")), VoterHealth{5, 5, 4, 4, 1}, false},
		{setOf(1, voter("a", "l")), VoterHealth{1, 1, 1, 1, 0}, false},
	} {
		if got := countVoters(tt.set).VoterHealth; got != tt.want || whole(tt.set) != tt.whole {
			t.Errorf("%+v: %+v, whole %v; want %+v, %v", tt.set, got, whole(tt.set), tt.want, tt.whole)
		}
	}
}

// Each trouble is named with its facts, and comes with an action.
func TestTroublesAreExplained(t *testing.T) {
	at := time.Date(2025, 1, 2, 15, 4, 5, 0, time.UTC)
	led := func(change func(*situation)) situation {
		s := situation{founded: true, led: true, granting: true, setKnown: true, set: setOf(3, voter("a", ""), voter("b", ""), voter("c", ""))}
		change(&s)
		return s
	}
	ab := []voterSight{{name: "a", addr: "a:7000", alive: true}, {name: "b", addr: "b:7000", gone: at}, {name: "c"}}
	for _, tt := range []struct {
		s            situation
		reason, next string // next: a part
	}{
		{led(func(s *situation) {}), "", ""},
		{led(func(s *situation) { s.setKnown, s.set = false, wire.VoterSet{} }), "", ""},
		{led(func(s *situation) { s.ended = ErrStopped }), "this node has stopped", "start this process again"},
		{led(func(s *situation) { s.ended = &ConfigError{"Config.Name", "taken"} }), "this node has failed: wardmote: Config.Name: taken", "correct Config.Name"},
		{led(func(s *situation) { s.ended = errors.New("disk") }), "this node has failed: disk", "remove the cause"},
		{situation{progress: "1 of 3 first members seen; a.example:7000 resolves to nothing"},
			"1 of 3 first members seen; a.example:7000 resolves to nothing", "start the missing members"},
		{situation{progress: "2 of 3 first members seen; a at a:7000 is in cluster 1234" + founding.Stranded},
			"2 of 3 first members seen; a at a:7000 is in cluster 1234" + founding.Stranded, "restart the members of that cluster"},
		{situation{progress: "3 of 3 first members seen; " + founding.NoFloor + "fails: down"},
			"3 of 3 first members seen; " + founding.NoFloor + "fails: down", letFloorAnswer},
		{situation{founded: true, voters: ab, hopeless: true, outlook: "call Recover", progress: founding.NoFloor + "fails: down"},
			"this cluster cannot come back by itself: no leader answers: 1 of 3 voters seen; missing b at b:7000 since 15:04:05, c; " + founding.NoFloor + "fails: down", letFloorAnswer},
		{situation{founded: true, voters: ab}, "no leader answers: 1 of 3 voters seen; missing b at b:7000 since 15:04:05, c", "restart every remaining member"},
		{situation{founded: true, voters: ab, durable: true}, "no leader answers: 1 of 3 voters seen; missing b at b:7000 since 15:04:05, c", "with their Dirs"},
		{situation{founded: true, voters: ab, progress: "a successor waits for 10.0.0.7:7000"},
			"no leader answers: 1 of 3 voters seen; missing b at b:7000 since 15:04:05, c; a successor waits for 10.0.0.7:7000", "restore the network"},
		{situation{founded: true, voters: []voterSight{{name: "a", alive: true}, {name: "b", alive: true}, {name: "c", addr: "c:7000", alive: true}}},
			"no leader answers: 3 of 3 voters seen", "wait some seconds for an election"},
		{situation{founded: true}, "no leader answers, and no voter is known", "correct Join"},
		{situation{founded: true, voters: ab, hopeless: true, outlook: "call Recover"},
			"this cluster cannot come back by itself: no leader answers: 1 of 3 voters seen; missing b at b:7000 since 15:04:05, c", "call Recover"},
		{led(func(s *situation) { s.clashes = []string{"two clusters of one name: 01 here, 02 at b:7000"} }),
			"conflict: two clusters of one name: 01 here, 02 at b:7000", "see Conflicts"},
		{led(func(s *situation) { s.clashes = []string{"x", "y"} }), "conflict: x; and 1 more", "see Conflicts"},
		{led(func(s *situation) { s.granting, s.wait, s.waitKnown = false, 9440*time.Millisecond, true }),
			"the cluster is founded, and grants in 9.4 s, since survivors of an earlier cluster may still hold locks", "wait"},
		{led(func(s *situation) { s.granting = false }),
			"the cluster has not said yet whether it grants; if it is new, it grants in 0.1 s, since survivors of an earlier cluster may still hold locks", "wait"},
		{led(func(s *situation) { s.granting, s.held = false, "x at x:7000" }),
			"the cluster grants nothing yet: x at x:7000 says that it is in another cluster of this name", "stop the process"},
		{led(func(s *situation) { s.set = setOf(3, voter("a", ""), voter("b", "")) }),
			"2 of 3 wanted voters work, and 0 more may fail: 1 more wanted", "take no other process yet: wait"},
		{led(func(s *situation) { s.set = setOf(3, voter("a", ""), voter("b", ""), voter("c", "c")) }),
			"2 of 3 wanted voters work, and 0 more may fail: c at c:7000 catches up", "yet: wait"},
		{led(func(s *situation) { s.set = setOf(3, voter("a", ""), voter("b", "l"), voter("c", "p")) }),
			"1 of 3 wanted voters work, and 0 more may fail: b at b:7000 leaves, c at c:7000 has ended", "yet: wait"},
		{led(func(s *situation) { s.set, s.durable = setOf(3, voter("a", ""), voter("b", ""), voter("c", "p")), true }),
			"2 of 3 wanted voters work, and 0 more may fail: c at c:7000 has ended", "start the missing one again"},
		{led(func(s *situation) {
			s.set = setOf(5, voter("a", ""), voter("b", ""), voter("c", ""), voter("d", ""), voter("e", "r"))
		}),
			"4 of 5 wanted voters work, and 1 more may fail: e at e:7000 is not reached by the leader", "restore the network"},
		{led(func(s *situation) {
			s.set, s.estranged = setOf(3, voter("a", ""), voter("b", ""), voter("c", "r")), []string{"c"}
		}), "2 of 3 wanted voters work, and 0 more may fail: c at c:7000 is not reached by the leader and knew none of the present secrets when last heard of",
			"give the member that missed the rotation a present secret"},
	} {
		reason, next := tt.s.explain()
		if reason != tt.reason || !strings.Contains(next, tt.next) || (reason == "") != (next == "") {
			t.Errorf("%+v:\n%q\n%q\nwant\n%q\n%q", tt.s, reason, next, tt.reason, tt.next)
		}
	}
}

// A member without a cluster says whom it misses, in Health, Ready, and in the log:
// not at once as trouble, and not in every second.
func TestAMemberWithoutAClusterSaysWhomItMisses(t *testing.T) {
	inBubble(t, func(b *bubble) {
		l := newLogbook()
		n := b.start("n1", l.config, joins(b.addr("n1"), b.addr("n2"), "n3.example:7000", "n4.example:7000"), func(c *Config) {
			c.Resolver = func(_ context.Context, host string) ([]string, error) {
				if host == "n3.example" {
					return []string{b.host("n3")}, nil
				}
				return nil, errors.New("no such host")
			}
		})
		time.Sleep(5 * time.Second)
		err := n.Ready(b.within(time.Second))
		h := n.Health(context.Background())
		for _, fact := range []string{
			"1 of 3 first members seen", "10.0.0.2:7000 does not answer", "n3.example:7000 resolves to 10.0.0.3:7000",
			"10.0.0.3:7000 does not answer", "n4.example:7000 does not resolve: no such host",
		} {
			if !strings.Contains(h.Reason, fact) || err == nil || !strings.Contains(err.Error(), fact) || !strings.Contains(h.Err.Error(), fact) {
				t.Errorf("without %q: %+v, %v", fact, h, err)
			}
		}
		if n := strings.Count(h.Reason, "n4.example:7000 does not resolve"); n != 1 {
			t.Errorf("told %d times: %s", n, h.Reason)
		}
		if !errors.Is(err, ErrNoQuorum) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(h.Next, "start the missing members") || h.Cluster != "" {
			t.Errorf("%+v, %v", h, err)
		}
		time.Sleep(timing.Unfounded - 10*time.Second)
		if lines := l.above(slog.LevelWarn); len(lines) > 0 {
			t.Errorf("at first: %q", lines)
		}
		time.Sleep(20 * time.Minute)
		warnings := l.above(slog.LevelWarn)
		if len(warnings) < 3 || len(warnings) > 6 || !strings.Contains(warnings[0], "WARN no cluster yet") || !strings.Contains(warnings[0], "n4.example:7000 does not resolve") {
			t.Errorf("%d warnings in 20 minutes: %q", len(warnings), warnings)
		}
		l.sound(t)
	})
}

// A lost quorum is a warning that names the missing voters, and is told again.
func TestALostQuorumIsWarnedOf(t *testing.T) {
	inBubble(t, func(b *bubble) {
		l := newLogbook()
		slow := ttl(10 * time.Second) // n3 looks for a leader every TTL/20
		b.start("n1", slow)
		b.start("n2", slow)
		n := b.start("n3", slow, l.config)
		b.ready(n)
		b.crash("n1")
		b.crash("n2")
		time.Sleep(10 * time.Minute)
		warnings := l.above(slog.LevelWarn)
		told := func(parts ...string) bool {
			return slices.ContainsFunc(warnings, func(w string) bool {
				return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(w, p) })
			})
		}
		if len(warnings) < 3 || len(warnings) > 9 || !told("WARN quorum lost", "of 3 voters seen", "next=") ||
			!told("WARN no leader", "1 of 3 voters seen since", "missing n1 at 10.0.0.1:7000 since", "restart every remaining member") {
			t.Errorf("%q", warnings)
		}
		l.sound(t)
	})
}

// A member of a dead cluster says what the successor waits for, wherever somebody
// asks why nothing is granted.
func TestAMemberOfADeadClusterSaysWhatTheSuccessorWaitsFor(t *testing.T) {
	inBubble(t, func(b *bubble) {
		complete := func(c *Config) { c.Recovery.JoinIsComplete = true }
		n1 := b.form(complete)[0]
		b.crashed("n2", "n3")
		time.Sleep(20 * time.Second)
		h, err := n1.Health(b.within(time.Second)), n1.Ready(b.within(time.Second))
		for _, text := range []string{h.Reason, fmt.Sprint(err)} {
			if !strings.Contains(text, "Join is complete, and "+b.addr("n2")+" does not answer") || !strings.Contains(text, "1 of 3 voters seen") {
				t.Errorf("not told: %q", text)
			}
		}
	})
}
