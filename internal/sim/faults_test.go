package sim

import (
	"errors"
	"fmt"
	"strings"
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
	w.changeNet(func() {
		w.net.Freeze(s.ip)
		s.clock.Freeze()
		s.frozen = true
	})
}

// thaw has it go on. Two times of three each holder asks at once whether its locks are held,
// before the process does anything else; else it learns from the ends of contexts.
func (w *town) thaw(s *site) {
	if !w.isFrozen(s) {
		return
	}
	p := w.running(s)
	if p != nil {
		w.rec.Mark(history.Thaw, p.name, "")
	}
	s.clock.Thaw() // first: a message must not be judged by the time of the freeze
	w.mu.Lock()
	s.frozen = false
	w.thaws++
	asks := w.thaws%3 > 0
	w.mu.Unlock()
	if p != nil && asks {
		n := w.grips.askAll(p)
		w.mu.Lock()
		w.questions += n
		w.mu.Unlock()
	}
	w.changeNet(func() {
		if !s.paused {
			w.net.Thaw(s.ip)
		}
	})
}

func (w *town) isFrozen(s *site) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.frozen
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

// diedOfItsDisk reports whether the node has ended because its store failed while its cluster was
// founded, before raft ran. Later a store that fails costs the vote alone.
func (p *process) diedOfItsDisk() bool {
	err := p.node.Err()
	return err != nil && strings.Contains(err.Error(), "bootstrap") && strings.Contains(err.Error(), errDisk.Error())
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
