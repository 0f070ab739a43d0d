//go:build linux

package storm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/wardmote/wardmote/cluster"
)

// step is a fault of a schedule.
type step struct {
	At, For time.Duration // For is the length of the fault; after a kill, of the time until the next process
	Fault   string        // a name in faults
	Who     int           // chooses members where the fault does not say which
}

func (s step) String() string {
	return fmt.Sprintf("%6.2fs %s/%d for %v", s.At.Seconds(), s.Fault, s.Who, s.For.Round(10*time.Millisecond))
}

// draw returns the kind of a town and its schedule: the same for the same seed. The
// members that lead or hold when a step begins are not drawn, so a replay of a seed
// repeats the schedule and not the execution.
func draw(seed uint64, length time.Duration) (kind, []step) {
	r := newRand(seed, 1)
	k := kind{
		Members: 5 + r.IntN(3), TTL: time.Duration(1000+r.IntN(9)*500) * time.Millisecond, Dir: r.IntN(2) == 0,
		Secrets: r.IntN(2) == 0, Work: "all", Pace: 180 * time.Millisecond, Shifted: r.IntN(2) == 0,
	}
	if k.Dir && r.IntN(2) == 0 {
		k.Sync = cluster.SyncBoot
	}
	k.Complete = !k.Dir && r.IntN(4) > 0
	var names []string
	for name, f := range faults {
		if f.fits(k) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var bag []string
	for _, name := range names {
		for range faults[name].weight {
			bag = append(bag, name)
		}
	}
	var steps []step
	var lastEnd time.Duration // of a process, in a town that bears one death at a time
	lost := false
	for at := between(r, 500*time.Millisecond, 2*time.Second); at < length; at += between(r, k.TTL/4, 3*time.Second) {
		name := bag[r.IntN(len(bag))]
		f := faults[name]
		s := step{At: at, Fault: name, Who: r.IntN(1000), For: between(r, f.least(k), f.most(k))}
		switch {
		case f.ends && !k.Dir && at < lastEnd+15*time.Second:
			continue // a voter in memory is replaced first
		case f.vote && lost:
			continue // two of three disks lost before the first is replaced are for an operator
		}
		if f.ends {
			lastEnd = at + s.For
		}
		lost = lost || f.vote
		steps = append(steps, s)
		if f.majority && !k.Dir {
			at += s.For + k.TTL + 12*time.Second // until a successor of the lost cluster grants
		}
	}
	return k, steps
}

// between returns a random time.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(max(most-least, 0))+1))
}

// printed is a schedule for people.
func printed(steps []step) string {
	var lines []string
	for _, s := range steps {
		lines = append(lines, s.String())
	}
	return strings.Join(lines, "\n")
}
