package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/locks"
)

// A lockLike is a Lock or a Set.
type lockLike interface {
	Context() context.Context
	Err() error
	Token() fence.Token
	Release(context.Context) error
}

// A grip is a grant in a caller's hand.
type grip struct {
	w  *town
	p  *process
	op string // ID of the op that granted
	l  lockLike

	mu   sync.Mutex
	hold history.Hold
	over bool
}

// grips has the grants in force, by the roots of their keys.
type grips struct {
	mu  sync.Mutex
	all map[string]map[*grip]struct{}
	n   int
}

func newGrips() *grips { return &grips{all: make(map[string]map[*grip]struct{})} }

func roots(keys []string) (list []string) {
	for _, k := range keys {
		r, _, _ := strings.Cut(k, "/")
		list = append(list, r)
	}
	return list
}

// grasp records a grant that has just returned at the stamp from. All other holders of the
// key are asked at once whether they still hold: the narrowest overlap is seen so.
func (w *town) grasp(p *process, op string, l lockLike, hold history.Hold, from int64) *grip {
	g := &grip{w: w, p: p, op: op, l: l, hold: hold}
	g.hold.ID = w.rec.NewID("hold")
	g.hold.Op, g.hold.Process, g.hold.From = op, p.name, from
	g.hold.Token = uint64(l.Token())
	w.rec.Hold(g.hold)
	context.AfterFunc(l.Context(), g.done)
	w.grips.add(g)
	w.peek(g)
	return g
}

// add adds g.
func (x *grips) add(g *grip) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.n++
	for _, r := range roots(g.hold.Keys) {
		if x.all[r] == nil {
			x.all[r] = make(map[*grip]struct{})
		}
		x.all[r][g] = struct{}{}
	}
}

func (x *grips) remove(g *grip) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range roots(g.hold.Keys) {
		delete(x.all[r], g)
		if len(x.all[r]) == 0 {
			delete(x.all, r)
		}
	}
}

// of returns the grips of a process.
func (x *grips) of(p *process) (mine []*grip) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, all := range x.all {
		for g := range all {
			if g.p == p && !slices.Contains(mine, g) {
				mine = append(mine, g)
			}
		}
	}
	return mine
}

// dead notes that the process of some grips is killed.
func (x *grips) dead(p *process) {
	for _, g := range x.of(p) {
		g.end(history.Killed, "")
	}
}

// askAll asks for each grip of a process whether it is held, and returns how many there are.
func (x *grips) askAll(p *process) int {
	mine := x.of(p)
	for _, g := range mine {
		g.word()
	}
	return len(mine)
}

// word asks the library whether the grant is held, and records a yes.
func (g *grip) word() bool {
	stamp := g.w.rec.Now()
	if g.l.Err() != nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over || stamp <= g.hold.Valid {
		return true
	}
	g.hold.Valid = stamp
	g.w.rec.Hold(g.hold)
	return true
}

// done is called when the lock's context has ended.
func (g *grip) done() {
	stamp := g.w.rec.Now()
	g.mu.Lock()
	if g.hold.Done == 0 {
		g.hold.Done = stamp
		g.w.rec.Hold(g.hold)
	}
	g.mu.Unlock()
	var lost *locks.LostError
	if errors.As(context.Cause(g.l.Context()), &lost) {
		g.end(history.Lost, lost.Reason.String())
	}
}

// end notes how the grip ended. The first word counts.
func (g *grip) end(how, reason string) {
	g.mu.Lock()
	first := !g.over
	if first {
		g.over = true
		g.hold.How, g.hold.Reason, g.hold.End = how, reason, g.w.rec.Now()
		g.w.rec.Hold(g.hold)
	}
	g.mu.Unlock()
	if first {
		g.w.grips.remove(g)
	}
}

// turn ends the grip's hold in one mode and begins one in another.
func (g *grip) turn(mode history.Mode) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return
	}
	before := g.hold
	before.How, before.End = history.Released, g.w.rec.Now()
	g.w.rec.Hold(before)
	g.hold = before
	g.hold.ID = g.w.rec.NewID("hold")
	g.hold.Mode, g.hold.Token = mode, uint64(g.l.Token())
	g.hold.From, g.hold.Valid, g.hold.How, g.hold.End = g.w.rec.Now(), 0, "", 0
	g.w.rec.Hold(g.hold)
}

// keep holds the grant for d, or until it is lost, the caller's process ends or the run
// calms down, and asks again and again whether it is held.
func (g *grip) keep(ctx context.Context, d time.Duration) {
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(max(d/4, g.w.shape.ttl/8))
	defer tick.Stop()
	for {
		select {
		case <-end.C:
			return
		case <-ctx.Done():
			return
		case <-g.l.Context().Done():
			return
		case <-tick.C:
			g.word()
		}
	}
}

// retoken notes the present token of a grip, which a failed Upgrade may have raised.
func (g *grip) retoken() {
	g.mu.Lock()
	same := g.hold.Token == uint64(g.l.Token())
	mode := g.hold.Mode
	g.mu.Unlock()
	if !same {
		g.turn(mode)
	}
}

// peek asks the other holders whether they hold, as grasp does: g has just become
// exclusive.
func (w *town) peek(g *grip) {
	w.grips.mu.Lock()
	var others []*grip
	for _, r := range roots(g.hold.Keys) {
		for o := range w.grips.all[r] {
			if o != g {
				others = append(others, o)
			}
		}
	}
	w.grips.mu.Unlock()
	for _, o := range others {
		if !w.isFrozen(o.p.site) {
			o.word()
		}
	}
	g.word()
}
