package link

import (
	"fmt"
	"strings"
	"testing"

	"github.com/wardmote/wardmote/internal/wire"
)

// A leader's word about the voters that no leader of this version can give is dropped
// before anything is changed or kept.
func TestAWordOnTheVotersOutOfBoundsIsDropped(t *testing.T) {
	voters := func(n int) (out []wire.VoterState) {
		for i := range n {
			out = append(out, wire.VoterState{Raft: fmt.Sprintf("v%d#1", i), Addr: fmt.Sprint("v", i)})
		}
		return out
	}
	onStage(t, func(t *testing.T, s *stage) {
		heard := s.listen()
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		tell := func(set wire.VoterSet) int {
			set.Term = 5
			_ = a.stream().Notify(wire.Voters, wire.Marshal(&set))
			s.settle()
			return len(heard())
		}
		if tell(wire.VoterSet{Wanted: 3, Voters: voters(maxSet)}) != 1 {
			t.Error("the largest set is not taken")
		}
		for name, set := range map[string]wire.VoterSet{
			"too many":            {Voters: voters(maxSet + 1)},
			"12,000":              {Voters: voters(12_000)},
			"one twice":           {Voters: append(voters(2), voters(1)...)},
			"no raft ID":          {Voters: []wire.VoterState{{Raft: "x"}}},
			"a long ID":           {Voters: []wire.VoterState{{Raft: strings.Repeat("x", 65) + "#1"}}},
			"a long address":      {Voters: []wire.VoterState{{Raft: "x#1", Addr: strings.Repeat("x", maxAddr+1)}}},
			"a long zone":         {Voters: []wire.VoterState{{Raft: "x#1", Zone: strings.Repeat("x", 65)}}},
			"too many are wanted": {Wanted: maxSet + 1, Voters: voters(3)},
			"fewer than none":     {Wanted: -1, Voters: voters(3)},
		} {
			if tell(set) != 1 {
				t.Fatalf("%s: taken", name)
			}
		}
		if got := s.k.told(); len(got) != maxVoters || got[0] != "v0" {
			t.Errorf("told of %q", got)
		}
	})
}

// Of a list of addresses nothing is kept but what is used.
func TestAListOfAddressesIsKeptInPart(t *testing.T) {
	var list []string
	for i := range 10_000 {
		list = append(list, "", strings.Repeat("x", maxAddr+1), fmt.Sprint("v", i))
	}
	h, ok := readHint(wire.Marshal(&wire.Hint{Term: 5, Leader: "a", Addr: "a", Voters: list}))
	if !ok || len(h.Voters) != maxVoters || cap(h.Voters) > 2*maxVoters || h.Voters[8] != "v8" {
		t.Errorf("%v: %d voters in room for %d: %.100q", ok, len(h.Voters), cap(h.Voters), h.Voters)
	}
	for _, bad := range []wire.Hint{{Leader: strings.Repeat("x", 65)}, {Leader: "a", Addr: strings.Repeat("x", maxAddr+1)}} {
		if h, ok := readHint(wire.Marshal(&bad)); ok || h.Leader != "" || h.Addr != "" {
			t.Errorf("a leader named %.20q at %.20q is taken", bad.Leader, bad.Addr)
		}
	}
}
