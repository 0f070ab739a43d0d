package locks

import (
	"testing"
	"time"
)

// A sleep of the host is seen at the next look, and a pause of the thread is looked at again.
func TestSleepReadingIsStillTrue(t *testing.T) {
	const s, us = time.Second, time.Microsecond
	at := time.Now()
	r := &sleepReading{at: at, boot: time.Hour, slept: 5 * s}
	for _, test := range []struct {
		claim        string
		passed, boot time.Duration
		want         bool
	}{
		{"awake", 10 * s, 10 * s, true},
		{"a little later", 10 * s, 10*s + 20*us, true},
		{"asleep", 10 * s, 12 * s, false},
		{"asleep for a millisecond", 10 * s, 10*s + time.Millisecond, false},
		{"a pause between the clocks", 10 * s, 10*s + 700*us, false},
	} {
		if got := r.stillTrue(at.Add(test.passed), time.Hour+test.boot); got != test.want {
			t.Errorf("%s: %v", test.claim, got)
		}
	}
	var c sleepCounter
	c.read(time.Now())
	c.last.Load().slept, c.last.Load().boot = time.Hour, c.last.Load().boot-s // a sleep since
	if c.read(time.Now()) == time.Hour {
		t.Error("a sleep was not seen")
	}
}
