package budget

import (
	"cmp"
	"container/list"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// leastRate is the rate, in bytes a second, below which a frame gives way: a frame of the
// largest size does not end within timing.FrameWithin at a lower one.
const leastRate = 128 << 10

// pool is the budget of the frames of one class.
//
// A peer can claim a large frame, send the first bytes, and let the rest drip: a whole
// budget of such frames would keep every other frame waiting, and the beats behind the
// frame, until the time of the slow frames is up. Hence two rules for a full budget:
//
//   - A frame that comes more slowly than leastRate gives way to a waiting frame, if the
//     slow frame has had timing.FrameYields and holds bytes of a bound that is full for the
//     waiting one. The slowest frames go first, and only as many of them as the waiting
//     frame needs: none if all slow frames together would not let it in. A frame is slow by
//     its own peer or link alone; many frames that share a fast link are above the rate.
//   - The frames of the address with the fewest bytes under way go first, then those of the
//     member with the fewest, then of the member whose turn was longest ago, then the first to
//     come. So however many frames of a few addresses and members wait, the frame of another
//     one gets the next bytes given back.
//
// Frames of raft are few and large, and fewer fit, so there a frame that is not complete after
// timing.FrameYields gives way at any rate to the frame of a member that has nothing under
// way: but only if its address has at least as many bytes as the other would then have, and at
// one address its member. The frames of the address with the most go first, and then of the
// member.
//
// Nobody reads frames while this process stands still, and then each of them looks slow. So
// a frame must be slow in the time since the look began, too: for as long as frames wait,
// the pool is looked at every timing.FrameLook, and a look that comes late begins anew.
type pool struct {
	all, address, member int  // bounds
	few                  bool // few frames fit: of raft

	mu            sync.Mutex // guards everything below
	taken         sums
	leaving       sums               // of taken: frames that were told to give way
	promised      sums               // waiting frames that get bytes of leaving
	arriving      map[*Hold]struct{} // holds whose frames are neither complete nor leaving
	waiting       list.List          // of *Hold, in the order of arrival
	begun, looked time.Time          // the first of the looks in time, and the latest
	grants        uint64             // so far
	latest        map[payer]uint64   // the last of these to each member, for as long as frames wait
}

func newPool(all, address, member int) *pool {
	return &pool{
		all: all, address: address, member: member, latest: make(map[payer]uint64),
		taken: newSums(), leaving: newSums(), promised: newSums(), arriving: make(map[*Hold]struct{}),
	}
}

// mostLatest bounds the members whose latest grant is remembered.
const mostLatest = 4096

// Hold is the part of the budget that a frame has taken. A nil Hold is none.
type Hold struct {
	share   *Share
	pool    *pool
	n       int
	yield   func()
	granted chan struct{} // closed with the grant
	since   time.Time     // of the grant
	come    atomic.Int64  // bytes of the frame since then
	over    atomic.Bool   // yield was called, or is about to be

	// Guarded by pool.mu.
	mark     int64     // come, when the looks of the pool began
	leaving  bool      // n is in pool.leaving
	promised bool      // n is in pool.promised
	pressed  time.Time // slow frames were last looked for
}

// Take waits until n bytes of a frame fit the budget, and takes them; n is at most
// FramesPerMember. Take returns false, and takes nothing, if stop is closed before.
//
// Yield is called, once and with the pool locked, if the frame must give way. Yield must
// not block nor call the budget, and must end the frame's arrival, so that the caller gives
// the bytes back. After Complete, Yield is not called.
func (s *Share) Take(n int, stop <-chan struct{}, yield func()) (*Hold, bool) {
	switch {
	case s == nil:
		return nil, true
	case n <= SmallFrame:
		return s.take(s.budget.small, n, stop, yield)
	}
	return s.take(s.budget.large, n, stop, yield)
}

// TakeEntries is Take for a frame of raft's, of at most EntriesOfMember. Voter says that the
// name is that of a voter of the present configurations.
func (s *Share) TakeEntries(n int, voter bool, stop <-chan struct{}, yield func()) (*Hold, bool) {
	switch {
	case s == nil:
		return nil, true
	case voter:
		return s.take(s.budget.voters, n, stop, yield)
	}
	return s.take(s.budget.others, n, stop, yield)
}

func (s *Share) take(p *pool, n int, stop <-chan struct{}, yield func()) (*Hold, bool) {
	h := &Hold{share: s, pool: p, n: n, yield: yield, granted: make(chan struct{})}
	p.mu.Lock()
	e := p.waiting.PushBack(h)
	p.grant()
	p.press(h)
	p.mu.Unlock()
	for {
		again := time.NewTimer(timing.FrameLook)
		select {
		case <-h.granted:
			again.Stop()
			return h, true
		case <-again.C:
			p.mu.Lock()
			p.press(h)
			p.mu.Unlock()
			continue
		case <-stop:
			again.Stop()
		}
		break
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-h.granted: // at the same time
		h.give()
	default:
		p.waiting.Remove(e)
		h.promise(false)
		p.grant()
	}
	return nil, false
}

// Came counts n bytes of the frame that have come.
func (h *Hold) Came(n int) {
	if h != nil {
		h.come.Add(int64(n))
	}
}

// Over reports whether the frame must give way. A reader that may have undone the effect of
// yield asks Over afterwards.
func (h *Hold) Over() bool { return h != nil && h.over.Load() }

// Complete notes the end of the frame's arrival: the frame gives way no more.
func (h *Hold) Complete() {
	if h == nil {
		return
	}
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	h.stay()
}

// Give returns the bytes of the frame, once.
func (h *Hold) Give() {
	if h == nil {
		return
	}
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	h.give()
}

func (h *Hold) give() {
	h.stay()
	h.pool.taken.add(h.share.payer, -h.n)
	h.pool.grant()
}

// stay ends the part of the frame among those that give way, or have been told to.
func (h *Hold) stay() {
	delete(h.pool.arriving, h)
	if h.leaving {
		h.leaving = false
		h.pool.leaving.add(h.share.payer, -h.n)
	}
}

// promise counts the waiting frame among those that get bytes of leaving frames, or not.
func (h *Hold) promise(yes bool) {
	if h.promised == yes {
		return
	}
	h.promised = yes
	n := h.n
	if !yes {
		n = -n
	}
	h.pool.promised.add(h.share.payer, n)
}

// grant gives all waiting frames their bytes, as far as the bytes fit. If the next frame
// waits for the whole budget, no other frame is granted before, so that smaller frames
// cannot starve a larger one.
func (p *pool) grant() {
	for {
		var next *list.Element
		var least [3]int
		for e := p.waiting.Front(); e != nil; e = e.Next() {
			h := e.Value.(*Hold)
			of, own := p.taken.addresses[h.share.payer.ip], p.taken.members[h.share.payer]
			if of+h.n > p.address || own+h.n > p.member {
				continue
			}
			if rank := [3]int{of, own, int(p.latest[h.share.payer])}; next == nil || slices.Compare(rank[:], least[:]) < 0 {
				next, least = e, rank
			}
		}
		if next == nil {
			if p.waiting.Len() == 0 {
				clear(p.latest)
			}
			return
		}
		h := next.Value.(*Hold)
		if p.taken.all+h.n > p.all {
			return
		}
		p.taken.add(h.share.payer, h.n)
		p.grants++
		if p.latest[h.share.payer] = p.grants; len(p.latest) > mostLatest {
			clear(p.latest)
		}
		h.promise(false)
		p.waiting.Remove(next)
		p.arriving[h] = struct{}{}
		h.since = time.Now()
		close(h.granted)
	}
}

// press has slow frames give way if h waits for their bytes: the slowest first, and until
// their bytes suffice for h and for the frames that leaving ones make room for already.
func (p *pool) press(h *Hold) {
	select {
	case <-h.granted:
		return
	default:
	}
	now := time.Now()
	p.look(now)
	if now.Sub(p.begun) < timing.FrameYields || !p.few && now.Sub(h.pressed) < timing.FrameYields {
		return
	}
	h.pressed = now // of few frames, the next one's turn may have gone to another
	at := h.share.payer
	var give []*Hold
	slow := p.slow(now)
	if p.few && p.taken.members[at] == 0 {
		fullest := p.fullest(now, h)
		first := make(map[*Hold]bool)
		for _, o := range fullest {
			first[o] = true
		}
		slow = append(fullest, slices.DeleteFunc(slow, func(o *Hold) bool { return first[o] })...)
	}
	for _, b := range []struct {
		full   int // bytes
		of     func(*sums) int
		counts func(payer) bool
	}{
		// A frame of a narrower bound counts for the wider ones.
		{p.member, func(s *sums) int { return s.members[at] }, func(o payer) bool { return o == at }},
		{p.address, func(s *sums) int { return s.addresses[at.ip] }, func(o payer) bool { return o.ip == at.ip }},
		{p.all, func(s *sums) int { return s.all }, func(payer) bool { return true }},
	} {
		lacks := b.of(&p.taken) - b.of(&p.leaving) + b.of(&p.promised) + h.n - b.full
		if h.promised {
			lacks -= h.n
		}
		for _, o := range give {
			lacks -= o.n
		}
		slow = slices.DeleteFunc(slow, func(o *Hold) bool {
			if lacks <= 0 || !b.counts(o.share.payer) {
				return false
			}
			give = append(give, o)
			lacks -= o.n
			return true
		})
		if lacks > 0 {
			h.promise(false)
			return
		}
	}
	for _, o := range give {
		delete(p.arriving, o)
		o.leaving = true
		p.leaving.add(o.share.payer, o.n)
		o.over.Store(true)
		o.yield()
	}
	h.promise(true)
}

// look notes that frames wait. If the look before was long ago, because no frame waited or
// because this process stood still, the measure of all frames begins anew.
func (p *pool) look(now time.Time) {
	if now.Sub(p.looked) > 2*timing.FrameLook {
		p.begun = now
		for o := range p.arriving {
			o.mark = o.come.Load()
		}
	}
	p.looked = now
}

// fullest returns the frames that give way to h at any rate.
func (p *pool) fullest(now time.Time, h *Hold) (list []*Hold) {
	of := func(o *Hold) (address, member int) { // but for frames that give way already
		at := o.share.payer
		return p.taken.addresses[at.ip] - p.leaving.addresses[at.ip], p.taken.members[at] - p.leaving.members[at]
	}
	at := h.share.payer
	address, member := p.taken.addresses[at.ip]+p.promised.addresses[at.ip], p.taken.members[at]+p.promised.members[at]
	if h.promised {
		address, member = address-h.n, member-h.n
	}
	for o := range p.arriving {
		ofAddress, own := of(o)
		fuller := ofAddress >= address+h.n
		if o.share.payer.ip == h.share.payer.ip {
			fuller = own >= member+h.n
		}
		if fuller && now.Sub(o.since) >= timing.FrameYields {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *Hold) int {
		ofA, ownA := of(a)
		ofB, ownB := of(b)
		return cmp.Or(cmp.Compare(ofB, ofA), cmp.Compare(ownB, ownA), a.since.Compare(b.since))
	})
	return list
}

// slow returns the frames that come below leastRate, the slowest first.
func (p *pool) slow(now time.Time) []*Hold {
	rates := make(map[*Hold]float64)
	var slow []*Hold
	for o := range p.arriving {
		held, come := now.Sub(o.since), o.come.Load()
		rate := float64(come) / held.Seconds()
		looked := min(held, now.Sub(p.begun))
		if held >= timing.FrameYields && rate < leastRate && float64(come-o.mark) < looked.Seconds()*leastRate {
			slow, rates[o] = append(slow, o), rate
		}
	}
	slices.SortFunc(slow, func(a, b *Hold) int {
		return cmp.Or(cmp.Compare(rates[a], rates[b]), a.since.Compare(b.since))
	})
	return slow
}
