package timing

import (
	"sync/atomic"
	"time"
)

// Grid is a raster of moments for the looks that a member takes again and again. Looks at
// the moments of one grid share their wake-ups: to wake an idle process costs many times
// more than a look.
//
// Each member has a grid of its own, so that the members of a host, or of a network with
// good clocks, do not look at the same moments. The methods may be called from any
// goroutine. A nil Grid has no raster.
type Grid struct {
	origin atomic.Pointer[time.Time]
	watch  atomic.Pointer[func(now time.Time, every time.Duration)]
}

// Watch has f called with the arguments of each call of Next from now on, for tests.
func (g *Grid) Watch(f func(now time.Time, every time.Duration)) { g.watch.Store(&f) }

// Begin lays the grid anew, from now on.
func (g *Grid) Begin() {
	if g != nil {
		g.origin.Store(new(time.Now()))
	}
}

// Next returns the time from now to the next multiple of every on the grid: above zero, and
// every at most.
func (g *Grid) Next(now time.Time, every time.Duration) time.Duration {
	if g == nil {
		return every
	}
	if f := g.watch.Load(); f != nil {
		(*f)(now, every)
	}
	return g.next(now, every)
}

func (g *Grid) next(now time.Time, every time.Duration) time.Duration {
	origin := g.origin.Load()
	if origin == nil {
		return every
	}
	past := now.Sub(*origin) % every
	if past < 0 { // a reading of another clock, or one before Begin
		past += every
	}
	return every - past
}

// Within returns the time from now to the last multiple of every on the grid that is at most
// limit away; limit itself if there is none.
func (g *Grid) Within(now time.Time, limit, every time.Duration) time.Duration {
	first := every
	if g != nil {
		first = g.next(now, every)
	}
	if first > limit {
		return limit
	}
	return first + (limit-first)/every*every
}
