package host

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// within checks a time up to the rounding of rates.
func within(t *testing.T, claim string, got, want time.Duration) {
	t.Helper()
	if d := got - want; d < 0 || d > time.Microsecond {
		t.Errorf("%s: %v, want %v", claim, got, want)
	}
}

func TestAClockRunsAtItsRateAndOnlyTheWallIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock(time.Hour)
		begun, wall := c.Now(), c.Wall()
		if !wall.Equal(time.Now()) {
			t.Errorf("the wall clock shows %v", wall)
		}
		c.Set(2, time.Minute)
		within(t, "a set wall clock", c.Wall().Sub(wall), time.Minute)
		within(t, "the monotonic clock", c.Now().Sub(begun), 0)
		time.Sleep(10 * time.Second)
		within(t, "at rate 2", c.Now().Sub(begun), 20*time.Second)
		within(t, "the wall clock at rate 2", c.Wall().Sub(wall), time.Minute+20*time.Second)
		c.Set(0.5, 0)
		within(t, "before time passes", c.Now().Sub(begun), 20*time.Second)
		time.Sleep(10 * time.Second)
		within(t, "at rate 0.5", c.Now().Sub(begun), 25*time.Second)
	})
}

func TestTimersFollowTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock(0)
		began := time.Now()
		timer := c.NewTimer(10 * time.Second)
		<-timer.C
		within(t, "at rate 1", time.Since(began), 10*time.Second)
		timer.Reset(10 * time.Second)
		time.Sleep(5 * time.Second)
		c.Set(2, 0)
		<-timer.C
		within(t, "at rate 2 for the rest", time.Since(began), 17500*time.Millisecond)
		timer.Reset(10 * time.Second)
		c.Set(0.5, 0)
		<-timer.C
		within(t, "at rate 0.5", time.Since(began), 37500*time.Millisecond)
		c.Set(1, 0)

		timer.Reset(time.Second)
		time.Sleep(2 * time.Second)
		timer.Reset(time.Hour)
		select {
		case <-timer.C:
			t.Error("a time from before Reset")
		default:
		}
		timer.Reset(0)
		synctest.Wait()
		timer.Stop()
		select {
		case <-timer.C:
			t.Error("a time from before Stop")
		case <-time.After(2 * time.Hour):
		}
	})
}

func TestAFrozenClockStandsAndThenJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock(time.Hour)
		begun := c.Now()
		early, late := c.NewTimer(time.Second), c.NewTimer(time.Minute)
		defer early.Stop()
		defer late.Stop()
		passed := make(chan time.Duration, 1)
		c.Freeze()
		born := c.NewTimer(2 * time.Second) // in the freeze
		defer born.Stop()
		c.Freeze()
		go func() {
			c.Await()
			passed <- c.Now().Sub(begun)
		}()
		time.Sleep(10 * time.Second)
		within(t, "frozen", c.Now().Sub(begun), 0)
		select {
		case <-early.C:
			t.Error("a timer fired")
		case <-passed:
			t.Error("a call went on")
		default:
		}
		c.Thaw()
		c.Thaw()
		<-early.C
		<-born.C
		within(t, "thawed", <-passed, 10*time.Second)
		<-late.C
		within(t, "a later timer", c.Now().Sub(begun), time.Minute)
		c.Await()
	})
}

func TestADiskHangsAndFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Disk
		if err := d.Write(); err != nil {
			t.Error(err)
		}
		results := make(chan error, 1)
		sick := errors.New("sick")
		for _, end := range []struct {
			heal func()
			want error
		}{{d.Heal, nil}, {func() { d.Fail(sick) }, sick}} {
			d.Hang()
			go func() { results <- d.Write() }()
			synctest.Wait()
			select {
			case err := <-results:
				t.Errorf("the write did not hang: %v", err)
			default:
			}
			end.heal()
			if err := <-results; err != end.want {
				t.Errorf("%v, want %v", err, end.want)
			}
		}
		if err := d.Write(); err != sick {
			t.Error(err)
		}
		d.Heal()
		if err := d.Write(); err != nil {
			t.Error(err)
		}
	})
}

// Without a replacement everything is the host's own.
func TestNilIsTheHost(t *testing.T) {
	h := Of(nil)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		timer := h.Clock.NewTimer(time.Second)
		<-timer.C
		timer.Reset(time.Second)
		<-timer.C
		timer.Stop()
		within(t, "two seconds", h.Clock.Now().Sub(began), 2*time.Second)
		if !h.Clock.Wall().Equal(time.Now()) || h.Clock.Frozen() || h.Disk.Write() != nil {
			t.Error("not the host's")
		}
		h.Clock.Await()
		h.Clock.Enter()()
	})
}

func TestADiskTellsOfTheEntriesApplied(t *testing.T) {
	var none *Disk
	none.Apply(1, nil, time.Time{})
	(&Disk{}).Apply(1, nil, time.Time{})
	var told []uint64
	d := &Disk{Applied: func(index uint64, _ []byte, _ time.Time) { told = append(told, index) }}
	d.Apply(3, nil, time.Time{})
	d.Apply(5, nil, time.Time{})
	if none.Entries(7) != 7 || d.Entries(7) != 7 || (&Disk{Log: 3}).Entries(7) != 3 {
		t.Error("a disk changes the log without being told")
	}
	if len(told) != 2 || told[0] != 3 || told[1] != 5 {
		t.Errorf("told of %v", told)
	}
}
