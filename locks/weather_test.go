package locks_test

import (
	"math/rand/v2"
	"time"
)

// This file holds the faults of TestRandomKillsNeverEndACluster.

// weather is drawn for each round.
type weather struct {
	ttl    time.Duration
	voters int  // 0: the default
	first  int  // InitialSize
	thin   int  // how many members never vote: the last ones
	early  bool // the first fault falls into the founding
	harsh  bool // three times as many faults, and many that hit most at one moment
}

// forecast draws the weather for a deployment.
func (d deployment) forecast(r *rand.Rand) weather {
	w := weather{
		ttl:    []time.Duration{time.Second, 2 * time.Second, 2 * time.Second, 10 * time.Second}[r.IntN(4)],
		voters: []int{0, 0, 3, 5}[r.IntN(4)],
		thin:   []int{0, 0, 0, 2}[r.IntN(4)],
		early:  r.IntN(4) == 0,
		harsh:  r.IntN(3) == 0,
	}
	able := d.members - w.thin
	switch {
	case d.complete:
		w.first = []int{3, 3, able}[r.IntN(3)]
	case d.dir:
		// Fewer than a majority could found twice: on both sides of an early partition.
		w.first = []int{d.members/2 + 1, able}[r.IntN(2)]
		w.thin = min(w.thin, d.members-w.first)
	default:
		// Fewer than all, restarted on one side of a partition, could found beside the
		// voters on the other side: nobody's word bounds where members live.
		w.first = able
	}
	return w
}

func (w *town) isThin(h *house) bool {
	for _, last := range w.houses[len(w.houses)-w.thin:] {
		if h == last {
			return true
		}
	}
	return false
}

// faults plays random faults for survivalFaults().
func (w *town) faults() {
	over := time.Now().Add(survivalFaults())
	next := time.Now().Add(w.between(0, 30*time.Second)) // of the next end: the founding may be under way
	if w.early {
		next = time.Now().Add(w.between(0, 4*time.Second))
	}
	split := time.Now().Add(w.between(0, 30*time.Second))
	var heal time.Time // zero: the network is whole
	for now := time.Now(); now.Before(over); now = time.Now() {
		switch {
		case !heal.IsZero() && !now.Before(heal):
			if w.heal() {
				heal, split = time.Time{}, now.Add(w.pause(30*time.Second))
			} else {
				heal = now.Add(w.between(time.Second, 20*time.Second))
			}
		case heal.IsZero() && !now.Before(split):
			w.split()
			heal = now.Add(w.between(time.Second, 40*time.Second))
		case !now.Before(next):
			w.strike()
			next = now.Add(w.pause(30 * time.Second))
		}
		for _, h := range w.houses {
			switch {
			case h.process == nil && !now.Before(h.up) && h.ready():
				w.open(h)
			case !h.thaw.IsZero() && !now.Before(h.thaw):
				w.tell("%s goes on", h.host)
				w.net.Thaw(h.host)
				h.thaw = time.Time{}
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// ready reports whether nothing is left of the former process.
func (h *house) ready() bool {
	if h.stopped == nil {
		return true
	}
	select {
	case <-h.stopped:
		return true
	default:
		return false
	}
}

func (w *town) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.r.Int64N(int64(most-least)))
}

// pause draws the time from a fault to the next.
func (w *town) pause(most time.Duration) time.Duration {
	if w.harsh {
		most /= 3
	}
	return w.between(time.Second, most)
}

// strike ends or freezes processes that run.
func (w *town) strike() {
	running := w.running()
	if len(running) == 0 {
		return
	}
	h := running[0]
	kinds := 8
	if w.harsh {
		kinds = 4
	}
	switch w.r.IntN(kinds) {
	case 0:
		w.massacre()
	case 1:
		w.stop(h)
	case 2:
		h.thaw = time.Now().Add(w.between(time.Second, 20*time.Second))
		w.tell("%s frozen", h.process.by)
		w.net.Freeze(h.host)
	default:
		w.kill(h)
	}
}

// massacre kills at one moment at least a majority of the processes that run.
func (w *town) massacre() {
	running := w.running()
	few := len(running) / 2
	for _, h := range running[:min(len(running), few+1+w.r.IntN(few+1))] {
		w.kill(h)
	}
}

// running returns the houses with a process, in random order.
func (w *town) running() []*house {
	var running []*house
	for _, h := range w.houses {
		if h.process != nil {
			running = append(running, h)
		}
	}
	w.r.Shuffle(len(running), func(i, j int) { running[i], running[j] = running[j], running[i] })
	return running
}

// split cuts the network into two random groups, in three of four cases both ways.
func (w *town) split() {
	order := w.r.Perm(len(w.houses))
	at := 1 + w.r.IntN(len(w.houses)-1)
	w.cut = [2][]string{}
	for i, h := range order {
		side := 0
		if i >= at {
			side = 1
		}
		w.cut[side] = append(w.cut[side], w.houses[h].host)
	}
	if w.r.IntN(4) == 0 {
		w.oneWay()
		return
	}
	w.net.Partition(w.cut[0], w.cut[1])
	w.both = true
	w.tell("partition %v", w.cut)
}

// oneWay cuts the links from the first group to the second.
func (w *town) oneWay() {
	for _, from := range w.cut[0] {
		for _, to := range w.cut[1] {
			w.net.Cut(from, to)
		}
	}
	w.both = false
	w.tell("one-way cut %v", w.cut)
}

// heal heals the network, and reports whether all of it: one partition of three heals
// one way first.
func (w *town) heal() bool {
	w.net.Heal()
	for _, h := range w.houses {
		if !h.thaw.IsZero() && h.process != nil {
			w.net.Freeze(h.host)
		}
	}
	if w.both && w.r.IntN(3) == 0 {
		w.oneWay()
		return false
	}
	w.tell("heal")
	return true
}
