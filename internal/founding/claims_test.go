package founding

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// liar is a process that sends messages and answers none.
var liar = member.Process{Name: "z", Boot: 9, Addr: "z"}

// prepares sends a Prepare of a ballot to p.
func (p *process) prepares(from member.Process, b wire.Ballot) wire.Code {
	code, _ := p.Step(p.moot.t.Context(), from, wire.Prepare, wire.Marshal(&wire.PrepareRequest{Ballot: b, Size: 3, Voters: 3, TTL: 1000}))
	return code
}

// A ballot near the end of the numbers is refused. The highest ballot allowed, sent
// again and again to each member, delays the founding for a minute at most.
func TestBallotsAtTheEndOfTheNumbersBlockNoFounding(t *testing.T) {
	inMoot(t, func(m *moot) {
		m.lost = func(wire.Type, string) bool { return true }
		for _, name := range abc {
			m.start(name, nil, func(c *Config) { c.InitialSize, c.Founders = 0, abc })
		}
		for _, p := range m.processes() {
			send := func(round uint64) wire.Code {
				b := wire.Ballot{Round: round, Name: liar.Name, Boot: liar.Boot}
				code, _ := p.Step(m.t.Context(), liar, wire.Prepare, wire.Marshal(&wire.PrepareRequest{Ballot: b, Founders: abc, Voters: 3, TTL: 1000}))
				return code
			}
			for _, round := range []uint64{0, math.MaxUint64, 1 << 60, latestRound(time.Now()) + skew + 1} {
				if code := send(round); code != wire.CodeBad {
					t.Errorf("round %d: code %v", round, code)
				}
			}
			for range 1000 {
				if code := send(latestRound(time.Now()) + skew); code != wire.CodeOK {
					t.Fatalf("the highest round: code %v", code)
				}
			}
		}
		m.mu.Lock()
		m.lost = nil
		m.mu.Unlock()
		time.Sleep(90 * time.Second)
		m.cluster()
	})
}

// A ballot is taken from the process that it names alone.
func TestABallotIsTakenFromItsProposerAlone(t *testing.T) {
	inMoot(t, func(m *moot) {
		p := m.start("a", nil, func(c *Config) { c.Joined = make(chan struct{}) })
		for _, from := range []member.Process{liar, {Name: "b", Boot: 6}, {}} {
			if code := p.prepares(from, wire.Ballot{Round: 5, Name: "b", Boot: 7}); code != wire.CodeBad {
				t.Errorf("Prepare of %v: code %v", from, code)
			}
			v := wire.Founding{Cluster: machine.ClusterID{9}, Voters: []string{p.raftID()}, Floor: 1}
			code, _ := p.Step(m.t.Context(), from, wire.Accept, wire.Marshal(&wire.AcceptRequest{Ballot: wire.Ballot{Round: 5, Name: "b", Boot: 7}, Value: v}))
			if code != wire.CodeBad {
				t.Errorf("Accept of %v: code %v", from, code)
			}
		}
		if got := p.record.Get().Promise; got != (identity.Promise{}) {
			t.Errorf("promised %+v", got)
		}
		if code := p.prepares(member.Process{Name: "b", Boot: 7}, wire.Ballot{Round: 5, Name: "b", Boot: 7}); code != wire.CodeOK {
			t.Errorf("the proposer's own: code %v", code)
		}
	})
}

// The news of a founding that does not exist put nobody into a cluster, whatever
// voters it names, and the true founding goes on.
func TestAForgedFoundingIsNotEntered(t *testing.T) {
	inMoot(t, func(m *moot) {
		for _, name := range abc {
			m.start(name, nil)
		}
		a := m.alive["a"]
		for _, voters := range [][]string{{a.raftID()}, {a.raftID(), "y#1", "z#1"}, {a.raftID(), m.alive["b"].raftID(), m.alive["c"].raftID()}} {
			v := wire.Founding{Cluster: machine.ClusterID{9}, Voters: voters, Floor: 1}
			if code, _ := a.Step(m.t.Context(), liar, wire.Chosen, wire.Marshal(&v)); code != wire.CodeNo || a.Cluster() == v.Cluster {
				t.Errorf("voters %v: code %v, in %v", voters, code, a.Cluster())
			}
		}
		time.Sleep(time.Minute)
		if m.cluster() == (machine.ClusterID{9}) {
			t.Error("in the forged cluster")
		}
	})
}

// A voter that has not accepted the founding enters its cluster once a majority of
// the founders say that they accepted it, and not before.
func TestAFoundingIsBelievedOnAMajoritysWord(t *testing.T) {
	inMoot(t, func(m *moot) {
		for _, name := range abc {
			m.start(name, nil, func(c *Config) {
				c.InitialSize, c.Founders, c.Joined = 0, []string{"a", "b", "c", "d", "e"}, make(chan struct{})
			})
		}
		for _, name := range []string{"d", "e"} {
			m.start(name, nil, func(c *Config) {
				c.InitialSize, c.Founders, c.Joined = 0, []string{"a", "b", "c", "d", "e"}, make(chan struct{})
			})
		}
		c := m.alive["c"]
		v := wire.Founding{Cluster: machine.ClusterID{9}, Floor: 1, Voters: []string{m.alive["a"].raftID(), m.alive["b"].raftID(), c.raftID()}}
		chosen := func() wire.Code {
			code, _ := c.Step(m.t.Context(), liar, wire.Chosen, wire.Marshal(&v))
			return code
		}
		for i, name := range []string{"a", "d", "e"} {
			if code := chosen(); code != wire.CodeNo {
				t.Fatalf("after %d acceptances: code %v", i, code)
			}
			m.alive[name].record.Update(func(rec *identity.Record) { rec.Promise.Value = &v })
		}
		forged := v
		forged.Voters = []string{c.raftID()}
		if code, _ := c.Step(m.t.Context(), liar, wire.Chosen, wire.Marshal(&forged)); code != wire.CodeNo {
			t.Errorf("with other voters: code %v", code)
		}
		if code := chosen(); code != wire.CodeOK || c.Cluster() != v.Cluster {
			t.Errorf("after three of five: code %v", code)
		}
	})
}

// Impossible numbers in an answer are a refusal of the member that answers.
func TestImpossibleAnswersAreRefusals(t *testing.T) {
	now := time.Now()
	v := wire.Founding{Cluster: machine.ClusterID{9}, Voters: []string{"a#1"}, Floor: 1}
	for _, p := range []wire.PrepareAnswer{
		{Token: math.MaxUint64}, {TTL: math.MaxUint64}, {Members: -1}, {Members: math.MaxInt32},
		{Value: &wire.Founding{}}, {Value: &v, Accepted: wire.Ballot{Round: math.MaxUint64}},
	} {
		if soundPromise(&p, now); promised(p) || p.Value != nil {
			t.Errorf("%+v is a promise", p)
		}
	}
	good := wire.PrepareAnswer{Token: 1 << 50, TTL: 10_000, Members: 5, Value: &v, Accepted: wire.Ballot{Round: 7}, Differs: strings.Repeat("x", 1<<20)}
	if soundPromise(&good, now); !promised(good) || good.Value == nil || len(good.Differs) > longestText {
		t.Errorf("%.200v", good)
	}
	for _, a := range []wire.RetireAnswer{{Token: math.MaxUint64}, {TokenAge: math.MaxUint64}, {TTL: math.MaxUint64}} {
		if soundRetirement(&a); a.Refused == "" {
			t.Errorf("%+v is a retirement", a)
		}
	}
	for _, v := range []wire.Founding{
		{Cluster: machine.ClusterID{9}, Voters: []string{"a#1"}, Floor: math.MaxUint64},
		{Cluster: machine.ClusterID{9}, Voters: []string{"a#1"}, Floor: 1, TTL: math.MaxUint64},
	} {
		if Check(v) == nil {
			t.Errorf("%+v is sound", v)
		}
	}
}

// A proposer follows no round that the clock does not allow.
func TestAProposerIsNotLedToTheEndOfTheRounds(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	for _, tt := range []struct{ round, mentioned, want uint64 }{
		{3, 7, 7}, {7, 3, 7}, {3, 1_000_000, 1_000_000}, {3, 1_000_001, 3}, {3, math.MaxUint64, 3},
	} {
		if got := nextRound(tt.round, tt.mentioned, now); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

// A request with impossible sizes is refused.
func TestARequestOfImpossibleSizeIsRefused(t *testing.T) {
	for _, req := range []wire.PrepareRequest{
		{Founders: make([]string, maxFounders+1)}, {Founders: []string{"a b"}}, {Size: -1}, {Voters: 1 << 30},
		{Group: make([]wire.GroupMember, maxGroup+1)}, {Group: []wire.GroupMember{{Name: "a", Addr: strings.Repeat("x", maxAddr+1)}}},
	} {
		if checkPrepare(req) {
			t.Errorf("%.100v is possible", req)
		}
	}
}

// A member retires for the proposer of a ballot that it has promised, on the word of
// that ballot, and for nobody else.
func TestAMemberRetiresForABallotAlone(t *testing.T) {
	inMoot(t, func(m *moot) {
		old := m.formed(abc, complete(abc...))
		c := m.alive["c"]
		c.stop() // proposes nothing itself
		m.kill("a")
		m.kill("b")
		time.Sleep(10 * time.Second) // no leader answers c
		for w := wire.WordNone; w <= wire.WordOperator; w++ {
			code, _ := c.Step(m.t.Context(), liar, wire.Retire, wire.Marshal(&wire.RetireRequest{Cluster: old, Word: w}))
			if code != wire.CodeNo || c.retired == old {
				t.Errorf("word %d: code %v, retired from %v", w, code, c.retired)
			}
		}
		prepare := wire.PrepareRequest{Ballot: wire.Ballot{Round: 5, Name: liar.Name, Boot: liar.Boot}, Word: wire.WordSilence, Group: []wire.GroupMember{wire.GroupMember(c.self.Process())}}
		if code, _ := c.Step(m.t.Context(), liar, wire.Prepare, wire.Marshal(&prepare)); code != wire.CodeNo {
			t.Errorf("a word that the configuration does not know: code %v", code)
		}
		c.promise(liar, 6) // package cluster asks Authorize
		for _, x := range []struct {
			from member.Process
			word wire.Word
			want wire.Code
		}{
			{liar, wire.WordSilence, wire.CodeNo},
			{member.Process{Name: "z", Boot: 10}, wire.WordOperator, wire.CodeNo},
			{liar, wire.WordOperator, wire.CodeOK},
		} {
			code, _ := c.Step(m.t.Context(), x.from, wire.Retire, wire.Marshal(&wire.RetireRequest{Cluster: old, Word: x.word}))
			if code != x.want {
				t.Errorf("%+v: code %v", x, code)
			}
		}
	})
}
