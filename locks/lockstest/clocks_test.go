package lockstest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/locks/lockstest"
)

// Every member's report tells whose wall clock is off, and by how much.
func TestReportsTellWhoseClockIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 4)
		lead := c.Leader()
		off, other := (lead+1)%4, (lead+2)%4
		check := func(what string, ahead map[int]time.Duration) {
			t.Helper()
			for i := range 4 {
				for _, m := range c.Node(i).Report().Members {
					for j := range 4 {
						if m.Self || !m.Alive || m.Name != c.Node(j).Name() {
							continue
						}
						want := ahead[j] - ahead[i]
						if m.Clock == nil {
							t.Errorf("%s: member %d knows no clock of %d", what, i, j)
						} else if d := time.Duration(*m.Clock) - want; max(d, -d) > time.Duration(m.ClockError)+300*time.Millisecond {
							t.Errorf("%s: member %d says that the clock of %d is ahead by %v, want %v", what, i, j, *m.Clock, want)
						}
					}
				}
			}
		}
		time.Sleep(30 * time.Second)
		check("all agree", nil)
		c.SetClock(off, lockstest.Clock{Offset: time.Hour})
		time.Sleep(30 * time.Second)
		check("one is ahead", map[int]time.Duration{off: time.Hour})
		c.SetClock(lead, lockstest.Clock{Offset: time.Minute})
		time.Sleep(30 * time.Second)
		check("the leader is ahead", map[int]time.Duration{off: time.Hour, lead: time.Minute})
		c.Kill(lead)
		time.Sleep(30 * time.Second)
		c.Restart(lead)
		time.Sleep(30 * time.Second)
		check("another leads", map[int]time.Duration{off: time.Hour, lead: time.Minute})
		c.SetClock(off, lockstest.Clock{})
		c.SetClock(lead, lockstest.Clock{})
		c.SetClock(other, lockstest.Clock{Offset: time.Second})
		time.Sleep(30 * time.Second)
		check("set right", map[int]time.Duration{other: time.Second})
	})
}
