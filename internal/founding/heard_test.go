package founding

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// haunt has everybody see forged processes.
func (m *moot) haunt(forged func() []member.Sighting) {
	m.mu.Lock()
	m.forged = forged
	m.mu.Unlock()
	m.changed.Wake()
}

func ghost(name string, boot uint64, addr string, meta member.Metadata) member.Sighting {
	return member.Sighting{Process: member.Process{Name: name, Boot: boot, Addr: addr}, Alive: true, Meta: meta}
}

// Processes that do not exist stop no founding, whatever gossip says of them, even if
// other ones come every moment.
func TestGhostsStopNoFounding(t *testing.T) {
	other := machine.ClusterID{6, 6, 6}
	for name, forged := range map[string]func() []member.Sighting{
		"a member of another cluster": func() []member.Sighting {
			return []member.Sighting{ghost("ghost", 5, "nowhere", member.Metadata{Cluster: other, Voter: true})}
		},
		"another one every second": func() []member.Sighting {
			n := uint64(time.Now().Unix())
			return []member.Sighting{ghost(fmt.Sprint("ghost", n), n, fmt.Sprint("nowhere", n), member.Metadata{Cluster: machine.ClusterID{byte(n), 1}})}
		},
		"founders": func() (out []member.Sighting) {
			for i := range 9 {
				out = append(out, ghost(fmt.Sprint("ZZ", i), 5, fmt.Sprint("nowhere", i), member.Metadata{Founder: true}))
			}
			return out
		},
		"500 members": func() (out []member.Sighting) {
			for i := range 500 {
				out = append(out, ghost(fmt.Sprint("aa", i), 5, fmt.Sprint("nowhere", i), member.Metadata{Cluster: other, Founder: true}))
			}
			return out
		},
		"newer boots of the founders": func() (out []member.Sighting) {
			for _, name := range abc {
				out = append(out, ghost(name, 1000, "nowhere"+name, member.Metadata{}), ghost("at"+name, 1001, name, member.Metadata{}))
			}
			return out
		},
	} {
		t.Run(name, func(t *testing.T) {
			inMoot(t, func(m *moot) {
				m.haunt(forged)
				for _, name := range abc {
					m.start(name, nil)
				}
				limit := 15 * time.Second
				if name == "500 members" {
					limit = time.Minute
				}
				time.Sleep(limit)
				m.cluster()
			})
		})
	}
}

// A founder whose gossip is forged to be in another cluster is believed itself.
func TestAForgedClaimAboutAFounderIsRefutedByTheFounder(t *testing.T) {
	inMoot(t, func(m *moot) {
		for _, name := range []string{"b", "c"} {
			m.start(name, nil, func(c *Config) { c.Joined = make(chan struct{}) })
		}
		b := m.alive["b"]
		m.haunt(func() []member.Sighting {
			return []member.Sighting{ghost("b", b.self.Boot, "b", member.Metadata{Founder: true, Cluster: machine.ClusterID{byte(time.Now().UnixNano()), 1}})}
		})
		a := m.start("a", nil)
		time.Sleep(20 * time.Second)
		if c := a.claimants(); len(c) > 0 || len(a.founders()) != 3 {
			t.Errorf("claims: %+v, founders: %+v", c, a.founders())
		}
	})
}

// A member of a cluster that answers on its own stream holds a founding back for as
// long as it answers, a member without the voter role too; one that does not answer
// for a moment holds it back all the same.
func TestAMemberThatAnswersHoldsAFoundingBack(t *testing.T) {
	for _, mere := range []bool{false, true} {
		inMoot(t, func(m *moot) {
			old := machine.ClusterID{9}
			d := m.start("d", nil, func(c *Config) { c.InitialSize = 0 })
			d.mere.Store(mere)
			if err := d.Adopt(wire.Founding{Cluster: old, Voters: []string{"x#1", "y#1", "z#1"}, Floor: 1}); err != nil {
				t.Fatal(err)
			}
			for _, name := range abc {
				m.start(name, nil)
			}
			waits := func(d time.Duration) {
				t.Helper()
				time.Sleep(d)
				for _, name := range abc {
					if p := m.alive[name]; p.Value() != nil || !strings.Contains(p.Progress(), "d at d is in cluster") {
						t.Fatalf("%s: value %v, %s", name, p.Value(), p.Progress())
					}
				}
			}
			waits(time.Minute)
			for range 10 { // silent for a moment, again and again
				m.mu.Lock()
				m.lost = func(_ wire.Type, to string) bool { return to == "d" }
				m.mu.Unlock()
				waits(timing.GhostPatience - time.Second)
				m.mu.Lock()
				m.lost = nil
				m.mu.Unlock()
				waits(timing.GhostPatience)
			}
			// One founder alone reaches the member: its refusal ends each ballot.
			m.mu.Lock()
			for _, name := range []string{"a", "b"} {
				m.cut[[2]string{name, "d"}], m.cut[[2]string{"d", name}] = true, true
			}
			m.mu.Unlock()
			time.Sleep(time.Minute)
			for _, name := range abc {
				if m.alive[name].Value() != nil {
					t.Errorf("%s founded beside a member that c reaches", name)
				}
			}
			m.kill("d")
			time.Sleep(20 * time.Second)
			m.cluster()
		})
	}
}

// A process that proves to be no voter is no founder, and its promise counts for none.
func TestAProcessWithoutTheRoleFoundsNothing(t *testing.T) {
	inMoot(t, func(m *moot) {
		m.start("a", nil)
		m.start("b", nil)
		m.start("c", nil).mere.Store(true)
		m.alive["c"].stop() // answers, and proposes nothing
		time.Sleep(time.Minute)
		for _, name := range []string{"a", "b"} {
			if p := m.alive[name]; p.Value() != nil {
				t.Errorf("%s founded %+v", name, p.Value())
			}
		}
		m.start("d", nil)
		time.Sleep(20 * time.Second)
		v := m.alive["a"].Value()
		if v == nil || len(v.Voters) != 3 || strings.HasPrefix(v.Voters[2], "c#") {
			t.Errorf("founded %+v", v)
		}
	})
}

// A death that gossip forges again and again is no silence: the process answers. Nor
// does the death hide the process from a first founding.
func TestAForgedDeathIsNoSilence(t *testing.T) {
	for _, inCluster := range []bool{false, true} {
		inMoot(t, func(m *moot) {
			patient := func(c *Config) { c.AssumeGone = 20 * time.Second }
			old := m.formed(abc, patient)
			if inCluster {
				m.start("d", nil, patient, func(c *Config) { c.InitialSize = 0 })
				time.Sleep(5 * time.Second)
			}
			c := m.alive["c"]
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
			for _, p := range m.processes() {
				if v := p.Value(); v != nil && v.Cluster != old {
					t.Errorf("%s founded beside c: %v", p.self.Name, v)
				}
			}
			m.haunt(nil)
			m.kill("c")
			time.Sleep(2 * time.Minute)
			if m.cluster() == old {
				t.Error("not founded after c's death")
			}
		})
	}
}
