package termtest

import (
	"slices"
	"sync"
	"time"
)

// LogFaults are random faults of the log, and of the voters' answers to rounds: durations,
// then probabilities.
type LogFaults struct {
	Late      time.Duration // until an entry is committed, or gone: up to this much
	LateRound time.Duration // until a voter's answer arrives: up to this much
	Unheard   float64       // an entry is committed, and the leader does not know
	Dropped   float64       // an entry is in no log, and the leader does not know
	Refused   float64       // an entry is in no log, and the leader knows
	Inherited float64       // an entry under way at an election is committed by the next leader
	LoseRound float64       // a voter's answer is lost
}

// logFaults are the faults at work, and the entries under way.
type logFaults struct {
	mu       sync.Mutex
	faults   LogFaults
	underWay []underWay // in log order
	told     func(string)
}

// underWay is an entry without a verdict.
type underWay struct {
	leader *leadership
	entry  []byte
}

// SetLogFaults replaces the faults of the log. told, if not nil, is called with the name
// of each fault that happens: "entry late", "entry unheard", "entry dropped", "entry
// refused", "entry inherited", "answer late", "answer lost".
func (c *Cluster) SetLogFaults(f LogFaults, told func(fault string)) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.log.faults, c.log.told = f, told
}

func (f *logFaults) get() LogFaults {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faults
}

func (f *logFaults) tell(fault string) {
	f.mu.Lock()
	told := f.told
	f.mu.Unlock()
	if told != nil {
		told(fault)
	}
}

// draw draws the fate of an entry, and blocks for as long as the entry is late.
func (c *Cluster) draw(l *leadership, entry []byte) Fate {
	f := c.log.get()
	if !l.seated.Load() {
		return Committed // a leader's first entry; without it there is no leader
	}
	for _, x := range []struct {
		chance float64
		fate   Fate
		name   string
	}{{f.Dropped, Dropped, "entry dropped"}, {f.Refused, Refused, "entry refused"}, {f.Unheard, Unheard, "entry unheard"}} {
		if c.chance(x.chance) {
			c.log.tell(x.name)
			if x.fate == Unheard {
				c.enter(l, entry)
			}
			return x.fate
		}
	}
	c.enter(l, entry)
	if d := c.upTo(f.Late); d > 0 {
		c.log.tell("entry late")
		<-time.After(d)
	}
	return Committed
}

// enter notes an entry of the leader. No entry of an earlier leader is committed any more.
func (c *Cluster) enter(l *leadership, entry []byte) {
	c.mu.Lock()
	leads := c.elected == l.number
	c.mu.Unlock()
	if !leads {
		return
	}
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.log.underWay = append(c.log.underWay, underWay{l, entry})
}

// leave notes that the oldest entry of l has its verdict.
func (c *Cluster) leave(l *leadership) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	if i := slices.IndexFunc(c.log.underWay, func(u underWay) bool { return u.leader == l }); i >= 0 {
		c.log.underWay = slices.Delete(c.log.underWay, i, i+1)
	}
}

// inheritLocked commits a part of the entries under way of a leader that is none any more:
// the next leader has the log up to some entry. The caller holds c.applying.
func (c *Cluster) inheritLocked(old *leadership) {
	c.log.mu.Lock()
	under, f := c.log.underWay, c.log.faults
	c.log.underWay = nil
	c.log.mu.Unlock()
	for _, u := range under {
		if u.leader != old || !c.chance(f.Inherited) {
			return
		}
		c.log.tell("entry inherited")
		c.applyLocked(old.place, u.entry)
	}
}

// late passes a voter's answer on.
func (c *Cluster) late(yes bool, answer func(bool)) {
	f := c.log.get()
	if c.chance(f.LoseRound) {
		c.log.tell("answer lost")
		return
	}
	if d := c.upTo(f.LateRound); d > 0 {
		c.log.tell("answer late")
		time.AfterFunc(d, func() { answer(yes) })
		return
	}
	answer(yes)
}
