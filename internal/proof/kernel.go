package proof

import (
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// boot is one process: the boot of a name.
type boot struct {
	name string
	id   uint64
}

// Limits of the memory. Beyond a limit the entry with the earliest boot, or the
// longest unused entry, is forgotten: then nothing is proved where something could
// be, and the caller waits instead.
const (
	maxEnded  = 4096
	maxBoots  = 16 // of one name in ended: a process that says goodbye under ever-new boots makes room itself
	maxPlaces = 2048
	maxNames  = 4096
)

// kernel has the rules of this package, without clock, network or goroutines.
type kernel struct {
	ended  map[boot]bool
	places map[string]*place // by address
	newest map[string]uint64 // by name: the newest boot found by a handshake
	silent map[boot]time.Time
}

// place is the memory of an address.
type place struct {
	holder boot      // the process found here
	former boot      // the process found here before holder, which ended it
	found  time.Time // since when holder is known here
	used   time.Time
	shared bool // two processes answered in turn

	// Another process answers since this time; zero: none.
	other boot
	since time.Time
}

func newKernel() *kernel {
	return &kernel{
		ended:  make(map[boot]bool),
		places: make(map[string]*place),
		newest: make(map[string]uint64),
		silent: make(map[boot]time.Time),
	}
}

// found is the consequence of a handshake.
type found struct {
	ended  []boot // newly proved
	again  bool   // another dial in timing.ProofAgain may prove more
	shared []boot // newly seen to share the address
}

// answered takes the result of a handshake begun at begun: process who answers
// at addr, and claims the address advertised.
//
// Results come from several goroutines and may overtake each other: the last
// handshake of a process just before its end may be told after the first handshake
// of its successor. A handshake that began before the last change at the address
// says nothing of the present.
func (k *kernel) answered(now, begun time.Time, addr string, who boot, advertised string) (f found) {
	k.show(who)
	delete(k.silent, who)
	p := k.place(now, addr)
	switch {
	case p.shared:
	case begun.Before(p.found), p.other != boot{} && begun.Before(p.since): // overtaken
	case p.holder == boot{}:
		p.holder, p.found = who, now
	case p.holder == who:
		if p.other != (boot{}) {
			f.shared = []boot{p.holder, p.other}
			p.shared = true
		}
	case p.former == who:
		// The former holder answers again, so the address is shared and the
		// verdict may have been wrong.
		f.shared = []boot{p.holder, who}
		p.shared = true
	case k.ended[who]:
		// The last answers of a process, after its goodbye or told late. The address
		// need not be shared: processes that live for less than timing.ProofAgain
		// take the place of no holder.
	case p.holder.name == who.name && who.id > p.holder.id:
		f.ended = k.end(f.ended, p.holder)
		*p = place{holder: who, former: p.holder, found: now, used: now}
	case p.other != who:
		p.other, p.since = who, now
		f.again = true
	case now.Sub(p.since) < timing.ProofAgain:
		f.again = true
	case p.holder.name != who.name && who.id > p.holder.id && advertised == addr:
		f.ended = k.end(f.ended, p.holder)
		*p = place{holder: who, former: p.holder, found: now, used: now}
	}
	return f
}

// show notes that a process of this name and boot exists.
func (k *kernel) show(b boot) (f found) {
	if k.newest[b.name] < b.id {
		if len(k.newest) >= maxNames && k.newest[b.name] == 0 {
			clear(k.newest) // handshakes fill the map again
		}
		k.newest[b.name] = b.id
	}
	return f
}

// unanswered takes a dial to a process without any answer at its address. Refused
// means a connection refused by the host: nothing listens there.
func (k *kernel) unanswered(now time.Time, older boot, addr string, refused bool) (f found) {
	if p := k.places[addr]; p != nil && p.shared || k.newest[older.name] <= older.id {
		return f
	}
	since, again := k.silent[older]
	switch {
	case refused || again && now.Sub(since) >= timing.ProofAgain:
		f.ended = k.end(f.ended, older)
	case !again:
		if len(k.silent) >= maxNames {
			clear(k.silent)
		}
		k.silent[older] = now
		f.again = true
	default:
		f.again = true
	}
	return f
}

// goodbye takes the farewell of a process.
func (k *kernel) goodbye(b boot) (f found) {
	f.ended = k.end(f.ended, b)
	return f
}

// end notes the end of b and appends b to list, unless the end is known.
func (k *kernel) end(list []boot, b boot) []boot {
	delete(k.silent, b)
	if k.ended[b] {
		return list
	}
	var first, firstOfName boot
	boots := 0
	for e := range k.ended {
		if first.id == 0 || e.id < first.id {
			first = e
		}
		if e.name == b.name {
			boots++
			if firstOfName.id == 0 || e.id < firstOfName.id {
				firstOfName = e
			}
		}
	}
	switch {
	case boots >= maxBoots:
		delete(k.ended, firstOfName)
	case len(k.ended) >= maxEnded:
		delete(k.ended, first)
	}
	k.ended[b] = true
	return append(list, b)
}

// lives takes back the end of a process that said goodbye and answers. It returns false if
// the process was not known to have ended.
func (k *kernel) lives(b boot) bool {
	ended := k.ended[b]
	delete(k.ended, b)
	return ended
}

// place returns the memory of an address.
func (k *kernel) place(now time.Time, addr string) *place {
	if p := k.places[addr]; p != nil {
		p.used = now
		return p
	}
	if len(k.places) >= maxPlaces {
		var unused string
		for a, p := range k.places {
			if unused == "" || p.used.Before(k.places[unused].used) {
				unused = a
			}
		}
		delete(k.places, unused)
	}
	p := &place{used: now}
	k.places[addr] = p
	return p
}
