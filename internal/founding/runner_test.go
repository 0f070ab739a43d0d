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
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
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

	adopted   []bool // Config.Adopted's votes, guarded by moot.mu
	conflicts []string
}

// inMoot runs f in a bubble, and then stops and joins the remaining processes.
func inMoot(t *testing.T, f func(m *moot)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &moot{t: t, rng: rand.New(rand.NewPCG(1, 1)), delay: time.Millisecond,
			alive: make(map[string]*process), cut: make(map[[2]string]bool)}
		f(m)
		for _, p := range m.processes() {
			m.kill(p.self.Name)
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
	p.self = cfg.Self
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
// reached or the message is lost.
func (m *moot) reach(from, to string, boot uint64) *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.alive[to]
	if p == nil || p.self.Boot != boot || m.cut[[2]string{from, to}] || m.rng.Float64() < m.loss {
		return nil
	}
	return p
}

// Alive implements Members.
func (p *process) Alive() (all []member.Sighting) {
	p.moot.mu.Lock()
	defer p.moot.mu.Unlock()
	for name, o := range p.moot.alive {
		if p.moot.cut[[2]string{p.self.Name, name}] {
			continue
		}
		s := member.Sighting{Process: o.self.Process(), Alive: true,
			Meta: member.Metadata{Founder: o.Declared(), Cluster: o.Cluster()}}
		if own := p.Cluster(); own != (machine.ClusterID{}) && s.Meta.InCluster() && s.Meta.Cluster != own {
			continue
		}
		all = append(all, s)
	}
	slices.SortFunc(all, member.Compare)
	return all
}

// Changed implements Members.
func (p *process) Changed() <-chan struct{} { return p.moot.changed.Wait() }

var errLost = errors.New("no answer")

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
	other := p.moot.reach(p.self.Name, to.Name, to.Boot)
	if other == nil {
		<-ctx.Done()
		return wire.Frame{}, errLost
	}
	var f wire.Frame
	if t == wire.Who {
		f.Body = wire.Marshal(&wire.WhoAnswer{Name: to.Name, Boot: to.Boot, Founding: other.Value()})
		f.Code = wire.CodeOK
	} else {
		f.Code, f.Body = other.Step(t, body)
	}
	if err := wait(); err != nil {
		return wire.Frame{}, err
	}
	if p.moot.reach(to.Name, p.self.Name, p.self.Boot) == nil {
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
		if p := m.alive["a"]; p.Value() != nil || p.Progress() != "no cluster yet: 2 of 3 first members seen" {
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
			select {
			case <-p.done:
			default:
				t.Errorf("%s: Run goes on in a cluster", p.self.Name)
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
		{func(c *Config) { c.InitialSize = 2 }, "expects 2 first members and 3 voters, this member 3 and 3"},
		{func(c *Config) { c.Voters = 1 }, "expects 3 first members and 1 voters, this member 3 and 3"},
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
		code, _ := c.Step(wire.Accept, wire.Marshal(&wire.AcceptRequest{Ballot: wire.Ballot{Round: 1, Name: "a"}, Value: v}))
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
		if code, _ := p.Step(wire.Chosen, wire.Marshal(&other)); code != wire.CodeNo {
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
			if code, _ := p.Step(tt.t, tt.body); code != tt.code {
				t.Errorf("type %v, %x: code %v, want %v", tt.t, tt.body, code, tt.code)
			}
		}
		if got := p.record.Get(); got.Promise != before.Promise || got.Founding != nil {
			t.Errorf("the record changed: %+v", got)
		}
		thin := m.start("d", nil, func(c *Config) { c.InitialSize = 0 })
		if code, _ := thin.Step(wire.Prepare, wire.Marshal(&wire.PrepareRequest{Ballot: wire.Ballot{Round: 1, Name: "b"}, Voters: 3})); code != wire.CodeNo {
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
		if code, _ := p.Step(wire.Prepare, body); code != wire.CodeNo || p.record.Get().Promise != (identity.Promise{}) {
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

// Three to seven members found under cuts, losses, restarts, and a single restart
// without memory: all end in the same cluster.
func TestRunnersUnderFaultsFoundOneCluster(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 40
	}
	for round := range rounds {
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
			m.cluster()
		})
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}
