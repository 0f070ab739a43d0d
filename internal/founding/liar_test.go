package founding

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

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
