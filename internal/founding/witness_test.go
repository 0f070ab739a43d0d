package founding

import (
	"context"
	"log/slog"
	"testing"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// witnessAsker is a leader that vouches with a list of voters, of which some attest.
type witnessAsker struct {
	answer wire.VouchAnswer
	attest []string // raft IDs
}

func (w witnessAsker) Ask(_ context.Context, to member.Process, t wire.Type, body []byte) (wire.Frame, error) {
	if t == wire.Vouch {
		return wire.Frame{Code: wire.CodeOK, Body: wire.Marshal(&w.answer)}, nil
	}
	var req wire.AttestRequest
	if err := wire.Unmarshal(body, &req); err != nil {
		return wire.Frame{}, err
	}
	for _, id := range w.attest {
		if name, _, _ := member.ParseRaftID(id); id == req.Voter && name == to.Name && req.Leader == "l" && req.Term == 7 {
			return wire.Frame{Code: wire.CodeOK}, nil
		}
	}
	return wire.Frame{Code: wire.CodeNo}, nil
}

func (w witnessAsker) AskInto(context.Context, member.Process, wire.Type, []byte, any) error {
	return errLost
}

// A leader's own word about a cluster moves nobody out of a cluster that serves.
func TestAnInventedClusterHasNoWitnesses(t *testing.T) {
	id := machine.ClusterID{9}
	at := func(ids ...string) (out []wire.VoterAt) {
		for _, id := range ids {
			out = append(out, wire.VoterAt{Raft: id, Addr: "x"})
		}
		return out
	}
	many := make([]string, 0, 100)
	for i := range 100 {
		many = append(many, member.RaftID("v"+string(rune('a'+i%26))+string(rune('a'+i/26)), 1))
	}
	for claim, tt := range map[string]struct {
		voters []wire.VoterAt
		attest []string
		known  []string
		want   bool
	}{
		"alone":                 {voters: at("l#1")},
		"alone and known":       {voters: at("l#1"), known: []string{"k", "l"}, want: true},
		"without voters":        {},
		"not among its voters":  {voters: at("a#1", "b#1"), attest: []string{"a#1", "b#1"}},
		"nobody else attests":   {voters: at("l#1", "a#1", "b#1"), known: []string{"l"}},
		"a majority attests":    {voters: at("l#1", "a#1", "b#1"), attest: []string{"a#1"}, want: true},
		"a minority attests":    {voters: at("l#1", "a#1", "b#1", "c#1", "d#1"), attest: []string{"a#1"}, known: []string{"l"}},
		"a voter twice":         {voters: at("l#1", "a#1", "a#2"), attest: []string{"a#1"}},
		"the leader twice":      {voters: at("l#1", "l#2"), attest: []string{"l#2"}, known: []string{"l"}},
		"many":                  {voters: at(append(many, "l#1")...), attest: many},
		"no raft ID":            {voters: at("l#1", "a"), attest: []string{"a"}},
		"another's attestation": {voters: at("l#1", "a#1"), attest: []string{"b#1"}},
	} {
		record, err := identity.Open("", "me", "test", true)
		if err != nil {
			t.Fatal(err)
		}
		r := New(Config{
			Self: member.Self{Name: "me", Log: slog.New(slog.DiscardHandler)}, Record: record,
			Ask: witnessAsker{
				answer: wire.VouchAnswer{Founding: wire.Founding{Cluster: id, Voters: []string{"l#1"}, Floor: 1}, Leader: "l", Term: 7, Voters: tt.voters},
				attest: tt.attest,
			},
		})
		if _, ok := r.Witnessed(t.Context(), member.Process{Name: "l", Addr: "l"}, id, tt.known); ok != tt.want {
			t.Errorf("%s: %t", claim, ok)
		}
	}
}
