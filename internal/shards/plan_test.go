package shards

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// group plays a group: callers come, go and hold what they are assigned, in any order.
type group struct {
	t       *testing.T
	r       *rand.Rand
	callers []Caller
	all     []Shard
	grants  int
	log     []string
}

func newGroup(t *testing.T, seed uint64, shards int) *group {
	g := &group{t: t, r: rand.New(rand.NewPCG(seed, 1)), all: make([]Shard, shards)}
	for i := range g.all {
		g.all[i] = Shard{To: -1, Held: -1}
	}
	return g
}

func (g *group) note(format string, args ...any) { g.log = append(g.log, fmt.Sprintf(format, args...)) }

func (g *group) errorf(format string, args ...any) {
	g.t.Helper()
	g.t.Fatalf("%s\n%v\n%+v\n%+v", fmt.Sprintf(format, args...), g.log, g.callers, g.all)
}

func (g *group) join(weight int) { g.callers = append(g.callers, Caller{Weight: weight}) }

// leave removes a caller: its shards are orphans, and free.
func (g *group) leave(c int) {
	g.callers = slices.Delete(g.callers, c, c+1)
	drop := func(i *int) {
		if *i == c {
			*i = -1
		} else if *i > c {
			*i--
		}
	}
	for i := range g.all {
		drop(&g.all[i].To)
		drop(&g.all[i].Held)
		g.all[i].Not = nil
	}
}

// goAway makes a caller absent: its shards are free, and stay assigned.
func (g *group) goAway(c int) {
	g.callers[c].Absent = true
	for i := range g.all {
		if g.all[i].Held == c {
			g.all[i].Held = -1
		}
	}
}

// underWay counts the moves between two callers that have begun and not ended.
func (g *group) underWay() (n int) {
	for _, s := range g.all {
		if s.To >= 0 && s.Held >= 0 && s.To != s.Held && g.callers[s.To].mayOwn() {
			n++
		}
	}
	return n
}

// plan carries out one plan, and checks what holds of each.
func (g *group) plan(o Options) int {
	g.t.Helper()
	moves := Plan(g.callers, g.all, o)
	if !slices.Equal(moves, Plan(g.callers, slices.Clone(g.all), o)) {
		g.errorf("two plans of one state")
	}
	balanced := 0
	for _, m := range moves {
		s := &g.all[m.Shard]
		switch {
		case s.To == m.To:
			g.errorf("%+v is no move", m)
		case !g.callers[m.To].mayOwn():
			g.errorf("%+v to a caller that owns nothing", m)
		case slices.Contains(s.Not, m.To):
			g.errorf("%+v was declined", m)
		case s.To >= 0 && g.callers[s.To].mayOwn() && !o.Balance:
			g.errorf("%+v restores the balance", m)
		}
		if s.To >= 0 && s.To == s.Held {
			balanced++
		}
		s.To = m.To
	}
	limit := o.MaxMoves
	if limit <= 0 {
		limit = max(1, len(g.all)/10)
	}
	if n := g.underWay(); balanced > 0 && n > limit {
		g.errorf("%d moves begin, %d are under way with a limit of %d", balanced, n, limit)
	}
	able := slices.ContainsFunc(g.callers, func(c Caller) bool { return c.mayOwn() })
	for i, s := range g.all {
		if s.To < 0 && able && len(s.Not) == 0 {
			g.errorf("shard %d is an orphan", i)
		}
	}
	return len(moves)
}

// finish lets up to n shards change to their callers, in any order.
func (g *group) finish(n int) {
	for _, i := range g.r.Perm(len(g.all)) {
		s := &g.all[i]
		if n > 0 && s.To != s.Held && s.To >= 0 && !g.callers[s.To].Absent {
			s.Held = s.To
			g.grants++
			n--
		}
	}
}

// settle plans and moves until nothing is left to do.
func (g *group) settle(maxMoves int) {
	g.t.Helper()
	for range 3*len(g.all) + 3 {
		n := g.plan(Options{Balance: true, MaxMoves: maxMoves})
		if n == 0 && g.underWay() == 0 && !slices.ContainsFunc(g.all, func(s Shard) bool { return s.To != s.Held && s.To >= 0 && !g.callers[s.To].Absent }) {
			return
		}
		g.finish(1 + g.r.IntN(len(g.all)))
	}
	g.errorf("the plan does not come to an end")
}

// balanced checks that each caller's number of shards is less than one off its share.
func (g *group) balanced() {
	g.t.Helper()
	sum := 0
	for _, c := range g.callers {
		if c.mayOwn() {
			sum += c.Weight
		}
	}
	counts := make([]int, len(g.callers))
	for _, s := range g.all {
		if s.Held >= 0 {
			counts[s.Held]++
		}
	}
	for i, c := range g.callers {
		if !c.mayOwn() {
			if counts[i] > 0 && sum > 0 {
				g.errorf("caller %d has %d shards", i, counts[i])
			}
			continue
		}
		if off := counts[i]*sum - len(g.all)*c.Weight; off <= -sum || off >= sum {
			g.errorf("caller %d has %d shards of a share of %d/%d", i, counts[i], len(g.all)*c.Weight, sum)
		}
	}
}

// optimum returns the least number of grants that balances the group: the largest
// number of shards that can stay, over all ways to round the shares, by dynamic
// programming.
func (g *group) optimum() int {
	sum := 0
	held := make([]int, len(g.callers))
	for i, c := range g.callers {
		if c.mayOwn() {
			sum += c.Weight
		}
		for _, s := range g.all {
			if s.Held == i {
				held[i]++
			}
		}
	}
	if sum == 0 {
		return 0
	}
	const none = -1 << 30
	stay := []int{0} // by the number of shares rounded up
	floors := 0
	for i, c := range g.callers {
		if !c.mayOwn() {
			continue
		}
		low := len(g.all) * c.Weight / sum
		floors += low
		next := make([]int, len(stay)+1)
		for n := range next {
			next[n] = none
			if n < len(stay) {
				next[n] = stay[n] + min(held[i], low)
			}
			if n > 0 && len(g.all)*c.Weight%sum > 0 {
				next[n] = max(next[n], stay[n-1]+min(held[i], low+1))
			}
		}
		stay = next
	}
	return len(g.all) - stay[len(g.all)-floors]
}

// Whatever comes and goes, the shares are fair afterwards, and no more shards move
// than an independent search for the optimum says.
func TestMovesAreOptimal(t *testing.T) {
	for seed := range uint64(testrounds.Rounds(300, 10_000)) {
		shards := 1 + rand.New(rand.NewPCG(seed, 2)).IntN(40)
		g := newGroup(t, seed, shards)
		weights := []int{100}
		if seed%2 == 1 {
			weights = []int{0, 1, 50, 100, 100, 300}
		}
		maxMoves := []int{0, 1, 3, shards}[g.r.IntN(4)]
		for range 12 {
			for range 1 + g.r.IntN(3) { // changes that come together
				switch {
				case len(g.callers) == 0 || g.r.IntN(2) == 0:
					w := weights[g.r.IntN(len(weights))]
					g.join(w)
					g.note("join %d", w)
				case g.r.IntN(3) > 0:
					c := g.r.IntN(len(g.callers))
					g.leave(c)
					g.note("leave %d", c)
				default:
					c := g.r.IntN(len(g.callers))
					g.callers[c].Weight = weights[g.r.IntN(len(weights))]
					g.note("weight %d: %d", c, g.callers[c].Weight)
				}
			}
			if !slices.ContainsFunc(g.callers, func(c Caller) bool { return c.mayOwn() }) {
				continue // then nobody takes over
			}
			want := g.optimum()
			g.grants = 0
			g.settle(maxMoves)
			g.balanced()
			if g.grants != want {
				g.errorf("seed %d: %d grants, the optimum is %d", seed, g.grants, want)
			}
		}
	}
}

// Changes come in the middle of moves, callers decline, are absent and come back: no
// plan breaks the rules that plan checks, and the plans come to an end.
func TestPlansInTheMiddleOfMoves(t *testing.T) {
	for seed := range uint64(testrounds.Rounds(200, 5_000)) {
		g := newGroup(t, seed, 1+rand.New(rand.NewPCG(seed, 3)).IntN(30))
		for range 40 {
			switch n := g.r.IntN(8); {
			case len(g.callers) < 2 || n == 0:
				g.join(100 * g.r.IntN(3))
			case n == 1:
				g.leave(g.r.IntN(len(g.callers)))
			case n == 2:
				g.goAway(g.r.IntN(len(g.callers)))
			case n == 3:
				g.callers[g.r.IntN(len(g.callers))].Absent = false
			case n == 4:
				g.callers[g.r.IntN(len(g.callers))].Standby = g.r.IntN(2) == 0
			case n == 5:
				s := &g.all[g.r.IntN(len(g.all))]
				if s.To >= 0 && s.To != s.Held && !slices.Contains(s.Not, s.To) {
					s.Not = append(s.Not, s.To)
					s.To = -1
				}
			default:
				g.finish(g.r.IntN(1 + len(g.all)))
			}
			g.plan(Options{Balance: g.r.IntN(2) == 0, MaxMoves: g.r.IntN(5)})
		}
		for i := range g.all {
			g.all[i].Not = nil
		}
		for i := len(g.callers) - 1; i >= 0; i-- {
			if g.callers[i].Absent {
				g.leave(i)
			}
		}
		g.join(100)
		g.settle(0)
		g.balanced()
	}
}

// A rolling restart, one caller after the other: absent, and back, with the shares not
// evenly divisible and of any weights. Nothing moves.
func TestAbsentCallersKeepTheirShards(t *testing.T) {
	for seed := range uint64(testrounds.Rounds(50, 1_000)) {
		g := newGroup(t, seed, 1+rand.New(rand.NewPCG(seed, 4)).IntN(50))
		for range 2 + g.r.IntN(8) {
			g.join(1 + g.r.IntN(300))
			g.settle(0)
		}
		for range g.r.IntN(len(g.callers) - 1) { // so that shares are rounded by the past
			g.leave(g.r.IntN(len(g.callers)))
			g.settle(0)
		}
		for c := range g.callers {
			g.goAway(c)
			if moves := Plan(g.callers, g.all, Options{Balance: true}); len(moves) > 0 {
				g.errorf("caller %d is absent: %v", c, moves)
			}
			g.callers[c].Absent = false
			for i := range g.all {
				if g.all[i].To == c {
					g.all[i].Held = c
				}
			}
			if moves := Plan(g.callers, g.all, Options{Balance: true}); len(moves) > 0 {
				g.errorf("caller %d is back: %v", c, moves)
			}
		}
	}
}

func TestOrdinaryPlans(t *testing.T) {
	three := []Caller{{Weight: 100}, {Weight: 100}, {Weight: 100}}
	for _, c := range []struct {
		name    string
		callers []Caller
		all     []Shard
		o       Options
		want    []Move
	}{
		{"nobody", nil, []Shard{{To: -1, Held: -1}}, Options{Balance: true}, nil},
		{"all stand by", []Caller{{Weight: 0}, {Weight: 100, Standby: true}, {Weight: 100, Absent: true}},
			[]Shard{{To: -1, Held: -1}}, Options{Balance: true}, nil},
		{"the first plan deals in turn", three, []Shard{{To: -1, Held: -1}, {To: -1, Held: -1}, {To: -1, Held: -1}, {To: -1, Held: -1}},
			Options{}, []Move{{0, 0}, {1, 1}, {2, 2}, {3, 0}}},
		{"orphans only", three[:2], []Shard{{To: 0, Held: 0}, {To: 0, Held: 0}, {To: 0, Held: 0}, {To: -1, Held: -1}},
			Options{}, []Move{{3, 1}}},
		{"one at a time", three[:2], []Shard{{To: 0, Held: 0}, {To: 0, Held: 0}, {To: 0, Held: 0}, {To: 0, Held: 0}},
			Options{Balance: true, MaxMoves: 1}, []Move{{2, 1}}},
		{"declined, and kept by the holder", three[:2], []Shard{{To: 0, Held: 0, Not: []int{1}}, {To: 0, Held: 0, Not: []int{1}}}, Options{Balance: true}, nil},
		{"one is under way", three[:2], []Shard{{To: 0, Held: 0}, {To: 0, Held: 0}, {To: 0, Held: 0}, {To: 1, Held: 0}},
			Options{Balance: true, MaxMoves: 1}, nil},
		{"back to the holder at once", three[:1], []Shard{{To: -1, Held: 0}}, Options{}, []Move{{0, 0}}},
		{"declined", three[:2], []Shard{{To: -1, Held: -1, Not: []int{0}}}, Options{}, []Move{{0, 1}}},
		{"declined by all", three[:1], []Shard{{To: -1, Held: -1, Not: []int{0}}}, Options{}, nil},
		{"a cordon empties, while another is absent", []Caller{{Weight: 0}, {Weight: 100}, {Weight: 100, Absent: true}},
			[]Shard{{To: 0, Held: 0}, {To: 2, Held: -1}}, Options{Balance: true}, []Move{{0, 1}}},
		{"assigned a moment ago", three[:2], []Shard{{To: 0, Held: -1}, {To: 1, Held: -1}, {To: 1, Held: -1}}, Options{Balance: true}, nil},
		{"the largest remainder is rounded up", []Caller{{Weight: 150}, {Weight: 100}}, []Shard{{To: -1, Held: -1}, {To: -1, Held: -1}},
			Options{}, []Move{{0, 0}, {1, 1}}},
		{"first from the caller that owns nothing", []Caller{{Weight: 100}, {Weight: 100}, {Weight: 0}},
			[]Shard{{To: 0, Held: 0}, {To: 0, Held: 0}, {To: 0, Held: 0}, {To: 2, Held: 2}}, Options{Balance: true, MaxMoves: 1}, []Move{{3, 1}}},
		{"declined by the only caller with room", three, []Shard{{To: 0, Held: 0}, {To: 2, Held: 2, Not: []int{1}}, {To: 2, Held: 2, Not: []int{1}}},
			Options{Balance: true}, nil},
		{"an absent caller has its share", []Caller{{Weight: 300}, {Weight: 100}, {Weight: 100, Absent: true}},
			[]Shard{{To: 2, Held: -1}, {To: 2, Held: -1}, {To: 2, Held: -1}, {To: 2, Held: -1}, {To: -1, Held: -1}, {To: -1, Held: -1}, {To: -1, Held: -1}, {To: -1, Held: -1}},
			Options{}, []Move{{4, 0}, {5, 1}, {6, 0}, {7, 0}}},
		{"a caller comes while another is absent", []Caller{{Weight: 100}, {Weight: 100, Absent: true}, {Weight: 100}},
			[]Shard{{To: 0, Held: 0}, {To: 0, Held: 0}, {To: 0, Held: 0}, {To: 1, Held: -1}, {To: 1, Held: -1}, {To: 1, Held: -1}},
			Options{Balance: true}, []Move{{2, 2}}},
		{"an absent caller keeps less than its share", []Caller{{Weight: 100}, {Weight: 100, Absent: true}},
			[]Shard{{To: 0, Held: 0}, {To: 0, Held: 0}, {To: 0, Held: 0}, {To: 1, Held: -1}, {To: -1, Held: -1}},
			Options{Balance: true}, []Move{{4, 0}}},
		{"the next caller has gone", three[:2], []Shard{{To: -1, Held: 0}, {To: 1, Held: 1}, {To: 1, Held: 1}},
			Options{}, []Move{{0, 0}}},
	} {
		if got := Plan(c.callers, c.all, c.o); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, size := range []struct{ shards, callers int }{{1024, 10}, {4096, 32}, {16_384, 100}, {16_384, 1_000}} {
		callers := make([]Caller, size.callers)
		all := make([]Shard, size.shards)
		for i := range callers {
			callers[i].Weight = 100
		}
		for i := range all {
			all[i] = Shard{To: -1, Held: -1}
		}
		b.Run(fmt.Sprintf("first/%dx%d", size.shards, size.callers), func(b *testing.B) {
			for b.Loop() {
				Plan(callers, all, Options{})
			}
		})
		for _, m := range Plan(callers, all, Options{}) {
			all[m.Shard] = Shard{To: m.To, Held: m.To}
		}
		joined := append(callers, Caller{Weight: 100})
		b.Run(fmt.Sprintf("join/%dx%d", size.shards, size.callers), func(b *testing.B) {
			for b.Loop() {
				Plan(joined, all, Options{Balance: true})
			}
		})
	}
}
