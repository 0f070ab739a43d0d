package term_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/wardmote/wardmote/internal/wire"
)

// A subscriber is told the state of the voters when it attaches, and at each change
// after that; never twice the same, and never before it attaches. A subscriber of
// this node outlives the term.
func TestTheStateOfTheVotersIsToldToAttachedSubscribers(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		r := newRecorder()
		var told []string
		r.Voters = func(set wire.VoterSet) { told = append(told, fmt.Sprint(set.Term, "/", set.Index)) }
		expect := func(claim string, want ...string) {
			t.Helper()
			if !slices.Equal(told, want) {
				t.Errorf("%s: told %v, want %v", claim, told, want)
			}
		}
		tm := s.Term()
		tm.Join(&r.Subscriber)
		tm.AnnounceVoters(wire.VoterSet{Term: 1, Index: 4})
		expect("joined only")
		tm.Attach(&r.Subscriber, nil, nil)
		expect("attached", "1/4")
		tm.Attach(&r.Subscriber, keys(1), nil)
		expect("attached again", "1/4")
		tm.AnnounceVoters(wire.VoterSet{Term: 1, Index: 5})
		expect("changed", "1/4", "1/5")
		s.Lead()
		tm.AnnounceVoters(wire.VoterSet{Term: 1, Index: 6})
		expect("the term has ended", "1/4", "1/5")
		tm = s.Term()
		tm.Join(&r.Subscriber)
		tm.AnnounceVoters(wire.VoterSet{Term: 2, Index: 6})
		tm.Attach(&r.Subscriber, nil, nil)
		expect("in the next term", "1/4", "1/5", "2/6")
		tm.Quit(&r.Subscriber)
		tm.AnnounceVoters(wire.VoterSet{Term: 2, Index: 7})
		expect("gone", "1/4", "1/5", "2/6")
	})
}
