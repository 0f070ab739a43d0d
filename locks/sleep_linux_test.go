package locks

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
}

// TestASleepIsSeen: the kernel is asked again unless the last answer has just come.
func TestASleepIsSeen(t *testing.T) {
	for _, test := range []struct {
		claim     string
		at, awake time.Duration
		asked     bool
	}{
		{"at once", 0, 0, false},
		{"before the answer", 0, time.Second, false},
		{"no room for a sleep", sleepRoom - 1, 0, false},
		{"room for a sleep", sleepRoom, 0, true},
		{"no room since the last answer", time.Second + sleepRoom - 1, time.Second, false},
		{"room since the last answer", time.Second + sleepRoom, time.Second, true},
	} {
		var c sleepCounter
		at := time.Now()
		r := &sleepReading{at: at, boot: clock(unix.CLOCK_BOOTTIME) - time.Hour, slept: 2 * time.Hour} // a sleep of an hour since
		r.awake.Store(int64(test.awake))
		c.last.Store(r)
		if asked := c.read(at.Add(test.at)) != r.slept; asked != test.asked {
			t.Errorf("%s: asked %t", test.claim, asked)
		}
	}
	// A first answer is followed by a question at once.
	var first sleepCounter
	first.read(time.Now())
	r := first.last.Load()
	if passed := time.Duration(-r.awake.Load()); passed < sleepRoom {
		t.Errorf("no question for %v", sleepRoom-passed)
	}
	// An answer that shows no sleep counts until the moment of the question.
	var c sleepCounter
	r = &sleepReading{at: time.Now(), boot: clock(unix.CLOCK_BOOTTIME)}
	c.last.Store(r)
	if c.read(r.at.Add(time.Hour)); time.Duration(r.awake.Load()) != time.Hour {
		t.Errorf("awake until %v", time.Duration(r.awake.Load()))
	}
}
