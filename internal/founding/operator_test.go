package founding

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// recovers calls Recover on the process, for limit at most.
func (p *process) recovers(limit time.Duration, gone ...string) error {
	ctx, cancel := context.WithTimeout(p.moot.t.Context(), limit)
	defer cancel()
	return p.Recover(ctx, gone, nil)
}

// spend has the process remember a token.
func (p *process) spend(token uint64) {
	if err := p.record.Update(func(r *identity.Record) { r.Token = token }); err != nil {
		p.moot.t.Error(err)
	}
}

// dies kills two of three voters, and returns the third.
func (m *moot) dies(change ...func(*Config)) (c *process, old machine.ClusterID) {
	old = m.formed(abc, change...)
	m.kill("a")
	m.kill("b")
	return m.alive["c"], old
}

// Processes that exist in gossip's words alone stop no operator, even if others come
// every second, and whatever they are said to be.
func TestGhostsStopNoRecover(t *testing.T) {
	for name, meta := range map[string]func(old machine.ClusterID) member.Metadata{
		"voters of the dead cluster": func(old machine.ClusterID) member.Metadata { return member.Metadata{Cluster: old, Voter: true} },
		"newcomers":                  func(machine.ClusterID) member.Metadata { return member.Metadata{Founder: true} },
	} {
		t.Run(name, func(t *testing.T) {
			inMoot(t, func(m *moot) {
				c, old := m.dies()
				d := m.start("d", nil, func(c *Config) { c.InitialSize = 0 }) // honest, in no cluster
				m.haunt(func() (out []member.Sighting) {
					n := uint64(time.Now().Unix())
					for i := range uint64(20) {
						s := ghost(fmt.Sprint("ghost", n-i), n, fmt.Sprint("nowhere", n-i), meta(old))
						s.Alive = i < 10
						out = append(out, s)
					}
					return append(out, ghost("c", 1000, "nowhere", meta(old)), ghost("d", 1000, "nowhere", meta(old)))
				})
				time.Sleep(time.Minute) // the wait for ghosts is long over
				began := time.Now()
				if err := c.recovers(time.Minute, "a", "b"); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > 15*time.Second {
					t.Errorf("recovered after %v", took)
				}
				time.Sleep(15 * time.Second)
				if v := c.Value(); v.Cluster == old || d.Cluster() != v.Cluster {
					t.Errorf("c is in %v, d in %v", v.Cluster, d.Cluster())
				}
			})
		})
	}
}

// A member that has shown itself must take part or be named, however silent it is.
func TestRecoverAsksForEveryMemberThatWasShown(t *testing.T) {
	for _, by := range []string{"a handshake", "an answer", "the caller"} {
		inMoot(t, func(m *moot) {
			var d *process
			c, old := m.dies(func(c *Config) {
				c.Shown = func(name string, boot uint64) bool { return by == "a handshake" && name == "d" && boot == d.self.Boot }
			})
			d = m.start("d", nil, func(c *Config) { c.InitialSize = 0 })
			if err := d.Adopt(*c.Value()); err != nil {
				t.Fatal(err)
			}
			if by == "an answer" {
				if err := c.recovers(3 * time.Second); err == nil {
					t.Fatal("recovered without a word")
				}
			}
			m.mu.Lock()
			m.lost = func(_ wire.Type, to string) bool { return to == "d" }
			m.mu.Unlock()
			ctx, cancel := context.WithTimeout(m.t.Context(), 40*time.Second)
			defer cancel()
			var voters []string
			if by == "the caller" {
				voters = []string{"d"}
			}
			if err := c.Recover(ctx, []string{"a", "b"}, voters); err == nil || !strings.Contains(err.Error(), "d ") || c.Cluster() != old {
				t.Errorf("by %s: recovered beside d: %v", by, err)
			}
			if err := c.recovers(40*time.Second, "a", "b", "d"); err != nil {
				t.Errorf("by %s: %v", by, err)
			}
		})
	}
}

// A process without the voter role cannot hold the recovery back by refusing or by
// silence, and enters the successor.
func TestAProcessWithoutTheRoleRefusesNoRecover(t *testing.T) {
	for _, silent := range []wire.Type{0, wire.Prepare, wire.Retire, wire.Accept} {
		inMoot(t, func(m *moot) { m.refuses(silent) })
	}
}

// refuses is a recovery beside a guest that refuses to retire, or does not answer
// messages of the type.
func (m *moot) refuses(silent wire.Type) {
	t := m.t
	m.lost = func(typ wire.Type, to string) bool { return to == "d" && typ == silent }
	c, old := m.dies()
	var stubborn atomic.Bool
	stubborn.Store(true)
	d := m.start("d", nil, func(c *Config) {
		c.InitialSize = 0
		if retire := c.Retire; silent == 0 {
			c.Retire = func(ctx context.Context, old machine.ClusterID) (wire.RetireAnswer, error) {
				if stubborn.Load() {
					return wire.RetireAnswer{Refused: "never"}, nil
				}
				return retire(ctx, old)
			}
		}
	})
	if err := d.Adopt(*c.Value()); err != nil {
		t.Fatal(err)
	}
	d.mere.Store(true)
	if err := c.recovers(time.Minute, "a", "b"); err != nil {
		t.Fatalf("silent to %d: %v", silent, err)
	}
	stubborn.Store(false)
	time.Sleep(20 * time.Second)
	if v := c.Value(); v.Cluster == old || d.Cluster() != v.Cluster {
		t.Errorf("silent to %d: c is in %v, d in %v", silent, v.Cluster, d.Cluster())
	}
}

// An honest guest ends its locks before the founding, and its TTL counts, however long:
// the guest may be the last to know the bound.
func TestAGuestRetiresForARecover(t *testing.T) {
	for bound, want := range map[uint64]uint64{60_000: 60_000, machine.MaxTTL: machine.MaxTTL} {
		inMoot(t, func(m *moot) {
			c, old := m.dies()
			d := m.start("d", nil, func(c *Config) { c.InitialSize = 0 })
			if err := d.Adopt(*c.Value()); err != nil {
				t.Fatal(err)
			}
			d.mere.Store(true)
			d.bound = bound
			if err := c.recovers(time.Minute, "a", "b"); err != nil {
				t.Fatal(err)
			}
			if v := c.Value(); v.TTL != want || d.retired != old {
				t.Errorf("recovered to %+v, the guest has retired from %v", v, d.retired)
			}
		})
	}
}

// A cluster founded by a clock years ahead is recovered: each member knows the tokens of
// its own cluster.
func TestAClusterAheadOfTheClocksIsRecovered(t *testing.T) {
	inMoot(t, func(m *moot) {
		c, old := m.dies()
		d := m.start("d", nil, func(c *Config) { c.InitialSize = 0 })
		if err := d.Adopt(*c.Value()); err != nil {
			t.Fatal(err)
		}
		far := tokenOf(time.Now().AddDate(20, 0, 0))
		c.token, d.token = far, far-1<<30
		if err := c.recovers(time.Minute, "a", "b"); err != nil {
			t.Fatal(err)
		}
		if v := c.Value(); v.Cluster == old || v.Floor <= far {
			t.Errorf("recovered to %+v", v)
		}
	})
	// A member that has seen no such token refuses, and tells the way out.
	inMoot(t, func(m *moot) {
		c, old := m.dies()
		m.start("d", nil, func(c *Config) { c.InitialSize = 0 })
		c.token = tokenOf(time.Now().AddDate(20, 0, 0))
		if err := c.recovers(30*time.Second, "a", "b"); err == nil || !strings.Contains(err.Error(), "d refuses: ") || !strings.Contains(err.Error(), "stop this member") || c.Cluster() != old {
			t.Errorf("recovered: %v", err)
		}
		m.kill("d")
		if err := c.recovers(time.Minute, "a", "b"); err != nil {
			t.Error(err)
		}
	})
}

// A floor that no token can reach is a mistake, and is told.
func TestAnImpossibleTokenFloorIsTold(t *testing.T) {
	for _, token := range []uint64{mostFloor, math.MaxUint64} {
		inMoot(t, func(m *moot) {
			for _, name := range abc {
				m.start(name, nil, func(c *Config) { c.TokenFloor = func(context.Context) (uint64, error) { return token, nil } })
			}
			time.Sleep(30 * time.Second)
			if a := m.alive["a"]; a.Value() != nil || !strings.Contains(a.Progress(), "Recovery.TokenFloor") {
				t.Errorf("founded %+v: %s", a.Value(), a.Progress())
			}
		})
	}
}

// A process without the voter role that shows ever-new names makes no group too large for
// a ballot: the youngest guests are left out.
func TestACrowdOfGuestsStopsNoRecover(t *testing.T) {
	inMoot(t, func(m *moot) {
		c, _ := m.dies()
		var group []member.Process
		for i := range 2 * maxGroup {
			group = append(group, member.Process{Name: fmt.Sprint("guest", i), Boot: uint64(1000 + i), Addr: "x"})
		}
		c.known.mu.Lock()
		for _, p := range group {
			c.known.of[p] = acquaintance{heard: time.Now(), mere: true}
		}
		c.known.mu.Unlock()
		group = append(group, c.self.Process())
		left := c.withoutCrowd(slices.Clone(group))
		if len(left) != maxGroup || !slices.Contains(left, group[0]) || !slices.Contains(left, c.self.Process()) || slices.Contains(left, group[2*maxGroup-1]) {
			t.Errorf("%d are left", len(left))
		}
		if n := len(c.withoutCrowd(group[:10])); n != 10 {
			t.Errorf("%d of ten are left", n)
		}
	})
}
