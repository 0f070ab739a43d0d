package founding

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// setLies makes a process lie from now on; nil: it is honest again.
func (p *process) setLies(lies func(*wire.PrepareAnswer)) {
	p.moot.mu.Lock()
	defer p.moot.mu.Unlock()
	p.lies = lies
}

// A founder that lies can hold the first founding while it lies: honest members cannot
// know that it does not see a founder, or a cluster, that they do not see. But it is named
// to the operator, it leaves nothing behind, and the others found without it.
func TestAFounderThatHoldsTheFoundingIsNamed(t *testing.T) {
	for _, tt := range []struct {
		lie  string
		lies func(*wire.PrepareAnswer)
		told string
	}{
		{"it sees a crowd", func(a *wire.PrepareAnswer) { a.Members = maxSize }, "d says that it sees 65536 founders"},
		{"it sees more than there can be", func(a *wire.PrepareAnswer) { a.Members = math.MaxInt32 }, ""},
		{"it is in a cluster", func(a *wire.PrepareAnswer) {
			a.Decided = &wire.Founding{Cluster: machine.ClusterID{9}, Floor: 1, Voters: []string{"a#1", "d#4", "e#5"}}
		}, "d says that it is in cluster"},
		{"its cluster could not be", func(a *wire.PrepareAnswer) { a.Decided = &wire.Founding{Floor: math.MaxUint64} }, ""},
		{"its tokens are spent", func(a *wire.PrepareAnswer) { a.Token = mostFloor - 2 }, ""},
	} {
		t.Run(tt.lie, func(t *testing.T) {
			inMoot(t, func(m *moot) {
				d := m.start("d", nil)
				d.stop() // answers, and proposes nothing
				d.setLies(tt.lies)
				for _, name := range abc {
					m.start(name, nil)
				}
				time.Sleep(time.Minute)
				a := m.alive["a"]
				switch {
				case tt.told == "":
					if v := a.Value(); v == nil || v.Floor > tokenOf(time.Now().Add(time.Hour)) {
						t.Errorf("founded %+v: %s", v, a.Progress())
					}
					return
				case a.Value() != nil || !strings.Contains(a.Progress(), tt.told):
					t.Errorf("founded %+v: %s", a.Value(), a.Progress())
				}
				m.kill("d")
				time.Sleep(time.Minute)
				for _, name := range abc {
					if p := m.alive[name]; p.Value() == nil {
						t.Errorf("%s is in no cluster after the end of the liar: %s", name, p.Progress())
					}
				}
			})
		})
	}
}

// A founder whose clock stands at 1970, before it or in a century begins with a token that
// the table takes.
func TestAnyClockGivesATokenOrAReason(t *testing.T) {
	for _, at := range []time.Time{{}, time.Unix(-1, 0), time.Unix(0, 0), time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if floor := floorOf(at, 0, nil, nil); floor == 0 || floor > 1<<tokenBits {
			t.Errorf("at %v: %d", at, floor)
		}
		v := wire.Founding{Floor: tokenOf(time.Now()), Predecessors: []machine.ClusterID{{1}}}
		if checkFloor(v, 0, tokenOf(at)) == "" {
			t.Errorf("a member at %v takes any token", at)
		}
	}
	v := freshValue([]string{"a#1"}, floorOf(time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC), 0, nil, nil), 1000, nil)
	if err := Check(v); !errors.Is(err, errBadFounding) {
		t.Errorf("a cluster begins with token %d: %v", v.Floor, err)
	}
	if mostFloor >= uint64(machine.MaxToken) || tokenOf(time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC)) > mostFloor {
		t.Errorf("the first token is at most %d", mostFloor)
	}
}

// Members whose clocks are a month behind found above the tokens that one of them has seen.
func TestAnEarlierClockSpendsNoTokenTwice(t *testing.T) {
	now := time.Now()
	seen := tokenOf(now)
	floor := floorOf(now.AddDate(0, -1, 0), 0, map[string]wire.PrepareAnswer{"a": {}, "b": {Token: seen}}, nil)
	if floor <= seen {
		t.Errorf("%d after %d", floor, seen)
	}
}

// A proposer that lies, and a founder that says that it has accepted a value, raise the
// first token by a day at most: guards remember tokens, so a cluster that spends most of
// them costs each later cluster the same.
func TestNoWordSpendsTheFirstTokens(t *testing.T) {
	far := func(voters ...string) wire.Founding {
		return wire.Founding{Cluster: machine.ClusterID{9}, Voters: voters, Floor: mostFloor, TTL: 1000}
	}
	founded := func(t *testing.T, m *moot) {
		t.Helper()
		time.Sleep(time.Minute)
		if a := m.alive["a"]; a.Value() == nil || a.Value().Floor > tokenOf(time.Now().Add(time.Hour)) {
			t.Errorf("founded %+v: %s", a.Value(), a.Progress())
		}
	}
	t.Run("of a proposer", func(t *testing.T) {
		inMoot(t, func(m *moot) {
			d := m.start("d", nil)
			d.stop()
			for _, name := range abc {
				p := m.start(name, nil)
				b := wire.Ballot{Round: uint64(time.Now().UnixMilli()), Name: "d", Boot: d.self.Boot}
				p.Step(t.Context(), d.self.Process(), wire.Prepare, wire.Marshal(&wire.PrepareRequest{Ballot: b, Size: 3}))
				code, body := p.Step(t.Context(), d.self.Process(), wire.Accept, wire.Marshal(&wire.AcceptRequest{Ballot: b, Value: far("a#1", "b#1", "c#1")}))
				if code != wire.CodeNo || p.Accepted() != nil || !strings.Contains(string(body), "set the clocks of the hosts right") {
					t.Errorf("%s answers %v: %s", name, code, body)
				}
			}
			founded(t, m)
		})
	})
	t.Run("of an acceptor", func(t *testing.T) {
		inMoot(t, func(m *moot) {
			d := m.start("d", nil)
			d.stop()
			v := far("a#2", "b#3", "c#4")
			d.setLies(func(a *wire.PrepareAnswer) {
				a.Value, a.Accepted = &v, wire.Ballot{Round: uint64(time.Now().UnixMilli()), Name: "d", Boot: 1}
			})
			for _, name := range abc {
				m.start(name, nil)
			}
			founded(t, m)
		})
	})
}

// Founders with a clock that is years ahead among them found by the other clocks, whoever
// proposes first.
func TestAClockAheadHoldsNoFounding(t *testing.T) {
	for _, wrong := range abc {
		inMoot(t, func(m *moot) {
			for _, name := range abc {
				m.start(name, nil, func(c *Config) {
					if name == wrong {
						c.Self.Clock = host.NewClock(0)
						c.Self.Clock.Set(1, 3*365*24*time.Hour)
					}
				})
			}
			time.Sleep(time.Minute)
			for _, name := range abc {
				if p := m.alive[name]; p.Value() == nil || p.Value().Floor > tokenOf(time.Now().Add(time.Hour)) {
					t.Errorf("%s is wrong: %s has founded %+v: %s", wrong, name, p.Value(), p.Progress())
				}
			}
		})
	}
}
