package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/simnet"
)

// This file has the faults of the network. The town remembers each fault until that fault is
// mended, so that the coverage counts the links as they are.

// troubles are the faults of a site's network that are in force.
type troubles struct {
	deaf   bool // messages to the site are lost
	mute   bool // messages of the site are lost
	paused bool
	slow   bool
	link   simnet.Link // if slow: of all links of the site
}

// A pair is two sites between which a partition has cut the links, the smaller number first.
type pair [2]int

func pairOf(a, b *site) pair { return pair{min(a.i, b.i), max(a.i, b.i)} }

// netState is the state of the network between a site and others, or of the site's process.
type netState uint8

const (
	netWhole netState = iota
	netSlow
	netIn  // messages to the site are lost
	netOut // messages of the site are lost
	netCut
	netPaused
	netFrozen
	netDead
)

// cut reports whether messages from a site to another are lost. The caller holds mu.
func (w *town) cut(from, to *site) bool { return from.mute || to.deaf || w.parted[pairOf(from, to)] }

// between returns the state of the network between a site and most of the others named. The
// caller holds mu.
func (w *town) between(s *site, others ...*site) netState {
	var in, out, slow int
	for _, o := range others {
		if w.cut(o, s) {
			in++
		}
		if w.cut(s, o) {
			out++
		}
		if o.slow {
			slow++
		}
	}
	most := func(n int) bool { return 2*n > len(others) }
	switch {
	case s.paused:
		return netPaused
	case most(in) && most(out):
		return netCut
	case most(in):
		return netIn
	case most(out):
		return netOut
	case most(slow), s.slow && len(others) > 0:
		return netSlow
	}
	return netWhole
}

// netOf returns the state of a site's process, and of the network between that site and most
// of the others.
func (w *town) netOf(s *site) netState {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.now == nil:
		return netDead
	case s.frozen:
		return netFrozen
	}
	return w.between(s, w.others(s)...)
}

// changeNet makes a change of the network and of what the town remembers of it in one step.
func (w *town) changeNet(f func()) {
	w.mu.Lock()
	f()
	w.mu.Unlock()
	w.cover.soon()
}

// pause stops a site's network, losing nothing.
func (w *town) pause(s *site) {
	w.fault(s, "network paused")
	w.changeNet(func() {
		s.paused = true
		w.net.Freeze(s.ip)
	})
}

// isolate cuts a site off from all others.
func (w *town) isolate(s *site) {
	w.fault(s, "cut off")
	w.changeNet(func() {
		s.deaf, s.mute = true, true
		w.net.Isolate(s.ip)
	})
}

// deafen cuts the ways to a site, and mute the ways from it.
func (w *town) deafen(s *site) {
	w.fault(s, "hears nobody")
	w.changeNet(func() {
		s.deaf = true
		w.cutLinks()
	})
}

func (w *town) mute(s *site) {
	w.fault(s, "is heard by nobody")
	w.changeNet(func() {
		s.mute = true
		w.cutLinks()
	})
}

// slow gives a site a network that loses and delays.
func (w *town) slow(s *site, loss float64, delay time.Duration) {
	w.fault(s, "loses %.0f %%, %v slow", 100*loss, delay)
	w.changeNet(func() {
		s.slow, s.link = true, simnet.Link{Loss: loss, Delay: delay / 2, Jitter: delay}
		w.setLinks(s)
	})
}

// part cuts the network between two groups of sites.
func (w *town) part(a, b []*site) {
	w.fault(nil, "partition %v | %v", numbers(a), numbers(b))
	w.changeNet(func() {
		for _, x := range a {
			for _, y := range b {
				w.parted[pairOf(x, y)] = true
			}
		}
		w.net.Partition(ips(a), ips(b))
	})
}

// cutLinks cuts the links that are to be cut. The caller holds mu.
func (w *town) cutLinks() {
	for _, a := range w.sites {
		for _, b := range w.others(a) {
			if w.cut(a, b) {
				w.net.Cut(a.ip, b.ip)
			}
		}
	}
}

// setLinks makes the links of a site as slow as its fault and those of the others say. The
// caller holds mu.
func (w *town) setLinks(s *site) {
	for _, o := range w.others(s) {
		l := wholeLink
		switch {
		case s.slow:
			l = s.link
		case o.slow:
			l = o.link
		}
		w.net.SetLink(s.ip, o.ip, l)
		w.net.SetLink(o.ip, s.ip, l)
	}
}

// mendNet heals the network of all sites, and keeps freezes.
func (w *town) mendNet() { w.mend(w.sites...) }

// mendNetOf heals the network of one site, and keeps the faults of the others: their links to
// the site stay cut.
func (w *town) mendNetOf(s *site) { w.mend(s) }

func (w *town) mend(sites ...*site) {
	w.rec.Mark("mended", "", fmt.Sprint(numbers(sites)))
	w.changeNet(func() {
		var slow []*site
		for _, s := range sites {
			if s.slow {
				slow = append(slow, s)
			}
			s.troubles = troubles{}
			maps.DeleteFunc(w.parted, func(p pair, _ bool) bool { return p[0] == s.i || p[1] == s.i })
		}
		w.net.Heal()
		w.cutLinks()
		for _, s := range slow {
			w.setLinks(s)
		}
		for _, s := range w.sites {
			if s.frozen || s.paused {
				w.net.Freeze(s.ip)
			}
		}
	})
}

func ips(sites []*site) (list []string) {
	for _, s := range sites {
		list = append(list, s.ip)
	}
	return list
}

func numbers(sites []*site) (list []int) {
	for _, s := range sites {
		list = append(list, s.i)
	}
	return list
}

func (w *town) others(s *site) []*site {
	return slices.DeleteFunc(slices.Clone(w.sites), func(o *site) bool { return o == s })
}
