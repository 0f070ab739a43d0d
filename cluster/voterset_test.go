package cluster

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// inNoCluster returns a node with a record and nothing else.
func inNoCluster(t *testing.T) *Node {
	t.Helper()
	record, err := identity.Open("", "a", "test", true)
	if err != nil {
		t.Fatal(err)
	}
	return &Node{record: record, founding: founding.New(founding.Config{Record: record})}
}

func TestTheLeadersWordOnTheVoters(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	// "a b!" stands for voter a, in reach of the leader, and voter b, missed by the
	// leader.
	word := func(term, index uint64, text string) wire.VoterSet {
		set := wire.VoterSet{Term: term, Index: index}
		for _, w := range strings.Fields(text) {
			id, missed := strings.CutSuffix(w, "!")
			set.Voters = append(set.Voters, wire.VoterState{Raft: id + "#1", Reached: !missed})
		}
		return set
	}
	var w voterNews
	for i, tt := range []struct {
		after          time.Duration
		set            wire.VoterSet
		added, removed string
		missed         time.Duration // since when b is missed; -1: is not
	}{
		{0, word(3, 5, "a b c"), "", "", -1}, // the first word of a process is no news
		{1, word(3, 5, "a b! c"), "", "", 1},
		{2, word(3, 6, "a b!"), "", "c#1", 1},
		{3, word(4, 6, "a! b!"), "", "", 1}, // the next leader has reached nobody yet
		{4, word(3, 7, "a b d"), "", "", 1}, // a former leader's late word
		{5, word(4, 7, "a! b! d"), "d#1", "", 1},
		{6, word(4, 7, "a b d"), "", "", -1},
		{7, word(5, 8, "a b! d"), "", "", 7},
		{8, word(5, 9, "a d"), "", "b#1", -1},
	} {
		added, removed := w.take(tt.set, start.Add(tt.after))
		ids := func(vs []wire.VoterState) (out string) {
			for _, v := range vs {
				out += v.Raft
			}
			return out
		}
		if ids(added) != tt.added || ids(removed) != tt.removed {
			t.Errorf("word %d: added %q, removed %q", i, ids(added), ids(removed))
		}
		want := time.Time{}
		if tt.missed >= 0 {
			want = start.Add(tt.missed)
		}
		if got := w.missedSince()("b#1"); !got.Equal(want) {
			t.Errorf("word %d: b is missed since %v, want %v", i, got, want)
		}
	}
}

// The terms of the next cluster begin low: its first word counts, and tells what
// became of the voters of the former cluster. A late word of that one is no word.
func TestTheNextClustersWordOnTheVoters(t *testing.T) {
	n := inNoCluster(t)
	n.events = newHookQueue(func(context.Context, Event) {})
	n.self.Log = slog.New(slog.DiscardHandler)
	word := func(term uint64, ids ...string) wire.VoterSet {
		set := wire.VoterSet{Term: term, Index: term, Wanted: len(ids)}
		for _, id := range ids {
			set.Voters = append(set.Voters, wire.VoterState{Raft: id})
		}
		return set
	}
	n.votersTold(machine.ClusterID{}, word(50, "a#1", "b#1", "c#1"))
	n.leaderTerm.Store(50)
	changed := n.votersChanged()
	n.voters.forget()
	select {
	case <-changed:
	default:
		t.Error("nobody was woken")
	}
	if set, ok := n.voterSet(); ok || len(set.Voters) > 0 {
		t.Errorf("the former cluster's voters are told: %+v", set)
	}
	n.votersTold(machine.ClusterID{7}, word(51, "x#1")) // of a cluster that this member is not in
	if set, ok := n.voterSet(); ok {
		t.Errorf("another cluster's voters are told: %+v", set)
	}
	n.votersTold(machine.ClusterID{}, word(2, "a#2", "c#1"))
	if set, ok := n.voterSet(); !ok || set.Term != 2 {
		t.Errorf("told %+v, %t", set, ok)
	}
	var told []string
	for _, e := range n.events.q {
		told = append(told, e.String())
	}
	if want := []string{"voter removed: a", "voter removed: b", "voter added: a"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// Members that change over hear of the successor's voters, although its terms are
// lower than those of the dead cluster, and each event is told once.
func TestVotersAreToldAcrossAChangeOver(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1 := b.form(wants(3))[0]
		n4, n5 := b.join("n4", thin, wants(3)), b.join("n5", thin, wants(3))
		b.crashed("n2", "n3")
		n4.voters.mu.Lock()
		n4.voters.set.Term += 100 // a long life
		n4.voters.mu.Unlock()
		SucceedForTest(t, 9, n1)
		b.ready(n1, n4, n5)
		b.eventually("three vote", time.Minute, func() bool { return len(b.voters()) == 3 })
		b.eventually("n4 knows", 5*time.Second, func() bool {
			set, ok := n4.votersKnown()
			return ok && whole(set) && len(set.Voters) == 3
		})
		for _, want := range []string{"voter removed: n2", "voter removed: n3", "voter added: n5"} {
			n := 0
			for _, e := range b.told() {
				if strings.HasSuffix(e, "n4: "+want) {
					n++
				}
			}
			if n != 1 {
				t.Errorf("n4 was told %q %d times", want, n)
			}
		}
	})
}
