package stories

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// Three clients wait in line, and two hundred urgent ones arrive.
//
//	0.0 s  the lock is held
//	0.3 s  three wait in line
//	0.5 s  a hundred urgent clients arrive
//	1.0 s  the lock is released; each turn takes 10 ms
//	1.1 s  another hundred urgent clients arrive
//
// An urgent client may pass others, but nobody is passed more than 16 times.
//
// Contrast: a queue by urgency alone, in which the third waits for all two hundred.
func TestThirdInLineIsServedAmongTwoHundredUrgent(t *testing.T) {
	const urgent, bound = 100, 16
	const turn = 10 * time.Millisecond
	const passed = "16 urgent ones at most pass the third in line"
	story := func(s *stage) {
		holder := s.acquire(s.named(0, "holder"), "k")
		c := s.named(1, "rivals")
		var wg sync.WaitGroup
		var order []string // of service; written under the lock
		join := func(name string, opts ...locks.Option) {
			wg.Go(func() {
				s.ok("all are served", do(s.ctx, c, "k", func() {
					order = append(order, name)
					time.Sleep(turn)
				}, opts...))
			})
		}
		hundred := func() {
			for range urgent {
				join("urgent", locks.Priority(1))
			}
		}
		for i := range 3 {
			s.at(time.Duration(i+1) * 100 * time.Millisecond)
			join(strconv.Itoa(i + 1))
		}
		s.at(500 * time.Millisecond)
		hundred()
		s.at(time.Second)
		if c, ok := c.(member); ok {
			status, err := c.Inspect(s.ctx, "k")
			s.check("all wait", err == nil && status.Queue == 3+urgent, "%d wait: %v", status.Queue, err)
			for _, w := range status.Waiters {
				s.check(passed, w.Passed <= bound, "one was passed %d times", w.Passed)
			}
		}
		s.ok("the holder releases", holder.Release(s.ctx))
		s.at(1100 * time.Millisecond)
		hundred()
		wg.Wait()

		first, second, third := slices.Index(order, "1"), slices.Index(order, "2"), slices.Index(order, "3")
		s.check("three are served in order", len(order) == 3+2*urgent && first < second && second < third, "%d served, in this order: %v", len(order), order)
		before := third - 2 // less the first and the second
		s.check("urgent ones pass", before >= 1, "%d passed", before)
		s.check(passed, before <= bound, "%d passed", before)
	}
	play(t, 3, 5*time.Second, story)
	contrast(t, "a queue by urgency alone", passed, func() service { return new(priorities) }, story)
}
