package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/internal/simnet"
)

// This file has the faults. Each is counted, and marked in the history.

func (w *town) fault(s *site, format string, args ...any) {
	who := ""
	if s != nil {
		if p := w.running(s); p != nil {
			who = p.name
		} else {
			who = fmt.Sprint("member-", s.i)
		}
	}
	w.rec.Mark(history.Fault, who, fmt.Sprintf(format, args...))
	w.mu.Lock()
	w.faults++
	w.mu.Unlock()
}

// wholeLink is the link of a network without faults.
var wholeLink = simnet.Link{Delay: time.Millisecond, Jitter: time.Millisecond}

func (w *town) setNet(s *site, n netState) {
	w.mu.Lock()
	s.net = n
	w.mu.Unlock()
}

// crash kills the process of a site.
func (w *town) crash(s *site) {
	w.fault(s, "killed")
	w.kill(s)
}

// freeze has a process stand still.
func (w *town) freeze(s *site) {
	p := w.running(s)
	if p == nil || w.isFrozen(s) {
		return
	}
	w.fault(s, "frozen")
	w.rec.Mark(history.Freeze, p.name, "")
	w.net.Freeze(s.ip)
	s.clock.Freeze()
	w.mu.Lock()
	s.frozen = true
	w.mu.Unlock()
}

// thaw has it go on.
func (w *town) thaw(s *site) {
	if !w.isFrozen(s) {
		return
	}
	w.mu.Lock()
	s.frozen = false
	paused, p := s.net == netPaused, s.now
	w.mu.Unlock()
	s.clock.Thaw() // first: a message must not be judged by the time of the freeze
	if !paused {
		w.net.Thaw(s.ip)
	}
	if p != nil {
		w.rec.Mark(history.Thaw, p.name, "")
	}
}

func (w *town) isFrozen(s *site) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.frozen
}

// pause stops a site's network, losing nothing.
func (w *town) pause(s *site) {
	w.fault(s, "network paused")
	w.setNet(s, netPaused)
	w.net.Freeze(s.ip)
}

// isolate cuts a site off from all others.
func (w *town) isolate(s *site) {
	w.fault(s, "cut off")
	w.setNet(s, netCut)
	w.net.Isolate(s.ip)
}

// deafen cuts the ways to a site, and mute the ways from it.
func (w *town) deafen(s *site) {
	w.fault(s, "hears nobody")
	w.setNet(s, netIn)
	for _, o := range w.others(s) {
		w.net.Cut(o.ip, s.ip)
	}
}

func (w *town) mute(s *site) {
	w.fault(s, "is heard by nobody")
	w.setNet(s, netOut)
	for _, o := range w.others(s) {
		w.net.Cut(s.ip, o.ip)
	}
}

// slow gives a site a network that loses and delays.
func (w *town) slow(s *site, loss float64, delay time.Duration) {
	w.fault(s, "loses %.0f %%, %v slow", 100*loss, delay)
	w.setNet(s, netSlow)
	for _, o := range w.others(s) {
		l := simnet.Link{Loss: loss, Delay: delay / 2, Jitter: delay}
		w.net.SetLink(s.ip, o.ip, l)
		w.net.SetLink(o.ip, s.ip, l)
	}
}

// part cuts the network between two groups of sites.
func (w *town) part(a, b []*site) {
	w.fault(nil, "partition %v | %v", numbers(a), numbers(b))
	minority := a
	if len(b) < len(a) {
		minority = b
	}
	for _, s := range minority {
		w.setNet(s, netCut)
	}
	w.net.Partition(ips(a), ips(b))
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

// hang makes the writes of a process hang, break makes them fail.
func (w *town) hang(s *site) {
	if p := w.running(s); p != nil {
		w.fault(s, "its store hangs")
		p.disk.Hang()
	}
}

var errDisk = errors.New("sim: the disk fails")

func (w *town) fail(s *site) {
	if p := w.running(s); p != nil {
		w.fault(s, "its store fails")
		w.mu.Lock()
		p.failed = true
		w.mu.Unlock()
		p.disk.Fail(errDisk)
	}
}

// mendNet heals the network of all sites, and keeps freezes. Every link becomes fast again: a
// site that was slow may have met another fault since.
func (w *town) mendNet() {
	w.rec.Mark("mended", "", "")
	w.net.Heal()
	for _, s := range w.sites {
		w.mu.Lock()
		s.net = netWhole
		frozen := s.frozen
		w.mu.Unlock()
		if frozen {
			w.net.Freeze(s.ip)
		}
		for _, o := range w.others(s) {
			w.net.SetLink(s.ip, o.ip, wholeLink)
		}
	}
}

// heal ends the faults of network, freezes and disks. Ended processes stay ended.
func (w *town) heal() {
	for _, s := range w.sites {
		w.thaw(s)
		if p := w.running(s); p != nil {
			p.disk.Heal()
		}
	}
	w.mendNet()
}

// revive starts the processes that do not run. A process whose store has failed votes no
// more, so it is replaced too.
func (w *town) revive() {
	for _, s := range w.sites {
		if p := w.running(s); p != nil && p.failed && (w.shape.dir != noDir || w.remembered(s)) {
			w.kill(s)
		}
		if w.running(s) == nil {
			if p := w.start(s); p != nil {
				w.occupy(p)
			}
		}
	}
}
