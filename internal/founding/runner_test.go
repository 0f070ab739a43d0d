package founding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// moot replaces gossip and network: every process sees all reachable processes,
// and asks another process by a call of Step after a delay.
type moot struct {
	t       *testing.T
	changed wakeup.All

	mu    sync.Mutex
	rng   *rand.Rand
	loss  float64
	delay time.Duration
	boot  uint64
	alive map[string]*process // by name
	cut   map[[2]string]bool  // pairs of names, both ways

	lost func(t wire.Type, to string) bool // further messages to lose; nil: none

	forged func() []member.Sighting // further sightings of everybody; nil: none
	posers []*process               // later processes of names, without the voter role: see poses

	dead   map[*process]time.Time // since when
	burial time.Duration          // a dead process is listed as alive for so long
}

// process is a Runner with everything around the Runner.
type process struct {
	*Runner
	moot   *moot
	self   member.Self
	record *identity.Store
	joined chan struct{}
	stop   context.CancelFunc
	done   chan struct{} // closed when Run has returned

	durable bool
	mere    atomic.Bool               // without the voter role
	lies    func(*wire.PrepareAnswer) // changes this process's answers to Prepare; nil: honest. Set under moot.mu
	retired machine.ClusterID
	token   uint64 // seen, as told at retirement
	bound   uint64 // told, as told at retirement

	in    machine.ClusterID // guarded by moot.mu, as all below
	since time.Time         // in the cluster, or since its leader was lost

	adopted   []bool // Config.Adopted's votes
	conflicts []string
}

// inMoot runs f in a bubble, and then stops and joins the remaining processes.
func inMoot(t *testing.T, f func(m *moot)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &moot{t: t, rng: rand.New(rand.NewPCG(1, 1)), delay: time.Millisecond,
			alive: make(map[string]*process), cut: make(map[[2]string]bool), dead: make(map[*process]time.Time)}
		f(m)
		for _, p := range m.processes() {
			m.kill(p.self.Name)
		}
		for _, p := range m.posers {
			p.stop()
			<-p.done
		}
	})
}

func (m *moot) processes() (all []*process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.alive {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *process) int { return strings.Compare(a.self.Name, b.self.Name) })
	return all
}

// start runs a process. Without a record the process has forgotten everything.
func (m *moot) start(name string, record *identity.Store, change ...func(*Config)) *process {
	m.t.Helper()
	m.mu.Lock()
	m.boot++
	boot := m.boot
	m.mu.Unlock()
	if record == nil {
		var err error
		if record, err = identity.Open("", name, "test", true); err != nil {
			m.t.Fatal(err)
		}
		if err := record.Update(func(r *identity.Record) { r.Generation = boot }); err != nil {
			m.t.Fatal(err)
		}
	}
	p := &process{moot: m, record: record, joined: make(chan struct{}), done: make(chan struct{}),
		self: member.Self{Name: name, Boot: boot, Addr: name, Cluster: "test", Log: slog.New(slog.DiscardHandler)}}
	close(p.joined)
	cfg := Config{
		Self: p.self, InitialSize: 3, Voters: 3, TTL: time.Second,
		Record: record, Members: p, Ask: p, Joined: p.joined,
		Leaderless: p.leaderless, Retire: p.retire, Leave: p.leave,
		Adopted: func(_ wire.Founding, votes bool) {
			m.mu.Lock()
			p.adopted = append(p.adopted, votes)
			m.mu.Unlock()
			m.changed.Wake()
		},
		Conflict: func(with member.Process, detail string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			p.conflicts = append(p.conflicts, with.Name+": "+detail)
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	p.self, p.durable = cfg.Self, cfg.Record.Durable()
	p.Runner = New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	m.mu.Lock()
	m.alive[name] = p
	m.mu.Unlock()
	m.changed.Wake()
	go func() {
		defer close(p.done)
		p.Run(ctx)
	}()
	return p
}

// kill ends a process and joins Run. The test may use the record again.
func (m *moot) kill(name string) {
	m.mu.Lock()
	p := m.alive[name]
	delete(m.alive, name)
	m.dead[p] = time.Now()
	m.mu.Unlock()
	p.stop()
	<-p.done
	m.changed.Wake()
}

// partition cuts the given names from all others.
func (m *moot) partition(names ...string) {
	m.mu.Lock()
	for a := range m.alive {
		for b := range m.alive {
			if slices.Contains(names, a) != slices.Contains(names, b) {
				m.cut[[2]string{a, b}] = true
			}
		}
	}
	m.mu.Unlock()
	m.changed.Wake()
}

func (m *moot) heal() {
	m.mu.Lock()
	clear(m.cut)
	m.mu.Unlock()
	m.changed.Wake()
}

// reach returns the process at the other end, or nil if the other end cannot be
// reached or the message is lost. Boot 0 stands for any process, and an empty name
// for the process at the address.
func (m *moot) reach(from string, to member.Process) *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.alive[to.Name]
	for _, o := range m.posers {
		if o.self.Is(to) {
			p = o
		}
	}
	if to.Name == "" {
		for _, o := range m.alive {
			if o.self.Addr == to.Addr {
				p = o
			}
		}
	}
	if p == nil || to.Boot != 0 && p.self.Boot != to.Boot || m.cut[[2]string{from, p.self.Name}] || m.rng.Float64() < m.loss {
		return nil
	}
	return p
}

// Alive implements Members. Processes killed a short time ago are still listed.
func (p *process) Alive() (all []member.Sighting) {
	return slices.DeleteFunc(p.All(), func(s member.Sighting) bool { return !s.Alive })
}

// All implements Members.
func (p *process) All() (all []member.Sighting) {
	p.moot.mu.Lock()
	defer p.moot.mu.Unlock()
	add := func(o *process, alive bool, since time.Time) {
		all = append(all, member.Sighting{Process: o.self.Process(), Alive: alive, Since: since,
			Meta: member.Metadata{Founder: o.Declared(), Cluster: o.Cluster(), Durable: o.durable}})
	}
	for name, o := range p.moot.alive {
		if !p.moot.cut[[2]string{p.self.Name, name}] {
			add(o, true, time.Time{})
		}
	}
	for _, o := range p.moot.posers {
		add(o, true, time.Time{})
	}
	for o, died := range p.moot.dead {
		add(o, time.Since(died) < p.moot.burial, died)
	}
	if p.moot.forged != nil {
		for _, s := range p.moot.forged() {
			all = slices.DeleteFunc(all, func(o member.Sighting) bool { return o.Process == s.Process })
			all = append(all, s)
		}
	}
	slices.SortFunc(all, member.Compare)
	return all
}

// Changed implements Members.
func (p *process) Changed() <-chan struct{} { return p.moot.changed.Wait() }

// led returns the leader of this process's cluster, or nil: the first of its voters
// by name, if a majority of them lives under these raft IDs and reaches the first.
func (p *process) led() *process {
	v := p.Value()
	if v == nil {
		return nil
	}
	p.moot.mu.Lock()
	defer p.moot.mu.Unlock()
	var voting []*process
	for _, id := range v.Voters {
		name, _, _ := member.ParseRaftID(id)
		if o := p.moot.alive[name]; o != nil && o.Cluster() == v.Cluster && o.raftID() == id {
			voting = append(voting, o)
		}
	}
	if len(voting) < majority(len(v.Voters)) {
		return nil
	}
	for _, leader := range voting {
		n := 0
		for _, o := range voting {
			if !p.moot.cut[[2]string{leader.self.Name, o.self.Name}] {
				n++
			}
		}
		if n >= majority(len(v.Voters)) && !p.moot.cut[[2]string{p.self.Name, leader.self.Name}] {
			return leader
		}
	}
	return nil
}

func (p *process) raftID() string { return member.RaftID(p.self.Name, p.record.Get().Generation) }

// leaderless implements Config.Leaderless.
func (p *process) leaderless() time.Duration {
	led := p.led() != nil
	p.moot.mu.Lock()
	defer p.moot.mu.Unlock()
	if led || p.Cluster() != p.in {
		p.in, p.since = p.Cluster(), time.Now()
	}
	return time.Since(p.since)
}

// retire implements Config.Retire.
func (p *process) retire(_ context.Context, old machine.ClusterID) (wire.RetireAnswer, error) {
	if p.led() != nil {
		return wire.RetireAnswer{}, errors.New("a leader answers")
	}
	if p.retired != old {
		p.retired = old
		p.renew()
	}
	return wire.RetireAnswer{Raft: p.raftID(), Token: p.token, TokenAge: 1500, TTL: p.bound}, nil
}

// leave implements Config.Leave.
func (p *process) leave(_ context.Context, to wire.Founding) error {
	if !slices.Contains(to.Voters, p.raftID()) {
		p.renew()
	}
	return nil
}

func (p *process) renew() {
	p.record.Update(func(rec *identity.Record) { rec.Generation += 1000 })
}

var errLost = errors.New("no answer")

// answer answers a question as package cluster does.
func (p *process) answer(ctx context.Context, from member.Process, t wire.Type, body []byte) (wire.Code, []byte) {
	switch t {
	case wire.Who:
		return wire.CodeOK, wire.Marshal(&wire.WhoAnswer{Name: p.self.Name, Boot: p.self.Boot, Addr: p.self.Addr, Founding: p.Value(), Accepted: p.Accepted()})
	case wire.Vouch:
		var req wire.VouchRequest
		wire.Unmarshal(body, &req)
		leader := p.led()
		switch {
		case leader == nil || req.Cluster != p.Cluster():
			return wire.CodeNotLeader, wire.Marshal(&wire.Hint{})
		case leader != p:
			return wire.CodeNotLeader, wire.Marshal(&wire.Hint{Leader: leader.self.Name, Addr: leader.self.Addr})
		}
		return wire.CodeOK, wire.Marshal(&wire.VouchAnswer{Founding: *p.Value()})
	}
	return p.Step(ctx, from, t, body)
}

// Ask implements Asker. The question and the answer can be lost.
func (p *process) Ask(ctx context.Context, to member.Process, t wire.Type, body []byte) (wire.Frame, error) {
	wait := func() error {
		select {
		case <-time.After(p.moot.delay):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := wait(); err != nil {
		return wire.Frame{}, err
	}
	other := p.moot.reach(p.self.Name, to)
	p.moot.mu.Lock()
	lost := p.moot.lost
	p.moot.mu.Unlock()
	if other == nil || lost != nil && lost(t, other.self.Name) {
		<-ctx.Done()
		return wire.Frame{}, errLost
	}
	var f wire.Frame
	f.Code, f.Body = other.answer(ctx, p.self.Process(), t, body)
	f.Mere = other.mere.Load()
	p.moot.mu.Lock()
	lies := other.lies
	p.moot.mu.Unlock()
	var a wire.PrepareAnswer
	if lies != nil && t == wire.Prepare && wire.Unmarshal(f.Body, &a) == nil {
		lies(&a)
		f.Code, f.Body = wire.CodeOK, wire.Marshal(&a)
	}
	if err := wait(); err != nil {
		return wire.Frame{}, err
	}
	if p.moot.reach(other.self.Name, p.self.Process()) == nil {
		<-ctx.Done()
		return wire.Frame{}, errLost
	}
	return f, nil
}

// AskInto implements Asker.
func (p *process) AskInto(ctx context.Context, to member.Process, t wire.Type, body []byte, v any) error {
	f, err := p.Ask(ctx, to, t, body)
	if err != nil {
		return err
	}
	if f.Code != wire.CodeOK {
		return errors.New("refused")
	}
	return wire.Unmarshal(f.Body, v)
}

// cluster fails the test unless all processes are in the same cluster, and
// returns the cluster's ID.
func (m *moot) cluster() machine.ClusterID {
	m.t.Helper()
	var id machine.ClusterID
	for _, p := range m.processes() {
		switch own := p.Cluster(); {
		case own == (machine.ClusterID{}):
			m.t.Errorf("%s is in no cluster: %s", p.self.Name, p.Progress())
		case id == (machine.ClusterID{}):
			id = own
		case own != id:
			m.t.Errorf("two clusters: %v and %v", id, own)
		}
	}
	return id
}

func TestThreeFoundersFoundOneClusterAndLaterOnesAdoptIt(t *testing.T) {
	inMoot(t, func(m *moot) {
		for _, name := range []string{"a", "b"} {
			m.start(name, nil)
		}
		time.Sleep(time.Minute)
		if p := m.alive["a"]; p.Value() != nil || p.Progress() != "no cluster yet: 2 of 3 first members seen (a at a, b at b); missing 1" {
			t.Fatalf("two of three: value %v, %q", p.Value(), p.Progress())
		}
		m.start("c", nil, func(c *Config) { c.TTL = 7 * time.Second })
		time.Sleep(10 * time.Second)
		id := m.cluster()
		v := m.alive["a"].Value()
		if len(v.Voters) != 3 || !slices.IsSorted(v.Voters) || v.TTL != 7000 {
			t.Errorf("founded with %+v", v)
		}
		thin := m.start("d", nil, func(c *Config) { c.InitialSize = 0 })
		time.Sleep(10 * time.Second)
		if m.cluster() != id {
			t.Error("a later member is in another cluster")
		}
		for _, p := range m.processes() {
			if want := []bool{p != thin}; !slices.Equal(p.adopted, want) {
				t.Errorf("%s: Adopted was told %v, want %v", p.self.Name, p.adopted, want)
			}
		}
	})
}

func TestAMemberWaitsUntilItHasLookedForOthers(t *testing.T) {
	inMoot(t, func(m *moot) {
		joined := make(chan struct{})
		p := m.start("a", nil, func(c *Config) { c.InitialSize, c.Joined = 1, joined })
		time.Sleep(time.Minute)
		if p.Value() != nil {
			t.Fatal("founded before Join was tried")
		}
		close(joined)
		time.Sleep(time.Second)
		m.cluster()
	})
}

func TestTheNextByNameProposesIfTheFirstFails(t *testing.T) {
	inMoot(t, func(m *moot) {
		founders := func(c *Config) {
			c.InitialSize, c.Founders, c.Voters = 0, []string{"a", "b", "c", "d"}, 1
		}
		// The first by name runs, but does not propose.
		m.start("a", nil, founders, func(c *Config) { c.Joined = make(chan struct{}) })
		for _, name := range []string{"b", "c", "d"} {
			m.start(name, nil, founders)
		}
		time.Sleep(10 * time.Second)
		m.cluster()
	})
}

func TestDifferentSizesAreToldAsConflictAndFoundNothing(t *testing.T) {
	for _, tt := range []struct {
		change func(*Config)
		detail string
	}{
		{func(c *Config) { c.InitialSize = 2 }, "it expects 2 first members, this member 3"},
		{func(c *Config) { c.Voters = 1 }, "it is set to 1 voters, this member to 3"},
	} {
		inMoot(t, func(m *moot) {
			m.start("a", nil, tt.change)
			m.start("b", nil)
			m.start("c", nil)
			time.Sleep(time.Minute)
			for _, p := range m.processes() {
				if p.Value() != nil {
					t.Errorf("%s founded %+v", p.self.Name, p.Value())
				}
				if len(p.conflicts) == 0 {
					t.Errorf("%s was not told", p.self.Name)
				}
			}
			if p := m.alive["b"]; !slices.ContainsFunc(p.conflicts, func(s string) bool {
				return strings.HasPrefix(s, "a: ") && strings.Contains(s, tt.detail)
			}) {
				t.Errorf("b was told %q, want a and %q", p.conflicts, tt.detail)
			}
		})
	}
}

func TestAFounderThatRestartsWithItsRecordIsInTheClusterAtOnce(t *testing.T) {
	inMoot(t, func(m *moot) {
		for _, name := range []string{"a", "b", "c"} {
			m.start(name, nil)
		}
		time.Sleep(10 * time.Second)
		id := m.cluster()
		record := m.alive["a"].record
		m.kill("a")
		m.partition("a")
		if p := m.start("a", record); p.Cluster() != id || len(p.adopted) != 0 {
			t.Errorf("in cluster %v, Adopted was told %v", p.Cluster(), p.adopted)
		}
	})
}

// The first proposer died after the value was accepted, before telling anybody.
// The founder with a memory leads the others to the same value.
func TestAFounderThatRemembersItsPromiseRepeatsTheAcceptedValue(t *testing.T) {
	inMoot(t, func(m *moot) {
		v := wire.Founding{Cluster: machine.ClusterID{9}, Floor: 1, TTL: 2000}
		records := make(map[string]*identity.Store)
		for i, name := range []string{"a", "b", "c"} {
			records[name], _ = identity.Open("", name, "test", true)
			records[name].Update(func(r *identity.Record) { r.Generation = uint64(i + 5) })
			v.Voters = append(v.Voters, member.RaftID(name, uint64(i+5)))
		}
		ballot := wire.Ballot{Round: 4, Name: "a", Boot: 1}
		records["c"].Update(func(r *identity.Record) { r.Promise, _ = accept(r.Promise, ballot, v) })
		for name, record := range records {
			m.start(name, record)
		}
		time.Sleep(30 * time.Second)
		if id := m.cluster(); id != v.Cluster {
			t.Errorf("founded %v, and not the accepted value", id)
		}
	})
}

// C accepted a value, and the other voters of the value restarted without
// memory before the value was chosen.
func TestAValueOfTheDeadIsNotRepeated(t *testing.T) {
	inMoot(t, func(m *moot) {
		c := m.start("c", nil)
		v := wire.Founding{Cluster: machine.ClusterID{9}, Floor: 1 << 50, TTL: 2000,
			Voters: []string{"a#5", "b#6", member.RaftID("c", c.record.Get().Generation)}}
		code, _ := c.Step(m.t.Context(), member.Process{Name: "a"}, wire.Accept, wire.Marshal(&wire.AcceptRequest{Ballot: wire.Ballot{Round: 1, Name: "a"}, Value: v}))
		if code != wire.CodeOK {
			t.Fatalf("not accepted: %v", code)
		}
		m.boot = 100
		m.start("a", nil)
		m.start("b", nil)
		time.Sleep(30 * time.Second)
		if m.cluster() == v.Cluster {
			t.Error("a value whose voters are gone was repeated")
		}
	})
}

func TestAMemberOfOneClusterAdoptsNoOther(t *testing.T) {
	inMoot(t, func(m *moot) {
		p := m.start("a", nil, func(c *Config) { c.InitialSize = 1 })
		time.Sleep(time.Second)
		id := m.cluster()
		other := wire.Founding{Cluster: machine.ClusterID{9}, Voters: []string{"b#1"}, Floor: 1}
		if err := p.Adopt(other); !errors.Is(err, ErrForeign) {
			t.Errorf("adopted another cluster: %v", err)
		}
		if code, _ := p.Step(m.t.Context(), member.Process{Name: "b"}, wire.Chosen, wire.Marshal(&other)); code != wire.CodeNo {
			t.Errorf("a foreign Chosen was answered with %v", code)
		}
		if err := p.Adopt(*p.Value()); err != nil {
			t.Errorf("its own cluster again: %v", err)
		}
		if p.Cluster() != id || p.record.Get().Founding.Cluster != id || len(p.adopted) != 1 {
			t.Errorf("in %v, record %v, Adopted told %d times", p.Cluster(), p.record.Get().Founding.Cluster, len(p.adopted))
		}
	})
}

func TestUnreadableAndUnexpectedMessagesChangeNothing(t *testing.T) {
	inMoot(t, func(m *moot) {
		p := m.start("a", nil)
		before := p.record.Get()
		for _, tt := range []struct {
			t    wire.Type
			body []byte
			code wire.Code
		}{
			{wire.Prepare, []byte{0xc1}, wire.CodeBad},
			{wire.Accept, []byte{0xc1}, wire.CodeBad},
			{wire.Chosen, []byte{0xc1}, wire.CodeBad},
			{wire.Accept, wire.Marshal(&wire.AcceptRequest{Ballot: wire.Ballot{Round: 1, Name: "b"}}), wire.CodeBad},
			{wire.Chosen, wire.Marshal(&wire.Founding{}), wire.CodeNo},
			{wire.Confirm, nil, wire.CodeBad},
		} {
			if code, _ := p.Step(m.t.Context(), member.Process{Name: "b"}, tt.t, tt.body); code != tt.code {
				t.Errorf("type %v, %x: code %v, want %v", tt.t, tt.body, code, tt.code)
			}
		}
		if got := p.record.Get(); got.Promise != before.Promise || got.Founding != nil {
			t.Errorf("the record changed: %+v", got)
		}
		thin := m.start("d", nil, func(c *Config) { c.InitialSize = 0 })
		if code, _ := thin.Step(m.t.Context(), member.Process{Name: "b"}, wire.Prepare, wire.Marshal(&wire.PrepareRequest{Ballot: wire.Ballot{Round: 1, Name: "b"}, Voters: 3})); code != wire.CodeNo {
			t.Errorf("a member that is no founder promised: %v", code)
		}
	})
}

// Two processes at the same address are counted once.
// The member adopts a cluster between the look at Value and the store.
func TestAPromiseIsVoidOnceAClusterIsAdopted(t *testing.T) {
	inMoot(t, func(m *moot) {
		p := m.start("a", nil)
		v := wire.Founding{Cluster: machine.ClusterID{9}, Voters: []string{"b#1"}, Floor: 1}
		if err := p.record.Update(func(r *identity.Record) { r.Founding = &v }); err != nil {
			t.Fatal(err)
		}
		body := wire.Marshal(&wire.PrepareRequest{Ballot: wire.Ballot{Round: 1, Name: "b"}, Size: 3, Voters: 3})
		if code, _ := p.Step(m.t.Context(), member.Process{Name: "b"}, wire.Prepare, body); code != wire.CodeNo || p.record.Get().Promise != (identity.Promise{}) {
			t.Errorf("code %v, promise %+v", code, p.record.Get().Promise)
		}
	})
}

func TestAnEarlierProcessAtTheAddressIsNotCounted(t *testing.T) {
	inMoot(t, func(m *moot) {
		m.start("a", nil)
		old := m.start("b", nil, func(c *Config) { c.Joined = make(chan struct{}) })
		// Gossip has not given up the earlier process yet.
		m.start("b2", nil, func(c *Config) { c.Self.Addr = old.self.Addr })
		time.Sleep(time.Minute)
		for _, p := range m.processes() {
			if p.Value() != nil {
				t.Errorf("%s founded, with two processes at one address", p.self.Name)
			}
		}
		m.kill("b")
		m.start("c", nil)
		time.Sleep(10 * time.Second)
		m.cluster()
	})
}

// granting fails the test unless some leader leads all processes.
func (m *moot) granting() {
	m.t.Helper()
	for _, p := range m.processes() {
		if p.led() == nil {
			m.t.Errorf("%s has no leader", p.self.Name)
		}
	}
}

// led returns the IDs of the clusters with a leader.
func (m *moot) led() (ids []machine.ClusterID) {
	for _, p := range m.processes() {
		if id := p.Cluster(); p.led() != nil && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Three to seven members found under cuts, losses, restarts, and restarts without
// memory: never do two clusters have leaders at a time, and all end in the same
// cluster.
func TestRunnersUnderFaultsFoundOneCluster(t *testing.T) {
	for round := range testrounds.Rounds(40, 200) {
		inMoot(t, func(m *moot) {
			r := rand.New(rand.NewPCG(uint64(round), 1))
			m.rng, m.loss, m.delay = rand.New(rand.NewPCG(uint64(round), 2)), r.Float64()*0.2, time.Duration(1+r.IntN(200))*time.Millisecond
			n := 3 + r.IntN(5)
			var names []string
			for i := range n {
				names = append(names, fmt.Sprint("n", i))
			}
			size := func(c *Config) { c.InitialSize = n }
			if r.IntN(2) == 0 {
				size = func(c *Config) { c.InitialSize, c.Founders = 0, names }
			}
			for _, name := range names {
				m.start(name, nil, size)
				time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			}
			forgot := false
			for range 8 {
				time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
				if ids := m.led(); len(ids) > 1 {
					t.Errorf("two clusters with leaders: %v", ids)
				}
				switch name := names[r.IntN(n)]; r.IntN(4) {
				case 0:
					m.partition(names[:1+r.IntN(n-1)]...)
				case 1:
					m.heal()
				case 2:
					record := m.alive[name].record
					m.kill(name)
					m.start(name, record, size)
				case 3:
					// At most a single member forgets: a group without its majority must not
					// found again alone, and may then be without a quorum for good.
					if !forgot {
						forgot = true
						m.kill(name)
						m.start(name, nil, size)
					}
				}
			}
			m.heal()
			m.mu.Lock()
			m.loss = 0
			m.mu.Unlock()
			time.Sleep(2 * time.Minute)
			// A cluster without its majority is never succeeded here, because nobody
			// gave a word. The members are restarted in turn.
			for _, p := range m.processes() {
				if p.Value() != nil && p.led() == nil {
					m.kill(p.self.Name)
					m.start(p.self.Name, nil, size)
					time.Sleep(30 * time.Second)
				}
			}
			time.Sleep(time.Minute)
			m.cluster()
			m.granting()
		})
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

// The news of the founding reached one voter, which cannot lead alone.
func TestAFoundingKnownToOneVoterReachesTheOthers(t *testing.T) {
	inMoot(t, func(m *moot) {
		v := wire.Founding{Cluster: machine.ClusterID{7}, Floor: 1, TTL: 1000}
		m.lost = func(wire.Type, string) bool { return true }
		for _, name := range abc {
			v.Voters = append(v.Voters, m.start(name, nil).raftID())
		}
		for _, p := range m.processes() {
			p.record.Update(func(rec *identity.Record) {
				b := wire.Ballot{Round: 1, Name: "a", Boot: 1}
				rec.Promise = identity.Promise{Promised: b, Accepted: b, Value: &v}
			})
		}
		if err := m.alive["a"].Adopt(v); err != nil {
			t.Error(err)
		}
		m.mu.Lock()
		m.lost = nil
		m.mu.Unlock()
		time.Sleep(time.Minute)
		for _, name := range abc {
			if p := m.alive[name]; p.Cluster() != v.Cluster {
				t.Errorf("%s: %s", name, p.Progress())
			}
		}
	})
}

// A founder that is seen and answers nothing does not keep the others from founding.
func TestASilentFounderDelaysNobody(t *testing.T) {
	inMoot(t, func(m *moot) {
		m.delay = time.Millisecond
		m.lost = func(_ wire.Type, to string) bool { return to == "c" }
		for _, name := range abc {
			m.start(name, nil, func(c *Config) {
				c.InitialSize, c.Founders = 0, abc
				if name == "c" {
					c.Joined = make(chan struct{}) // proposes nothing
				}
			})
		}
		time.Sleep(time.Minute)
		a, b := m.alive["a"], m.alive["b"]
		if a.Cluster() == (machine.ClusterID{}) || a.Cluster() != b.Cluster() {
			t.Errorf("a is in %x, b in %x: %s", a.Cluster(), b.Cluster(), a.Progress())
		}
	})
}
