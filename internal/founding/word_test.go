package founding

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/wire"
)

// complete gives a member the word that the addresses are all.
func complete(addrs ...string) func(*Config) {
	return func(c *Config) { c.Complete = func() ([]string, bool, string) { return addrs, true, "" } }
}

// formed starts the named members and waits until they are in one cluster.
func (m *moot) formed(names []string, change ...func(*Config)) machine.ClusterID {
	m.t.Helper()
	for _, name := range names {
		m.start(name, nil, change...)
	}
	time.Sleep(15 * time.Second)
	id := m.cluster()
	m.granting()
	return id
}

var abc = []string{"a", "b", "c"}

func TestACompleteListFoundsOnlyWithAMemberAtEveryAddress(t *testing.T) {
	inMoot(t, func(m *moot) {
		four := complete("a", "b", "c", "d")
		for _, name := range abc {
			m.start(name, nil, four)
		}
		time.Sleep(time.Minute)
		for _, p := range m.processes() {
			if p.Value() != nil {
				t.Errorf("%s founded, with nobody at d", p.self.Name)
			}
			if !strings.Contains(p.Progress(), "d does not answer") {
				t.Errorf("%s does not tell who is missing: %s", p.self.Name, p.Progress())
			}
		}
		m.start("d", nil, four)
		time.Sleep(20 * time.Second)
		m.cluster()
		m.granting()
		if v := m.alive["a"].Value(); len(v.Voters) != 3 || len(v.Predecessors) != 0 {
			t.Errorf("founded with %+v", v)
		}
	})
}

func TestAnUncertainListFoundsNothing(t *testing.T) {
	inMoot(t, func(m *moot) {
		var certain atomic.Bool
		for _, name := range abc {
			m.start(name, nil, func(c *Config) {
				c.Complete = func() ([]string, bool, string) { return abc, certain.Load(), "looked up once so far" }
			})
		}
		time.Sleep(30 * time.Second)
		if p := m.alive["a"]; p.Value() != nil || !strings.Contains(p.Progress(), "looked up once so far") {
			t.Errorf("value %v, %s", p.Value(), p.Progress())
		}
		certain.Store(true)
		time.Sleep(15 * time.Second)
		m.granting()
	})
}

// Two of three voters are killed and restarted without memory. The third is in the
// successor without a restart, and the successor is silent for the longest bound,
// with tokens above all tokens seen.
func TestADeadClusterIsSucceededInPlace(t *testing.T) {
	inMoot(t, func(m *moot) {
		old := m.formed(abc, complete(abc...))
		c := m.alive["c"]
		c.token, c.bound = tokenOf(time.Now())+1<<30, 60_000
		for _, name := range []string{"a", "b"} {
			m.kill(name)
			m.start(name, nil, complete(abc...))
		}
		time.Sleep(40 * time.Second)
		if id := m.cluster(); id == old {
			t.Error("still in the dead cluster")
		}
		m.granting()
		v := c.Value()
		if !slices.Equal(v.Predecessors, []machine.ClusterID{old}) || v.TTL != 60_000 || v.Floor < c.token+2<<tokenBits {
			t.Errorf("succeeded by %+v", v)
		}
		if len(c.adopted) != 2 || c.retired != old {
			t.Errorf("c: adopted %v, retired from %v", c.adopted, c.retired)
		}
	})
}

// The same twice: the last one names both earlier clusters.
func TestASuccessorIsSucceeded(t *testing.T) {
	inMoot(t, func(m *moot) {
		first := m.formed(abc, complete(abc...))
		var second machine.ClusterID
		for _, pair := range [][]string{{"a", "b"}, {"b", "c"}} {
			for _, name := range pair {
				m.kill(name)
				m.start(name, nil, complete(abc...))
			}
			time.Sleep(40 * time.Second)
			if second == (machine.ClusterID{}) {
				second = m.cluster()
			}
		}
		m.granting()
		if v := m.alive["a"].Value(); !slices.Equal(v.Predecessors, []machine.ClusterID{second, first}) {
			t.Errorf("predecessors %v, want %v and %v", v.Predecessors, second, first)
		}
	})
}

// A member that was cut off from its living cluster founds nothing: nobody answers
// at the addresses of the others. After the cut it is in the same cluster.
func TestAMinorityFoundsNoSuccessor(t *testing.T) {
	for _, word := range []func(*Config){complete(abc...), func(*Config) {}} {
		inMoot(t, func(m *moot) {
			id := m.formed(abc, word)
			m.partition("c")
			time.Sleep(time.Minute)
			m.heal()
			time.Sleep(15 * time.Second)
			if m.cluster() != id {
				t.Error("a successor beside a living cluster")
			}
			m.granting()
		})
	}
}

// The list is called complete and leaves d out, which lives.
func TestALivingMemberOutsideTheListStopsAFounding(t *testing.T) {
	inMoot(t, func(m *moot) {
		m.start("d", nil, func(c *Config) { c.InitialSize = 0 })
		for _, name := range abc {
			m.start(name, nil, complete(abc...))
		}
		time.Sleep(time.Minute)
		if p := m.alive["a"]; p.Value() != nil || !strings.Contains(p.Progress(), "lacks d") {
			t.Errorf("value %v, %s", p.Value(), p.Progress())
		}
	})
}

// Without anybody's word the restarted members wait for the last member of the dead
// cluster. Its restart ends the wait.
func TestRestartingTheMembersOfADeadClusterOneByOneFoundsANewOne(t *testing.T) {
	inMoot(t, func(m *moot) {
		m.burial = 12 * time.Second // longer than the pauses between the restarts
		old := m.formed(abc)
		m.kill("a")
		m.kill("b")
		for _, name := range []string{"a", "b"} {
			m.start(name, nil)
			time.Sleep(10 * time.Second)
		}
		time.Sleep(time.Minute)
		a := m.alive["a"]
		if a.Value() != nil {
			t.Fatal("a newcomer adopted a founding whose cluster cannot answer, or founded beside it")
		}
		if !strings.Contains(a.Progress(), "c at c is in cluster "+clusterText(old)) {
			t.Errorf("the wait is not told: %s", a.Progress())
		}
		m.kill("c")
		m.start("c", nil)
		time.Sleep(15 * time.Second)
		if m.cluster() == old {
			t.Error("the dead cluster lives on")
		}
		m.granting()
	})
}

// A killed member of a dead cluster is not restarted. Gossip buries it late; a
// proof of its end comes at once.
func TestAProvedEndFreesTheOthers(t *testing.T) {
	inMoot(t, func(m *moot) {
		m.burial = time.Hour
		ended := func(c *Config) {
			c.Founders, c.InitialSize, c.Voters = []string{"a", "b", "c", "d"}, 0, 3
			c.Ended = func(name string, _ uint64) bool { return name == "c" && m.gone("c") }
		}
		for _, name := range append(slices.Clone(abc), "d") {
			m.start(name, nil, ended)
		}
		time.Sleep(15 * time.Second)
		m.granting()
		for _, name := range []string{"a", "b", "d"} {
			m.kill(name)
			m.start(name, nil, ended)
		}
		m.kill("c")
		time.Sleep(30 * time.Second)
		m.cluster()
		m.granting()
	})
}

// gone reports whether no process of the name lives.
func (m *moot) gone(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.alive[name] == nil
}

func TestSilenceAllowsASuccessorOnlyWhereItIsSet(t *testing.T) {
	inMoot(t, func(m *moot) {
		one := func(c *Config) { c.InitialSize, c.Voters = 1, 3 }
		silent := func(c *Config) { c.AssumeGone = time.Minute }
		m.start("a", nil, one, silent)
		time.Sleep(10 * time.Second)
		a := m.alive["a"]
		// A cluster of three, as the reconciler of voters would have made it.
		three := *a.Value()
		three.Voters = []string{a.raftID(), "b#1", "c#1"}
		a.value.Store(&three)
		time.Sleep(50 * time.Second)
		if a.Cluster() != three.Cluster || !strings.Contains(a.Progress(), "Recovery.AssumeGone is 1m0s") {
			t.Errorf("succeeded early, or in silence: %s", a.Progress())
		}
		time.Sleep(30 * time.Second)
		if v := a.Value(); v.Cluster == three.Cluster || len(v.Voters) != 1 {
			t.Errorf("in %+v: %s", v, a.Progress())
		}
	})
}

// A thin member proposes nothing on a silence, and takes part in the founding: it asks the
// dead, too, before it believes their silence.
func TestAThinMemberHoldsNoFoundingOnASilence(t *testing.T) {
	inMoot(t, func(m *moot) {
		patient := func(c *Config) { c.AssumeGone = 20 * time.Second }
		old := m.formed(abc, patient)
		for _, name := range []string{"d", "e"} {
			m.start(name, nil, patient, func(c *Config) { c.InitialSize, c.Thin = 0, true })
		}
		time.Sleep(5 * time.Second)
		m.start("f", nil, patient, func(c *Config) { c.InitialSize = 0 }) // nobody has had to ask it
		time.Sleep(5 * time.Second)
		for _, name := range []string{"a", "b", "f"} {
			m.kill(name)
		}
		time.Sleep(2 * time.Minute)
		if m.cluster() == old {
			t.Errorf("not founded: %s", m.alive["c"].Progress())
		}
	})
}

func TestRecoverAsksForEveryKnownMember(t *testing.T) {
	inMoot(t, func(m *moot) {
		old := m.formed(abc)
		m.kill("a")
		m.kill("b")
		c := m.alive["c"]
		recover := func(gone ...string) error {
			ctx, cancel := context.WithTimeout(m.t.Context(), 30*time.Second)
			defer cancel()
			return c.Recover(ctx, gone, nil)
		}
		if err := recover("a"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "b was a member") {
			t.Errorf("one of two missing members was named: %v", err)
		}
		if c.Cluster() != old {
			t.Error("succeeded without the operator's word about b")
		}
		if err := recover("a", "b"); err != nil {
			t.Error(err)
		}
		if v := c.Value(); len(v.Voters) != 1 || !slices.Contains(v.Predecessors, old) {
			t.Errorf("recovered to %+v", v)
		}
		if p := m.start("d", nil, func(c *Config) { c.InitialSize = 0 }); p.Recover(m.t.Context(), nil, nil) == nil {
			t.Error("a member without a cluster recovered")
		}
	})
}

// The operator may stand at a member that never votes.
func TestAThinMemberRecoversForTheOthers(t *testing.T) {
	inMoot(t, func(m *moot) {
		old := m.formed(abc)
		d := m.start("d", nil, func(c *Config) { c.InitialSize, c.Thin = 0, true })
		time.Sleep(20 * time.Second)
		if d.Cluster() != old {
			t.Error("d has not joined: " + d.Progress())
		}
		m.kill("a")
		m.kill("b")
		ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
		defer cancel()
		if err := d.Recover(ctx, []string{"a", "b"}, nil); err != nil {
			t.Error(err)
		}
		c := m.alive["c"]
		if v := c.Value(); !slices.Contains(v.Predecessors, old) || len(v.Voters) != 1 || !c.namedBy(*v) {
			t.Errorf("c is in %+v", v)
		}
	})
}

// The list of a refused call must not become the word of the running one.
func TestASecondRecoverChangesNothing(t *testing.T) {
	inMoot(t, func(m *moot) {
		old := m.formed(abc)
		m.kill("a")
		m.kill("b")
		c := m.alive["c"]
		ctx, cancel := context.WithTimeout(m.t.Context(), 30*time.Second)
		defer cancel()
		first := make(chan error, 1)
		go func() { first <- c.Recover(ctx, []string{"a"}, nil) }()
		time.Sleep(time.Second)
		if err := c.Recover(ctx, []string{"a", "b"}, nil); err == nil {
			t.Error("two at a time")
		}
		if err := <-first; err == nil || c.Cluster() != old {
			t.Errorf("succeeded on the word of a refused call: %v", err)
		}
	})
}

func TestNothingIsFoundedWhileTheTokenFloorIsUnknown(t *testing.T) {
	inMoot(t, func(m *moot) {
		var up atomic.Bool
		floor := func(c *Config) {
			c.TokenFloor = func(context.Context) (uint64, error) {
				if !up.Load() {
					return 0, errors.New("the guard is down")
				}
				return tokenOf(time.Now().Add(time.Hour)), nil
			}
		}
		for _, name := range abc {
			m.start(name, nil, floor)
		}
		time.Sleep(time.Minute)
		if p := m.alive["a"]; p.Value() != nil || !strings.Contains(p.Progress(), "the guard is down") {
			t.Errorf("value %v, %s", p.Value(), p.Progress())
		}
		up.Store(true)
		time.Sleep(30 * time.Second)
		m.granting()
		if v := m.alive["a"].Value(); v.Floor <= tokenOf(time.Now().Add(time.Hour-time.Minute))+unseen {
			t.Errorf("the first token is %d", v.Floor)
		}
	})
}

// A member checks the proposer's word itself.
func TestAMemberRefusesAGroupThatItKnowsToBeIncomplete(t *testing.T) {
	inMoot(t, func(m *moot) {
		never := func(c *Config) { c.Joined = make(chan struct{}) }
		a := m.start("a", nil, complete("a", "b"), never)
		self := wire.GroupMember(a.self.Process())
		for claim, tt := range map[string]struct {
			word  wire.Word
			group []wire.GroupMember
			size  int
			text  string
		}{
			"without the member": {wire.WordComplete, []wire.GroupMember{{Name: "b", Boot: 9, Addr: "b"}}, 3, "not in the group under its present boot"},
			"an earlier boot":    {wire.WordComplete, []wire.GroupMember{{Name: "a", Boot: self.Boot + 1, Addr: "a"}}, 3, "present boot"},
			"too small":          {wire.WordComplete, []wire.GroupMember{self, {Name: "b", Boot: 9, Addr: "b"}}, 3, "2 of 3 first members"},
			"an address missing": {wire.WordComplete, []wire.GroupMember{self, {Name: "c", Boot: 9, Addr: "c"}, {Name: "d", Boot: 9, Addr: "d"}}, 3, "lacks a member at b"},
			"a name twice":       {wire.WordComplete, []wire.GroupMember{self, {Name: "b", Boot: 9, Addr: "b"}, {Name: "b", Boot: 8, Addr: "c"}}, 3, "twice"},
			"another word":       {wire.WordSilence, []wire.GroupMember{self, {Name: "b", Boot: 9, Addr: "b"}, {Name: "c", Boot: 9, Addr: "c"}}, 3, "AssumeGone is not set"},
		} {
			req := wire.PrepareRequest{Ballot: wire.Ballot{Round: 1, Name: "b"}, Size: tt.size, Voters: 3, TTL: 1000, Complete: true, Word: tt.word, Group: tt.group}
			code, body := a.Step(m.t.Context(), member.Process{Name: "b"}, wire.Prepare, wire.Marshal(&req))
			var p wire.PrepareAnswer
			if wire.Unmarshal(body, &p); code != wire.CodeNo || !strings.Contains(p.Refused, tt.text) {
				t.Errorf("%s: code %v, %q", claim, code, p.Refused)
			}
			v := wire.Founding{Cluster: machine.ClusterID{9}, Voters: []string{"b#1"}, Floor: 1}
			accept := wire.AcceptRequest{Ballot: req.Ballot, Value: v, Word: tt.word, Group: tt.group}
			if code, _ := a.Step(m.t.Context(), member.Process{Name: "b"}, wire.Accept, wire.Marshal(&accept)); code != wire.CodeNo {
				t.Errorf("%s: accepted", claim)
			}
		}
	})
}

// promise has p promise a ballot on an operator's word.
func (p *process) promise(by member.Process, round uint64) {
	p.moot.t.Helper()
	req := wire.PrepareRequest{
		Ballot: wire.Ballot{Round: round, Name: by.Name, Boot: by.Boot},
		Word:   wire.WordOperator, Group: []wire.GroupMember{wire.GroupMember(p.self.Process())},
	}
	code, body := p.Step(p.moot.t.Context(), by, wire.Prepare, wire.Marshal(&req))
	var a wire.PrepareAnswer
	if wire.Unmarshal(body, &a) != nil || code != wire.CodeOK {
		p.moot.t.Fatalf("not promised: %v, %s", code, a.Refused)
	}
}

// A member of a cluster accepts no successor before it has retired, and none that
// does not know its cluster.
func TestOnlyRetiredMembersAcceptASuccessor(t *testing.T) {
	inMoot(t, func(m *moot) {
		old := m.formed(abc)
		m.kill("a")
		m.kill("b")
		time.Sleep(time.Second)
		c := m.alive["c"]
		group := []wire.GroupMember{wire.GroupMember(c.self.Process())}
		c.promise(member.Process{Name: "x"}, 98)
		accept := func(predecessors ...machine.ClusterID) (wire.Code, string) {
			v := wire.Founding{Cluster: machine.ClusterID{9}, Voters: []string{"x#1"}, Floor: 1, Predecessors: predecessors}
			code, body := c.Step(m.t.Context(), member.Process{Name: "x"}, wire.Accept, wire.Marshal(&wire.AcceptRequest{
				Ballot: wire.Ballot{Round: 99, Name: "x"}, Value: v, Word: wire.WordOperator, Group: group,
			}))
			var a wire.AcceptAnswer
			wire.Unmarshal(body, &a)
			return code, a.Refused
		}
		if code, why := accept(old); code != wire.CodeNo || !strings.Contains(why, "not retired") {
			t.Errorf("before the retirement: %v %q", code, why)
		}
		retire := func(id machine.ClusterID) wire.Code {
			code, _ := c.Step(m.t.Context(), member.Process{Name: "x"}, wire.Retire, wire.Marshal(&wire.RetireRequest{Cluster: id, Word: wire.WordOperator}))
			return code
		}
		if retire(machine.ClusterID{7}) == wire.CodeOK {
			t.Error("retired from another cluster")
		}
		if code := retire(old); code != wire.CodeOK {
			t.Errorf("not retired: %v", code)
		}
		if code, why := accept(); code != wire.CodeNo || !strings.Contains(why, "not retired") {
			t.Errorf("a founding of strangers: %v %q", code, why)
		}
		if code, why := accept(old); code != wire.CodeOK {
			t.Errorf("after the retirement: %v %q", code, why)
		}
	})
}

// A member without a vote retires, is invited by a leader that retires later, and so
// has a vote again at the acceptance.
func TestAMemberThatVotesAgainAcceptsNoSuccessor(t *testing.T) {
	inMoot(t, func(m *moot) {
		old := m.formed(abc)
		m.kill("a")
		m.kill("b")
		time.Sleep(time.Second)
		c := m.alive["c"]
		c.promise(member.Process{Name: "x"}, 98)
		if code, _ := c.Step(m.t.Context(), member.Process{Name: "x"}, wire.Retire, wire.Marshal(&wire.RetireRequest{Cluster: old, Word: wire.WordOperator})); code != wire.CodeOK {
			t.Fatalf("not retired: %v", code)
		}
		accept := func() wire.Code {
			v := wire.Founding{Cluster: machine.ClusterID{9}, Voters: []string{"x#1"}, Floor: 1, Predecessors: []machine.ClusterID{old}}
			code, _ := c.Step(m.t.Context(), member.Process{Name: "x"}, wire.Accept, wire.Marshal(&wire.AcceptRequest{
				Ballot: wire.Ballot{Round: 99, Name: "x"}, Value: v, Word: wire.WordOperator, Group: []wire.GroupMember{wire.GroupMember(c.self.Process())},
			}))
			return code
		}
		c.record.Update(func(rec *identity.Record) { rec.Stored = true })
		if accept() == wire.CodeOK {
			t.Error("accepted a successor while it votes")
		}
		c.record.Update(func(rec *identity.Record) { rec.Retired.Cluster = old })
		if accept() != wire.CodeOK {
			t.Error("refused after the promise")
		}
	})
}

func TestAMemberWithALeaderDoesNotRetire(t *testing.T) {
	inMoot(t, func(m *moot) {
		retired := false
		id := m.formed(abc, func(c *Config) {
			c.Retire = func(context.Context, machine.ClusterID) (wire.RetireAnswer, error) {
				retired = true
				return wire.RetireAnswer{Raft: "a#1"}, nil
			}
		})
		code, _ := m.alive["a"].Step(m.t.Context(), member.Process{Name: "x"}, wire.Retire, wire.Marshal(&wire.RetireRequest{Cluster: id}))
		if code != wire.CodeNo || retired {
			t.Errorf("code %v, retired %t", code, retired)
		}
	})
}

// Processes of three to five members are killed and restarted without memory at
// their addresses, and partitioned, at random. Never do two clusters have leaders,
// and in the end all members are in one cluster that has one.
func TestMembersOfACompleteListRecoverFromEverything(t *testing.T) {
	for round := range testrounds.Rounds(30, 150) {
		inMoot(t, func(m *moot) {
			r := rand.New(rand.NewPCG(uint64(round), 3))
			m.rng, m.loss = rand.New(rand.NewPCG(uint64(round), 4)), r.Float64()*0.05
			m.delay, m.burial = time.Duration(1+r.IntN(100))*time.Millisecond, time.Duration(r.IntN(15))*time.Second
			var names []string
			for i := range 3 + r.IntN(3) {
				names = append(names, fmt.Sprint("n", i))
			}
			word := complete(names...)
			for _, name := range names {
				m.start(name, nil, word)
			}
			for range 25 {
				time.Sleep(time.Duration(r.IntN(8000)) * time.Millisecond)
				switch name := names[r.IntN(len(names))]; r.IntN(5) {
				case 0:
					m.partition(names[:1+r.IntN(len(names)-1)]...)
				case 1:
					m.heal()
				default:
					m.kill(name)
					m.start(name, nil, word)
				}
				if ids := m.led(); len(ids) > 1 {
					t.Errorf("two clusters with leaders: %v", ids)
				}
			}
			m.heal()
			m.mu.Lock()
			m.loss = 0
			m.mu.Unlock()
			time.Sleep(3 * time.Minute)
			m.cluster()
			m.granting()
		})
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

func TestKinship(t *testing.T) {
	x := wire.Founding{Cluster: machine.ClusterID{1}}
	y := wire.Founding{Cluster: machine.ClusterID{2}, Predecessors: []machine.ClusterID{{1}}}
	z := wire.Founding{Cluster: machine.ClusterID{3}, Predecessors: lineageOf([]wire.Founding{y})}
	for _, tt := range []struct {
		own, other wire.Founding
		want       Kinship
	}{{x, x, Same}, {x, y, Successor}, {x, z, Successor}, {y, x, Predecessor}, {z, x, Predecessor}, {x, wire.Founding{}, Stranger}} {
		if got := Kin(tt.own, tt.other); got != tt.want {
			t.Errorf("%v to %v: %v, want %v", tt.own.Cluster, tt.other.Cluster, got, tt.want)
		}
	}
}

func TestTheFloorIsAboveEveryTokenThatTheFormerClusterCouldHaveGranted(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		promises map[string]wire.PrepareAnswer
		retired  map[string]wire.RetireAnswer
		want     uint64
	}{
		{nil, nil, 1000 << 21},
		{map[string]wire.PrepareAnswer{"a": {Token: 2000 << 21}}, nil, 2000<<21 + unseen + 1},
		{map[string]wire.PrepareAnswer{"a": {Token: 999 << 21}}, nil, 1000 << 21}, // the clock is not behind
		{nil, map[string]wire.RetireAnswer{"a": {Token: 2000 << 21, TokenAge: 2500}, "b": {Token: 1}}, 2003 << 21},
	} {
		if got := floorOf(now, 0, tt.promises, tt.retired); got != tt.want {
			t.Errorf("%+v: %d, want %d", tt, got, tt.want)
		}
	}
	far := wire.Founding{Floor: tokenOf(now.Add(25 * time.Hour)), Predecessors: []machine.ClusterID{{1}}}
	if checkFloor(far, 0, tokenOf(now)) == "" {
		t.Error("a floor of tomorrow was accepted")
	}
	if far.Floor = tokenOf(now.Add(24 * time.Hour)); checkFloor(far, 0, tokenOf(now)) != "" || checkFloor(far, far.Floor-1, tokenOf(now)) != "" {
		t.Error("a floor within a day was refused")
	}
	if checkFloor(far, far.Floor, tokenOf(now)) == "" {
		t.Error("a token was accepted that the resource has seen")
	}
}

func TestTheElectorateOfASuccessor(t *testing.T) {
	promises := map[string]wire.PrepareAnswer{
		"a": {Raft: "a#1"}, "b": {Raft: "b#1", Thin: true}, "c": {Raft: "c#1"}, "d": {Raft: "d#1"},
	}
	if ids := electorate(promises, nil, nil, 1, 5); !slices.Equal(ids, []string{"a#1", "c#1", "d#1"}) {
		t.Errorf("the thin member left out: %v", ids)
	}
	if ids := electorate(promises, nil, []string{"a", "b"}, 1, 5); !slices.Equal(ids, []string{"a#1"}) {
		t.Errorf("founders only: %v", ids)
	}
	if ids := electorate(promises, nil, []string{"a", "c", "e"}, 2, 5); !slices.Equal(ids, []string{"a#1", "c#1"}) {
		t.Errorf("two of three founders: %v", ids)
	}
	if ids := electorate(promises, nil, []string{"a", "e", "f"}, 2, 5); ids != nil {
		t.Errorf("one of three founders: %v", ids)
	}
	for name, p := range promises {
		p.Durable = true
		promises[name] = p
	}
	retired := map[string]wire.RetireAnswer{"a": {LogTerm: 3, LogIndex: 9}, "c": {LogTerm: 4, LogIndex: 7}, "d": {LogTerm: 4, LogIndex: 6}}
	if ids := electorate(promises, retired, nil, 1, 5); !slices.Equal(ids, []string{"c#1"}) {
		t.Errorf("the newest log: %v", ids)
	}
}

func TestAnAcceptedSuccessorIsRepeatedUnlessItsVotersAreGone(t *testing.T) {
	x := machine.ClusterID{1}
	v := &wire.Founding{Cluster: machine.ClusterID{2}, Voters: []string{"a#1", "b#1", "c#1"}, Predecessors: []machine.ClusterID{x}}
	fresh := func(voters []string) wire.Founding { return wire.Founding{Voters: voters} }
	promises := map[string]wire.PrepareAnswer{"a": {Raft: "a#1", Value: v}, "b": {Raft: "b#1"}, "c": {Raft: "c#2"}}
	if got, _ := proposeOnWord(promises, []machine.ClusterID{x}, []string{"a#1"}, fresh); got != v {
		t.Errorf("not repeated: %v", got)
	}
	if got, why := proposeOnWord(promises, []machine.ClusterID{{7}}, []string{"a#1"}, fresh); got != nil || why == "" {
		t.Errorf("repeated for a group of another lineage: %v", got)
	}
	if got, _ := proposeOnWord(promises, []machine.ClusterID{v.Cluster}, []string{"a#1"}, fresh); got == v {
		t.Error("a cluster that is ended was repeated")
	}
	delete(promises, "b")
	if got, _ := proposeOnWord(promises, []machine.ClusterID{x}, []string{"a#1"}, fresh); got == v {
		t.Error("a value was repeated whose voters are gone")
	}
	if got, why := proposeOnWord(promises, nil, nil, fresh); got != nil || why == "" {
		t.Errorf("a group of thin members founded %v", got)
	}
}

// A, C and D chose y, and the news reached nobody but D. D ended y with the promises
// of all, and then the late news of y arrive.
func TestLateNewsOfAnEndedClusterAreRefused(t *testing.T) {
	inMoot(t, func(m *moot) {
		a := m.start("a", nil, complete("a"), func(c *Config) { c.InitialSize, c.Joined = 1, make(chan struct{}) })
		y := wire.Founding{Cluster: machine.ClusterID{2}, Voters: []string{a.raftID()}, Floor: 1}
		z := wire.Founding{Cluster: machine.ClusterID{3}, Voters: []string{"d#1"}, Floor: 1, Predecessors: []machine.ClusterID{y.Cluster}}
		code, _ := a.Step(m.t.Context(), member.Process{Name: "d"}, wire.Accept, wire.Marshal(&wire.AcceptRequest{
			Ballot: wire.Ballot{Round: 2, Name: "d"}, Value: z, Word: wire.WordComplete, Group: []wire.GroupMember{wire.GroupMember(a.self.Process())},
		}))
		if code != wire.CodeOK {
			t.Fatalf("z was not accepted: %v", code)
		}
		if code, _ := a.Step(m.t.Context(), member.Process{Name: "d"}, wire.Chosen, wire.Marshal(&y)); code == wire.CodeOK || a.Value() != nil {
			t.Errorf("entered a cluster that an accepted founding ends: %v", code)
		}
	})
}

// One member accepts nothing. A majority of the group is not enough: the one may
// have entered a cluster since its promise.
func TestAFoundingOnAWordNeedsEveryAcceptance(t *testing.T) {
	inMoot(t, func(m *moot) {
		m.lost = func(t wire.Type, to string) bool { return t == wire.Accept && to == "b" }
		for _, name := range abc {
			m.start(name, nil, complete(abc...), func(c *Config) {
				if name == "b" {
					c.Joined = make(chan struct{}) // never proposes
				}
			})
		}
		time.Sleep(time.Minute)
		for _, p := range m.processes() {
			if p.Value() != nil {
				t.Errorf("%s is in a cluster that b has not accepted", p.self.Name)
			}
		}
	})
}

// A founding is believed by the voters that it names, by their present raft IDs, and
// by nobody else without a leader.
func TestAFoundingIsNotBelievedByMembersThatItDoesNotName(t *testing.T) {
	inMoot(t, func(m *moot) {
		p := m.start("a", nil, func(c *Config) { c.Joined = make(chan struct{}) })
		for _, id := range []string{"b#1", member.RaftID("a", p.record.Get().Generation+1)} {
			v := wire.Founding{Cluster: machine.ClusterID{9}, Voters: []string{id}, Floor: 1}
			if code, _ := p.Step(m.t.Context(), member.Process{Name: "x"}, wire.Chosen, wire.Marshal(&v)); code != wire.CodeNo || p.Value() != nil {
				t.Errorf("voter %s: code %v, in %v", id, code, p.Cluster())
			}
		}
		v := wire.Founding{Cluster: machine.ClusterID{9}, Voters: []string{p.raftID()}, Floor: 1}
		if code, _ := p.Step(m.t.Context(), member.Process{Name: "x"}, wire.Accept, wire.Marshal(&wire.AcceptRequest{Ballot: wire.Ballot{Round: 1, Name: "x"}, Value: v})); code != wire.CodeOK {
			t.Fatalf("not accepted: %v", code)
		}
		if code, _ := p.Step(m.t.Context(), member.Process{Name: "x"}, wire.Chosen, wire.Marshal(&v)); code != wire.CodeOK || p.Cluster() != v.Cluster {
			t.Errorf("named: code %v, in %v", code, p.Cluster())
		}
	})
}

// The cluster of a cannot answer, and another cluster, not related, has a leader.
func TestAMemberOfADeadClusterFollowsALeaderOfAnyOther(t *testing.T) {
	for _, durable := range []bool{false, true} {
		inMoot(t, func(m *moot) {
			one := func(c *Config) { c.InitialSize = 1 }
			var record *identity.Store
			if durable {
				var err error
				if record, err = identity.Open(t.TempDir(), "a", "test", true); err != nil {
					t.Fatal(err)
				}
				defer record.Close()
				record.Update(func(r *identity.Record) { r.Generation = 1 })
			}
			a := m.start("a", record, one)
			time.Sleep(5 * time.Second)
			m.partition("a")
			b := m.start("b", nil, one, func(c *Config) { c.Joined = make(chan struct{}) })
			other := wire.Founding{Cluster: machine.ClusterID{9}, Voters: []string{b.raftID()}, Floor: 1}
			if err := b.Adopt(other); err != nil {
				t.Fatal(err)
			}
			if a.Follow(m.t.Context(), b.self.Process(), other.Cluster) {
				t.Error("left a cluster that answers")
			}
			dead := *a.Value()
			dead.Voters = []string{"x#1", "y#1", a.raftID()}
			a.value.Store(&dead)
			time.Sleep(10 * time.Second)
			if entered := a.Follow(m.t.Context(), b.self.Process(), other.Cluster); entered == durable || (a.Cluster() == other.Cluster) == durable {
				t.Errorf("durable %t: entered %t, in %v", durable, entered, a.Cluster())
			}
			m.kill("a")
		})
	}
}
