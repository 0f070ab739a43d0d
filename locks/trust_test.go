package locks

import (
	"testing"
	"time"
)

func TestTrustWindow(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, test := range []struct {
		claim  string
		ttl    time.Duration
		passed time.Duration // on the monotonic clock since the beat was sent
		slept  time.Duration // by the host since then
		left   time.Duration
	}{
		{"a window is a TTL less 1 % and 100 ms", 10 * s, 0, 0, 9800 * ms},
		{"the margin is a quarter of a small TTL at most", 300 * ms, 0, 0, 225 * ms},
		{"where the two margins meet", 400 * ms, 0, 0, 300 * ms},
		{"above, 1 % and 100 ms", 500 * ms, 0, 0, 395 * ms},
		{"time runs", 10 * s, 4 * s, 0, 5800 * ms},
		{"sleep counts", 10 * s, 4 * s, 3 * s, 2800 * ms},
		{"sleep alone ends it", 10 * s, 0, 9800 * ms, 0},
		{"time alone ends it", 10 * s, 9800 * ms, 0, 0},
		{"and it goes on being over", 10 * s, 12 * s, 0, -2200 * ms},
		{"the counter's noise is no sleep", 10 * s, 4 * s, ms - 1, 5800 * ms},
		{"what is more than noise is", 10 * s, 4 * s, ms, 5799 * ms},
		{"a sleep counter that fell gives nothing back", 10 * s, 4 * s, -3 * s, 5800 * ms},
	} {
		sent := instant{at: time.Now(), slept: time.Hour}
		now := instant{at: sent.at.Add(test.passed), slept: sent.slept + test.slept}
		if left := (trust{sent: sent, ttl: test.ttl}).remaining(now); left != test.left {
			t.Errorf("%s: TTL %v, %v passed, %v slept: %v left, want %v",
				test.claim, test.ttl, test.passed, test.slept, left, test.left)
		}
	}
}

// The holder must stop before the leader has counted a TTL. The leader's clock may
// run faster by the documented rate.
func TestMarginCoversClockRates(t *testing.T) {
	for ttl := minTTL; ttl <= time.Hour; ttl += ttl / 3 {
		window := ttl - margin(ttl)
		if fast := window + window/100; fast > ttl {
			t.Errorf("TTL %v: window %v is %v on a clock that runs 1%% faster", ttl, window, fast)
		}
		if window < ttl*3/4 {
			t.Errorf("TTL %v: window %v is below three quarters", ttl, window)
		}
	}
}

func TestVerdictNamesTheReasonOfTheLoss(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, test := range []struct {
		claim               string
		passed, slept, late time.Duration
		want                Reason
	}{
		{"no beat confirmed", 9800 * ms, 0, 0, QuorumUnreachable},
		{"a timer a little late", 9900 * ms, 0, 100 * ms, QuorumUnreachable},
		{"the counter's noise at the very end", 9800 * ms, ms - 1, 0, QuorumUnreachable},
		{"asleep for most of it", 1 * s, 9 * s, 0, HostSlept},
		{"asleep for a moment that made the difference", 9 * s, 900 * ms, 0, HostSlept},
		{"over even without the sleep", 10 * s, 5 * s, 0, QuorumUnreachable},
		{"stopped for most of it", 12 * s, 0, 9 * s, ProcessPaused},
		{"stopped only when it was over", 20 * s, 0, 10 * s, QuorumUnreachable},
	} {
		sent := instant{at: time.Now()}
		now := instant{at: sent.at.Add(test.passed), slept: test.slept}
		if got := (trust{sent: sent, ttl: 10 * s}).lossReason(now, test.late); got != test.want {
			t.Errorf("%s: %v, want %v", test.claim, got, test.want)
		}
	}
}

func TestJumpCounterCountsStepsAheadOnly(t *testing.T) {
	const s, ms, us = time.Second, time.Millisecond, time.Microsecond
	var j jumpCounter
	for i, step := range []struct {
		wall, mono, want time.Duration
	}{
		{0, 0, 0},
		{5 * s, 5 * s, 0},
		{6*s + 200*us, 6 * s, 0},                 // noise
		{17 * s, 7 * s, 10 * s},                  // asleep for ten seconds
		{18 * s, 8 * s, 10 * s},                  //
		{9 * s, 9 * s, 10 * s},                   // set back: hides nothing
		{12 * s, 10 * s, 12 * s},                 // asleep again, or set ahead
		{13*s + 800*us, 11 * s, 12 * s},          // slewed: noise so far
		{14*s + 1600*us, 12 * s, 12*s + 1600*us}, // and longer now
		{14*s + 1600*us, 12 * s, 12*s + 1600*us}, // read again
		{14*s + 2*ms, 12 * s, 12*s + 1600*us},    // the rest adds up from here
	} {
		if got := j.update(step.wall, step.mono); got != step.want {
			t.Errorf("reading %d: wall %v, monotonic %v: %v slept, want %v", i, step.wall, step.mono, got, step.want)
		}
	}
}

func TestHostsSleepCounterStandsStillWhileAwake(t *testing.T) {
	slept := newSleepCounter()
	a := slept(time.Now())
	deadline := time.Now().Add(20 * time.Millisecond)
	for time.Now().Before(deadline) {
	}
	if d := slept(time.Now()) - a; d < -5*time.Millisecond || d > 5*time.Millisecond {
		t.Errorf("slept %v while awake", d)
	}
}
