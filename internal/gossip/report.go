package gossip

import (
	"maps"
	"slices"
	"time"
)

// Report says where this member looks for others, for people to read.
type Report struct {
	Names []Name // the entries of Join that are names, in their order
	Tries []Try  // by address; at most maxReported
}

// Name is the latest look-up of a name.
type Name struct {
	Entry string
	Found []string
	Err   error
	At    time.Time // zero: not yet
}

// Try is the latest try to join at an address.
type Try struct {
	Addr   string
	Answer string // the trouble, "" if there was none
	At     time.Time
	Tries  uint64
}

// tries counts the tries to join at an address.
type tries struct {
	n  uint64
	at time.Time // the last
}

// maxReported bounds the tries in a Report.
const maxReported = 256

// Report asks nobody.
func (g *Gossip) Report() Report { return g.joiner.addresses.report() }

func (a *addresses) report() (r Report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	told := make(map[string]bool)
	for _, entry := range a.cfg.Join {
		if isName(entry) && !told[entry] {
			told[entry] = true
			known := a.known[entry]
			r.Names = append(r.Names, Name{entry, slices.Clone(known.found), known.err, known.at})
		}
	}
	for _, addr := range slices.Sorted(maps.Keys(a.tries)) {
		if len(r.Tries) == maxReported {
			break
		}
		t := a.tries[addr]
		r.Tries = append(r.Tries, Try{addr, a.answers[addr], t.at, t.n})
	}
	return r
}
