package timing

import (
	"testing"
	"testing/synctest"
	"time"
)

// Looks of different periods that begin at different moments meet.
func TestLooksMeetOnTheGrid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(Grid)
		g.Begin()
		began := time.Now()
		for _, c := range []struct{ at, every, want time.Duration }{
			{0, 100, 100},
			{1, 100, 99},
			{99, 100, 1},
			{100, 100, 100},
			{250, 100, 50},
			{250, 1000, 750},
			{-30, 100, 30},
			{-100, 100, 100},
		} {
			if got := g.Next(began.Add(c.at*time.Millisecond), c.every*time.Millisecond); got != c.want*time.Millisecond {
				t.Errorf("at %d, every %d: %v, want %d ms", c.at, c.every, got, c.want)
			}
		}
		for _, c := range []struct{ at, limit, want time.Duration }{
			{0, 1000, 1000},
			{0, 999, 900},
			{30, 1000, 970},
			{30, 70, 70},
			{30, 69, 69},
			{99, 1, 1},
			{100, 250, 200},
		} {
			if got := g.Within(began.Add(c.at*time.Millisecond), c.limit*time.Millisecond, 100*time.Millisecond); got != c.want*time.Millisecond {
				t.Errorf("at %d, within %d: %v, want %d ms", c.at, c.limit, got, c.want)
			}
		}
		if got := (*Grid)(nil).Within(began, 250*time.Millisecond, 100*time.Millisecond); got != 200*time.Millisecond {
			t.Errorf("without a grid: %v", got)
		}
		time.Sleep(30 * time.Millisecond)
		g.Begin()
		if got := g.Next(time.Now(), time.Second); got != time.Second {
			t.Errorf("after Begin: %v", got)
		}
		for _, none := range []*Grid{nil, {}} {
			none.Next(began, time.Second)
			if got := none.Next(began.Add(time.Millisecond), time.Second); got != time.Second {
				t.Errorf("without a raster: %v", got)
			}
		}
	})
}
