package founding

import (
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// poses runs a second, later process of a name, without the voter role, as each owner of
// a certificate of many can. The process proposes nothing.
func (m *moot) poses(name string, change ...func(*Config)) *process {
	m.mu.Lock()
	first := m.alive[name]
	m.mu.Unlock()
	p := m.start(name, nil, append(change, func(c *Config) {
		c.Self.Addr, c.Thin, c.InitialSize = "beside "+name, true, 0
	})...)
	p.mere.Store(true)
	m.mu.Lock()
	m.alive[name] = first
	m.posers = append(m.posers, p)
	m.mu.Unlock()
	m.changed.Wake()
	return p
}

// A later process of a voter's name without the voter role takes no voter's place in a
// recovery: the voter promises and retires.
func TestAMereNamesakeTakesNoVotersPlace(t *testing.T) {
	inMoot(t, func(m *moot) {
		c, old := m.dies()
		d := m.start("d", nil, func(c *Config) { c.InitialSize = 0 })
		poser := m.poses("c")
		for _, p := range []*process{d, poser} {
			if err := p.Adopt(*c.Value()); err != nil {
				t.Fatal(err)
			}
		}
		c.stop() // answers, and proposes nothing
		if err := d.recovers(time.Minute, "a", "b"); err != nil {
			t.Fatal(err)
		}
		if c.retired != old || poser.retired == old {
			t.Errorf("c has retired from %v, the process of its name from %v", c.retired, poser.retired)
		}
		v := d.Value()
		if v.Cluster == old || !strings.Contains(strings.Join(v.Voters, " "), c.raftID()) {
			t.Errorf("recovered to %+v, without %s", v, c.raftID())
		}
	})
}

// A voter started anew without the voter role is a guest, and the voter is gone: the
// operator must say so, and then nothing waits.
func TestAVoterThatRunsOnWithoutTheRoleIsNamedAsGone(t *testing.T) {
	inMoot(t, func(m *moot) {
		c, old := m.dies()
		d := m.start("d", nil, func(c *Config) { c.InitialSize = 0 })
		again := m.poses("c")
		for _, p := range []*process{d, again} {
			if err := p.Adopt(*c.Value()); err != nil {
				t.Fatal(err)
			}
		}
		m.kill("c")
		if err := d.recovers(40*time.Second, "a", "b"); err == nil || !strings.Contains(err.Error(), "c runs without the voter role") || d.Cluster() != old {
			t.Errorf("recovered without c's vote: %v", err)
		}
		if err := d.recovers(time.Minute, "a", "b", "c"); err != nil {
			t.Error(err)
		}
	})
}

// Nor does such a process take a founder's place in a first founding.
func TestAMereNamesakeHoldsNoFounding(t *testing.T) {
	for _, posed := range [][]string{{"c"}, abc} {
		inMoot(t, func(m *moot) {
			for _, name := range abc {
				m.start(name, nil)
			}
			for _, name := range posed {
				m.poses(name)
			}
			time.Sleep(20 * time.Second)
			m.cluster()
		})
	}
}

// Nor does such a process hide the claim of a member of another cluster.
func TestAMereNamesakeHidesNoClaim(t *testing.T) {
	inMoot(t, func(m *moot) {
		d := m.start("d", nil, func(c *Config) { c.InitialSize = 0 })
		if err := d.Adopt(wire.Founding{Cluster: machine.ClusterID{9}, Voters: []string{"x#1", "y#1", "z#1"}, Floor: 1}); err != nil {
			t.Fatal(err)
		}
		m.poses("d")
		for _, name := range abc {
			m.start(name, nil)
		}
		time.Sleep(time.Minute)
		for _, name := range abc {
			if p := m.alive[name]; p.Value() != nil {
				t.Errorf("%s founded beside d: %+v", name, p.Value())
			}
		}
		m.kill("d") // and of a dead member it is no claim
		time.Sleep(20 * time.Second)
		m.cluster()
	})
}

// Nor is such a process in the group an end of the voter's silence: a voter that gossip
// takes for dead, and that answers, holds the founding back.
func TestAMereNamesakeIsNoSilence(t *testing.T) {
	inMoot(t, func(m *moot) {
		patient := func(c *Config) { c.AssumeGone = 20 * time.Second }
		old := m.formed(abc, patient)
		d := m.start("d", nil, patient, func(c *Config) { c.InitialSize = 0 })
		time.Sleep(5 * time.Second)
		c := m.alive["c"]
		poser := m.poses("c", patient)
		if err := poser.Adopt(*c.Value()); err != nil {
			t.Fatal(err)
		}
		buried := time.Now()
		m.haunt(func() []member.Sighting {
			s := ghost("c", c.self.Boot, "c", member.Metadata{Founder: true, Cluster: old})
			s.Alive, s.Since = false, buried
			return []member.Sighting{s}
		})
		c.stop() // answers, and proposes nothing
		m.kill("a")
		m.kill("b")
		for _, name := range []string{"e", "f", "g"} {
			m.start(name, nil, patient)
		}
		time.Sleep(3 * time.Minute)
		if v := d.Value(); v.Cluster != old {
			t.Errorf("founded beside c: %v", v)
			return
		}
		m.haunt(nil)
		m.kill("c") // the process without the role lives on, and holds nothing back
		time.Sleep(2 * time.Minute)
		if m.cluster() == old {
			t.Errorf("not founded after the death of c: %s", d.Progress())
		}
	})
}

// A member started anew during the wait begins no new wait: the later process answers the
// others, and supersedes the earlier one.
func TestARestartBeginsNoSilenceAnew(t *testing.T) {
	inMoot(t, func(m *moot) {
		patient := func(c *Config) { c.AssumeGone = time.Minute }
		later := func(c *Config) { c.InitialSize = 0 }
		old := m.formed(abc, patient)
		m.start("d", nil, patient, later)
		m.start("e", nil, patient, later)
		time.Sleep(5 * time.Second)
		m.kill("a")
		m.kill("b")
		time.Sleep(40 * time.Second)
		m.kill("d")
		m.start("d", nil, patient, later)
		time.Sleep(40 * time.Second)
		if m.cluster() == old {
			t.Errorf("not founded: %s", m.alive["c"].Progress())
		}
	})
}
