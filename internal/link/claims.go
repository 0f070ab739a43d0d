package link

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

// This file keeps the claims of others that somebody leads. A claim proves nothing,
// and costs an attempt to attach. The bounds keep one liar from displacing the claims
// of all others:
//
//   - A claim told by a voter on its own stream, or by this node's raft, goes before
//     every claim of gossip, since gossip repeats the word of any member about any
//     other.
//   - A voter has one claim at a time, its latest.
//   - Gossip has maxGossiped claims at a time. A further claim of gossip takes the
//     place of a claim whose attempt failed, never of an untried claim, and gossip is
//     read in a random order. So each claim has its turn, whatever terms others tell.
//   - Among equals a claim without a failed attempt goes first, and then the newest
//     term.

const (
	maxClaims   = 14 // leaders told by others and not reached yet
	maxGossiped = 5  // of these, told by gossip or by members without a vote
)

// claim is a leader as told by another member.
type claim struct {
	name   string
	term   uint64
	via    string // the address of the member that told; "": gossip, or this node's raft
	voter  bool   // told by a voter or by this node's raft
	failed int    // attempts in vain
	since  time.Time
}

// told is the word of a member about a leader.
type told struct {
	leader member.Process
	term   uint64
	via    string // as in claim
	voter  bool   // as in claim
}

// hear takes the claims of gossip and of this node's raft to lead above a term, or
// in that term if the leader is lost, and forgets the claims below.
func (f *finder) hear(above uint64, lost bool) {
	worth := func(term uint64) bool { return term > above || lost && term == above }
	if p, term, ok := f.link.cfg.Guess(); ok && worth(term) {
		f.claim(told{p, term, "", true})
	}
	for _, i := range rand.Perm(len(f.claimants)) {
		if m := f.claimants[i]; m.Meta.Leads != 0 && worth(m.Meta.Leads) {
			f.claim(told{m.Process, m.Meta.Leads, "", false})
		}
	}
	maps.DeleteFunc(f.claims, func(_ string, c claim) bool { return !worth(c.term) })
}

// claim takes a leader told by another member. A claim stays although an attempt has
// failed, since the leader may be out of reach and be relayed.
func (f *finder) claim(t told) {
	addr := t.leader.Addr
	if addr == "" || addr == f.link.cfg.Self.Addr {
		return
	}
	if up, ok := f.up.(*remote); ok && (t.term < up.term || t.term == up.term && !up.silent()) {
		return // a word for the jury alone
	}
	old, known := f.claims[addr]
	switch {
	case known && old.voter && !t.voter:
		return // gossip about a leader that a voter has told
	case known && old.term >= t.term && old.voter == t.voter:
		if old.term == t.term && t.via != "" && t.via != addr {
			old.via = t.via
			f.claims[addr] = old
		}
		return
	case !known && !f.makeRoom(t):
		return
	}
	at := place{addr: addr}
	if t.voter { // there is news of the place; voters that lie have some all the time
		if r, ok := f.rests[at]; ok && time.Until(r.until) > timing.LeastBackoff {
			f.rests[at] = rest{time.Now().Add(jitter(timing.LeastBackoff)), r.pause}
		}
	} else if r, ok := f.rests[at]; ok && r.pause < timing.MostBackoff(f.link.TTL()) {
		f.rests[at] = rest{pause: r.pause} // once more at once, and then a longer rest
	}
	f.claims[addr] = claim{name: t.leader.Name, term: t.term, via: t.via, voter: t.voter, failed: old.failed, since: time.Now()}
}

// makeRoom forgets a claim for a further one, and reports false if no claim may be
// forgotten.
func (f *finder) makeRoom(t told) bool {
	if t.voter {
		if t.via != "" { // the voter's claim before
			maps.DeleteFunc(f.claims, func(_ string, c claim) bool { return c.voter && c.via == t.via })
		}
		if last, n := f.last(true); n >= maxClaims {
			delete(f.claims, last)
		}
		return true
	}
	last, n := f.last(false)
	if n < maxGossiped {
		return true
	}
	if f.claims[last].failed == 0 {
		return false
	}
	delete(f.claims, last)
	return true
}

// last returns the claim that goes after all others, of gossip or of all, and how many there are.
func (f *finder) last(all bool) (last string, n int) {
	for addr, c := range f.claims {
		if c.voter && !all {
			continue
		}
		if n++; n == 1 || f.order(addr, last) > 0 {
			last = addr
		}
	}
	return last, n
}

// failed notes that an attempt to attach at a place was in vain.
func (f *finder) failed(a *ask) {
	if c, ok := f.claims[a.at.addr]; ok && a.leads {
		c.failed++
		f.claims[a.at.addr] = c
	}
}

// dubious reports whether a place has only gossip's word, or the word of a member
// without a vote, to be of any interest.
func (f *finder) dubious(a *ask) bool {
	addr := a.at.addr
	c, ok := f.claims[addr]
	return ok && !c.voter && addr != f.before.Addr && !slices.Contains(f.jury.members, addr) &&
		!slices.Contains(f.link.told(), addr) && !slices.Contains(f.link.cfg.VoterAddrs(), addr)
}

// claimed lists the addresses of all claims, the best first.
func (f *finder) claimed() []string { return slices.SortedFunc(maps.Keys(f.claims), f.order) }

// order compares the claims at two addresses, in the order in which they are tried.
func (f *finder) order(x, y string) int {
	a, b := f.claims[x], f.claims[y]
	if a.voter != b.voter {
		return rank(b.voter) - rank(a.voter)
	}
	return cmp.Or(cmp.Compare(a.failed, b.failed), cmp.Compare(b.term, a.term), cmp.Compare(x, y))
}

func rank(first bool) int {
	if first {
		return 1
	}
	return 0
}

// tryClaims attaches to the leaders told by others: directly, and after a while
// through the voter that told, in case this member alone is cut off from the leader.
func (f *finder) tryClaims(start func(place, string, bool) bool, ttl time.Duration, later func(time.Time)) {
	for _, addr := range f.claimed() {
		c := f.claims[addr]
		start(place{addr: addr}, c.name, true)
		if c.via == "" || c.via == addr {
			continue
		}
		if due := c.since.Add(timing.RelayAfter(ttl)); time.Now().Before(due) {
			later(due)
		} else {
			start(place{addr, c.via}, c.name, true)
		}
	}
}

// voters lists addresses of voters, in random order: of the jury, told by the last
// leader and by voters, known to this node, and last of gossip. Of many addresses
// each source has its share, so that no source displaces the others.
func (f *finder) voters() (out []string) {
	k := f.link
	var gossiped []string
	for _, m := range f.claimants {
		if m.Meta.Voter {
			gossiped = append(gossiped, m.Addr)
		}
	}
	sources := [][]string{slices.Clone(f.jury.members), k.told(), k.cfg.VoterAddrs(), gossiped}
	for _, s := range sources {
		rand.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	}
	for i, more := 0, true; more; i++ {
		more = false
		for _, s := range sources {
			if i >= len(s) {
				continue
			}
			more = true
			if addr := s[i]; addr != "" && addr != k.cfg.Self.Addr && !slices.Contains(out, addr) && len(out) < maxVoters {
				out = append(out, addr)
			}
		}
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
